#!/usr/bin/env python3
"""A spill_make_model directory (llama shapes, bf16) as one bf16 GGUF file, for llama.cpp: tensors as they are, a vocabulary
of placeholders.

    stream_gguf.py MODEL_DIR OUT.gguf

The rows of q and k stay in their order, so the text differs from spill's; what is read and multiplied does not."""
import json
import sys
from pathlib import Path

import gguf
import numpy as np

NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.weight"


def tensors(directory):
    """(name, shape, bytes as a memory map) of every tensor, in order of file and name."""
    for path in sorted(directory.glob("*.safetensors")):
        with open(path, "rb") as f:
            n_header = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(n_header))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            yield name, entry["shape"], np.memmap(path, np.uint8, "r", 8 + n_header + begin, (end - begin,))


directory, out = Path(sys.argv[1]), sys.argv[2]
config = json.loads((directory / "config.json").read_text())
writer = gguf.GGUFWriter(out, "llama")
writer.add_block_count(config["num_hidden_layers"])
writer.add_context_length(4096)
writer.add_embedding_length(config["hidden_size"])
writer.add_feed_forward_length(config["intermediate_size"])
writer.add_head_count(config["num_attention_heads"])
writer.add_head_count_kv(config["num_key_value_heads"])
writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
writer.add_rope_freq_base(10000.0)
writer.add_vocab_size(config["vocab_size"])
writer.add_tokenizer_model("llama")
tokens = [b"<unk>", b"<s>", b"</s>"] + [f"t{i}".encode() for i in range(3, config["vocab_size"])]
writer.add_token_list(tokens)
writer.add_token_scores([0.0] * len(tokens))
writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
for name, shape, data in tensors(directory):
    if len(shape) == 1:  # llama.cpp wants vectors in fp32
        wide = (np.asarray(data).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        writer.add_tensor(gguf_name(name), wide)
    else:
        writer.add_tensor(gguf_name(name), data.reshape(shape[0], shape[1] * 2), raw_dtype=gguf.GGMLQuantizationType.BF16)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
