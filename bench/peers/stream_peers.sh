#!/bin/sh
# spill and what a user would otherwise take, on a model bigger than the memory they get, in turn.
#
#   bench/peers/stream_peers.sh MODEL_DIR GGUF MEMORY_MB [ROUNDS]
#
# MODEL_DIR by spill_make_model (bf16), GGUF by stream_gguf.py. Every program runs inside a cgroup (v1) of MEMORY_MB, page
# cache included, with the cache dropped before it: 1 and 32 rows, one JSON line each. PYTHON and PYTHON_LLAMA are the
# interpreters that have the peers, SPILL the program, WORK a directory with room for AirLLM's copy of the model, PEERS the
# list (default: "spill mmap direct offload airllm"). Needs root.
set -eu
export LC_ALL=C
[ $# -ge 3 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(dirname "$0") model=$1 gguf=$2 memory_mb=$3 rounds=${4:-1}
python=${PYTHON:-python3} python_llama=${PYTHON_LLAMA:-python3} spill=${SPILL:-build/src/cli/spill} work=${WORK:-/tmp/stream-peer}
group=/sys/fs/cgroup/memory/stream_peers
mkdir -p "$group" "$work"
echo $((memory_mb << 20)) >"$group/memory.limit_in_bytes"
trap 'rmdir "$group" 2>/dev/null || true' EXIT

# The same model without its chat template: a prompt is its 16 tokens, as the peers get them.
raw=$work/raw
mkdir -p "$raw"
ln -sf "$(cd "$model" && pwd)"/* "$raw"
rm -f "$raw"/chat_template.jinja "$raw/tokenizer_config.json"
"$python" - "$model/tokenizer_config.json" "$raw/tokenizer_config.json" <<'EOP'
import json, sys
config = json.load(open(sys.argv[1]))
config.pop("chat_template", None)
json.dump(config, open(sys.argv[2], "w"))
EOP

limited() { # COMMAND..., inside the cgroup and without page cache
    sync
    echo 3 >/proc/sys/vm/drop_caches
    echo "# $*"
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$@" || echo "{\"failed\": $?, \"command\": \"$1 $2\"}"
}

prompts() { # ROWS -> a file of as many raw prompts of 16 letters
    awk -v n="$1" 'BEGIN { srand(1); for (i = 0; i < n; i++) { s = ""; for (k = 0; k < 16; k++) s = s sprintf("%c", 97 + int(26 * rand())); printf "{\"prompt\":\"%s\",\"max_tokens\":4}\n", s } }' >"$work/rows.jsonl"
}

run_peer() { # PEER ROWS
    case $1 in
    spill)
        prompts "$2"
        rm -f "$work/out.jsonl"
        limited "$spill" run "$raw" "$work/rows.jsonl" -o "$work/out.jsonl" --threads 2 --json 2>&1 | grep -E '^#|"(plan|pass|done)"|failed'
        ;;
    mmap | direct) limited "$python_llama" "$here/stream_llamacpp.py" "$gguf" --rows "$2" --load "$1" ;;
    offload) limited "$python" "$here/stream_transformers.py" "$model" --rows "$2" --way offload --cpu-bytes $((memory_mb << 19)) --work "$work" ;;
    airllm) limited "$python" "$here/stream_transformers.py" "$model" --rows "$2" --way airllm --work "$work" ;;
    esac
}

for _ in $(seq "$rounds"); do
    for rows in 1 32; do
        for peer in ${PEERS:-spill mmap direct offload airllm}; do run_peer "$peer" "$rows"; done
    done
done
