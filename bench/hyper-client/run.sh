#!/usr/bin/env bash
# hyper's client of HTTP/1.1 beside the gateway's own: what both make of the responses in the tests of the gateway, and
# what a GET over a kept connection costs: instructions, and processor time with the kernel's part.
#   bench/run hyper-client [REQUESTS for the processor time, default 100000]
# Fails where the gateway's own client does something else than its tests expect. Needs valgrind (Debian: valgrind).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
requests=${1:-100000}
readonly FEW=1000 MANY=3000
command -v valgrind >/dev/null || { echo 'There is no valgrind; install the package valgrind' >&2; exit 1; }
# The versions of the product.
cp ../../Cargo.lock .
cargo build --quiet --profile counted
program=${CARGO_TARGET_DIR:-target}/counted/hyper_client
"$program" rows

coproc server { exec "$program" serve; }
# shellcheck disable=SC2154 # coproc sets it
trap 'kill "$server_PID" 2>/dev/null || true' EXIT
read -r address <&"${server[0]}"

# count CLIENT REQUESTS: instructions of the whole process.
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" send "$1" "$address" "$2" 2>&1 |
        sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p'
}
TIMEFORMAT='%U %S'
for client in ours hyper ours hyper; do
    # What start and end of the process take is in both counts, and falls out of their difference.
    instructions=$((($(count "$client" "$MANY") - $(count "$client" "$FEW")) / (MANY - FEW)))
    took=$({ time "$program" send "$client" "$address" "$requests"; } 2>&1)
    awk -v client="$client" -v instructions="$instructions" -v requests="$requests" \
        '{ printf "%-6s %6d instructions, %.1f µs of processor time per request\n", client, instructions, ($1 + $2) * 1e6 / requests }' <<<"$took"
done
