#!/bin/sh
# Installs what is missing to build spill (and to test or check it) on Debian 12, 13 or Ubuntu 24.04.
# usage: tools/setup.sh [build|test|ci]      as root, or as a user who may use sudo
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev"
tests="$build libcmocka-dev xz-utils tar zstd"
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

missing=
for package in $wanted; do
    # clang's runtime carries its version in its name on Debian 12
    [ "$package" = libclang-rt-dev ] && ! apt-cache show libclang-rt-dev >/dev/null 2>&1 && package=libclang-rt-14-dev
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $package"
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
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q >/dev/null
# shellcheck disable=SC2086 # a list of names
$sudo apt-get install -y -q --no-install-recommends $missing >/dev/null
