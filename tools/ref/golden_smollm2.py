#!/usr/bin/env python3
"""Writes tests/golden/families/smollm2-bf16.json (the bf16 directory of smollm2_to_hf.py) and smollm2-q4_1.json (the fetched
Q4_1 GGUF, dequantized to fp32 and never rounded to bf16), in the form of the other goldens, each prompt with its text.

    golden_smollm2.py [CACHE]
"""
import sys
from pathlib import Path

import gguf
from tokenizers import Tokenizer

import golden
from smollm2_to_hf import HF_DIR, SOURCE, default_cache, hf_state

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


def chat(text):
    return f"{SYSTEM}<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = [
    chat("What is the capital of France?"),
    chat("Write a short poem about a lighthouse in winter."),
    chat("Add 17 and 25, then explain in one sentence how you did it."),
    "The harbour was quiet that morning. Two boats had come in before dawn, and",
    "def is_prime(n):\n    if n < 2:\n        return False\n",
    chat("Summarize this in one sentence: " + "The museum opens at nine on weekdays and at ten on Sundays. Groups of more "
         "than twelve must book a week ahead, and school classes enter free of charge. The tower can be climbed in dry "
         "weather only; its 211 steps are narrow, and the keeper decides at the door. In the cellar there is a display of "
         "old maps, lent by the town archive until the end of March. Photographs are allowed everywhere but there. The "
         "café closes half an hour before the museum does, and the cloakroom takes bags but no umbrellas."),
]


def main(argv):
    cache = Path(argv[0]) if argv else default_cache()
    tok = Tokenizer.from_file(str(cache / HF_DIR / "tokenizer.json"))
    prompts = [tok.encode(t, add_special_tokens=False).ids for t in PROMPTS]
    state = hf_state(gguf.GGUFReader(str(cache / SOURCE)))
    for name, weights, what in (("smollm2-bf16", None, HF_DIR), ("smollm2-q4_1", state, SOURCE)):
        body = golden.measure(cache / HF_DIR, prompts, state=weights, one_pass=True)
        for entry, text in zip(body["prompts"], PROMPTS):
            entry["text"] = text
            entry["greedy_text"] = tok.decode(entry["greedy"], skip_special_tokens=False)
        golden.write(name, what, body)


if __name__ == "__main__":
    main(sys.argv[1:])
