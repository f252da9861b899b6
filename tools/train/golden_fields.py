# Writes tests/golden/fields_greedy.json: what transformers answers to models/fields/sample.jsonl.
#
# Weights as stored (bf16) but computed with in fp32, one row at a time, greedy, at most the row's max_tokens. The
# tokens include the turn-ending one, the text does not. Prints how many answers equal the expected text and the
# narrowest lead of a chosen token's logit over the runner-up.
#
#   python golden_fields.py --model ../../models/fields --out ../../tests/golden/fields_greedy.json

import argparse
import json
import pathlib

import torch
import transformers


def messages(row):
    system = [{"role": "system", "content": row["system"]}] if "system" in row else []
    return system + [{"role": "user", "content": row["prompt"]}]


def main():
    parser = argparse.ArgumentParser(description="Golden greedy tokens of the fields model.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", help="input lines; default: sample.jsonl of the model")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tok = transformers.AutoTokenizer.from_pretrained(args.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    with open(args.rows or args.model + "/sample.jsonl", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]

    golden, right, lead = {}, 0, float("inf")
    for row in rows:
        prompt = tok.apply_chat_template(messages(row), tokenize=False, add_generation_prompt=True)
        ids = tok(prompt, add_special_tokens=False, return_tensors="pt")
        out = model.generate(**ids, max_new_tokens=row["max_tokens"], do_sample=False, output_logits=True,
                             return_dict_in_generate=True)
        n_prompt = ids["input_ids"].shape[1]
        tokens = out.sequences[0, n_prompt:].tolist()
        for logits in out.logits:
            top = logits[0].topk(2).values
            lead = min(lead, (top[0] - top[1]).item())
        text = tok.decode(tokens, skip_special_tokens=True)
        right += text == row["expected"]
        golden[row["custom_id"]] = {"prompt_tokens": n_prompt, "tokens": tokens, "text": text}
    print("%d of %d rows as expected, narrowest lead %.3f" % (right, len(rows), lead))
    if args.out:
        lines = ['  %s: %s' % (json.dumps(k), json.dumps(v, ensure_ascii=False)) for k, v in golden.items()]
        args.out.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
