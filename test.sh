#!/bin/sh
# Sets up, builds, and runs every test. Arguments go to ctest (./test.sh -L unit).
set -eu
cd "$(dirname "$0")"
tools/setup.sh test
cmake -S . -B build/test -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPILL_TESTS=ON >/dev/null
cmake --build build/test
exec ctest --test-dir build/test --output-on-failure -j "$(nproc)" "$@"
