"""What a golden file of tests/golden/families holds and how it is measured; used by the scripts beside it.

The reference of a step is one forward pass over the whole sequence so far, without a cache, in fp32 with transformers' eager
attention: what `generate` gives too, within noise.generate. Dynamic RoPE is the exception: there keys stay as they were rotated
when the row was shorter, so its reference is the cached `generate` itself, and its other runs go step by step over a cache.

The golden file's own noise, always over the reference's top-20 sets, teacher-forced on the reference's ids:
  sdpa                 transformers fp32 with sdpa attention
  float64              weights, activations and RoPE angles all in float64 (norms, softmax and angles patched, since
                       transformers keeps them in fp32 whatever the model's dtype)
  float64_fp32_angles  float64, but with transformers' own fp32 cos and sin: what is left is the arithmetic
  generate             transformers' cached generate, where it chose the same tokens
  bf16                 transformers loaded with dtype=bfloat16: the error that bf16 mode is measured against
Each is {"mean", "max"} of the absolute difference in log-probability.
"""
import json
import math
import platform
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "families"
N_TOP = 20
N_STEPS = 24

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_grad_enabled(False)


def load(path, dtype=torch.float32, attn="eager", state=None):
    """state: weights to use instead of the directory's (config.json alone is then read)."""
    if state is None:
        model = AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype, attn_implementation=attn)
    else:
        config = transformers.AutoConfig.from_pretrained(str(path))
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attn)
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected and all(k == "lm_head.weight" for k in missing), (missing, unexpected)
        model.tie_weights()
    # Made in its dtype, never cast: .to(bfloat16) would round the RoPE frequencies as well, which loading does not.
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    return model.eval()


# --- float64 -----------------------------------------------------------------------------------------------------------

def rope_float64(config, n_tokens):
    """(inverse frequencies, factor of cos and sin) in float64 for a sequence of n_tokens, from the definitions."""
    p = config.rope_parameters
    kind = p.get("rope_type", "default")
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    # Llama, Mistral and Qwen rotate whole heads whatever the configuration says; only Phi-3 among them can do less.
    dim = int(head_dim * (p.get("partial_rotary_factor") or 1.0))
    theta = float(p["rope_theta"])
    j = np.arange(0, dim, 2, dtype=np.float64) / dim
    inv = theta**-j
    orig = p.get("original_max_position_embeddings")
    if kind == "default":
        return inv, 1.0
    if kind == "linear":
        return inv / p["factor"], 1.0
    if kind == "dynamic":
        most = config.max_position_embeddings
        n = max(n_tokens, most)
        theta *= (p["factor"] * n / most - (p["factor"] - 1.0))**(dim / (dim - 2))
        return theta**-j, 1.0
    if kind == "llama3":
        wavelength = 2 * math.pi / inv
        low, high = p["low_freq_factor"], p["high_freq_factor"]
        s = np.clip((orig / wavelength - low) / (high - low), 0.0, 1.0)
        return (1 - s) * inv / p["factor"] + s * inv, 1.0
    if kind == "yarn":
        def turns(n):
            return dim * math.log(orig / (n * 2 * math.pi)) / (2 * math.log(theta))

        def mscale(m):
            return 0.1 * m * math.log(p["factor"]) + 1.0
        lo, hi = turns(p.get("beta_fast") or 32), turns(p.get("beta_slow") or 1)
        if p.get("truncate", True):
            lo, hi = math.floor(lo), math.ceil(hi)
        lo, hi = max(lo, 0), min(hi, dim - 1)
        ramp = np.clip((np.arange(dim // 2) - lo) / (hi - lo if hi != lo else 0.001), 0, 1)
        attention = p.get("attention_factor")
        if attention is None:
            both = p.get("mscale") and p.get("mscale_all_dim")
            attention = mscale(p["mscale"]) / mscale(p["mscale_all_dim"]) if both else mscale(1)
        return inv * (1 - ramp) + inv / p["factor"] * ramp, attention
    if kind == "longrope":
        factors = np.array(p["long_factor"] if n_tokens > orig else p["short_factor"], dtype=np.float64)
        factor = p.get("factor") or config.max_position_embeddings / orig
        attention = p.get("attention_factor")
        if attention is None:
            attention = math.sqrt(1 + math.log(factor) / math.log(orig)) if factor > 1 else 1.0
        return inv / factors, attention
    raise ValueError(f"rope_type {kind}")


def to_float64(model, exact_angles):
    """Makes a loaded fp32 model compute in float64 throughout (angles only if exact_angles)."""
    model = model.double()
    config = model.config

    def norm(module):
        def forward(x):
            return module.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon))
        return forward

    def rotary(x, position_ids):
        inv, scale = rope_float64(config, int(position_ids.max()) + 1)
        angle = position_ids[..., None].double() * torch.from_numpy(inv)
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos() * scale, angle.sin() * scale

    for name, module in model.named_modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm(module)
        if exact_angles and name.endswith("rotary_emb"):
            module.forward = rotary
    return model


class softmax_in_own_dtype:
    """Within it, softmax of float64 stays in float64, although eager attention asks for float32."""

    def __enter__(self):
        self.plain = torch.nn.functional.softmax

        def softmax(x, dim=None, dtype=None, **kw):
            return self.plain(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype, **kw)
        torch.nn.functional.softmax = softmax

    def __exit__(self, *_):
        torch.nn.functional.softmax = self.plain


# --- measuring ---------------------------------------------------------------------------------------------------------

def reset_rope(model):
    """transformers' dynamic RoPE remembers the longest sequence that it has seen; a reference must not."""
    rope = model.model.rotary_emb
    if hasattr(rope, "original_inv_freq"):
        rope.inv_freq = rope.original_inv_freq.clone()
        rope.max_seq_len_cached = rope.original_max_seq_len


def last_logprobs(model, ids):
    """Log-probabilities of what follows ids, float64 [V]; the log-softmax is taken in float64 of the model's logits."""
    reset_rope(model)
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
    return torch.log_softmax(logits.double(), dim=-1).numpy()


def all_logprobs(model, ids, first):
    """The same for every prefix ids[:n], n >= first, from one pass: for models whose RoPE ignores the length."""
    reset_rope(model)
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, first - 1:]
    return torch.log_softmax(logits.double(), dim=-1).numpy()


def is_dynamic(model):
    return getattr(model.model.rotary_emb, "rope_type", "default") == "dynamic"


def cached_logprobs(model, prompt, tokens):
    """What follows prompt + tokens[:n] for each n < len(tokens), step by step over a cache, as generate does."""
    reset_rope(model)
    rows, cache, feed = [], None, prompt
    for token in tokens:
        out = model(input_ids=torch.tensor([feed]), past_key_values=cache, use_cache=True)
        rows.append(torch.log_softmax(out.logits[0, -1].double(), dim=-1).numpy())
        cache, feed = out.past_key_values, [token]
    return rows


def greedy(model, prompt, n_steps):
    if is_dynamic(model):
        return generated(model, prompt, n_steps)
    ids, rows = list(prompt), []
    for _ in range(n_steps):
        rows.append(last_logprobs(model, ids))
        ids.append(int(rows[-1].argmax()))
    return ids[len(prompt):], rows


def forced(model, prompt, tokens, one_pass):
    if is_dynamic(model):
        return cached_logprobs(model, prompt, tokens)
    if one_pass:
        return list(all_logprobs(model, prompt + tokens[:-1], len(prompt)))
    return [last_logprobs(model, prompt + tokens[:n]) for n in range(len(tokens))]


def top_of(row):
    order = np.lexsort((np.arange(row.size), -row))
    return order[:N_TOP]


def generated(model, prompt, n_steps):
    reset_rope(model)
    model.generation_config = transformers.GenerationConfig(do_sample=False, max_new_tokens=n_steps, pad_token_id=0)
    ids = torch.tensor([prompt])  # with a mask: without one, generate takes every padding id in the prompt for padding
    out = model.generate(ids, attention_mask=torch.ones_like(ids), return_dict_in_generate=True, output_logits=True)
    rows = [torch.log_softmax(r[0].double(), dim=-1).numpy() for r in out.logits]
    return out.sequences[0, len(prompt):].tolist(), rows


class noise:
    def __init__(self):
        self.diffs = []

    def add(self, top, reference, other):
        self.diffs.append(np.abs(reference[top] - other[top]))

    def figures(self):
        d = np.concatenate(self.diffs) if self.diffs else np.zeros(1)
        return {"mean": float(f"{d.mean():.3g}"), "max": float(f"{d.max():.3g}")}


def measure(path, prompts, n_steps=N_STEPS, state=None, with_float64=True, one_pass=False):
    """The body of a golden file: {"noise", "prompts"}. one_pass: teacher-force in one pass (large models)."""
    model = load(path, state=state)
    entries, rows_of = [], []
    same = 0
    kinds = {"generate": noise()}
    for prompt in prompts:
        tokens, rows = greedy(model, prompt, n_steps)
        tops = [top_of(r) for r in rows]
        rows_of.append((prompt, tokens, rows, tops))
        entries.append({
            "ids": prompt, "greedy": tokens,
            "margin": [round(float(r[t[0]] - r[t[1]]), 6) for r, t in zip(rows, tops)],
            "top_ids": [t.tolist() for t in tops],
            "top_logprobs": [[round(float(r[i]), 7) for i in t] for r, t in zip(rows, tops)]})
        other_tokens, other_rows = generated(model, prompt, n_steps)
        same += other_tokens == tokens
        for n in range(n_steps):
            if other_tokens[:n] == tokens[:n]:
                kinds["generate"].add(tops[n], rows[n], other_rows[n])

    def compare(kind, other):
        kinds[kind] = noise()
        for prompt, tokens, rows, tops in rows_of:
            for top, row, theirs in zip(tops, rows, forced(other, prompt, tokens, one_pass)):
                kinds[kind].add(top, row, theirs)
    compare("sdpa", load(path, attn="sdpa", state=state))
    if with_float64:
        with softmax_in_own_dtype():
            compare("float64", to_float64(load(path, state=state), True))
            compare("float64_fp32_angles", to_float64(load(path, state=state), False))
    compare("bf16", load(path, dtype=torch.bfloat16, state=state))
    figures = {k: v.figures() for k, v in kinds.items()}
    figures["generate"]["same_text"] = f"{same} of {len(prompts)}"
    return {"noise": figures, "prompts": entries}


def versions():
    return {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
            "numpy": np.__version__, "machine": platform.machine()}


def write(name, model, body, **about):
    """One JSON object; each prompt is a line, so that a difference between two versions can be read."""
    head = {"model": model, "reference": "transformers fp32, eager attention; whole sequence each step, no cache (dynamic RoPE: generate)",
            **about, "versions": versions()}
    OUT.mkdir(parents=True, exist_ok=True)
    dump = lambda v: json.dumps(v, separators=(",", ":"))
    text = '{"about":%s,\n"noise":%s,\n"prompts":[\n%s\n]}\n' % (
        dump(head), dump(body["noise"]), ",\n".join(dump(p) for p in body["prompts"]))
    (OUT / f"{name}.json").write_text(text)
    n = body["noise"]
    margins = [m for p in body["prompts"] for m in p["margin"]]
    print(f"{name}: {len(text) / 1000:.0f} kB; " + "; ".join(
        f"{k} {v['mean']:.2g}/{v['max']:.2g}" for k, v in n.items()) +
        f"; generate same {n['generate']['same_text']}; margins min {min(margins):.2g} median {np.median(margins):.2g}",
        flush=True)
