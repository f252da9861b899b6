#!/usr/bin/env python3
"""Writes tests/fixtures/gguf/NAME.gguf from the checkpoints of make_families.py, tests/golden/families/gguf-NAME.json with
what transformers computes from the dequantized weights, and quant_blocks.json with blocks of every format.

Names, layouts and metadata are those that llama.cpp's converter writes: q and k rows of the `llama` architecture (Mistral
included) reordered so that rotated pairs are neighbours, llama3 scaling as a rope_freqs tensor, longrope factors as two
tensors, vectors in F32, the vocabulary padded with unused tokens. The golden reads the finished file back, dequantizes it
with the gguf package and undoes the reordering.

    make_gguf.py [NAME...]      all files and quant_blocks.json, or the named files
"""
import json
import math
import sys

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from safetensors import safe_open

import golden
from golden_families import prompts_of
from make_families import FAMILIES, OUT as FAMILIES_OUT

OUT = golden.ROOT / "tests" / "fixtures" / "gguf"

# name -> (source checkpoint, format of matrices, format of the embedding and head, tokenizer.ggml.pre or None)
FILES = {
    "llama-f32": ("mix-llama", Q.F32, Q.F32, "gpt-2"),
    "llama-f16": ("llama3", Q.F16, Q.F16, "llama-bpe"),          # rope_freqs tensor
    "llama-bf16-odd": ("odd-llama", Q.BF16, Q.BF16, "gpt-2"),    # padded vocabulary, rows of 75, 66 and 101
    "llama-bias-f16": ("llama-bias", Q.F16, Q.F16, "gpt-2"),     # q and k biases are reordered too
    "llama-spm-f16": ("llama2-spm", Q.F16, Q.F16, None),         # tokenizer.ggml.model `llama`
    "llama-q8_0": ("llama-linear", Q.Q8_0, Q.Q8_0, "smollm"),    # rope.scaling linear
    "llama-q4_0": ("llama3", Q.Q4_0, Q.Q8_0, "llama-bpe"),
    "llama-yarn-q4_0": ("llama-yarn", Q.Q4_0, Q.Q4_0, "gpt-2"),  # rope.scaling yarn
    "mistral-q4_1": ("mistral", Q.Q4_1, Q.Q8_0, "gpt-2"),        # architecture llama, key_length 24
    "qwen2-f32": ("f32-qwen2", Q.F32, Q.F32, "qwen2"),
    "qwen2-q5_0": ("qwen2", Q.Q5_0, Q.Q5_0, "qwen2"),            # biases, padded vocabulary
    "qwen3-q5_1": ("qwen3", Q.Q5_1, Q.Q5_1, "qwen2"),
    "phi3-bf16": ("phi3", Q.BF16, Q.BF16, "gpt-2"),              # attention.sliding_window
    "phi3-q8_0": ("phi3-longrope", Q.Q8_0, Q.Q8_0, "gpt-2"),     # rope_factors_long and _short
}
ARCH = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3"}
FILE_TYPE = {Q.F32: 0, Q.F16: 1, Q.Q4_0: 2, Q.Q4_1: 3, Q.Q8_0: 7, Q.Q5_0: 8, Q.Q5_1: 9, Q.BF16: 32}
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(key):
    stem, kind = key.rsplit(".", 1)
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.{kind}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.{kind}"


def pair_rows(x, n_heads):
    """Rows (j, j + dim/2) of each head become (2j, 2j + 1)."""
    return x.reshape(n_heads, 2, x.shape[0] // n_heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def unpair_rows(x, n_heads):
    return x.reshape(n_heads, x.shape[0] // n_heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def heads_to_pair(key, cfg):
    """How many heads the rows of this tensor are reordered in, 0 for none."""
    if ARCH[cfg["model_type"]] != "llama":
        return 0
    return {"q_proj": cfg["num_attention_heads"], "k_proj": cfg["num_key_value_heads"]}.get(key.split(".")[-2], 0)


def checkpoint(source):
    cfg = FAMILIES[source][1]
    weights = {}
    for file in sorted((FAMILIES_OUT / source).glob("*.safetensors")):
        with safe_open(str(file), "pt") as f:
            for key in f.keys():
                if "rotary_emb" in key or (key == "lm_head.weight" and cfg["tie_word_embeddings"]):
                    continue
                weights[key] = f.get_tensor(key).float().numpy()
    return cfg, weights


def rope_of(cfg):
    return cfg.get("rope_parameters") or cfg.get("rope_scaling") or {}


def write_metadata(w, cfg, fmt):
    heads = cfg["num_attention_heads"]
    head_dim = cfg.get("head_dim") or cfg["hidden_size"] // heads
    rope = rope_of(cfg)
    partial = cfg.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1.0
    w.add_name("small random checkpoint")  # llama.cpp looks for tokens by name in files whose name holds "phi3"
    w.add_block_count(cfg["num_hidden_layers"])
    w.add_context_length(cfg["max_position_embeddings"])
    w.add_embedding_length(cfg["hidden_size"])
    w.add_feed_forward_length(cfg["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(cfg["num_key_value_heads"])
    w.add_layer_norm_rms_eps(cfg["rms_norm_eps"])
    if cfg.get("head_dim"):
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
    w.add_rope_dimension_count(int(head_dim * partial))
    w.add_rope_freq_base(cfg.get("rope_theta") or rope.get("rope_theta") or 10000.0)
    w.add_vocab_size(cfg["vocab_size"])
    kind = rope.get("rope_type", rope.get("type"))
    if kind == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif kind == "longrope":
        orig = cfg["original_max_position_embeddings"]
        w.add_rope_scaling_orig_ctx_len(orig)
        w.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(cfg["max_position_embeddings"] / orig) / math.log(orig)))
    if cfg["model_type"] == "phi3":
        w.add_sliding_window(cfg["sliding_window"] or 0)
    w.add_file_type(FILE_TYPE[fmt])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)


def write_tokenizer(w, source, cfg, pre):
    tok = json.loads((FAMILIES_OUT / source / "tokenizer.json").read_text(encoding="utf-8"))
    tok_cfg = json.loads((FAMILIES_OUT / source / "tokenizer_config.json").read_text(encoding="utf-8"))
    special = {t["id"] for t in tok["added_tokens"]}
    vocab = {i: t for t, i in tok["model"]["vocab"].items()}
    n = len(vocab)
    tokens = [vocab.get(i, f"[PAD{i}]") for i in range(cfg["vocab_size"])]

    def kind(i, token):
        if i >= n:
            return gguf.TokenType.UNUSED
        if pre is None and i == 0:
            return gguf.TokenType.UNKNOWN
        if i in special:
            return gguf.TokenType.CONTROL
        if pre is None and token.startswith("<0x"):
            return gguf.TokenType.BYTE
        return gguf.TokenType.NORMAL

    if pre is None:
        w.add_tokenizer_model("llama")
        w.add_tokenizer_pre("default")
    else:
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types([kind(i, t) for i, t in enumerate(tokens)])
    if pre is None:
        w.add_token_scores([0.0 if i < 259 else -float(i - 259) for i in range(len(tokens))])
        w.add_unk_token_id(0)
    else:
        w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tok["model"]["merges"]])
        w.add_pad_token_id(0)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    if pre is not None:
        w.add_eot_token_id(6)
    w.add_add_bos_token(True)
    w.add_chat_template(tok_cfg["chat_template"])


def rope_tensors(cfg):
    """llama3 and longrope scaling as llama.cpp stores it: divisors of the frequencies."""
    rope = rope_of(cfg)
    kind = rope.get("rope_type", rope.get("type"))
    if kind == "longrope":
        return {"rope_factors_long.weight": np.array(rope["long_factor"], dtype=np.float32),
                "rope_factors_short.weight": np.array(rope["short_factor"], dtype=np.float32)}
    if kind == "llama3":
        dim = cfg["head_dim"]
        wavelength = 2 * math.pi * cfg["rope_theta"]**(np.arange(0, dim, 2) / dim)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        s = np.clip((rope["original_max_position_embeddings"] / wavelength - low) / (high - low), 0, 1)
        return {"rope_freqs.weight": (1 / ((1 - s) / rope["factor"] + s)).astype(np.float32)}
    return {}


def write_file(name):
    source, fmt, fmt_embd, pre = FILES[name]
    cfg, weights = checkpoint(source)
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}.gguf"
    w = gguf.GGUFWriter(str(path), ARCH[cfg["model_type"]])
    write_metadata(w, cfg, fmt)
    write_tokenizer(w, source, cfg, pre)
    for key, value in rope_tensors(cfg).items():
        w.add_tensor(key, value)
    for key, value in weights.items():
        if heads_to_pair(key, cfg):
            value = pair_rows(value, heads_to_pair(key, cfg))
        value = np.ascontiguousarray(value)
        to = Q.F32 if value.ndim == 1 else fmt_embd if key.split(".")[-2] in ("embed_tokens", "lm_head") else fmt
        w.add_tensor(gguf_name(key), gguf.quants.quantize(value, to), raw_dtype=to)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(f"{name}: {path.stat().st_size / 1000:.0f} kB")
    return path


def read_back(path, cfg, keys):
    """HF-named fp32 weights of the written file."""
    tensors = {t.name: t for t in gguf.GGUFReader(str(path)).tensors}
    state = {}
    for key in keys:
        t = tensors[gguf_name(key)]
        value = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        value = value.reshape(tuple(int(n) for n in reversed(t.shape)))
        if heads_to_pair(key, cfg):
            value = unpair_rows(value, heads_to_pair(key, cfg))
        state[key] = torch.from_numpy(np.ascontiguousarray(value))
    return state


def write_golden(name, path):
    source, fmt, fmt_embd, _ = FILES[name]
    cfg, weights = checkpoint(source)
    state = read_back(path, cfg, weights)
    body = golden.measure(FAMILIES_OUT / source, prompts_of(source, cfg["vocab_size"]), state=state)
    golden.write(f"gguf-{name}", f"tests/fixtures/gguf/{name}.gguf", body, why=FAMILIES[source][0],
                 source=f"tests/fixtures/families/{source}", matrices=fmt.name, embedding=fmt_embd.name,
                 gguf=gguf_version())


def gguf_version():
    from importlib.metadata import version
    return version("gguf")


# --- blocks ------------------------------------------------------------------------------------------------------------

N_BLOCKS = 200


def random_blocks(fmt, rng):
    """Blocks whose bytes are random, except that the fp16 scales are finite; the first few have extreme scales."""
    n_values, n_bytes = gguf.GGML_QUANT_SIZES[fmt]
    blocks = rng.integers(0, 256, (N_BLOCKS, n_bytes), dtype=np.uint8)
    n_scales = 2 if fmt in (Q.Q4_1, Q.Q5_1) else 1
    scales = (rng.standard_normal((N_BLOCKS, n_scales)) * 10.0**rng.uniform(-4, 1, (N_BLOCKS, 1))).astype(np.float16)
    edge = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF], dtype=np.uint16)
    scales[:len(edge), 0] = edge.view(np.float16)
    if n_scales == 2:
        scales[:len(edge), 1] = np.roll(edge, 3).view(np.float16)
    blocks[:, :2 * n_scales] = scales.view(np.uint8).reshape(N_BLOCKS, -1)
    if fmt in (Q.F16, Q.BF16):  # no blocks: plain values, every bit pattern that is finite
        bits = rng.integers(0, 65536, 4096, dtype=np.uint16)
        exponent = 0x7C00 if fmt == Q.F16 else 0x7F80
        bits = bits[(bits & exponent) != exponent][:32 * (N_BLOCKS // 4)]
        blocks = bits.view(np.uint8).reshape(-1, 64)
    return blocks


def write_blocks():
    """Per format: bytes of a block as on disk, and the fp32 values it stands for as bit patterns in element order."""
    rng = np.random.Generator(np.random.PCG64(20))
    out = {}
    for fmt in (Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.F16, Q.BF16):
        n_values, n_bytes = gguf.GGML_QUANT_SIZES[fmt]
        blocks = random_blocks(fmt, rng)
        if fmt == Q.F16:
            values = blocks.view(np.float16).astype(np.float32)
        else:
            values = gguf.quants.dequantize(blocks, fmt).astype(np.float32)
        assert np.isfinite(values).all()
        out[fmt.name] = {"block_elems": n_values, "block_bytes": n_bytes, "blocks": [
            [b.tobytes().hex(), v.astype("<f4").view("<u4").astype(">u4").tobytes().hex()]
            for b, v in zip(blocks, values)]}
    lines = []
    for name, entry in out.items():
        rows = ",\n".join(json.dumps(b, separators=(",", ":")) for b in entry["blocks"])
        lines.append(f'"{name}":{{"block_elems":{entry["block_elems"]},"block_bytes":{entry["block_bytes"]},"blocks":[\n{rows}]}}')
    about = json.dumps({"blocks": "[bytes on disk, fp32 bit patterns of its values, 8 hex digits each, most significant first]",
                        "gguf": gguf_version()})
    text = '{"about":' + about + ",\n" + ",\n".join(lines) + "}\n"
    json.loads(text)
    (golden.OUT / "quant_blocks.json").write_text(text)
    print(f"quant_blocks.json: {len(text) / 1000:.0f} kB")


def write_readme():
    lines = ["# Small random models as GGUF", "",
             "Written by `tools/ref/make_gguf.py` from the checkpoints in `../families`; what they must compute is in",
             "`tests/golden/families/gguf-NAME.json`. llama.cpp loads them all; it ignores Phi-3's window and picks longrope's",
             "factors by its context size, so there it computes something else.", "",
             "| file | source | architecture | matrices | embedding, head | tokenizer | of note |", "|---|---|---|---|---|---|---|"]
    for name, (source, fmt, fmt_embd, pre) in FILES.items():
        why, cfg, _ = FAMILIES[source]
        lines.append(f"| {name} | {source} | {ARCH[cfg['model_type']]} | {fmt.name} | {fmt_embd.name} | "
                     f"{'gpt2, ' + pre if pre else 'llama'} | {why} |")
    (OUT / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(names):
    write_readme()
    if not names:
        write_blocks()
    for name in names or FILES:
        write_golden(name, write_file(name))


if __name__ == "__main__":
    main(sys.argv[1:])
