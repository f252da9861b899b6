"""What the streaming benchmarks share: prompts as ids, options, and the JSON that they print.

A model bigger than the memory it gets, greedy steps of all rows at once: seconds per step after the prompt's own pass is
the figure, as a step reads the weights that are not in memory. Run each under the same memory limit (stream_peers.sh)."""
import argparse
import json
import os
import random
import resource
import statistics

N_PROMPT, FIRST_ID, N_IDS = 16, 32, 96  # of printable bytes, which spill_make_model's tokenizer has


def options(description, **more):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("model")
    p.add_argument("--rows", type=int, default=1)
    p.add_argument("--steps", type=int, default=3, help="timed steps after the prompt's pass (default 3)")
    p.add_argument("--threads", type=int, default=2)
    for name, kw in more.items():
        p.add_argument("--" + name.replace("_", "-"), **kw)
    return p.parse_args()


def prompts(n_rows):
    """The same ids every time: [n_rows][N_PROMPT]."""
    rng = random.Random(1)
    return [[FIRST_ID + rng.randrange(N_IDS) for _ in range(N_PROMPT)] for _ in range(n_rows)]


def sectors_read():
    """Bytes that all drives have given so far (partitions and loop devices left out)."""
    total = 0
    for name in os.listdir("/sys/block"):
        if name.startswith(("loop", "ram", "zram", "dm-", "md")):
            continue
        with open(f"/sys/block/{name}/stat") as f:
            total += int(f.read().split()[2]) * 512
    return total


def result(peer, version, args, load_s, first_s, steps_s, bytes_read, **more):
    step = statistics.median(steps_s)
    print(json.dumps({
        "peer": peer, "version": version, **more, "rows": args.rows, "threads": args.threads,
        "load_s": round(load_s, 2), "prompt_pass_s": round(first_s, 2), "step_s": round(step, 2),
        "steps": [round(s, 2) for s in steps_s], "tokens_per_s": round(args.rows / step, 3),
        "drive_bytes_per_step": bytes_read // max(1, len(steps_s)),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }), flush=True)
