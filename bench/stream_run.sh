#!/bin/sh
# What spill makes of the drive: bytes read a second while it decodes, against fio on the same files in turn.
#
#   bench/stream_run.sh MODEL_DIR [PAIRS [BATCH...]]     defaults: 5 pairs, batches of 1 and 16 rows
#
# First fio's best setting (fio_rate.sh). Then for each batch PAIRS times: fio for FIO_SECONDS (default 10), and a run of
# that many rows for NEW (default 3) new tokens each in MEMORY (default 3G). "decode" is bytes / time of the passes
# without prefill, "run" that of all passes, the first with its prefill and hashes included; "waits" is the share of
# decode passes that the cores stood still for the drive, "boundary" that at their beginning. Ratios are decode / fio.
# SPILL is the program (default build/spill), SPILL_ARGS more options for it. The first pass and each decode pass read
# the model once: a model of 20 to 40 GB is enough, the greater the better.
set -eu
[ $# -ge 1 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$1 pairs=${2:-5}
shift
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- 1 16
spill=${SPILL:-build/spill} seconds=${FIO_SECONDS:-10} new=${NEW:-3} memory=${MEMORY:-3G}
[ -x "$spill" ] || { echo "stream_run: $spill: not built" >&2; exit 2; }
files=$(printf '%s\n' "$model"/*.safetensors | paste -sd:)
# shellcheck source=bench/fio_rate.sh
. "$(dirname "$0")/fio_rate.sh"
work=$(mktemp -d)
trap 'restore; rm -rf "$work"' EXIT

# ROWS -> "decode_bps run_bps waits boundary peak_bytes"
run_spill() {
    for i in $(seq "$1"); do
        echo "{\"custom_id\":\"r$i\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"$i\"}],\"max_tokens\":$new}}"
    done >"$work/rows.jsonl"
    # shellcheck disable=SC2086
    SPILL_HOME=$work "$spill" run --json --placement stream --memory "$memory" --rows "$1" ${SPILL_ARGS:-} \
        "$model" "$work/rows.jsonl" -o - 2>"$work/events" >"$work/out" || { tail -1 "$work/events" >&2; exit 1; }
    tr ',{}' '[\n*]' <"$work/events" | awk -F'"?:"?' '
        $1 == "\"event" { pass = $2 ~ /^pass/ }
        $1 == "\"peak_rss_bytes" { peak = $2 }
        !pass { next }
        $1 == "\"seconds" { s = $2 }
        $1 == "\"bytes_read" { b = $2 }
        $1 == "\"wait_seconds" { w = $2 }
        $1 == "\"boundary_wait_seconds" { e = $2 }
        $1 == "\"prefill_tokens" { S += s; B += b; if ($2 == 0) { ds += s; db += b; dw += w; de += e } }
        END { print db / ds, B / S, dw / ds, de / ds, peak }'
}

echo "fio with ${huge:-pages of 4 KiB}, files: $(echo "$files" | tr : '\n' | wc -l), load: $(cut -d' ' -f1-3 /proc/loadavg)"
fio_best "$files" 3
for rows in "$@"; do
    : >"$results"
    for i in $(seq "$pairs"); do
        # shellcheck disable=SC2086
        f=$(fio_bps "$files" $best_setting "$seconds")
        r=$(run_spill "$rows")
        echo "$f $r" | tee -a "$results" | awk -v i="$i" -v n="$rows" '{
            printf "%d rows, pair %d: fio %.3f  decode %.3f GB/s  ratio %.3f  (run %.3f GB/s, waits %.3f, boundary %.4f, peak %.2f GB)\n",
                n, i, $1 / 1e9, $2 / 1e9, $2 / $1, $3 / 1e9, $4, $5, $6 / 1e9 }'
    done
    echo "$rows rows: $(report_pairs decode)"
done
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
