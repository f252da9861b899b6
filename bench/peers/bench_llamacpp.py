#!/usr/bin/env python3
"""llama.cpp (through llama-cpp-python's low-level calls) on the 200-token prompts: all rows in shared batches, greedy.

    bench_llamacpp.py GGUF [--rows N] [--new M] [--threads T] [--repeat R] [--sweep]
                      [--batch B] [--ubatch U] [--flash on|off] [--unified on|off]

Prints one JSON object. With --sweep every combination of settings runs in a process of its own, one repetition each; then the
best for prefill and the best for decode run with all repetitions, and the printed object is {"prefill", "decode", "swept"}.
End-of-text tokens do not stop a row.
"""
import ctypes
import json
import os
import subprocess
import sys
import time

import common

args = common.options(
    __doc__.split("\n")[0], batch={"type": int, "default": 2048}, ubatch={"type": int, "default": 512},
    flash={"choices": ["on", "off"], "default": "off"}, unified={"choices": ["on", "off"], "default": "on"},
    sweep={"action": "store_true"})


def settings():
    """What the sweep tries. The batch is never below the rows' number, as a decoding step is one batch."""
    batches = [(256, 256), (512, 512), (2048, 128), (2048, 512), (2048, 2048)]
    return [{"batch": b, "ubatch": u, "flash": f, "unified": k} for b, u in batches for f in ("off", "on")
            for k in (("on", "off") if args.rows > 1 else ("on",))]


def sub(setting, repeat):
    command = [sys.executable, __file__, args.model, "--rows", args.rows, "--new", args.new, "--threads", args.threads,
               "--repeat", repeat]
    for key, value in setting.items():
        command += [f"--{key}", value]
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def sweep():
    swept = [(setting, sub(setting, 1)) for setting in settings()]
    best = {}
    for what in ("prefill", "decode"):
        setting, _ = max(swept, key=lambda s: s[1][f"{what}_tokens_per_s"])
        best[what] = sub(setting, args.repeat)
    best["swept"] = [{**s, **{k: r[k] for k in ("prefill_tokens_per_s", "decode_tokens_per_s")}} for s, r in swept]
    return best


def bench():
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    load_average = os.getloadavg()[0]
    import llama_cpp as L
    import numpy as np

    quiet = L.llama_log_callback(lambda level, text, data: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()

    def fail(what):
        raise SystemExit(f"bench_llamacpp: {what}")

    start = time.perf_counter()
    model = L.llama_model_load_from_file(args.model.encode(), L.llama_model_default_params())
    if not model:
        fail(f"cannot load '{args.model}'")
    vocab = L.llama_model_get_vocab(model)
    n_vocab = L.llama_vocab_n_tokens(vocab)

    def tokenize(text):
        data = text.encode()
        ids = (L.llama_token * (len(data) + 8))()
        n = L.llama_tokenize(vocab, data, len(data), ids, len(ids), False, True)
        return list(ids[:n])

    rows = [tokenize(p) for p in common.prompts(args.rows)]
    n_each = max(len(r) for r in rows) + args.new
    n_each += -n_each % 256
    params = L.llama_context_default_params()
    params.n_ctx = n_each * args.rows
    params.n_batch, params.n_ubatch, params.n_seq_max = args.batch, args.ubatch, args.rows
    params.n_threads = params.n_threads_batch = args.threads
    params.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_ENABLED if args.flash == "on" else L.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.kv_unified = args.unified == "on"
    params.no_perf = True
    ctx = L.llama_init_from_model(model, params)
    if not ctx:
        fail("cannot make a context")
    load_s = time.perf_counter() - start
    batch = L.llama_batch_init(args.batch, 0, 1)

    def decode(entries):
        """entries: (token, position, row, want logits); greedy picks of those wanted, in order."""
        for i, (token, pos, row, want) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, pos, 1, want
            batch.seq_id[i][0] = row
        batch.n_tokens = len(entries)
        if L.llama_decode(ctx, batch) != 0:
            fail("llama_decode failed")
        return {row: int(np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), (n_vocab,)).argmax())
                for i, (_, _, row, want) in enumerate(entries) if want}

    def prefill():
        L.llama_memory_clear(L.llama_get_memory(ctx), False)
        entries = [(t, i, row, i == len(ids) - 1) for row, ids in enumerate(rows) for i, t in enumerate(ids)]
        first = {}
        for i in range(0, len(entries), args.batch):
            first.update(decode(entries[i:i + args.batch]))
        return first

    def run(n_new):
        t0 = time.perf_counter()
        last = prefill()
        t1 = time.perf_counter()
        out = [[last[row]] for row in range(args.rows)]
        for n in range(n_new - 1):
            last = decode([(last[row], len(rows[row]) + n, row, True) for row in range(args.rows)])
            for row in range(args.rows):
                out[row].append(last[row])
        return t1 - t0, time.perf_counter() - t1, out

    prefill()
    first_s = time.perf_counter() - start
    repeats = []
    for _ in range(args.repeat):
        prefill_s, decode_s, tokens = run(args.new)
        repeats.append((prefill_s, decode_s))
    return common.result("llama.cpp", L.__version__, args, sum(map(len, rows)), load_s, first_s, repeats, tokens,
                         load_average, batch=args.batch, ubatch=args.ubatch, flash=args.flash, unified=args.unified)


print(json.dumps(sweep() if args.sweep else bench()))
