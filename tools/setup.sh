#!/bin/sh
# Installs what is missing to build spill (and to test or check it) on Debian 12, 13 or Ubuntu 24.04.
# usage: tools/setup.sh [build|test|ci]      as root, or as a user who may use sudo
set -eu

build="gcc libc6-dev cmake make ninja-build pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev
    liburing-dev zlib1g-dev libzstd-dev"
tests="$build libcmocka-dev xz-utils tar"
ci="$tests clang clang-format clang-tidy libclang-rt-dev qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross python3 git"

case "${1:-build}" in
build) wanted=$build ;;
test) wanted=$tests ;;
ci) wanted=$ci ;;
*)
    echo "setup: '$1' found, build, test or ci wanted" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "setup: no apt here; install by hand: $wanted" >&2
    exit 1
fi

has() { dpkg-query -W -f='${Status}\n' "$1" 2>/dev/null | grep -q '^install ok installed$'; }

missing=
for package in $wanted; do
    [ "$package" = libclang-rt-dev ] && has libclang-rt-14-dev && continue
    has "$package" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: not root and no sudo; as root run: apt-get install$missing" >&2
        exit 1
    fi
    sudo=sudo
fi
echo "installing:$missing"
$sudo apt-get update -q >/dev/null || echo "setup: apt-get update failed, trying with the lists at hand" >&2
# Debian 12 has clang's runtime under its version alone
apt-cache show libclang-rt-dev >/dev/null 2>&1 || missing=$(echo "$missing" | sed 's/libclang-rt-dev/libclang-rt-14-dev/')
# shellcheck disable=SC2086 # a list of names
$sudo env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -q --no-install-recommends $missing >/dev/null
