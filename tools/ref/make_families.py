#!/usr/bin/env python3
"""Writes the small random checkpoints of tests/fixtures/families, one directory a variant.

Each is a complete model in Hugging Face layout: config.json, generation_config.json, weights, tokenizer.json,
tokenizer_config.json. Names and shapes of the tensors come from transformers (from_config on the meta device), values from
numpy generators seeded by "variant/tensor", so that a new variant moves no other. The scales make logits spread by a few
units, attention far from uniform, and no norm or bias trivial: a mistake anywhere shows in the first decimals.

    make_families.py [NAME...]      writes all variants, or the named ones
    make_families.py --list         one line a variant: what it is there for

The README.md beside the fixtures is written from the same table.
"""
import json
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "fixtures" / "families"

SPECIAL = ["<|pad|>", "<|bos|>", "<|eos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
PAD, BOS, EOS, END = 0, 1, 2, 6
N_TOKENIZER = 320

# What the tokenizer's merges are learnt from.
TEXT = """
The ferry leaves the harbour at seven and again at noon. On Tuesdays there is a third boat in the evening, for the market.
A crate of apples weighs 18 kg, a crate of pears 21 kg; the driver signs for both. If the rain stays, the road by the river
will be closed, and the bus goes round by the mill. Write the date, the name and the amount on one line, and nothing else.
She counted the chairs twice: there were forty-one, not forty. The bell rang, the children ran out, and the yard was loud
again. What does a litre of milk cost here? The same as last year, he said, but the bottle is smaller. In the library the
heating was off, so we read with our coats on. The key is under the third stone; put it back when you are done.
def area(width, height): return width * height
{"name": "lamp", "price": 12.5, "stock": 340, "colours": ["red", "green", "blue"]}
Grüße aus der Küche, déjà vu, mañana, naïve. 2 + 2 = 4, 10 - 3 = 7, 6 * 7 = 42.
The train to the coast was late because of the snow, and the people on the platform stamped their feet to stay warm.
"""

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


SPM_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + "
    "' [/INST]' }}{% else %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}{% endfor %}"
)
N_SPM = 400


def make_spm_tokenizer():
    """Byte-pair pieces in SentencePiece's manner: a piece's score is minus its rank, and every pair of pieces that makes
    another piece may merge."""
    learn = Tokenizer(models.BPE())
    learn.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    n_bytes_and_special = 3 + 256
    learn.train_from_iterator(TEXT.strip().split("\n"), trainers.BpeTrainer(
        vocab_size=N_SPM - n_bytes_and_special, show_progress=False))
    by_id = sorted(learn.get_vocab().items(), key=lambda kv: kv[1])
    letters = [p for p, _ in by_id if len(p) == 1]
    merged = [p for p, _ in by_id if len(p) > 1]
    pieces = merged + letters  # as SentencePiece orders them: merges by rank, then characters
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces
    assert len(tokens) == N_SPM
    known = set(pieces)
    merges = [(p[:i], p[i:]) for p in merged for i in range(1, len(p)) if p[:i] in known and p[i:] in known]
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, unk_token="<unk>",
                               fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in tokens[:3]])
    return tok


def make_tokenizer():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=N_TOKENIZER, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator(TEXT.strip().split("\n"), trainer)
    tok.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", pair="<|bos|> $A $B", special_tokens=[("<|bos|>", BOS)])
    assert tok.get_vocab_size() == N_TOKENIZER
    return tok


def base(model_type, arch, **kw):
    """The keys that every config has; a key given as ... is left out."""
    cfg = {
        "architectures": [arch], "model_type": model_type, "vocab_size": N_TOKENIZER,
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
        "bos_token_id": BOS, "eos_token_id": EOS, "torch_dtype": "bfloat16", "use_cache": True,
    }
    cfg.update(kw)
    return {k: v for k, v in cfg.items() if v is not ...}


def llama(**kw):
    return base("llama", "LlamaForCausalLM", **kw)


def mistral(**kw):
    return base("mistral", "MistralForCausalLM", **kw)


def qwen2(**kw):
    return base("qwen2", "Qwen2ForCausalLM", **kw)


def qwen3(**kw):
    return base("qwen3", "Qwen3ForCausalLM", **kw)


def phi3(**kw):
    return base("phi3", "Phi3ForCausalLM", pad_token_id=PAD, **kw)


LONG = [1.0, 1.3, 2.1, 3.7, 6.0, 9.5]
SHORT = [1.0, 1.05, 1.1, 1.25, 1.4, 1.6]

# name -> (why, config, how). how: dtype of the file ("bf16", "f16", "f32", "mix"), shards, extras.
FAMILIES = {
    "llama2": ("multi-head attention, untied head, rope_theta missing, a stored rotary_emb.inv_freq",
               llama(num_key_value_heads=4, rope_scaling=None, intermediate_size=112, hidden_size=56,
                     num_attention_heads=4), {"inv_freq": True}),
    "llama2-spm": ("a tokenizer of Llama 2's kind: byte fallback, no pre-tokenizer, Prepend and Replace; 400 ids",
                   llama(vocab_size=400, hidden_size=48, intermediate_size=96, rope_theta=10000.0),
                   {"tokenizer": "spm"}),
    "llama3": ("grouped heads, llama3 scaling spelled rope_scaling, tied, head_dim in the config",
               llama(head_dim=16, tie_word_embeddings=True, rope_theta=10000.0, rope_scaling={
                   "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 64}), {}),
    "llama-bias": ("attention_bias: q, k, v and o", llama(attention_bias=True, mlp_bias=False, rope_theta=500000.0), {}),
    "llama-mlp-bias": ("mlp_bias: gate, up and down; attention without",
                       llama(mlp_bias=True, attention_bias=False, hidden_size=48, num_attention_heads=3,
                             num_key_value_heads=1, intermediate_size=96), {}),
    "llama-linear": ("rope linear, spelled rope_parameters, tied with the head stored as well",
                     llama(tie_word_embeddings=True, rope_parameters={
                         "rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}), {"tied_head": True}),
    "llama-dynamic": ("rope dynamic (NTK) past its original maximum of 48; `type` spelling",
                      llama(max_position_embeddings=48, rope_theta=10000.0, hidden_size=48, intermediate_size=96,
                            rope_scaling={"type": "dynamic", "factor": 4.0}), {}),
    "llama-yarn": ("YaRN as rope_scaling with `type`, only factor and original maximum given",
                   llama(max_position_embeddings=128, rope_theta=10000.0, tie_word_embeddings=True, rope_scaling={
                       "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}), {}),
    "llama-yarn-keys": ("YaRN as rope_parameters with every optional key: beta_fast, beta_slow, mscale, mscale_all_dim, "
                        "truncate false; head_dim 32", llama(
                            head_dim=32, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256,
                            hidden_size=48, intermediate_size=96, rope_parameters={
                                "rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0,
                                "original_max_position_embeddings": 32, "beta_fast": 16.0, "beta_slow": 2.0,
                                "mscale": 1.2, "mscale_all_dim": 0.7, "truncate": False}), {}),
    "mistral": ("no window (null), head_dim 24 beside hidden / heads = 16, rope_theta 1e6",
                mistral(head_dim=24, sliding_window=None, rope_theta=1000000.0, intermediate_size=96), {}),
    "mistral-window": ("sliding_window 16 on every layer, 3 layers, rope_parameters",
                       mistral(sliding_window=16, num_hidden_layers=3, hidden_size=48, intermediate_size=96,
                               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}), {}),
    "qwen2": ("biases on q, k, v without a key for it, use_sliding_window false beside sliding_window 8, tied, eps 1e-6, "
              "vocabulary padded to 352, eos ids only in generation_config",
              qwen2(use_sliding_window=False, sliding_window=8, max_window_layers=0, tie_word_embeddings=True,
                    rms_norm_eps=1e-6, rope_theta=1000000.0, vocab_size=352, eos_token_id=...), {}),
    "qwen2-window": ("use_sliding_window true, window 12 from layer max_window_layers = 1 on, untied; YaRN",
                     qwen2(use_sliding_window=True, sliding_window=12, max_window_layers=1, num_hidden_layers=3,
                           hidden_size=48, intermediate_size=80, rope_theta=10000.0, rope_scaling={
                               "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64},
                           max_position_embeddings=128), {}),
    "qwen3": ("q and k norms, head_dim 24 beside hidden / heads = 16, tied",
              qwen3(head_dim=24, attention_bias=False, tie_word_embeddings=True, rms_norm_eps=1e-6,
                    rope_theta=1000000.0, use_sliding_window=False, sliding_window=None, max_window_layers=2,
                    rope_scaling=None), {}),
    "qwen3-bias": ("attention_bias with q and k norms, layer_types spelled out (second layer slides, window 10), "
                   "rope_parameters",
                   qwen3(hidden_size=48, head_dim=16, intermediate_size=96, attention_bias=True, use_sliding_window=True,
                         sliding_window=10, max_window_layers=1, layer_types=["full_attention", "sliding_attention"],
                         rope_parameters={"rope_type": "default", "rope_theta": 20000.0}), {}),
    "phi3": ("fused qkv and gate_up, sliding_window 24, no scaling, multi-head",
             phi3(num_key_value_heads=4, intermediate_size=104, original_max_position_embeddings=512, hidden_size=56,
                  sliding_window=24, rope_scaling=None, rope_theta=10000.0), {}),
    "phi3-longrope": ("longrope: original maximum 64, prompts below, across and above it; partial_rotary_factor 0.75 of "
                      "head_dim 16; tied",
                      phi3(max_position_embeddings=256, original_max_position_embeddings=64, tie_word_embeddings=True,
                           partial_rotary_factor=0.75, rope_theta=10000.0, sliding_window=None, rope_scaling={
                               "type": "longrope", "long_factor": LONG, "short_factor": SHORT}), {}),
    "phi3-longrope-parameters": ("the same features spelled rope_parameters, untied, another head_dim",
                                 phi3(max_position_embeddings=128, original_max_position_embeddings=32, hidden_size=48,
                                      num_attention_heads=2, num_key_value_heads=1, intermediate_size=96,
                                      sliding_window=None, rope_parameters={
                                          "rope_type": "longrope", "rope_theta": 5000.0, "partial_rotary_factor": 0.5,
                                          "long_factor": LONG, "short_factor": SHORT}), {}),
    "odd-llama": ("multiples of nothing: hidden 75, ffn 101, 3 heads of 22, 1 kv head, 331 ids of which 11 have no token",
                  llama(hidden_size=75, intermediate_size=101, num_attention_heads=3, num_key_value_heads=1, head_dim=22,
                        vocab_size=331), {}),
    "odd-qwen3": ("hidden 50, ffn 77, 3 heads of 18, 3 kv heads, 3 layers, 323 ids; tied; F16 file",
                  qwen3(hidden_size=50, intermediate_size=77, num_attention_heads=3, num_key_value_heads=3, head_dim=18,
                        num_hidden_layers=3, vocab_size=323, tie_word_embeddings=True, torch_dtype="float16"),
                  {"dtype": "f16"}),
    "odd-phi3": ("hidden 60, ffn 57, 3 heads of 20, 1 kv head, 14 of 20 dims rotate, 341 ids",
                 phi3(hidden_size=60, intermediate_size=57, num_attention_heads=3, num_key_value_heads=1,
                      vocab_size=341, partial_rotary_factor=0.7, original_max_position_embeddings=512,
                      sliding_window=None, rope_scaling=None, rope_theta=10000.0), {}),
    "f32-qwen2": ("F32 file; tied", qwen2(hidden_size=40, intermediate_size=72, num_attention_heads=5,
                                          num_key_value_heads=5, tie_word_embeddings=True, torch_dtype="float32",
                                          rope_theta=10000.0), {"dtype": "f32"}),
    "mix-llama": ("F32 norms, F16 attention, BF16 for the rest in one file; `dtype` spelling",
                  llama(torch_dtype=..., dtype="bfloat16", hidden_size=48, num_attention_heads=6, num_key_value_heads=3,
                        intermediate_size=80), {"dtype": "mix"}),
    "sharded-llama3": ("three shards with an index, grouped heads, untied",
                       llama(hidden_size=48, intermediate_size=96, num_hidden_layers=3, rope_theta=500000.0),
                       {"shards": 3}),
}


def scale_of(name, cfg, shape):
    """Standard deviation of a weight matrix, or (mean, deviation) of a vector."""
    tied = cfg["tie_word_embeddings"]
    last = name.split(".")[-2]
    fan_in = shape[-1]
    if name.endswith(".bias"):
        return (0.0, 0.3)
    if last in ("q_norm", "k_norm"):
        return (1.3, 0.3)
    if last.endswith("norm"):
        return (1.0, 0.25)
    if last == "embed_tokens":
        return 3.0 / fan_in**0.5 if tied else 1.0
    if last == "lm_head":
        return 3.0 / fan_in**0.5
    if last in ("q_proj", "k_proj", "qkv_proj"):
        return 1.35 / fan_in**0.5
    if last in ("o_proj", "down_proj"):
        return 1.6 / fan_in**0.5
    return 1.2 / fan_in**0.5


def dtype_of(name, kind):
    if kind == "mix":
        if "norm" in name:
            return torch.float32
        return torch.float16 if "self_attn" in name else torch.bfloat16
    return {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[kind]


def shapes_of(cfg):
    with torch.device("meta"):
        config = AutoConfig.for_model(**json.loads(json.dumps(cfg)))
        model = AutoModelForCausalLM.from_config(config)
    shapes = {k: tuple(v.shape) for k, v in model.state_dict().items()}
    if cfg["tie_word_embeddings"]:
        shapes.pop("lm_head.weight", None)
    return shapes, config


def make_weights(name, cfg, how):
    shapes, config = shapes_of(cfg)
    kind = how.get("dtype", "bf16")
    weights = {}
    for key, shape in shapes.items():
        rng = np.random.Generator(np.random.PCG64(zlib.crc32(f"{name}/{key}".encode())))
        scale = scale_of(key, cfg, shape)
        mean, std = scale if isinstance(scale, tuple) else (0.0, scale)
        value = (mean + std * rng.standard_normal(shape)).astype(np.float32)
        weights[key] = torch.from_numpy(value).to(dtype_of(key, kind)).contiguous()
    if how.get("tied_head"):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    if how.get("inv_freq"):
        dim = cfg["hidden_size"] // cfg["num_attention_heads"]
        inv_freq = 1.0 / (10000.0 ** (torch.arange(0, dim, 2).float() / dim))
        for layer in range(cfg["num_hidden_layers"]):
            weights[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = inv_freq.clone()
    return weights


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_weights(out, weights, n_shards):
    for old in out.glob("*.safetensors*"):
        old.unlink()
    if n_shards == 1:
        save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})
        return
    keys = list(weights)
    per = -(-len(keys) // n_shards)
    where = {}
    for i in range(n_shards):
        file = f"model-{i + 1:05d}-of-{n_shards:05d}.safetensors"
        part = {k: weights[k] for k in keys[i * per:(i + 1) * per]}
        save_file(part, str(out / file), metadata={"format": "pt"})
        where.update({k: file for k in part})
    total = sum(t.numel() * t.element_size() for t in weights.values())
    write_json(out / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))})


def write_family(name):
    _, cfg, how = FAMILIES[name]
    spm = how.get("tokenizer") == "spm"
    tok = make_spm_tokenizer() if spm else make_tokenizer()
    out = OUT / name
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", cfg)
    write_json(out / "generation_config.json",
               {"bos_token_id": BOS, "eos_token_id": EOS if spm else [EOS, END], "pad_token_id": PAD, "do_sample": True, "temperature": 0.7})
    tok.save(str(out / "tokenizer.json"), pretty=False)
    names = ("<s>", "</s>", "<unk>") if spm else ("<|bos|>", "<|eos|>", "<|pad|>")
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": names[0], "eos_token": names[1],
        "pad_token": names[2], "add_bos_token": True, "clean_up_tokenization_spaces": False,
        "model_max_length": cfg["max_position_embeddings"],
        "chat_template": SPM_TEMPLATE if spm else CHAT_TEMPLATE})
    write_weights(out, make_weights(name, cfg, how), how.get("shards", 1))
    size = sum(f.stat().st_size for f in out.iterdir())
    print(f"{name}: {size / 1000:.0f} kB")


def write_readme():
    lines = ["# Small random checkpoints, one a family variant", "",
             "Written by `tools/ref/make_families.py`; what they must compute is in `tests/golden/families`.", "",
             "| directory | what it is there for |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, (why, _, _) in FAMILIES.items()]
    (OUT / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv):
    if argv == ["--list"]:
        for name, (why, _, _) in FAMILIES.items():
            print(f"{name}: {why}")
        return
    for name in argv or FAMILIES:
        write_family(name)
    write_readme()


if __name__ == "__main__":
    main(sys.argv[1:])
