#!/usr/bin/env python3
"""llama.cpp on a GGUF file bigger than memory: rows decoded together, greedy (see stream_common.py).

    stream_llamacpp.py GGUF [--rows N] [--steps S] [--load mmap|direct]"""
import ctypes
import time

import stream_common as common

args = common.options(__doc__.split("\n")[0], load={"choices": ["mmap", "direct"], "default": "mmap"})

import llama_cpp as L  # noqa: E402
import numpy as np  # noqa: E402

quiet = L.llama_log_callback(lambda level, text, data: None)
L.llama_log_set(quiet, ctypes.c_void_p(0))
L.llama_backend_init()
start = time.perf_counter()
params = L.llama_model_default_params()
params.load_mode = L.LLAMA_LOAD_MODE_MMAP if args.load == "mmap" else L.LLAMA_LOAD_MODE_DIRECT_IO
params.use_extra_bufts = False  # repacked weights would be a copy in memory
model = L.llama_model_load_from_file(args.model.encode(), params)
if not model:
    raise SystemExit(f"stream_llamacpp: cannot load '{args.model}'")
n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
context = L.llama_context_default_params()
n_each = 256
context.n_ctx, context.n_batch, context.n_ubatch = n_each * args.rows, 2048, 512
context.n_seq_max, context.n_threads, context.n_threads_batch = args.rows, args.threads, args.threads
context.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_ENABLED
context.kv_unified = False
ctx = L.llama_init_from_model(model, context)
if not ctx:
    raise SystemExit("stream_llamacpp: cannot make a context")
load_s = time.perf_counter() - start


def decode(rows, first_pos):
    """One llama_decode of every row's tokens; the greedy next of each."""
    n = sum(len(r) for r in rows)
    batch = L.llama_batch_init(n, 0, 1)
    batch.n_tokens = n
    at, last = 0, []
    for i_row, row in enumerate(rows):
        for i, token in enumerate(row):
            batch.token[at], batch.pos[at] = token, first_pos + i
            batch.n_seq_id[at] = 1
            batch.seq_id[at][0] = i_row
            batch.logits[at] = i + 1 == len(row)
            at += 1
        last.append(at - 1)
    if L.llama_decode(ctx, batch) != 0:
        raise SystemExit("stream_llamacpp: llama_decode failed")
    picked = [int(np.argmax(np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), shape=(n_vocab,)))) for i in last]
    L.llama_batch_free(batch)
    return picked


start = time.perf_counter()
tokens = decode(common.prompts(args.rows), 0)
first_s = time.perf_counter() - start
steps, before = [], common.sectors_read()
for i in range(args.steps):
    start = time.perf_counter()
    tokens = decode([[t] for t in tokens], common.N_PROMPT + i)
    steps.append(time.perf_counter() - start)
common.result("llama.cpp", L.__version__, args, load_s, first_s, steps, common.sectors_read() - before, load=args.load)
