#!/bin/sh
# Sets up, builds, and runs spill's main job on the bundled model: 48 rows it has never seen, answers scored.
set -eu
cd "$(dirname "$0")"
tools/setup.sh build
cmake -S . -B build/demo -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPILL_TESTS=OFF >/dev/null
cmake --build build/demo >/dev/null

results=build/demo-results.jsonl
rm -f "$results"
echo "\$ spill run models/fields models/fields/sample.jsonl -o $results"
build/demo/spill run models/fields models/fields/sample.jsonl -o "$results"
echo
echo "The first five answers:"
sed -n '1,5s/.*"custom_id":"\([^"]*\)".*"content":"\(.*\)","refusal".*/  \1  \2/p' "$results" | sed 's/\\"/"/g'
echo
echo "All results: $results (OpenAI batch output lines). Your own: build/demo/spill run MODEL ROWS.jsonl"
