#!/usr/bin/env python3
"""Writes tests/golden/families/gguf_tokens.json: what llama.cpp's tokenizer makes of texts with the vocabularies of the GGUF
fixtures, one for each tokenizer.ggml.pre and the SentencePiece kind. Needs llama-cpp-python (bench/peers/README.md) beside
tokenizers. Control tokens in a text are parsed as such; no BOS is added.

Each text also says whether the source checkpoint's tokenizer.json gives the same ids: it must for `gpt-2` and the SentencePiece
kind, whose rules are the same, and need not for the others, whose pre-tokenizer the fixture only borrows.
"""
import json
import random
from pathlib import Path

import llama_cpp
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
FILES = {"llama-f32": "mix-llama", "llama-f16": "llama3", "llama-q8_0": "llama-linear", "qwen2-q5_0": "qwen2",
         "llama-spm-f16": "llama2-spm"}
N_RANDOM = 120
FIXED = ["", " ", "  ", "\n", "\n\n \n", "\t\tx", "Hello", " Hello", "The milk in 2 litres costs 1234567.89!",
         "it's I'M don't WE'LL they'Ve", "süß, déjà vu, naïve", "日本語 と 한국어", "🙂👩‍👩‍👧", "e\u0301 a\u0308", "a" * 40, " " * 17 + "x",
         "12 345 6789 ٣٤ ½ Ⅷ²", "foo_bar(x): return {'a': [1, 2]}", "a\u00a0b\u200bc\ufeffd", "\u0085x\r\ny\r", "x\u2028y"]
POOL = ["Hello", " world", "  ", "\n", "\n\n", "\t", "12345", "3.14", " 42nd", "it's", " I'M", "é", "ß", "日本", " 한국", "🙂",
        "<|end|>", "<|user|>", "<s>", "</s>", "foo_bar()", "…", "—", "\u00a0", "\u200b", "!!", "...", "://", " the ferry",
        "The road", "ing", "²", "'s"]


def texts(seed):
    rng = random.Random(seed)
    return FIXED + ["".join(rng.choice(POOL) for _ in range(rng.randint(2, 9))) for _ in range(N_RANDOM)]


def tokenize(vocab, text):
    data = text.encode()
    ids = (llama_cpp.llama_token * (2 * len(data) + 16))()
    n = llama_cpp.llama_tokenize(vocab, data, len(data), ids, len(ids), False, True)
    assert n >= 0
    return list(ids[:n])


def main():
    fixtures = ROOT / "tests" / "fixtures"
    blocks = []
    for seed, (name, source) in enumerate(FILES.items()):
        model = llama_cpp.Llama(str(fixtures / "gguf" / f"{name}.gguf"), vocab_only=True, verbose=False)
        vocab = llama_cpp.llama_model_get_vocab(model.model)
        tok = Tokenizer.from_file(str(fixtures / "families" / source / "tokenizer.json"))
        meta = model.metadata
        rows, n_same = [], 0
        for text in texts(seed):
            ids = tokenize(vocab, text)
            same = ids == tok.encode(text, add_special_tokens=False).ids
            n_same += same
            rows.append(json.dumps([text, ids, same], separators=(",", ":")))
        print(f"{name}: {meta['tokenizer.ggml.model']}/{meta['tokenizer.ggml.pre']}: {len(rows)} texts, "
              f"{n_same} as tokenizer.json")
        head = json.dumps({"model": meta["tokenizer.ggml.model"], "pre": meta["tokenizer.ggml.pre"]}, separators=(",", ":"))
        blocks.append(f'"{name}":{head[:-1]},"texts":[\n' + ",\n".join(rows) + "]}")
    about = json.dumps({"texts": "[text, ids, same as tokenizer.json of the source]",
                        "llama_cpp_python": llama_cpp.__version__})
    out = '{"about":' + about + ",\n" + ",\n".join(blocks) + "}\n"
    json.loads(out)
    (ROOT / "tests" / "golden" / "families" / "gguf_tokens.json").write_text(out)


if __name__ == "__main__":
    main()
