#!/usr/bin/env bash
# Our quota ledger beside limitador over the same Redis, in turns of one run. Writes the table into
# docs/reference/quota-comparison.md. Figures of different machines or runs are not comparable; their relations are.
#   bench/run quota-peers [ROUNDS, default 3]
# Needs redis-server and redis-cli (Debian: redis-server redis-tools).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
rounds=${1:-3} port=16399
for tool in redis-server redis-cli; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: install redis-server and redis-tools" >&2; exit 1; }
done
cargo build --quiet --release --locked
work=$(mktemp -d)
(cd "$work" && exec redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no >/dev/null) & redis=$!
trap 'kill "$redis" 2>/dev/null; wait 2>/dev/null || true; rm -rf "$work"' EXIT
until redis-cli -p "$port" PING >/dev/null 2>&1; do sleep 0.05; done
target/release/quota-peers "$port" "$rounds" | tee "$work/table"
{
    cat <<'TEXT'
# The quota beside a peer

Each limiter gets a burst of three times its limit, 512 requests in flight, each at a random node, with one Redis on one machine; then as many again, which
should all be refused. Each limiter counts a minute and a day. Written by `bench/run quota-peers`. The CPU columns are of the nodes (one process) and of Redis,
measured in ticks of 10 ms: 0.0 means less than one tick. The ledger's calls include ten heartbeats per second and node.

TEXT
    cat "$work/table"
    printf '\nMeasured %s with %s rounds on %s, %s processors; %s.\n' "$(date -u +%F)" "$rounds" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(nproc)" "$(redis-server --version | cut -d' ' -f1-3)"
} > ../../docs/reference/quota-comparison.md
