#!/bin/sh
# Estimates against what runs took: six jobs of different shape, each planned and run.
#
#   bench/estimate.sh MODEL_DIR PARTLY STREAMED [ROUNDS]
#
# PARTLY and STREAMED are memory budgets (2G, 600M): the first holds a part of the model's layers, the second few or none.
# Columns: the estimate when the run began, seconds; what it took; likely / actual; whether the range holds it; the
# estimate of what was left after a tenth of the passes, and that / what really was left; passes simulated and made.
# Round 1 begins with what spill probe measured, later rounds know the model's earlier runs too (ROUNDS: default 2).
#
# Sizes: ROWS (16), PROMPT (120) and NEW (24) tokens of a byte-level tokenizer (spill_make_model); long prompts are 8
# times, long outputs 6 times as long. PLACES rows at a time at most (default: as planned): a night's job has many more
# rows than fit at once, so that a tenth of it has seen all kinds of passes. SPILL is the program (default build/spill),
# SPILL_HOME a new directory.
set -eu
[ $# -ge 3 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$1 partly=$2 streamed=$3 rounds=${4:-2}
spill=${SPILL:-build/spill} rows=${ROWS:-16} prompt=${PROMPT:-120} new=${NEW:-24} places=${PLACES:-4096}
[ -x "$spill" ] || { echo "estimate: $spill: not built" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SPILL_HOME="$work/home"

# ROWS PROMPT NEW: lengths may be lists, "100,20,400", that rows take in turn
make_rows() {
    awk -v n="$1" -v prompts="$2" -v news="$3" 'BEGIN {
        n_p = split(prompts, p, ","); n_n = split(news, w, ",")
        for (i = 0; i < n; i++) {
            text = ""
            while (length(text) < p[i % n_p + 1]) text = text "row " i " says abcdefghijklmnopqrstuvwxyz "
            printf "{\"custom_id\":\"r%d\",\"prompt\":\"%s\",\"max_tokens\":%d}\n", i, substr(text, 1, p[i % n_p + 1]), w[i % n_n + 1]
        } }' >"$work/rows.jsonl"
}

# NAME OPTIONS...: runs the rows and prints a line
job() {
    name=$1
    shift
    "$spill" run --json --rows "$places" "$@" "$model" "$work/rows.jsonl" -o - 2>"$work/events" >"$work/out" || { tail -1 "$work/events" >&2; exit 1; }
    tr ',{}' '[\n*]' <"$work/events" | awk -F'"?:"?' -v name="$name" -v load="$(cut -d' ' -f1 /proc/loadavg)" '
        { sub(/"$/, "", $2) }
        $1 == "\"event" { event = $2; n += event == "pass" }
        $1 == "\"placement" { placement = $2 }
        event == "plan" && $1 == "\"pinned_layers" { pinned = $2 }
        event == "plan" && $1 == "\"layers" { layers = $2 }
        event == "plan" && $1 == "\"estimate_passes" { planned = $2 }
        event == "plan" && $1 == "\"low" { low = $2 }
        event == "plan" && $1 == "\"likely" { likely = $2 }
        event == "plan" && $1 == "\"high" { high = $2 }
        event == "pass" && $1 == "\"seconds" { at[n] = at[n - 1] + $2 }
        event == "pass" && $1 == "\"likely" { left[n] = $2 }
        event == "done" && $1 == "\"seconds" { actual = $2 }
        END {
            tenth = int(n / 10 + 1)
            real = at[n] - at[tenth]
            holds = low <= actual && actual <= high ? "yes" : "NO"
            tenth_ratio = real > 0 ? left[tenth] / real : 0
            printf "%-15s %-8s %3d/%d  %6.1f %6.1f %6.1f  %6.1f  %5.2f %-4s  %6.1f %5.2f  %5d %5d  load %s\n", name, placement,
                pinned, layers, low, likely, high, actual, likely / actual, holds, left[tenth],
                tenth_ratio, planned, n, load
        }'
}

"$spill" probe "$model" | sed 's/^/# /'
printf '%-15s %-8s %-6s %6s %6s %6s  %6s  %5s %-4s  %6s %5s  %5s %5s\n' job placement pinned low likely high actual ratio holds tenth ratio sim made
for round in $(seq "$rounds"); do
    echo "round $round"
    make_rows "$rows" "$prompt" "$new"
    job resident --placement resident
    job "partly pinned" --memory "$partly"
    job streamed --memory "$streamed"
    make_rows "$rows" $((prompt * 8)) $((new / 3 + 1))
    job "long prompts" --memory "$streamed"
    make_rows "$rows" $((prompt / 3 + 1)) $((new * 6))
    job "long outputs" --memory "$partly"
    make_rows $((rows * 2)) "$((prompt / 4 + 1)),$((prompt * 4)),$prompt,$((prompt / 2))" "$new,$((new / 4 + 1)),$((new * 3)),$((new / 2))"
    job mixed --memory "$partly"
done
