#!/usr/bin/env python3
"""SmolLM2-135M-Instruct in the forms that the comparisons need, made from the GGUF that tools/fetch_smollm2.sh fetches.

    smollm2_to_hf.py [CACHE]        CACHE: where fetch_smollm2.sh keeps it ($SPILL_TEST_CACHE and so on)

Writes beside it
    smollm2-135m-bf16/              Hugging Face layout: the dequantized weights rounded to bf16, q and k rows in Hugging
                                    Face's order, config and tokenizer rebuilt from the metadata
    smollm2-135m-bf16-raw/          the same weights (a link) without template and end tokens: a prompt is raw text, and a
                                    row runs to its max_tokens, as in bench/peers
    smollm2-135m-bf16.gguf          the same bf16 values for llama.cpp (vectors, rounded too, in F32)
"""
import json
import os
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from safetensors.torch import save_file

from make_gguf import unpair_rows

SOURCE = "SmolLM2-135M-Instruct-Q4_1.gguf"
HF_DIR = "smollm2-135m-bf16"
RAW_DIR = "smollm2-135m-bf16-raw"
BF16_FILE = "smollm2-135m-bf16.gguf"
HF_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}


def default_cache():
    if os.environ.get("SPILL_TEST_CACHE"):
        return Path(os.environ["SPILL_TEST_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spill"


def hf_name(name):
    top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if name in top:
        return top[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{HF_NAMES[part]}.{kind}"


def dequantized(reader):
    """(GGUF name, fp32 array in the file's row order) of every tensor."""
    for t in reader.tensors:
        value = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        yield t.name, np.ascontiguousarray(value.reshape(tuple(int(n) for n in reversed(t.shape))))


def hf_state(reader, dtype=torch.float32):
    n_heads = {part: reader.fields[f"llama.attention.{key}"].contents()
               for part, key in (("attn_q", "head_count"), ("attn_k", "head_count_kv"))}
    state = {}
    for name, value in dequantized(reader):
        part = name.split(".")[2] if name.startswith("blk.") else ""
        if part in n_heads:
            value = np.ascontiguousarray(unpair_rows(value, n_heads[part]))
        state[hf_name(name)] = torch.from_numpy(value).to(dtype)
    return state


def config(meta):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "vocab_size": meta("llama.vocab_size"), "hidden_size": meta("llama.embedding_length"),
        "intermediate_size": meta("llama.feed_forward_length"), "num_hidden_layers": meta("llama.block_count"),
        "num_attention_heads": meta("llama.attention.head_count"),
        "num_key_value_heads": meta("llama.attention.head_count_kv"),
        "max_position_embeddings": meta("llama.context_length"), "rms_norm_eps": 1e-5,
        "rope_theta": meta("llama.rope.freq_base"), "rope_scaling": None, "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, "bos_token_id": meta("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta("tokenizer.ggml.eos_token_id"), "pad_token_id": meta("tokenizer.ggml.padding_token_id"),
        "torch_dtype": "bfloat16", "use_cache": True,
    }


def tokenizer(meta):
    """`smollm`: digits one by one, then GPT-2's split; no special tokens are added."""
    tokens = meta("tokenizer.ggml.tokens")
    special = [i for i, t in enumerate(meta("tokenizer.ggml.token_type")) if t == gguf.TokenType.CONTROL]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": meta("tokenizer.ggml.merges")},
    }


def write_hf(reader, cache):
    def meta(key):
        return reader.fields[key].contents()

    def token(key):
        return meta("tokenizer.ggml.tokens")[meta(f"tokenizer.ggml.{key}_token_id")]

    def write_json(name, value):
        for out, keep in ((hf, value), (raw, {k: v for k, v in value.items() if k not in ("eos_token", "chat_template")})):
            if out is raw and "eos_token_id" in keep:
                keep["eos_token_id"] = None
            (out / name).write_text(json.dumps(keep, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    hf, raw = cache / HF_DIR, cache / RAW_DIR
    hf.mkdir(exist_ok=True)
    raw.mkdir(exist_ok=True)
    write_json("config.json", config(meta))
    write_json("generation_config.json", {key: config(meta)[key] for key in
                                          ("bos_token_id", "eos_token_id", "pad_token_id")})
    write_json("tokenizer.json", tokenizer(meta))
    write_json("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": token("bos"), "eos_token": token("eos"),
        "unk_token": token("unknown"), "pad_token": token("padding"), "add_prefix_space": False,
        "clean_up_tokenization_spaces": False, "model_max_length": meta("llama.context_length"),
        "chat_template": meta("tokenizer.chat_template")})
    save_file(hf_state(reader, torch.bfloat16), str(hf / "model.safetensors"), metadata={"format": "pt"})
    link = raw / "model.safetensors"
    link.unlink(missing_ok=True)
    link.symlink_to(Path("..") / HF_DIR / "model.safetensors")


def write_bf16_gguf(reader, out):
    w = gguf.GGUFWriter(str(out), "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if key == "general.file_type":
            w.add_file_type(32)
        elif field.types[0] == gguf.GGUFValueType.ARRAY:
            w.add_key_value(key, field.contents(), field.types[0], sub_type=field.types[-1])
        else:
            w.add_key_value(key, field.contents(), field.types[0])
    for name, value in dequantized(reader):
        rounded = torch.from_numpy(value).to(torch.bfloat16)
        if value.ndim == 1:
            w.add_tensor(name, rounded.float().numpy())
        else:
            w.add_tensor(name, rounded.view(torch.int16).numpy().view(np.uint8), raw_dtype=Q.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main(argv):
    cache = Path(argv[0]) if argv else default_cache()
    source = cache / SOURCE
    if not source.exists():
        sys.exit(f"smollm2_to_hf: no '{source}'; run tools/fetch_smollm2.sh")
    reader = gguf.GGUFReader(str(source))
    write_hf(reader, cache)
    write_bf16_gguf(reader, cache / BF16_FILE)
    for name in (HF_DIR, RAW_DIR, BF16_FILE):
        print(cache / name)


if __name__ == "__main__":
    main(sys.argv[1:])
