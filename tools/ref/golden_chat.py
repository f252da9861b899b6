#!/usr/bin/env python3
"""Goldens of chat templates, from the reference implementation: transformers 5.24.0, jinja2 3.1.6, Python 3.11.

  golden_chat.py TEMPLATES.json    writes tests/golden/chat_renderings.json and refreshes tests/golden/chat_language.json

TEMPLATES.json is a list of {"name", "template"}. chat_renderings.json holds our conversations and, for every template and
conversation, the FNV-1a hash of what transformers renders, or the error. chat_language.json holds our small cases
{"template", "globals"}; their "expected" or "error" is set anew from the same environment. To add a case, add its template
(and globals) to that file and run this script.

An "error" is a string only when the template raised it itself (raise_exception): then the text is part of the contract.
"""
import datetime
import json
import os
import sys

import jinja2
import tokenizers
import transformers
from transformers.utils import chat_template_utils as utils

WANT = {"transformers": "5.24.0", "jinja2": "3.1.6"}
HAVE = {"transformers": transformers.__version__, "jinja2": jinja2.__version__}
NOW_S = 1785587696  # civil seconds; what strftime_now sees
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=NOW_S)


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a place, \"quoted\" & <escaped>",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "array", "items": {"type": "integer"}, "default": [1, 2.5, None, True]},
            },
            "required": ["city"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(arguments, name="get_weather", call_id="abcdefghi"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


DICT_CALL = [
    user("Weather in Zürich?"),
    assistant("", tool_calls=[call({"city": "Zürich", "unit": "celsius"})]),
    {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": "{\"temp\": 21.5}"},
    assistant("It is 21.5 degrees."),
    user("Thanks"),
]
STRING_CALL = [
    system("Use tools."),
    user("Weather and time?"),
    assistant(None, tool_calls=[call("{\"city\": \"Oslo\"}"), call("{}", "now", "ihgfedcba")]),
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain"},
    {"role": "tool", "tool_call_id": "ihgfedcba", "content": "12:00"},
]
REASONED = [
    user("2+2?"),
    assistant("4", reasoning_content="Two and two make four."),
    user("And 3+3?"),
    assistant("<think>\nThree and three.\n</think>\n\n6"),
    user("Sum of both?"),
]

CONVERSATIONS = [
    {"name": "one user", "messages": [user("Hello")], "add_generation_prompt": True},
    {"name": "one user, no prompt", "messages": [user("Hello")]},
    {"name": "system, turns", "messages": [system("You are terse."), user("Hi"), assistant("Hello!"), user("  Bye \n")],
     "add_generation_prompt": True},
    {"name": "ends with assistant", "messages": [user("Hi"), assistant("  Hello! \n")]},
    {"name": "system late", "messages": [user("Hi"), system("Be kind."), assistant("Yes?"), user("Bye")], "add_generation_prompt": True},
    {"name": "only system", "messages": [system("You are a helper.")], "add_generation_prompt": True},
    {"name": "empty contents", "messages": [system(""), user(""), assistant(""), user("")], "add_generation_prompt": True},
    {"name": "no messages", "messages": [], "add_generation_prompt": True},
    {"name": "list contents", "messages": [system(parts("Be", " brief")), {"role": "user", "content": parts("one", "two")}],
     "add_generation_prompt": True},
    {"name": "list content of the user", "messages": [{"role": "user", "content": parts("only")}, assistant(parts("yes")), user("ok")]},
    {"name": "unicode", "messages": [system("Ünïcödé ẞ ﬁ"), user("你好 👩‍👩‍👧 \u2028\u00a0x\u3000\x1f \u200b"), assistant("مرحبا\tÅ\u0301"),
                                     user("'\"\\<>&{{ x }}{% if %} $")], "add_generation_prompt": True},
    {"name": "two users", "messages": [user("One"), user("Two")], "add_generation_prompt": True},
    {"name": "two assistants", "messages": [user("One"), assistant("a"), assistant("b"), user("c")], "add_generation_prompt": True},
    {"name": "assistant first", "messages": [assistant("Welcome"), user("Hi")], "add_generation_prompt": True},
    {"name": "unknown role", "messages": [user("Hi"), {"role": "narrator", "content": "Night falls."}], "add_generation_prompt": True},
    {"name": "developer role", "messages": [{"role": "developer", "content": "Rules."}, user("Hi")], "add_generation_prompt": True},
    {"name": "no role", "messages": [{"content": "Hi"}], "add_generation_prompt": True},
    {"name": "null keys", "messages": [{"role": "user", "content": "Hi", "name": None, "tool_calls": None},
                                       {"role": "assistant", "content": "Yo", "tool_calls": None, "reasoning_content": None}, user("x")],
     "add_generation_prompt": True},
    {"name": "null content", "messages": [user("Hi"), {"role": "assistant", "content": None}, user("?")]},
    {"name": "number content", "messages": [{"role": "user", "content": 42}, assistant(1.5), user("x")]},
    {"name": "tools given", "messages": [user("Weather?")], "tools": [WEATHER, TIME], "add_generation_prompt": True},
    {"name": "tools and system", "messages": [system("S"), user("Weather?"), assistant("Where?"), user("Here")], "tools": [WEATHER],
     "add_generation_prompt": True},
    {"name": "tools empty", "messages": [user("Weather?")], "tools": [], "add_generation_prompt": True},
    {"name": "call with dict", "messages": DICT_CALL, "tools": [WEATHER], "add_generation_prompt": True},
    {"name": "call with string", "messages": STRING_CALL, "tools": [WEATHER, TIME], "add_generation_prompt": True},
    {"name": "call without tools", "messages": DICT_CALL, "add_generation_prompt": True},
    {"name": "call at the end", "messages": DICT_CALL[:2], "tools": [WEATHER]},
    {"name": "tool answers at the end", "messages": DICT_CALL[:3], "tools": [WEATHER], "add_generation_prompt": True},
    {"name": "reasoning", "messages": REASONED, "add_generation_prompt": True},
    {"name": "reasoning on", "messages": REASONED, "add_generation_prompt": True, "kwargs": {"enable_thinking": True, "thinking": True}},
    {"name": "reasoning off", "messages": REASONED, "add_generation_prompt": True, "kwargs": {"enable_thinking": False, "thinking": False}},
    {"name": "thinking key", "messages": [user("Q"), assistant("A", thinking="T", tool_calls=[call({"city": "X"})]), user("R"),
                                          assistant("B", reasoning="U")], "kwargs": {"reasoning_effort": "high"}},
    {"name": "documents", "messages": [user("Who?")], "documents": [{"title": "Doc", "text": "It was him."}, {"title": "Two", "text": "No"}],
     "add_generation_prompt": True},
    {"name": "kwargs", "messages": [system("S"), user("Hi")], "add_generation_prompt": True,
     "kwargs": {"date_string": "01 Jan 2031", "custom_system": "x", "tools_in_user_message": False, "bos_token": "<BOS>"}},
    {"name": "long", "messages": [m for i in range(12) for m in (user("q%d " % i * 5), assistant("a%d" % i))] + [user("end")],
     "add_generation_prompt": True},
]


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return "%016x" % value


def outcome(render):
    """(text, None), or (None, the template's own message or None within a list)."""
    try:
        text = render()
        text.encode("utf-8")
        return {"expected": text}
    except Exception as error:  # whatever it raises is an error row
        own = type(error) is jinja2.exceptions.TemplateError
        return {"error": str(error) if own else None}


def render_all(templates):
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, **SPECIAL)
    results = {}
    for i, entry in enumerate(templates):
        row = results["%d %s" % (i, entry["name"])] = []
        for c in CONVERSATIONS:
            got = outcome(lambda: tokenizer.apply_chat_template(
                c["messages"], tools=c.get("tools"), documents=c.get("documents"), chat_template=entry["template"],
                add_generation_prompt=c.get("add_generation_prompt", False), tokenize=False, **c.get("kwargs", {})))
            row.append(fnv1a(got["expected"]) if "expected" in got else [got["error"]])
    return results


def write(name, head, items):
    """JSON with one item a line, so that a change shows as a line."""
    with open(os.path.join(GOLDEN, name), "w", encoding="utf-8") as file:
        file.write("{%s,\n" % json.dumps(head)[1:-1])
        file.write(items)
        file.write("\n}\n")


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main():
    if HAVE != WANT:
        sys.exit("want %s, have %s" % (WANT, HAVE))
    utils.datetime = FixedClock
    templates = json.load(open(sys.argv[1], encoding="utf-8"))
    results = render_all(templates)
    write("chat_renderings.json", {"versions": HAVE, "now_s": NOW_S, "special": SPECIAL},
          '"conversations":[\n%s\n],\n"results":{\n%s\n}' % (
              ",\n".join(map(dump, CONVERSATIONS)),
              ",\n".join("%s:%s" % (dump(k), dump(v)) for k, v in results.items())))
    cases = json.load(open(os.path.join(GOLDEN, "chat_language.json"), encoding="utf-8"))["cases"]
    for case in cases:
        case.pop("expected", None), case.pop("error", None)
        case.update(outcome(lambda: utils._compile_jinja_template(case["template"]).render(**case.get("globals", {}))))
    write("chat_language.json", {"versions": HAVE, "now_s": NOW_S}, '"cases":[\n%s\n]' % ",\n".join(map(dump, cases)))
    errors = sum(isinstance(x, list) for row in results.values() for x in row)
    print("%d renderings, %d of them errors; %d language cases" % (
        sum(map(len, results.values())), errors, len(cases)))


if __name__ == "__main__":
    main()
