#!/usr/bin/env python3
"""Reference data for the tokenizer, made with the libraries below and committed.

    golden_tokenizer.py tables                 -> src/tokenizer/unicode_tables.inc
    golden_tokenizer.py fixtures               -> tests/fixtures/tokenizer/*.json, tests/golden/tokenizer/fixtures/*
    golden_tokenizer.py strings                -> tests/golden/tokenizer/strings.jsonl
    golden_tokenizer.py ids DIR                -> tests/golden/tokenizer/NAME.hashes for every DIR/NAME/tokenizer.json
    golden_tokenizer.py dump DIR/NAME FILE     -> FILE: full ids and texts of one tokenizer, for finding a difference

The reference is tokenizer.json as written, which is what `tokenizers` gives, plus the added tokens of
tokenizer_config.json at the ids stated there (none of the six tokenizers needs any).

Needs Python 3.11 (its unicodedata has Unicode 14, as Debian 12's PCRE2), tokenizers 0.23.3, xxhash 3, and for
`tables` unicodedata2 17.0.0.
"""
import json
import os
import random
import struct
import sys
import unicodedata

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(ROOT, "tests/golden/tokenizer")
FIXTURES = os.path.join(ROOT, "tests/fixtures/tokenizer")
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn").split()


# ---- tables: where Unicode versions differ ----


def runs(points, key=lambda c: 0):
    """[(first, last, key)] of consecutive code points with one key."""
    out = []
    for c in sorted(points):
        k = key(c)
        if out and out[-1][1] == c - 1 and out[-1][2] == k:
            out[-1][1] = c
        else:
            out.append([c, c, k])
    return out


def members(pre_tokenizer, points):
    """Code points that a pre-tokenizer which removes everything else keeps."""
    out = set()
    for i in range(0, len(points), 20000):
        text = "".join(map(chr, points[i : i + 20000]))
        for piece, _ in pre_tokenizer.pre_tokenize_str(text):
            out.update(map(ord, piece))
    return out


def reference_categories():
    from tokenizers import Regex, pre_tokenizers

    category = {}
    for name in CATEGORIES:
        split = pre_tokenizers.Split(Regex(r"\p{%s}+" % name), "removed", invert=True)
        for c in members(split, CODE_POINTS):
            category[c] = name
    return category


def numeric_points():
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    out = set()
    for i in range(0, len(CODE_POINTS), 20000):
        text = "".join(chr(c) + "a" for c in CODE_POINTS[i : i + 20000])
        out.update(ord(p) for p, _ in digits.pre_tokenize_str(text) if len(p) == 1 and p != "a")
    return out


def young_points(unicodedata2):
    """Characters that newer tables reorder or compose, and the reference's NFC does not."""
    from tokenizers import normalizers

    nfc = normalizers.NFC().normalize_str
    young, known = set(), set()
    for c in CODE_POINTS:
        ch = chr(c)
        moves = nfc(ch + "\u0334") == "\u0334" + ch or nfc("\u0345" + ch) == ch + "\u0345"
        if moves:
            known.add(c)
        elif unicodedata2.combining(ch) and nfc(ch) == ch:
            young.add(c)
        decomposed = unicodedata2.normalize("NFD", ch)
        if decomposed != ch and nfc(decomposed) != unicodedata2.normalize("NFC", decomposed):
            young.update(map(ord, decomposed + ch))
    return young - known


def stand_ins(reference, newest):
    """{code point: stand-in} for those whose category is not the reference's in Unicode 14 or in the newest."""
    stable = {}
    for c in CODE_POINTS:
        ch = chr(c)
        if c >= 0x80 and unicodedata.category(ch) == reference[c] == newest(ch) and reference[c] != "Cn":
            stable.setdefault((reference[c], len(ch.encode())), c)
    # The Tangut range and the CJK extensions are Lo like many others; U+180E is Cf, but PCRE2 calls it white space.
    stable["Cn", 2], stable["Cn", 3], stable["Cn", 4] = 0x378, 0xFDD0, 0x1FFFE
    out = {0x180E: 0x200B}
    for c in CODE_POINTS:
        ch = chr(c)
        if unicodedata.category(ch) != reference[c] or newest(ch) != reference[c]:
            han = 0x20000 <= c < 0x40000 and reference[c] == "Lo"
            out[c] = 0x20000 if han else stable[reference[c], len(ch.encode())]
    assert all(len(chr(a).encode()) == len(chr(b).encode()) for a, b in out.items())
    return out


def write_tables():
    import unicodedata2

    assert unicodedata.unidata_version == "14.0.0" and unicodedata2.unidata_version == "17.0.0"
    replaced = stand_ins(reference_categories(), unicodedata2.category)
    pages = [0] * (0x1100 // 64)
    for c in replaced:
        pages[c >> 14] |= 1 << (c >> 8 & 63)
    with open(os.path.join(ROOT, "src/tokenizer/unicode_tables.inc"), "w") as out:
        out.write("/* Made by tools/ref/golden_tokenizer.py tables. */\n")
        out.write("/* Stand-ins: same category as the reference gives (Unicode 16), same number of bytes. */\n")
        out.write("static const struct {\n    uint32_t first, last, stand_in;\n} stand_ins[] = {\n")
        for a, b, k in runs(replaced, replaced.get):
            out.write("    {0x%x, 0x%x, 0x%x},\n" % (a, b, k))
        out.write("};\n/* One bit for each 256 characters of which some have a stand-in. */\n")
        out.write("static const uint64_t stand_in_pages[] = {\n")
        for word in pages:
            out.write("    0x%x,\n" % word)
        out.write("};\n/* Categories Nd, Nl and No of Unicode 17. */\nstatic const range numerics[] = {\n")
        for a, b, _ in runs(numeric_points()):
            out.write("    {0x%x, 0x%x},\n" % (a, b))
        out.write("};\n/* Newer than Unicode 9, and not inert under NFC. */\nstatic const range nfc_young[] = {\n")
        for a, b, _ in runs(young_points(unicodedata2)):
            out.write("    {0x%x, 0x%x},\n" % (a, b))
        out.write("};\n")


if __name__ == "__main__":
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "tables":
        write_tables()
    else:
        sys.exit(__doc__)
