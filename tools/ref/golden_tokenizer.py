#!/usr/bin/env python3
"""Reference data for the tokenizer, made with the libraries below and committed.

    golden_tokenizer.py tables                 -> src/tokenizer/unicode_tables.inc
    golden_tokenizer.py fixtures               -> tests/fixtures/tokenizer/NAME/
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


# ---- strings ----

# Special and other added tokens of the six tokenizers, and what looks like them.
MARKS = """<s> </s> <unk> <pad> <eos> <bos> <mask> <2mass> <unused7> <start_of_turn> <end_of_turn> [toxicity=0] <table>
<|begin_of_text|> <|end_of_text|> <|eot_id|> <|start_header_id|> <|end_header_id|> <|python_tag|>
<|reserved_special_token_7|> <|endoftext|> <|im_start|> <|im_end|> <tool_call> </tool_call> <|fim_prefix|>
<|vision_start|> <|repo_name|> [INST] [/INST] [AVAILABLE_TOOLS] [/TOOL_RESULTS] [TOOL_CALLS] <SPECIAL_20>
<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜▁pad▁｜> <think> </think>
<｜tool▁calls▁begin｜> <｜tool▁sep｜> <|EOT|> <｜fim▁hole｜> <0x41> <0xE2> <0x0A> ▁ ▁▁ Ġ Ċ \ufffd""".split()

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure they've said: \"We'll see, he'd go; it's 'tis'.\" I'M SURE THEY'VE. o'\u017f '\u017f 'K",
    "Die Straße über den Fluß, Ärger und Öl. Ça va? Où est l'été, naïve façade? ¿Qué tal, niño? ¡Olé!",
    "Привет, мир! Как дела? Съешь ещё этих мягких французских булок.",
    "Καλημέρα κόσμε, τι κάνεις; Ἀρχιμήδης ἔφη· «δός μοι πᾶ στῶ».",
    "שלום עולם! מה שלומך? בְּרֵאשִׁית בָּרָא אֱלֹהִים",
    "مرحبا بالعالم، كيف حالك؟ بِسْمِ ٱللَّهِ ٱلرَّحْمَٰنِ ٱلرَّحِيمِ ١٢٣٤٥",
    "नमस्ते दुनिया। क्षत्रिय ज्ञान श्री १२३४५ हिन्दी",
    "ওহে বিশ্ব। বাংলা ভাষা ১২৩",
    "வணக்கம் உலகம் தமிழ் ௧௨௩",
    "స్వాగతం ప్రపంచం తెలుగు",
    "ಕನ್ನಡ ಲಿಪಿ ೧೨೩",
    "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง ๑๒๓",
    "ສະບາຍດີ",
    "မြန်မာဘာသာ ၁၂၃",
    "ភាសាខ្មែរ ១២៣",
    "བོད་སྐད་ཡིན།",
    "你好，世界！今天天气怎么样？中文没有空格。１２３４５６７",
    "吾輩は猫である。名前はまだ無い。カタカナとひらがな ﾊﾝｶｸ ｶﾞｷﾞ",
    "안녕하세요 세계! 한국어 띄어쓰기 각각",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \u1112\u1161 \u11a8",
    "ሰላም ዓለም፡፡",
    "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ꭰꭱ",
    "Xin chào thế giới, tiếng Việt: ắ ằ ẳ ẵ ặ ộ ữ",
    "e\u0301 e\u0301\u0323 e\u0323\u0301 a\u0308\u0304 \u0344 \u0340\u0341 \u212b \u2126 \u212a",
    "👋🌍 👩‍👩‍👧‍👦 👨🏽‍💻 🏳️‍🌈 🇩🇪🇫🇷 1️⃣ ☺️ ❤️‍🔥 🫠🫨🪿🫩 🧑‍🤝‍🧑",
    "𝕳𝖊𝖑𝖑𝖔 𝒲ℴ𝓇𝓁𝒹 ℌ ①②③ Ⅷ ½ ⅓ ² ₃ 🄰 🅱",
    "z̷̢̛̗̳a̶͓͝l̸̰̿g̵̱̈́o̴̡̒ o" + "\u0300\u0316\u0301\u0317" * 20,
    "def f(x: int) -> int:\n    return x ** 2  # kommentar\n\n\n\tif a != b && c || !d:\r\n\t\tprint(f\"{x!r:>10}\")\n",
    "#include <stdio.h>\r\nint main(void) {\r\n\tprintf(\"%d\\n\", 0xDEADBEEF);\r\n}\r\n",
    "SELECT * FROM t WHERE a='x' -- y;",
    "https://example.com/a/b?q=1&r=%20x#frag mailto:a.b+c@example.co.uk C:\\dir\\f.txt /usr/lib/x.so.1",
    "{\"a\": [1, 2.5e-3, null, true], \"b\": {\"c\": \"\\u00e9\"}}",
    "<html><body class='x'>&amp;&nbsp;</body></html>",
    "$x^2 + y_1 = \\frac{1}{2}$ ∑∫√∞≠≤ α→β",
    "1234567890 12,345.67 3.14159 1e10 007 0x1F 1/2 50% $9.99 €5 ２０２４ 1١१๑",
    "camelCaseWord PascalCase SCREAMING_SNAKE kebab-case HTTPServer iPhone XMLHttpRequest ǅ ǈ ᾈ ʰ",
    "a\u200bb\u200cc\u200dd\u2060e\ufefff\u180eg\u00adh\u0085i\u00a0j\u1680k\u2003l\u2028m\u2029n\u202fo\u205fp\u3000q",
    "tab\tvt\x0bff\x0cfs\x1cgs\x1drs\x1eus\x1fnul\x00del\x7f",
    "\ufffd\ufffe\uffff\U0001fffe\U0010ffff\ue000\U000f0000",
    # Newer than Unicode 14: letters, digits, marks, emoji, ideographs; then what newer tables would compose or reorder.
    "\u0897\u1c89\u1c8a\ua7da\U000105c0\U00010d40\U00011383\U000113c2\U000113b8\U0001e5d0\U0001f8b2\U0001cc00\U00031350",
    "\U000113c2\U000113c2 \U00011935\U00011930 \U000105d2\u0307 a\u0897\u0301 a\u08ca\u0323 \u1ac1\u0334x\u1df6\u0316",
    "...!!!???,,,;;; --- === *** ((())) [[[]]] {{{}}} <<<>>> ~~~ ``` ''' \"\"\" /// \\\\\\ @@@ ### $$$ %%% ^^^ &&&",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore.",
]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\t ", "\u00a0", "\u3000", "\u2003", "\u0085"]
SPACES += ["\x0b", "\u2028", "▁"]
RUNS = [
    ("a", 5000), ("a", 1000000), (" ", 1000000), ("\n", 20000), ("\r\n", 5000), ("\t", 3000), ("ab", 5000), ("1", 4000),
    ("é", 3000), ("e\u0301", 3000), ("漢", 3000), ("한", 2000), ("👍", 1500), ("\u0301", 2000), ("A", 5000), ("-", 3000),
    ("=", 1000), ("_", 1000), (". ", 2000), ("▁", 3000), ("\u00a0", 2000), ("\U0001f468\u200d", 500), ("x ", 20000),
    (" \n", 4000), ("'s", 2000), ("١", 2000), ("Ab", 3000), ("\U00031350", 500), ("<s>", 500), ("<|im_end|>", 300),
    ("<|eot_id|> ", 300), ("\u0915\u094d", 2000), ("\x00", 500), ("</", 2000),
]


def long_strings():
    """Strings given as [[text, times], ...]."""
    for text, times in RUNS:
        yield [[text, times]]
        yield [["x", 1], [text, times], ["y", 1]]
        yield [[text, min(times, 3000)], ["\n", 1], [text, min(times, 777)], [" z", 1]]


def by_script(rng):
    """Strings of the characters of each part of the code space, all planes; few of the big ideograph blocks."""
    assigned = [c for c in CODE_POINTS if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    for i in range(0, len(assigned), 512):
        part = assigned[i : i + 512]
        if (0x3400 <= part[0] < 0xD700 or 0x20000 <= part[0] < 0x30000) and i % 4096:
            continue
        yield "".join(chr(rng.choice(part)) + rng.choice(["", "", "", " ", "a", "1"]) for _ in range(60))
    for c in range(0, 0x110000, 0x2000):
        if not 0xD800 <= c < 0xE000:
            yield "".join(chr(c + rng.randrange(0x800)) + rng.choice(["", " "]) for _ in range(20))


def spaced_words(rng, words):
    pieces = [rng.choice(words) + rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 5]) for _ in range(rng.randrange(1, 25))]
    return "".join(pieces)


def broken_marks(rng, words):
    out = []
    for _ in range(rng.randrange(1, 8)):
        mark = rng.choice(MARKS)
        cut = rng.randrange(len(mark) + 1)
        forms = [mark, mark, mark + mark, mark[:cut], mark[cut:], " " + mark, mark + " ", "  " + mark + "  "]
        forms += [mark[:cut] + " " + mark[cut:], "\n" + mark, rng.choice(words), mark.upper(), "<" + mark]
        out.append(rng.choice(forms))
    return rng.choice(["", " "]).join(out)


def glued_slices(rng, words):
    out = ""
    for _ in range(rng.randrange(1, 7)):
        text = rng.choice(TEXTS)
        begin = rng.randrange(len(text))
        out += text[begin : begin + rng.randrange(1, 30)]
    return out


def random_signs(rng, words):
    pool = "abzABZäßéñ  \n\t.,'\"-_/<>|[]{}0123456789\u0301\u0308\u0323\u200d\ufe0f漢字かな한글ไทยअब①²½٣७👍🏽🇩"
    return "".join(rng.choice(pool) for _ in range(rng.randrange(1, 80)))


def numbers(rng, words):
    parts = [rng.choice("0123456789") * rng.randrange(1, 9) + rng.choice(["", ",", ".", " ", "x", "٣", "\n"]) for _ in range(12)]
    return "".join(parts)


def anything(rng, words):
    while True:
        limits = [rng.choice([0x80, 0x3000, 0x110000]) for _ in range(40)]
        text = "".join(chr(rng.randrange(limit)) for limit in limits)
        if not any(0xD800 <= ord(c) < 0xE000 for c in text):
            return text


def all_strings():
    """Each string as a list of [text, times]."""
    rng = random.Random(20240607)
    words = [w for text in TEXTS for w in text.split(" ") if w]
    texts = [""] + TEXTS + SPACES + MARKS
    for mark in MARKS:
        texts += [mark + mark, " " + mark, mark + " ", mark[:-1], mark[1:], "x" + mark + "y", "x " + mark + " y"]
        texts.append(mark + "\n" + mark)
    texts += ["x" + a + b + "y" + b + a for a in SPACES for b in SPACES[:8]]
    texts += by_script(rng)
    for maker in (spaced_words, broken_marks, glued_slices, random_signs, numbers, anything):
        texts += [maker(rng, words) for _ in range(120)]
    return [[[text, 1]] for text in texts] + list(long_strings())


def text_of(parts):
    return "".join(text * times for text, times in parts)


def write_strings():
    os.makedirs(GOLDEN, exist_ok=True)
    with open(os.path.join(GOLDEN, "strings.jsonl"), "w") as out:
        for parts in all_strings():
            line = {"text": parts[0][0]} if len(parts) == 1 and parts[0][1] == 1 else {"parts": parts}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


# ---- ids ----


def open_reference(directory):
    """The tokenizer of a directory, with the added tokens that only tokenizer_config.json has."""
    from tokenizers import AddedToken, Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    path = os.path.join(directory, "tokenizer_config.json")
    config = json.load(open(path)) if os.path.exists(path) else {}
    known = {t.content for t in tokenizer.get_added_tokens_decoder().values()}
    for number, entry in sorted(config.get("added_tokens_decoder", {}).items(), key=lambda item: int(item[0])):
        if entry["content"] not in known:
            rules = {k: entry.get(k, False) for k in ("single_word", "lstrip", "rstrip", "normalized", "special")}
            tokenizer.add_tokens([AddedToken(entry["content"], **rules)])
            assert tokenizer.token_to_id(entry["content"]) == int(number)
    return tokenizer


def answer(tokenizer, text):
    """(ids, ids with special tokens, text with them, text without them)"""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    full = tokenizer.encode(text, add_special_tokens=True).ids
    return ids, full, tokenizer.decode(full, skip_special_tokens=False), tokenizer.decode(full, skip_special_tokens=True)


def hashes(result):
    import xxhash

    ids, full, text, plain = result
    packed = struct.pack("<%di" % (len(ids) + 1 + len(full)), *ids, -1, *full)
    return b"".join(xxhash.xxh64(data).digest()[::-1] for data in (packed, text.encode(), plain.encode()))


def write_ids(directory):
    for name in sorted(os.listdir(directory)):
        if not os.path.exists(os.path.join(directory, name, "tokenizer.json")):
            continue
        tokenizer = open_reference(os.path.join(directory, name))
        with open(os.path.join(GOLDEN, name + ".hashes"), "wb") as out:
            for parts in all_strings():
                out.write(hashes(answer(tokenizer, text_of(parts))))
        print(name, flush=True)


def dump(directory, path):
    tokenizer = open_reference(directory)
    with open(path, "w") as out:
        for i, parts in enumerate(all_strings()):
            ids, full, text, plain = answer(tokenizer, text_of(parts))
            words = "".join(" %d" % i for i in ids) + " |" + "".join(" %d" % i for i in full)
            out.write("%d:%s | %s | %s\n" % (i, words, text.encode().hex(), plain.encode().hex()))


if __name__ == "__main__":
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if command == "tables":
        write_tables()
    elif command == "fixtures":
        write_fixtures()
    elif command == "strings":
        write_strings()
    elif command == "ids" and len(arguments) == 1:
        write_ids(arguments[0])
    elif command == "dump" and len(arguments) == 2:
        dump(*arguments)
    else:
        sys.exit(__doc__)
