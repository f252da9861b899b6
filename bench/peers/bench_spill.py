#!/usr/bin/env python3
"""spill on the 200-token prompts, in the terms of its peers' benchmarks.

    bench_spill.py MODEL --spill PATH [--rows N] [--new M] [--threads T] [--repeat R] [--mode bf16|fp32]

MODEL is the raw directory (no template, no end tokens), so that every row gives exactly M tokens. Prints one JSON object. spill mixes
prefill and decode in a pass, so the two are told apart by a pair of runs: one new token a row is the prefill; what M tokens take
beyond that is the decode. Times are those of the passes; load to first token is the whole process.
"""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import common

args = common.options(__doc__.split("\n")[0], spill={"required": True},
                      mode={"choices": ["bf16", "fp32"], "default": "bf16"})
PROMPTS = pathlib.Path(__file__).with_name("prompts_200.jsonl")


def run(n_new, home):
    """(seconds of all passes, wall seconds of the process, peak bytes, generated ids by row)."""
    out = pathlib.Path(home) / f"out-{time.monotonic_ns()}.jsonl"
    command = [args.spill, "run", "--json", "--mode", args.mode, "--threads", args.threads, "--limit", args.rows, "--max-tokens", n_new,
               args.model, PROMPTS, "-o", out]
    start = time.monotonic()
    done = subprocess.run([str(c) for c in command], stderr=subprocess.PIPE, check=True, env={"SPILL_HOME": str(home)})
    wall = time.monotonic() - start
    events = [json.loads(line) for line in done.stderr.splitlines()]
    passes = sum(e["seconds"] for e in events if e["event"] == "pass")
    rows = {r["custom_id"]: r["spill"]["tokens"] for r in map(json.loads, out.read_text().splitlines())}
    assert all(len(t) == n_new for t in rows.values()), "a row ended early"
    return passes, wall, events[-1]["peak_rss_bytes"], [rows[k] for k in sorted(rows)]


def main():
    load_average = os.getloadavg()[0]
    version = subprocess.run([args.spill, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1]
    with tempfile.TemporaryDirectory() as home:
        run(1, home)  # the file into the page cache, as for the peers
        pairs = [(run(1, home), run(args.new, home)) for _ in range(args.repeat)]
    repeats = [(one[0], all_[0] - one[0]) for one, all_ in pairs]
    first_s = statistics.median(one[1] for one, _ in pairs)
    report = common.result("spill", version, args, args.rows * 200, 0.0, first_s, repeats, pairs[-1][1][3], load_average, mode=args.mode)
    report["peak_rss_bytes"] = max(all_[2] for _, all_ in pairs)
    print(json.dumps(report))


main()
