#!/bin/sh
# The failure kit with many kills: bench/jobs_kills.sh BUILD_DIR [KILLS] [SEED]
# Jobs resident and streamed are killed at random moments over their lives, continued, and compared with undisturbed runs.
set -eu
build=$(cd "${1:?usage: bench/jobs_kills.sh BUILD_DIR [KILLS] [SEED]}" && pwd)
cd "$(dirname "$0")/.."
SPILL=$build/spill SPILL_WRITE_FAULTS=$build/tests/cli/libspill_write_faults.so \
    exec "$build/tests/cli/check_failures" --kills "${2:-200}" --seed "${3:-7}"
