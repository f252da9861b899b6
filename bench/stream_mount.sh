#!/bin/sh
# A loop-mounted XFS with reflinks, for models that are bigger than the drive (spill_make_model --clone).
#
#   bench/stream_mount.sh make FILE DIR [SIZE_GB]   creates FILE (default 8 GB), formats and mounts it on DIR
#   bench/stream_mount.sh mount FILE DIR            mounts it again
#   bench/stream_mount.sh check DIR                 shows that reads of DIR reach the drive below the loop device
#   bench/stream_mount.sh umount DIR                unmounts, FILE stays
#   bench/stream_mount.sh delete FILE DIR           unmounts and deletes FILE
#
# Needs root, xfsprogs, util-linux. The loop device reads its file directly, so that nothing is cached below XFS.
set -eu

fail() { echo "stream_mount: $*" >&2; exit 1; }
usage() { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }

attach() { # FILE DIR
    loop=$(losetup --find --show --direct-io=on "$1")
    [ "$(cat "/sys/block/${loop#/dev/}/loop/dio")" = 1 ] || { losetup -d "$loop"; fail "$loop: no direct reads of $1"; }
    mkdir -p "$2"
    mount -t xfs -o noatime,nouuid "$loop" "$2" || { losetup -d "$loop"; fail "$2: cannot be mounted"; }
    losetup -d "$loop" # goes with the mount
}

backing_of() { # DIR -> device below the loop device's file
    loop=$(findmnt -n -o SOURCE "$1")
    file=$(cat "/sys/block/${loop#/dev/}/loop/backing_file")
    device=$(findmnt -n -o SOURCE -T "$file")
    lsblk -n -o PKNAME "$device" | grep . || basename "$device"
}

sectors_read() { awk '{ print $3 }' "/sys/class/block/$1/stat"; }

make_fs() {
    file=$1 dir=$2 size_gb=${3:-8}
    [ ! -e "$file" ] || fail "$file exists"
    mkdir -p "$(dirname "$file")"
    free_gb=$(($(df --output=avail -k "$(dirname "$file")" | tail -1) / 1000000))
    [ "$free_gb" -ge $((size_gb + 4)) ] || fail "$free_gb GB free beside $file, want $((size_gb + 4))"
    fallocate -l "${size_gb}000000000" "$file"
    mkfs.xfs -q -m reflink=1 "$file"
    attach "$file" "$dir"
}

# Reads a file of the mount directly, twice: each time the drive must have counted those bytes.
check() {
    dir=$1 device=$(backing_of "$1")
    file=$(find "$dir" -type f -size +64M | head -1)
    [ -n "$file" ] || fail "$dir: no file of more than 64 MB to read"
    for _ in 1 2; do
        before=$(sectors_read "$device")
        dd if="$file" of=/dev/null bs=1M count=64 iflag=direct status=none
        mb=$((($(sectors_read "$device") - before) / 2048))
        echo "read 64 MB of $file: $device counted $mb MB"
        [ "$mb" -ge 64 ] || fail "reads do not reach $device"
    done
}

[ $# -ge 2 ] || usage
command=$1
shift
case $command in
make) [ $# -ge 2 ] || usage; make_fs "$@" ;;
mount) [ $# -eq 2 ] || usage; attach "$1" "$2" ;;
check) check "$1" ;;
umount) umount "$1" ;;
delete) [ $# -eq 2 ] || usage; ! mountpoint -q "$2" || umount "$2"; rm -f "$1" ;;
*) usage ;;
esac
