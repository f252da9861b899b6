#!/bin/sh
# The drive's ceiling and the ring's share of it, on the same files in turn.
#
#   bench/stream_fio.sh MODEL_DIR [PAIRS [SECONDS]]     defaults: 5 pairs of 8 s
#
# First fio's best direct rate over engines, block sizes and depths (SECONDS/4 each), then PAIRS alternating runs of
# fio at its best and of spill_ring_bench, medians and their ratio. RING_ARGS goes to spill_ring_bench; BUILD is the
# build directory. Prints what the machine did beside it: a busy one measures something else.
set -eu
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$1 pairs=${2:-5} seconds=${3:-8}
ring_bench=${BUILD:-build}/bench/spill_ring_bench
[ -x "$ring_bench" ] || { echo "stream_fio: $ring_bench: not built" >&2; exit 2; }
files=$(printf '%s\n' "$model"/*.safetensors | paste -sd:)
# shellcheck source=bench/fio_rate.sh
. "$(dirname "$0")/fio_rate.sh"

# shellcheck disable=SC2086
ring_bps() { "$ring_bench" "$model" --seconds "$seconds" ${RING_ARGS:-} | sed 's/.*"read_bps":\([0-9]*\).*/\1/'; }

echo "fio with ${huge:-pages of 4 KiB}, files: $(echo "$files" | tr : '\n' | wc -l), load: $(cut -d' ' -f1-3 /proc/loadavg)"
fio_best "$files" $(((seconds + 3) / 4))
for i in $(seq "$pairs"); do
    # shellcheck disable=SC2086
    f=$(fio_bps "$files" $best_setting "$seconds")
    r=$(ring_bps)
    echo "$f $r" | tee -a "$results" |
        awk -v i="$i" '{ printf "pair %d: fio %.3f  ring %.3f GB/s  ratio %.3f\n", i, $1 / 1e9, $2 / 1e9, $2 / $1 }'
done
report_pairs ring
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
