#!/usr/bin/env python3
"""Writes prompts_200.jsonl: 32 rows of plain English, each exactly 200 tokens of SmolLM2's tokenizer as raw text.

    make_prompts.py TOKENIZER_JSON
"""
import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer

N_ROWS, N_TOKENS = 32, 200
OUT = Path(__file__).resolve().parent / "prompts_200.jsonl"

WORDS = {
    "who": ["the baker", "our neighbour", "the night nurse", "a young surveyor", "the ferryman", "the librarian",
            "my aunt", "the new teacher", "an old carpenter", "the postman", "the harbour master", "a student of botany",
            "the owner of the mill", "the conductor", "a tired cyclist", "the clockmaker"],
    "did": ["repaired", "counted", "painted", "borrowed", "carried home", "weighed", "described", "hid", "sold", "found",
            "measured", "drew", "wrapped", "photographed", "polished", "forgot"],
    "what": ["a brass lamp", "three baskets of plums", "the longest ladder in the village", "a map of the marshes",
             "the blue bicycle", "a box of letters", "two wooden chairs", "an empty bird cage", "the stove in the hall",
             "a sack of barley", "the broken window", "a tin of nails", "the winter curtains", "a roll of canvas"],
    "where": ["behind the chapel", "on the upper floor", "beside the canal", "in the back of the shop", "at the station",
              "under the stairs", "near the old quarry", "on the way to the coast", "across the market square",
              "at the edge of the orchard", "in a shed by the railway", "between the two bridges"],
    "when": ["before breakfast", "on the first Monday in May", "shortly after midnight", "while it was still raining",
             "during the lunch break", "late in the autumn", "just as the bell rang", "a week after the flood",
             "on the shortest day of the year", "toward evening"],
    "why": ["because nobody else had the time", "although the price had gone up", "since the road was closed",
            "so that the children could see it", "because the roof was leaking again", "to please a visitor from the city",
            "although it was not strictly allowed", "because the museum had asked for it"],
    "number": ["two", "five", "eleven", "fourteen", "twenty", "thirty-six", "ninety", "a hundred and four"],
    "thing": ["eggs", "planks", "lanterns", "tickets", "jars of honey", "wool blankets", "candles", "apple trees",
              "bricks", "fishing nets"],
    "weather": ["cold and clear", "warm for the season", "too windy for the small boats", "grey from morning to night",
                "bright after a week of fog", "so dry that the grass turned yellow"],
    "place": ["the valley", "the northern district", "the island", "the lower town", "the next village", "the coast"],
}
SENTENCES = [
    "{Who} {did} {what} {where} {when}.",
    "{When}, {who} {did} {what}, {why}.",
    "There were {number} {thing} {where}, and {who} {did} most of them {when}.",
    "The weather in {place} was {weather}, and {who} stayed {where} until noon.",
    "Nobody from {place} remembered why {who} {did} {what} {when}.",
    "If {number} {thing} are not enough, said {who}, then ask again {when}.",
    "{Who} wrote down what had happened: {number} {thing} were missing, and {what} stood {where}.",
    "It was {weather} when {who} came back from {place} with {number} {thing}.",
    "From {place} one could see {what} {where}, {why}.",
    "The report says that {who} {did} {what} {where}, {why}.",
]


def sentence(rng):
    pattern = rng.choice(SENTENCES)
    for key, words in WORDS.items():
        for slot in (key, key.capitalize()):
            while "{" + slot + "}" in pattern:
                word = rng.choice(words)
                pattern = pattern.replace("{" + slot + "}", word[0].upper() + word[1:] if slot != key else word, 1)
    return pattern


def prompt(rng, tok):
    """Sentences, cut at the 200th token: a text that begins again until the cut text has exactly 200 tokens of its own."""
    while True:
        text = ""
        while len(tok.encode(text, add_special_tokens=False).ids) < N_TOKENS:
            text = (text + " " + sentence(rng)).strip()
        text = tok.decode(tok.encode(text, add_special_tokens=False).ids[:N_TOKENS])
        if len(tok.encode(text, add_special_tokens=False).ids) == N_TOKENS:
            return text


def main(argv):
    if len(argv) != 1:
        sys.exit("usage: make_prompts.py TOKENIZER_JSON")
    tok = Tokenizer.from_file(argv[0])
    rng = random.Random(200)
    rows = [{"custom_id": f"p{i:02d}", "prompt": prompt(rng, tok)} for i in range(N_ROWS)]
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
