#!/usr/bin/env python3
"""Checks that includes follow the layers of docs/DESIGN.md, and that headers keep their rules.

A file of src/MODULE may include "MODULE/..." of its own module and of those its row allows, nothing else. Each
header has the guard SPILL_<MODULE>_<FILE>_H and compiles alone (with --compile CC FLAGS...). Exit status 1 and one
line for each breach.
"""
import pathlib
import re
import subprocess
import sys

ALLOWED = {
    "util": set(),
    "io": {"util"},
    "kernels": {"util"},
    "tokenizer": {"util"},
    "chat": {"util", "tokenizer"},
    "model": {"util", "io", "kernels"},
    "planner": {"util", "io", "kernels", "model"},
    "engine": {"util", "io", "kernels", "model", "planner"},
    "train": {"util", "io", "kernels", "tokenizer", "chat", "model", "planner", "engine"},
    "jobs": {"util", "io", "kernels", "tokenizer", "chat", "model", "planner", "engine", "train"},
    "cli": {"util", "io", "kernels", "tokenizer", "chat", "model", "planner", "engine", "train", "jobs"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
root = pathlib.Path(__file__).resolve().parent.parent
source = root / "src"


def breaches_of_includes(path, module):
    for name in INCLUDE.findall(path.read_text()):
        target = name.split("/")[0] if "/" in name else None
        if target is None:
            yield f'{path.relative_to(root)}: #include "{name}": write "module/file.h"'
        elif target != module and target not in ALLOWED[module]:
            yield f'{path.relative_to(root)}: #include "{name}": {module} may not use {target}'


def breaches_of_guard(path, module):
    want = f"SPILL_{module}_{path.relative_to(source / module).with_suffix('').as_posix()}_H".upper()
    want = re.sub(r"[^A-Z0-9_]", "_", want)
    if f"#ifndef {want}\n#define {want}\n" not in path.read_text():
        yield f"{path.relative_to(root)}: guard {want} wanted"


def breaches_of_compile(path, compiler):
    command = [*compiler, "-std=gnu17", "-D_GNU_SOURCE", '-DSP_VERSION="0"', f"-I{source}", "-fsyntax-only", "-x", "c", str(path)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        yield f"{path.relative_to(root)}: does not compile alone: {run.stderr.splitlines()[0]}"


def main():
    compiler = sys.argv[2:] if sys.argv[1:2] == ["--compile"] else None
    found = []
    for path in sorted(source.rglob("*")):
        module = path.relative_to(source).parts[0]
        if path.suffix not in {".c", ".h", ".def"} or path.is_dir():
            continue
        if module not in ALLOWED:
            found.append(f"{path.relative_to(root)}: module {module} has no row in tools/check_layers.py")
            continue
        found += breaches_of_includes(path, module)
        is_plain_header = path.suffix == ".h" and not path.name.startswith("lanes_")
        if is_plain_header:
            found += breaches_of_guard(path, module)
            if compiler:
                found += breaches_of_compile(path, compiler)
    print("\n".join(found) if found else "layers: every include is allowed, every header is guarded")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
