#!/usr/bin/env python3
"""Writes tests/unit/model_rope.json: RoPE frequencies and attention factors as transformers computes them in fp32.

Each case is a config.json and, for one or more lengths of a row, inv_freq (as the bits of fp32) and the attention factor.
A length beyond the first is that of a fresh forward pass over a row of that many tokens.
"""
import json
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

transformers.logging.set_verbosity_error()
BASE = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5}


def config(model_type="llama", **keys):
    arch = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "phi3": "Phi3ForCausalLM"}[model_type]
    return {"model_type": model_type, "architectures": [arch], **BASE, **keys}


def big(model_type="llama", head_dim=128, **keys):
    return config(model_type, head_dim=head_dim, hidden_size=2 * head_dim, num_attention_heads=2, num_key_value_heads=1, **keys)


def factors(n, step):
    return [round(1 + step * i * i, 4) for i in range(n)]


CASES = {
    "default": (config(), [1]),
    "default-theta-1e6": (big(rope_theta=1000000.0), [1]),
    "default-theta-5e5": (big(rope_theta=500000), [1]),
    "default-dim-80": (big(head_dim=80, rope_theta=10000.0), [1]),
    "linear": (big(rope_scaling={"type": "linear", "factor": 3.7}), [1]),
    "dynamic": (config(max_position_embeddings=48, rope_scaling={"type": "dynamic", "factor": 4.0}), [48, 49, 64, 150]),
    "dynamic-dim-128": (big(max_position_embeddings=2048, rope_theta=10000.0, rope_scaling={
        "rope_type": "dynamic", "factor": 2.5}), [10, 2048, 2049, 4000, 5120]),
    "llama3": (big(rope_theta=500000.0, max_position_embeddings=131072, rope_scaling={
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}), [1]),
    "llama3-small": (config(rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}), [1]),
    "yarn": (big("qwen2", max_position_embeddings=32768, rope_theta=1000000.0, rope_scaling={
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}), [1]),
    "yarn-keys": (config(rope_parameters={
        "rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0, "original_max_position_embeddings": 32,
        "beta_fast": 16.0, "beta_slow": 2.0, "mscale": 1.2, "mscale_all_dim": 0.7, "truncate": False}), [1]),
    "yarn-attention-factor": (big(rope_theta=10000.0, rope_scaling={
        "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096, "attention_factor": 1.1}), [1]),
    "longrope": (big("phi3", head_dim=96, max_position_embeddings=131072, rope_scaling={
        "type": "longrope", "short_factor": factors(48, 0.001), "long_factor": factors(48, 0.02)},
        original_max_position_embeddings=4096, rope_theta=10000.0), [4096, 4097]),
    "longrope-partial": (big("phi3", head_dim=128, max_position_embeddings=256, partial_rotary_factor=0.75, rope_scaling={
        "type": "longrope", "short_factor": factors(48, 0.001), "long_factor": factors(48, 0.02)},
        original_max_position_embeddings=64), [1, 64, 65, 256]),
    "longrope-factor": (big("phi3", head_dim=128, max_position_embeddings=256, rope_parameters={
        "rope_type": "longrope", "short_factor": factors(64, 0.001), "long_factor": factors(64, 0.02), "factor": 8.0,
        "rope_theta": 20000.0}, original_max_position_embeddings=64), [64, 65]),
    "longrope-attention-factor": (big("phi3", head_dim=128, max_position_embeddings=256, rope_scaling={
        "type": "longrope", "short_factor": factors(64, 0.001), "long_factor": factors(64, 0.02), "attention_factor": 1.25},
        original_max_position_embeddings=64), [64, 65]),
    "partial-odd": (config("phi3", hidden_size=88, partial_rotary_factor=0.5), [1]),
}


def measure(cfg, n_total):
    cls = Phi3RotaryEmbedding if cfg["model_type"] == "phi3" else LlamaRotaryEmbedding
    rope = cls(AutoConfig.for_model(**json.loads(json.dumps(cfg))))
    rope(torch.zeros(1), torch.arange(n_total)[None])
    bits = rope.inv_freq.to(torch.float32).view(torch.int32)
    return {"n_total": n_total, "inv_freq": bits.tolist(), "scale": float(torch.tensor(rope.attention_scaling, dtype=torch.float32))}


def main():
    cases = [{"name": name, "config": cfg, "lengths": [measure(cfg, n) for n in lengths]}
             for name, (cfg, lengths) in CASES.items()]
    about = {"reference": "transformers, fp32", "versions": {"transformers": transformers.__version__, "torch": torch.__version__}}
    path = Path(__file__).with_name("model_rope.json")
    lines = [json.dumps(case) for case in cases]
    path.write_text('{"about": ' + json.dumps(about) + ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
