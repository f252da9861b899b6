#!/bin/sh
# Sets up, builds, and runs spill's main job on the bundled model: 48 rows it has never seen, answers scored.
set -eu
cd "$(dirname "$0")"
rows=models/fields/sample.jsonl
results=build/demo-results.jsonl
mkdir -p build
rm -f "$results"

tools/setup.sh build
echo "building: build/demo/spill"
{ cmake -S . -B build/demo -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPILL_TESTS=OFF && cmake --build build/demo; } >build/demo.log 2>&1 ||
    { cat build/demo.log >&2; exit 1; }

printf '\n$ build/demo/spill run models/fields %s -o %s\n' "$rows" "$results"
build/demo/spill run models/fields "$rows" -o "$results"

printf '\nThree of the rows, and what the model answered:\n'
for id in sample-000 sample-001 sample-003; do
    echo
    sed -n "s/.*\"custom_id\": \"$id\", \"prompt\": \"\([^\"]*\)\".*/  \1/p" "$rows"
    sed -n "s/.*\"custom_id\":\"$id\".*\"content\":\"\(.*\)\",\"refusal\".*/  \1/p" "$results" | sed 's/\\"/"/g'
done
printf '\nAll of them, as OpenAI batch output lines: %s\n' "$results"
echo "Your own rows: build/demo/spill run MODEL ROWS.jsonl (README.md has a real model to fetch)"
