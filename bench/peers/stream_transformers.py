#!/usr/bin/env python3
"""transformers with accelerate's disk offload, or AirLLM, on a model bigger than memory (see stream_common.py).

    stream_transformers.py MODEL_DIR [--rows N] [--steps S] [--way offload|airllm] [--cpu-bytes N] [--work DIR]

offload keeps what fits --cpu-bytes in memory and reads the rest from the model's own files at every step. airllm writes a
copy of the model by layers into --work first (not timed) and reads every layer at every step."""
import time

import stream_common as common

args = common.options(__doc__.split("\n")[0], way={"choices": ["offload", "airllm"], "default": "offload"},
                      cpu_bytes={"type": int, "default": 4 << 30}, work={"default": "/tmp/stream-peer"})

import torch  # noqa: E402
import transformers  # noqa: E402

torch.set_num_threads(args.threads)


def load_offload():
    return transformers.AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.bfloat16, device_map="auto", max_memory={"cpu": args.cpu_bytes},
        offload_folder=args.work), "transformers + accelerate disk offload", transformers.__version__


def load_airllm():
    from importlib.metadata import version

    from airllm import AutoModel
    model = AutoModel.from_pretrained(args.model, device="cpu", dtype=torch.bfloat16, layer_shards_saving_path=args.work)
    return model, "AirLLM", version("airllm")


start = time.perf_counter()
model, peer, version = load_offload() if args.way == "offload" else load_airllm()
load_s = time.perf_counter() - start
ids = torch.tensor(common.prompts(args.rows))
times, read = [], []


class Clock(transformers.LogitsProcessor):
    """Called once a step with its logits."""

    def __call__(self, input_ids, scores):
        times.append(time.perf_counter())
        read.append(common.sectors_read())
        return scores


start = time.perf_counter()
model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=args.steps + 1, min_new_tokens=args.steps + 1,
               do_sample=False, use_cache=True, logits_processor=transformers.LogitsProcessorList([Clock()]))
steps = [b - a for a, b in zip(times, times[1:])]
common.result(peer, version, args, load_s, times[0] - start, steps, read[-1] - read[0])
