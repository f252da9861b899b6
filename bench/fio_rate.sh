# shellcheck shell=sh
# What stream_fio.sh and stream_run.sh share, sourced by them: fio's direct read rate of a model's files, and medians.
#
# fio gets huge pages where it may take them (root; given back at the end), as the ring does: with pages of 4 KiB a
# drive that takes 254 pieces of memory at a time gets requests of a megabyte at most, and was measured at half its rate.
export LC_ALL=C
pages=/proc/sys/vm/nr_hugepages pages_before=$(cat /proc/sys/vm/nr_hugepages) huge='' results=$(mktemp)
restore() {
    rm -f "$results"
    [ -z "$huge" ] || echo "$pages_before" >$pages
}
trap restore EXIT
if [ -w $pages ] && echo $((pages_before + 64)) >$pages && [ "$(cat $pages)" -ge 64 ]; then huge=--iomem=mmaphuge; fi

# FILES ENGINE BLOCK DEPTH JOBS SECONDS -> bytes per second. Jobs beyond the first start elsewhere in the list.
fio_bps() {
    # shellcheck disable=SC2046,SC2086 # nothing, or one word
    fio --name=ceiling --filename="$1" --file_service_type=sequential --readonly --direct=1 --rw=read --thread \
        --ioengine="$2" --bs="$3" --iodepth="$4" --numjobs="$5" --group_reporting --time_based --runtime="$6" $huge \
        $([ "$2" != io_uring ] || echo --fixedbufs=1) \
        --output-format=terse --terse-version=3 | cut -d';' -f7 | awk '{ print $1 * 1024 }'
}

# FILES SECONDS: prints the rate of each setting and leaves the best in $best_setting.
fio_best() {
    best=0
    while read -r engine block depth jobs; do
        bps=$(fio_bps "$1" "$engine" "$block" "$depth" "$jobs" "$2")
        awk -v b="$bps" -v c="fio $engine bs=$block depth=$depth jobs=$jobs" \
            'BEGIN { printf "%-44s %7.3f GB/s\n", c, b / 1e9 }'
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
}

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# NAME: pairs "fio other" in $results -> a line of medians.
report_pairs() {
    awk -v n="$1" -v f="$(cut -d' ' -f1 "$results" | median)" -v r="$(cut -d' ' -f2 "$results" | median)" \
        -v q="$(awk '{ print $2 / $1 }' "$results" | median)" 'BEGIN {
            printf "median: fio %.3f  %s %.3f GB/s  ratio of medians %.3f, median of ratios %.3f\n", f / 1e9, n, r / 1e9, r / f, q }'
}
