# Trains models/fields, the small model that ships with spill, from nothing: tokenizer, weights, sample rows.
#
# The model reads a short note (an order, an invoice, a meeting, a delivery) and answers with its fields as compact
# JSON. The data is endless and synthetic (fields_data.py); every step sees new rows. The architecture is a plain
# LlamaForCausalLM, the loss is over the answer and the turn-ending token. What is saved, and what is evaluated, are
# the weights rounded to bf16, computed with in fp32.
#
#   pip install -r requirements.txt
#   python train_fields.py --out ../../models/fields
#
# The committed weights: the defaults with --workers 12, 3000 steps of 128 rows, 47 M tokens, 166 s on one NVIDIA H200
# (torch 2.11.0, transformers 5.17.0). Exact match on rows with words never seen in training: sample.jsonl 48 of 48,
# heldout.jsonl 199 of 200, 1000 of 1000 further rows (fields_data.rows(999, 1000, held_out=True)). After 1000 steps it
# is already 0.9. On two CPU cores expect about 10 s a step. The same seed gives the same rows and tokenizer
# everywhere; weights are bit-equal only on the same device and versions.

import argparse
import json
import math
import os
import pathlib
import random
import time

import tokenizers
import torch
import transformers
from safetensors.torch import save_file

import fields_data

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PAD_ID, STOP_ID = 0, 2
VOCAB = 1024
MAX_TOKENS = 80  # the longest answers take 67 and the end token
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
# Words, single digits, runs of signs (taking one space after them) and single blanks: a word has the same tokens
# behind a blank, a quote or a colon, which is what makes copying it easy.
SPLIT = r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]+ ?|\s"
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "vocab_size": VOCAB, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
    "max_position_embeddings": 1024, "rope_theta": 10000.0, "rope_scaling": None, "rms_norm_eps": 1e-5,
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True, "initializer_range": 0.02,
    "bos_token_id": PAD_ID, "eos_token_id": STOP_ID, "pad_token_id": PAD_ID, "use_cache": True,
}
EVAL_SEED, SAMPLE_SEED, HELDOUT_SEED = 7001, 7012, 7013


def render(row):
    """The prompt of a row, as the chat template writes it with the generation prompt."""
    text = "".join("%s%s\n%s%s\n" % (START, role, row[key], STOP)
                   for role, key in (("system", "system"), ("user", "prompt")) if key in row)
    return text + START + "assistant\n"


def train_tokenizer(seed):
    """Byte-level BPE over rendered rows: trained on other rows than the model is."""
    tok = tokenizers.Tokenizer(tokenizers.models.BPE())
    tok.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[END, START, STOP], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    texts = []
    for row in fields_data.rows(seed + 1, 30000):
        texts += [row.get("system", ""), row["prompt"], row["expected"], "system\nuser\nassistant\n"]
    tok.train_from_iterator(texts, trainer)
    return tok


def write_tokenizer(tok, out):
    tok.save(str(out / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONFIG["max_position_embeddings"],
              "bos_token": None, "eos_token": STOP, "pad_token": END, "unk_token": None,
              "additional_special_tokens": [START], "clean_up_tokenization_spaces": False, "add_prefix_space": False,
              "chat_template": TEMPLATE}
    write_json(out / "tokenizer_config.json", config)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_weights(model, out):
    """bf16 safetensors; the head is the embedding, so it is not stored."""
    tensors = {name: p.detach().cpu().to(torch.bfloat16).contiguous() for name, p in model.named_parameters()}
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})


def write_rows(path, rows, prefix, tok):
    with open(path, "w", encoding="utf-8") as f:
        for i, row in enumerate(rows):
            assert len(tok.encode(row["expected"]).ids) < MAX_TOKENS
            f.write(json.dumps({"custom_id": "%s-%03d" % (prefix, i), **row, "max_tokens": MAX_TOKENS},
                               ensure_ascii=False) + "\n")


class Chunks(torch.utils.data.Dataset):
    """Chunk i of the endless data: a list of batches (input ids, labels), a function of the seed and i alone.

    Rows of like length go together; labels are -100 except on the answer and the token that ends it.
    """

    def __init__(self, tok, seed, n_chunks, rows_a_step, steps_a_chunk):
        self.tok, self.seed, self.n_chunks = tok, seed, n_chunks
        self.rows_a_step, self.steps_a_chunk = rows_a_step, steps_a_chunk

    def __len__(self):
        return self.n_chunks

    def __getitem__(self, i):
        rng = random.Random("%d/%d" % (self.seed, i))
        rows = [fields_data.make_row(rng) for _ in range(self.rows_a_step * self.steps_a_chunk)]
        pairs = [(self.tok.encode(render(r)).ids, self.tok.encode(r["expected"]).ids + [STOP_ID]) for r in rows]
        pairs.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        groups = [pairs[at:at + self.rows_a_step] for at in range(0, len(pairs), self.rows_a_step)]
        rng.shuffle(groups)
        return [self.batch(group) for group in groups]

    @staticmethod
    def batch(group):
        width = max(len(p) + len(a) for p, a in group)
        ids = torch.full((len(group), width), PAD_ID)
        labels = torch.full((len(group), width), -100)
        for i, (p, a) in enumerate(group):
            ids[i, :len(p) + len(a)] = torch.tensor(p + a)
            labels[i, len(p):len(p) + len(a)] = torch.tensor(a)
        return ids, labels


def batches(tok, seed, steps, rows_a_step, workers, steps_a_chunk=16):
    chunks = Chunks(tok, seed, -(-steps // steps_a_chunk), rows_a_step, steps_a_chunk)
    loader = torch.utils.data.DataLoader(chunks, batch_size=None, num_workers=workers)
    return (batch for chunk in loader for batch in chunk)


def answer_loss(model, ids, labels):
    """Mean cross-entropy over answer tokens; the head runs on the positions before them only."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    wanted = labels[:, 1:]
    mask = wanted >= 0
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[mask]), wanted[mask])


@torch.no_grad()
def exact_match(model, tok, rows, rows_a_time=64):
    """Greedy answers against the expected text; returns the share that is equal and the rows that are not."""
    wrong = []
    for at in range(0, len(rows), rows_a_time):
        part = rows[at:at + rows_a_time]
        ids = [e.ids for e in tok.encode_batch([render(r) for r in part])]
        width = max(map(len, ids))
        batch = torch.tensor([[PAD_ID] * (width - len(i)) + i for i in ids])
        mask = torch.tensor([[0] * (width - len(i)) + [1] * len(i) for i in ids])
        out = model.generate(input_ids=batch, attention_mask=mask, max_new_tokens=MAX_TOKENS, do_sample=False,
                             eos_token_id=STOP_ID, pad_token_id=PAD_ID)
        for row, tokens in zip(part, out[:, width:].tolist()):
            end = tokens.index(STOP_ID) if STOP_ID in tokens else len(tokens)
            text = tok.decode(tokens[:end], skip_special_tokens=False)
            if text != row["expected"] or STOP_ID not in tokens:
                wrong.append((row, text))
    return 1 - len(wrong) / len(rows), wrong


def rounded_copy(model):
    """The model as it is saved: weights rounded to bf16. It runs in fp32 on the CPU, where it will be used."""
    copy = transformers.LlamaForCausalLM(model.config).eval()
    copy.load_state_dict({k: v.cpu().to(torch.bfloat16).float() for k, v in model.state_dict().items()})
    return copy


def optimizers(model, lr):
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [torch.optim.Muon(matrices, lr=lr, weight_decay=0.02, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True)]


def schedule(step, steps, warmup=50, decay_share=0.5):
    """Linear warm-up, constant, then linear decay to zero."""
    return min((step + 1) / warmup, 1.0, (steps - step) / (decay_share * steps))


def main():
    parser = argparse.ArgumentParser(description="Train the bundled fields model.")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=128, help="rows a step")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0, help="processes that make rows; does not change them")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--eval-every", type=int, default=1000)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")
    args.out.mkdir(parents=True, exist_ok=True)

    tok = train_tokenizer(args.seed)
    write_tokenizer(tok, args.out)
    write_json(args.out / "config.json", CONFIG)
    write_json(args.out / "generation_config.json",
               {"bos_token_id": PAD_ID, "eos_token_id": [STOP_ID], "pad_token_id": PAD_ID, "do_sample": False})
    sample = fields_data.rows(SAMPLE_SEED, 48, held_out=True)
    heldout = fields_data.rows(HELDOUT_SEED, 200, held_out=True)
    write_rows(args.out / "sample.jsonl", sample, "sample", tok)
    write_rows(args.out / "heldout.jsonl", heldout, "heldout", tok)

    config = transformers.LlamaConfig(**CONFIG, attn_implementation="eager")  # eager: its backward has one order
    model = transformers.LlamaForCausalLM(config).float().to(args.device)
    print("parameters %d" % sum(p.numel() for p in model.parameters()), flush=True)
    checks = fields_data.rows(EVAL_SEED, 128, held_out=True)
    opts = optimizers(model, args.lr)
    source = batches(tok, args.seed + 2, args.steps, args.rows, args.workers)
    began, tokens, running = time.time(), 0, None
    for step in range(args.steps):
        ids, labels = (t.to(args.device) for t in next(source))
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = args.lr * schedule(step, args.steps)
        loss = answer_loss(model, ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad()
        tokens += ids.numel()
        running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()
        assert math.isfinite(running)
        if step % 100 == 0:
            print("step %d loss %.4f tokens %d seconds %.0f" % (step, running, tokens, time.time() - began), flush=True)
        if (step + 1) % args.eval_every == 0 and step + 1 < args.steps:
            share, _ = exact_match(rounded_copy(model), tok, checks)
            write_weights(model, args.out)
            print("step %d exact match %.3f" % (step + 1, share), flush=True)

    write_weights(model, args.out)
    final = rounded_copy(model)
    for name, rows in (("sample", sample), ("heldout", heldout)):
        share, wrong = exact_match(final, tok, rows)
        print("%s: %d rows, exact match %.4f" % (name, len(rows), share))
        for row, text in wrong:
            print("  prompt   %s\n  expected %s\n  answered %s" % (row["prompt"], row["expected"], text))
    print("seconds %.0f" % (time.time() - began))


if __name__ == "__main__":
    main()
