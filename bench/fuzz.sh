#!/usr/bin/env bash
# Drives every function of fuzz/ with LLVM's fuzzer, beginning with its corpus, and prints how many inputs it ran.
#   bench/run fuzz [SECONDS EACH, default 60] [TARGET...]
# Needs a nightly toolchain, cargo-fuzz and a C++ compiler; ./check step tools fuzz installs them. What is found lies in
# fuzz/artifacts; inputs that are new and interesting are added to a folder in target/, to be chosen from by hand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
shift || true
PATH="${XDG_CACHE_HOME:-$HOME/.cache}/tollhouse-tools/cargo-tools/bin:$PATH"
command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing: ./check step tools, or cargo install --locked cargo-fuzz" >&2; exit 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A build for one machine and a few hours: what makes the product's programs faster would take longer than it spares. What is
# looked for are broken promises; no crate of ours may be unsafe, so that no sanitizer is needed for them.
export CARGO_PROFILE_RELEASE_LTO=off
build=(--features campaign --sanitizer none --codegen-units 16)
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for file in fuzz/targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi
for target in "${targets[@]}"; do
    grown=target/fuzz-corpus/$target
    mkdir -p "$grown"
    echo "== $target"
    outcome=0
    cargo +nightly fuzz run "${build[@]}" "$target" "$grown" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 >"$log" 2>&1 || outcome=$?
    grep -E 'stat::|panicked|SUMMARY|Test unit written|error' "$log" || true
    [ -z "$(find fuzz/artifacts -type f -path "*/$target/*" 2>/dev/null)" ] ||
        { echo "$target: a finding lies in fuzz/artifacts/$target" >&2; exit 1; }
    [ "$outcome" -eq 0 ] || { tail -n 20 "$log" >&2; echo "$target: cargo fuzz failed with status $outcome" >&2; exit 1; }
    grep -qE '^stat::number_of_executed_units: *[1-9]' "$log" || { echo "$target: no input was run" >&2; exit 1; }
done
