"""Goldens of the splits that GGUF files name falcon and deepseek-llm: tests/golden/tokenizer/splits.json.

The ids are those of the `tokenizers` library for a small byte-level BPE whose merges were learned without any
pre-tokenizer, so that every place where a split stops a merge shows in the ids. Its parts are those of the models' own
tokenizer.json. Usage: golden_splits.py > tests/golden/tokenizer/splits.json (tokenizers 0.22 or later)."""
import json

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

# What that model's tokenizer.json has for cased letters, as ranges of code points.
CASED = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
         "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
         "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
         "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
         "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
         "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
         "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
         "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
         "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
         "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
         "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
         "\U0001e900-\U0001e943")

# What ByteLevel splits by.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

TEXTS = [
    "Hello, world! It's 2024; we'll pay $1234.56 (or ``x^2 = y``) ~ 10%|20%.", "  two  spaces\n\n\tand 123 456789 tabs \r\n end  ",
    "naïve façade ΑΒΓ абв ЖЗИ Straße ǅ ﬁne K Ω", "ქართული ᲥᲐᲠ 𝐀𝐁 ªº ʰ Ⴧ Ꭰꭰ 𐐀𐑏 𞤀", "中文字符,日本語のテキスト 한국어 글자。",
    "“quotes” ‘single’ …—– 「括弧」！？～　。x", "١٢٣ ४५६ Ⅷ ⅓ 100x3 a1b22c333d4444", "don't DON'T I'm you're they've 'tis he'd",
    "x = foo_bar[i] + `baz` <div class=\"a\"> ^_^ \\n #!/bin/sh", "end with spaces   ", " \n", "a \n b  \n\n  c", "123 ", " 7", "=== ``` ~~~ $$$ +++ |||",
    "été e\u0301t\u0301 İı ſ", "ab12 cd 345 6", "🙂🙂 x 🙂.", "\u00a0nbsp\u2003em\u3000wide",
]

KINDS = {
    # In the model's own file ByteLevel comes before Digits, which then takes the letters that stand for bytes b2, b3,
    # b9 and bc to be digits. Its merges were learned so and never reach over one; those here were not, so here it comes last.
    "falcon": [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Split(Regex(GPT2), "isolated"),
               pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)],
    "deepseek-llm": [pre_tokenizers.Split(Regex("[\r\n]"), "isolated"), pre_tokenizers.Split(Regex(r"\s?[" + CASED + "]+"), "isolated"),
                     pre_tokenizers.Split(Regex("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), "isolated"),
                     pre_tokenizers.Split(Regex(r"\s+$"), "isolated"),
                     pre_tokenizers.Split(Regex("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), "isolated"),
                     pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)],
}


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.train_from_iterator(TEXTS * 2, trainers.BpeTrainer(vocab_size=1100, min_frequency=2, show_progress=False,
                                                                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    out = {"tokens": tokens, "merges": [" ".join(pair) for pair in model["merges"]]}
    for name, parts in KINDS.items():
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
        out[name] = [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in TEXTS]
    print("{")
    rows = [f'"tokens":{json.dumps(out["tokens"], ensure_ascii=True, separators=(",", ":"))}',
            f'"merges":{json.dumps(out["merges"], ensure_ascii=True, separators=(",", ":"))}']
    for name in KINDS:
        rows.append(f'"{name}":[\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in out[name]) + "]")
    print(",\n".join(rows) + "}")


main()
