#!/usr/bin/env bash
# The products' test and benchmark on a machine that has only a C compiler: no CMake, no libraries beyond libc.
#
#     bench/kernels_device.sh BUILD_DIR [arguments of check_linear --bench]
#
# Builds check_linear from the sources it needs, runs the tests, then the benchmark. Fails if a test does.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: bench/kernels_device.sh BUILD_DIR [bench arguments]}
shift
mkdir -p "$build"
cc=${CC:-cc}
machine=$("$cc" -dumpmachine | cut -d- -f1)
common=(-std=gnu17 -O3 -g -D_GNU_SOURCE -Isrc -I. -ffp-contract=off -fno-math-errno -Wall -Wextra)
avx2=(-mavx2 -mfma -mf16c)
avx512=("${avx2[@]}" -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd)

objects=()
compile() { # SOURCE FLAGS...
    local object
    object="$build/$(basename "$1" .c).o"
    "$cc" "${common[@]}" "${@:2}" -c "$1" -o "$object"
    objects+=("$object")
}
base=()
[ "$machine" = x86_64 ] && base=(-march=x86-64-v2)
for file in src/util/{error,buf,utf8,threads,clock}.c src/kernels/{format,device,linear,vector,math}.c src/kernels/cpu/{cpu,linear_scalar,vector_scalar}.c \
    tests/kernels/check_linear.c bench/{kernels_bench,peak}.c; do
    compile "$file" "${base[@]}"
done
if [ "$machine" = x86_64 ]; then
    compile src/kernels/cpu/linear_avx2.c "${avx2[@]}"
    compile src/kernels/cpu/vector_avx2.c "${avx2[@]}"
    compile src/kernels/quant/quant_avx2.c "${avx2[@]}"
    compile src/kernels/cpu/linear_avx512.c "${avx512[@]}"
    compile src/kernels/cpu/vector_avx512.c "${avx512[@]}"
    compile src/kernels/quant/quant_avx512.c "${avx512[@]}"
    compile src/kernels/cpu/linear_avx512bf16.c "${avx512[@]}" -mavx512bf16
    compile src/kernels/cpu/linear_amx.c "${avx512[@]}" -mamx-tile -mamx-bf16
else
    compile src/kernels/cpu/linear_neon.c
    compile src/kernels/cpu/vector_neon.c
fi
"$cc" "${objects[@]}" -o "$build/check_linear" -lm -lpthread
"$build/check_linear"
"$build/check_linear" --bench "$@"
