"""What the two benchmarks share: prompts, options, and the JSON that they print."""
import argparse
import hashlib
import json
import os
import platform
import resource
import statistics
from pathlib import Path

PROMPTS = Path(__file__).resolve().parent / "prompts_200.jsonl"


def options(description, **more):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("model")
    p.add_argument("--rows", type=int, default=32, help="1 to 32 (default 32)")
    p.add_argument("--new", type=int, default=48, help="tokens to generate a row (default 48)")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeat", type=int, default=5, help="timed repetitions, medians are reported (default 5)")
    for name, kw in more.items():
        p.add_argument("--" + name.replace("_", "-"), **kw)
    return p.parse_args()


def prompts(n_rows):
    with open(PROMPTS) as f:
        rows = [json.loads(line)["prompt"] for line in f]
    if not 1 <= n_rows <= len(rows):
        raise SystemExit(f"--rows {n_rows}: there are {len(rows)} prompts")
    return rows[:n_rows]


def cpu():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def result(peer, version, args, n_prompt_tokens, load_s, first_s, repeats, tokens, load_average, **more):
    """repeats: (prefill seconds, decode seconds) of each timed repetition; tokens: ids generated, row by row.

    Decode counts the tokens after each row's first, which prefill gives. Load to first token is the first, cold use of the
    loaded model: all of the prefill of the run's rows, so the figure to compare is that of one row."""
    prefill = [n_prompt_tokens / p for p, _ in repeats]
    decode = [args.rows * (args.new - 1) / d for _, d in repeats]
    return {
        "peer": peer, "version": version, **more, "rows": args.rows, "prompt_tokens": n_prompt_tokens // args.rows,
        "new_tokens": args.new, "threads": args.threads, "repeats": len(repeats),
        "prefill_tokens_per_s": round(statistics.median(prefill), 2),
        "decode_tokens_per_s": round(statistics.median(decode), 2),
        "prefill_all": [round(x, 2) for x in prefill], "decode_all": [round(x, 2) for x in decode],
        "load_s": round(load_s, 3), "load_to_first_token_s": round(first_s, 3),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "tokens_sha256": hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16],
        "cpu": cpu(), "cpus": len(os.sched_getaffinity(0)), "load_average_before": round(load_average, 2),
    }
