#!/usr/bin/env python3
"""transformers on the 200-token prompts: one batch without padding, greedy, a loop of its own (generate adds overhead).

    bench_transformers.py HF_DIR [--dtype fp32|bf16] [--rows N] [--new M] [--threads T] [--repeat R]

Prints one JSON object. End-of-text tokens do not stop a row.
"""
import json
import os
import time

import common

args = common.options(__doc__.split("\n")[0], dtype={"choices": ["fp32", "bf16"], "default": "fp32"},
                      attention={"default": "sdpa", "help": "sdpa or eager (default sdpa)"})
os.environ["OMP_NUM_THREADS"] = str(args.threads)
load_average = os.getloadavg()[0]

import torch  # noqa: E402  (after the number of threads is set)
import transformers  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

torch.set_num_threads(args.threads)
torch.set_grad_enabled(False)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def run(model, ids, n_new):
    """(prefill seconds, decode seconds, generated ids [rows][n_new])."""
    cache = transformers.DynamicCache(config=model.config)
    t0 = time.perf_counter()
    token = model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits[:, -1].argmax(-1, keepdim=True)
    t1 = time.perf_counter()
    out = [token]
    for _ in range(n_new - 1):
        token = model(input_ids=token, cache=cache, use_cache=True).logits[:, -1].argmax(-1, keepdim=True)
        out.append(token)
    return t1 - t0, time.perf_counter() - t1, torch.cat(out, dim=1).tolist()


start = time.perf_counter()
tok = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
model = transformers.AutoModelForCausalLM.from_pretrained(
    args.model, dtype=dtype, attn_implementation=args.attention).eval()
load_s = time.perf_counter() - start
ids = torch.tensor([tok.encode(p, add_special_tokens=False).ids for p in common.prompts(args.rows)])
run(model, ids, 1)
first_s = time.perf_counter() - start

repeats = []
for _ in range(args.repeat):
    prefill_s, decode_s, tokens = run(model, ids, args.new)
    repeats.append((prefill_s, decode_s))
print(json.dumps(common.result("transformers", transformers.__version__, args, ids.numel(), load_s, first_s, repeats,
                               tokens, load_average, dtype=args.dtype, torch=torch.__version__)))
