#!/usr/bin/env python3
"""Writes tests/golden/families/NAME.json for the checkpoints of make_families.py: greedy ids and top-20 log-probabilities of
every step, with the reference's own noise. golden.py says what is measured and how.

    golden_families.py [NAME...]
"""
import sys
import zlib

import numpy as np
from tokenizers import Tokenizer

import golden
from make_families import BOS, FAMILIES, OUT

TEXT = "<|bos|><|system|>Answer in one line.<|end|><|user|>What does a litre of milk cost, and when does the last boat leave?<|end|><|assistant|>"
PLAIN = "What does a litre of milk cost, and when does the last boat leave?"
LENGTHS = [1, 7, 20, None, 64, 90]  # None: the rendered text above; 64 is where phi3-longrope changes over


def prompts_of(name, vocab_size):
    """Ids are drawn from the whole vocabulary, padding and special tokens included."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(f"{name}/prompts".encode())))
    tok = Tokenizer.from_file(str(OUT / name / "tokenizer.json"))
    out = []
    for n in LENGTHS:
        if n is None:
            chat = tok.token_to_id("<|bos|>") is not None
            out.append(tok.encode(TEXT if chat else PLAIN, add_special_tokens=not chat).ids)
        else:
            out.append([BOS] + rng.integers(0, vocab_size, n - 1).tolist())
    return out


def main(names):
    for name in names or FAMILIES:
        why, cfg, _ = FAMILIES[name]
        body = golden.measure(OUT / name, prompts_of(name, cfg["vocab_size"]))
        golden.write(name, f"tests/fixtures/families/{name}", body, why=why)


if __name__ == "__main__":
    main(sys.argv[1:])
