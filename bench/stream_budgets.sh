#!/bin/sh
# Big models in random budgets, and models of 1, 2, 4 and 8 times a size.
#
#   bench/stream_budgets.sh sizes DIR [LAYERS]     models of LAYERS (default 1), 2, 4, 8 x as many layers of the 70B shape and
#                                                  a small vocabulary are made in DIR, run streamed, and deleted
#   bench/stream_budgets.sh random MODEL [N [SEED]]  N (5) runs, each with a random --memory and number of rows, inside a
#                                                  cgroup that grants 5% more: what was planned, and the peak
#
# One new token a row after the first. SPILL and MAKE are the programs (default build/spill, build/bench/spill_make_model).
# "random" needs root and a version 1 cgroup of memory; what the run reads past the page cache is not counted there.
set -eu
export LC_ALL=C
usage() { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
spill=${SPILL:-build/spill} make=${MAKE:-build/bench/spill_make_model}
work=$(mktemp -d)
group=/sys/fs/cgroup/memory/stream_budgets
trap 'rm -rf "$work"; rmdir "$group" 2>/dev/null || true' EXIT
export SPILL_HOME="$work/home"

# ROWS -> rows.jsonl
make_rows() {
    for i in $(seq "$1"); do printf '{"custom_id":"r%d","prompt":"row %d, of a few tokens","max_tokens":3}\n' "$i" "$i"; done >"$work/rows.jsonl"
}

# Of the events: decode passes' median seconds and bytes, plan and peak.
report() {
    tr ',{}' '[\n*]' <"$work/events" | awk -F'"?:"?' -v name="$1" '
        $1 == "\"event" { event = $2; sub(/"$/, "", event) }
        event == "plan" && $1 == "\"pinned_layers" { pinned = $2 }
        event == "plan" && $1 == "\"rows" { rows = $2 }
        event == "plan" && $1 == "\"weight_bytes" { weights = $2 }
        event == "pass" && $1 == "\"seconds" { s = $2 }
        event == "pass" && $1 == "\"bytes_read" { b = $2 }
        event == "pass" && $1 == "\"prefill_tokens" && $2 == 0 { n++; S += s; B += b }
        event == "done" && $1 == "\"peak_rss_bytes" { peak = $2 }
        END { printf "%-24s weights %6.2f GB, %2d rows, %2d layers pinned: decode pass %6.2f s, %6.2f GB, %.2f GB/s, peak %.3f GB\n",
                name, weights / 1e9, rows, pinned, S / n, B / n / 1e9, B / S / 1e9, peak / 1e9 }'
}

case $1 in
sizes)
    make_rows 1
    for factor in 1 2 4 8; do
        layers=$((${3:-1} * factor))
        "$make" "$2/layers$layers" --layers $layers --hidden 8192 --heads 64 --kv-heads 8 --ffn 28672 --vocab 1024 >/dev/null
        sync
        "$spill" run --json --placement stream --memory "${MEMORY:-1500M}" "$2/layers$layers" "$work/rows.jsonl" -o - \
            2>"$work/events" >"$work/out" || { tail -1 "$work/events" >&2; exit 1; }
        report "$layers layers"
        rm -rf "$2/layers$layers"
    done
    ;;
random)
    model=$2 n=${3:-5} seed=${4:-1}
    mkdir -p "$group"
    for i in $(seq "$n"); do
        memory_mib=$(awk -v seed="$seed$i" 'BEGIN { srand(seed); print 2200 + int(12000 * rand()) }')
        make_rows "$(awk -v seed="$seed$i" 'BEGIN { srand(seed); rand(); print 1 + int(48 * rand()) }')"
        echo $((memory_mib * 105 * 1048576 / 100)) >"$group/memory.limit_in_bytes"
        sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$spill" run --json --memory "${memory_mib}M" "$model" \
            "$work/rows.jsonl" -o - 2>"$work/events" >"$work/out" || {
            echo "budget $memory_mib MiB: killed or failed" >&2
            tail -1 "$work/events" >&2
            exit 1
        }
        report "budget $((memory_mib * 1048576 / 1000000)) MB"
    done
    ;;
*) usage ;;
esac
