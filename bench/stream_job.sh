#!/bin/sh
# A whole streamed job against what the drive and the cores can do: prefill included.
#
#   bench/stream_job.sh MODEL_DIR [ROWS [PROMPT [NEW]]]     defaults: 40 rows, prompts of 200 tokens, 16 new tokens
#
# fio at its best (fio_rate.sh) and check_linear's products with weights as in the file, then the job, then both again.
# "drive": bytes read / time of all passes, and that / fio. "cores": operations of the products / time that passes did not
# wait for the drive, and that / check_linear's rate at the tokens of a pass. The greater of the two says what the limit
# was. MODEL_DIR is by spill_make_model --preset llama3.3-70b (a byte is a token; of the last layer all but q, k and v, and
# the head, are for tokens with logits only). MEMORY (default 3G) is the run's budget, SPILL the program
# (default build/spill), CHECK_LINEAR the benchmark (default build/tests/kernels/check_linear), THREADS for both.
set -eu
[ $# -ge 1 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$1 rows=${2:-40} prompt=${3:-200} new=${4:-16}
spill=${SPILL:-build/spill} products=${CHECK_LINEAR:-build/tests/kernels/check_linear} memory=${MEMORY:-3G}
threads=${THREADS:-$(nproc)} fio_seconds=${FIO_SECONDS:-10}
for program in "$spill" "$products"; do
    [ -x "$program" ] || { echo "stream_job: $program: not built" >&2; exit 2; }
done
files=$(printf '%s\n' "$model"/*.safetensors | paste -sd:)
# shellcheck source=bench/fio_rate.sh
. "$(dirname "$0")/fio_rate.sh"
work=$(mktemp -d)
trap 'restore; rm -rf "$work"' EXIT

# Mean GFLOP/s of the matrices of a layer that matter, at 128 and at 512 tokens.
products_rate() {
    "$products" --bench gemm --isa "$isa" --threads "$threads" | awk '
        $2 == "BF16" && $3 * $5 > 6e7 { n[$6]++; s[$6] += $8 }
        END { printf "%.1f %.1f\n", s[128] / n[128], s[512] / n[512] }'
}

awk -v n="$rows" -v length_wanted="$prompt" -v new="$new" 'BEGIN {
    for (i = 0; i < n; i++) {
        text = "row " i
        while (length(text) < length_wanted) text = text " and what comes after it"
        printf "{\"custom_id\":\"r%d\",\"prompt\":\"%s\",\"max_tokens\":%d}\n", i, substr(text, 1, length_wanted), new
    } }' >"$work/rows.jsonl"

isa=$("$spill" doctor --json | sed -n 's/.*"isa":\["\([a-z0-9]*\)".*/\1/p')
fio_best "$files" 3
# shellcheck disable=SC2086
fio_before=$(fio_bps "$files" $best_setting "$fio_seconds")
products_before=$(products_rate)
SPILL_HOME=$work "$spill" run --json --placement stream --memory "$memory" --threads "$threads" "$model" "$work/rows.jsonl" \
    -o "$work/out" 2>"$work/events" || { tail -1 "$work/events" >&2; exit 1; }
products_after=$(products_rate)
# shellcheck disable=SC2086
fio_after=$(fio_bps "$files" $best_setting "$fio_seconds")
echo "$isa, $threads threads; fio before and after, bytes/s: $fio_before $fio_after"
echo "products at 128 and 512 tokens, GFLOP/s: before $products_before, after $products_after"
tr ',{}' '[\n*]' <"$work/events" | awk -F'"?:"?' -v fio="$(echo "$fio_before $fio_after" | awk '{ print ($1 + $2) / 2 }')" \
    -v p="$(echo "$products_before $products_after" | awk '{ print ($1 + $3) / 2 * 1e9, ($2 + $4) / 2 * 1e9 }')" -v head=1050673152 -v narrow=771751936 -v logits=$((rows * new)) '
    $1 == "\"event" { pass = $2 ~ /^pass/; plan = $2 ~ /^plan/; n += pass }
    plan && $1 == "\"weight_bytes" { layers = $2 / 2 - 2 * head }
    plan && ($1 == "\"pass_tokens" || $1 == "\"rows" || $1 == "\"pinned_layers") { printf "plan: %s %s\n", substr($1, 2), $2 }
    $1 == "\"peak_rss_bytes" { peak = $2 }
    !pass { next }
    $1 == "\"seconds" { s += $2; last = $2 }
    $1 == "\"bytes_read" { b += $2 }
    $1 == "\"wait_seconds" { w += $2 }
    $1 == "\"boundary_wait_seconds" { e += $2 }
    $1 == "\"prefill_tokens" { t += $2; if ($2 > 0) { ps += last; most = $2 > most ? $2 : most } }
    $1 == "\"decode_tokens" { t += $2 }
    END {
        split(p, rate, " ")
        at = most > 256 ? rate[2] : rate[1]
        printf "passes %d, %.1f s (%.1f of them in passes with prefill), %d tokens, waits %.3f, boundary %.4f, peak %.2f GB\n", n, s, ps, t, w / s, e / s, peak / 1e9
        printf "drive: %.3f GB/s, of fio %.3f\n", b / s / 1e9, b / s / fio
        flop = 2 * ((layers - narrow) * t + (narrow + head) * logits)
        printf "cores: %.1f GFLOP/s while not waiting, of the products alone %.3f\n", flop / (s - w) / 1e9, flop / (s - w) / at
    }'
