#!/usr/bin/env bash
# A gateway, nginx and HAProxy with very many domains, a certificate each: time until ready after a restart, memory, and the
# cost of a handshake for a name that was not used yet (cold) and again (hot). The server has one core, its clients the other.
# Prints a table for each number of domains, with ratios.
#   bench/run many-domains ["10000 100000 1000000"] [NAMES ASKED FOR, default 100000]
# Takes half an hour, 8 GB of memory and 6 GB of disk. Needs nginx and haproxy (Debian), which it installs as root.
# GATEWAY=PROGRAM measures another build than that of the release profile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for peer in nginx haproxy; do
    command -v "$peer" >/dev/null || apt-get install -y -qq "$peer" >/dev/null
done
scope=(--release -p gateway)
[ -z "${GATEWAY:-}" ] || { GATEWAY=$(realpath "$GATEWAY") scope=(--workspace); export GATEWAY; }
cargo test --locked "${scope[@]}" --test it --no-run
for domains in ${1:-10000 100000 1000000}; do
    peers="nginx haproxy"
    # It loads them all: what ten times as much takes, the figures of fewer say.
    [ "$domains" -le 100000 ] || { peers=nginx; echo "$domains domains: HAProxy holds every certificate in memory and is left out"; }
    SCALE_DOMAINS=$domains SCALE_HOT=${2:-100000} SCALE_PEERS=$peers SCALE_CORE=0 \
        taskset -c 1 cargo test --locked "${scope[@]}" --test it scale:: -- --nocapture --test-threads 1
done
