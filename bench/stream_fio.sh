#!/bin/sh
# The drive's ceiling and the ring's share of it, on the same files in turn.
#
#   bench/stream_fio.sh MODEL_DIR [PAIRS [SECONDS]]     defaults: 5 pairs of 8 s
#
# First fio's best direct rate over engines, block sizes and depths (SECONDS/4 each), then PAIRS alternating runs of
# fio at its best and of spill_ring_bench, medians and their ratio. RING_ARGS goes to spill_ring_bench; BUILD is the
# build directory. Prints what the machine did beside it: a busy one measures something else.
#
# fio gets huge pages where it may take them (root; given back at the end), as the ring does: with pages of 4 KiB a
# drive that takes 254 pieces of memory at a time gets requests of a megabyte at most, and was measured at half its rate.
set -eu
export LC_ALL=C
[ $# -ge 1 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$1 pairs=${2:-5} seconds=${3:-8}
ring_bench=${BUILD:-build}/bench/spill_ring_bench
[ -x "$ring_bench" ] || { echo "stream_fio: $ring_bench: not built" >&2; exit 2; }
files=$(ls "$model"/*.safetensors | paste -sd:)

pages=/proc/sys/vm/nr_hugepages pages_before=$(cat /proc/sys/vm/nr_hugepages) huge= results=$(mktemp)
restore() {
    rm -f "$results"
    [ -z "$huge" ] || echo "$pages_before" >$pages
}
trap restore EXIT
if [ -w $pages ] && echo $((pages_before + 64)) >$pages && [ "$(cat $pages)" -ge 64 ]; then huge=--iomem=mmaphuge; fi

# ENGINE BLOCK DEPTH JOBS SECONDS -> bytes per second. Jobs beyond the first start elsewhere in the list.
fio_bps() {
    fio --name=ceiling --filename="$files" --file_service_type=sequential --readonly --direct=1 --rw=read --thread \
        --ioengine="$1" --bs="$2" --iodepth="$3" --numjobs="$4" --group_reporting --time_based --runtime="$5" $huge $([ "$1" != io_uring ] || echo --fixedbufs=1) \
        --output-format=terse --terse-version=3 | cut -d';' -f7 | awk '{ print $1 * 1024 }'
}
ring_bps() { "$ring_bench" "$model" --seconds "$seconds" ${RING_ARGS:-} | sed 's/.*"read_bps":\([0-9]*\).*/\1/'; }
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

echo "fio with ${huge:-pages of 4 KiB}, files: $(ls "$model"/*.safetensors | wc -l), load: $(cut -d' ' -f1-3 /proc/loadavg)"
best=0
while read -r engine block depth jobs; do
    bps=$(fio_bps "$engine" "$block" "$depth" "$jobs" $(((seconds + 3) / 4)))
    awk -v b="$bps" -v c="fio $engine bs=$block depth=$depth jobs=$jobs" 'BEGIN { printf "%-44s %7.3f GB/s\n", c, b / 1e9 }'
    if awk -v a="$bps" -v b="$best" 'BEGIN { exit !(a > b) }'; then
        best=$bps
        best_setting="$engine $block $depth $jobs"
    fi
done <<EOF
io_uring 256k 16 1
io_uring 1M 4 1
io_uring 1M 16 1
io_uring 4M 4 1
io_uring 4M 16 1
io_uring 8M 4 1
io_uring 4M 4 4
psync 4M 1 4
psync 8M 1 4
EOF
echo "best: $best_setting"
for i in $(seq "$pairs"); do
    # shellcheck disable=SC2086
    f=$(fio_bps $best_setting "$seconds")
    r=$(ring_bps)
    echo "$f $r" | tee -a "$results" |
        awk -v i="$i" '{ printf "pair %d: fio %.3f  ring %.3f GB/s  ratio %.3f\n", i, $1 / 1e9, $2 / 1e9, $2 / $1 }'
done
fio_median=$(cut -d' ' -f1 "$results" | median)
ring_median=$(cut -d' ' -f2 "$results" | median)
ratio=$(awk '{ print $2 / $1 }' "$results" | median)
awk -v f="$fio_median" -v r="$ring_median" -v q="$ratio" \
    'BEGIN { printf "median: fio %.3f  ring %.3f GB/s  ratio of medians %.3f, median of ratios %.3f\n", f / 1e9, r / 1e9, r / f, q }'
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
