#!/usr/bin/env bash
# Where the instructions of a request go: the edge under callgrind, counted while it serves and not before.
#   bench/run profile [forward | metered | refused, default forward] [REQUESTS, default 2000]
# Prints instructions per request and the functions that take most with what they call. The kernel's part is not in it.
# Needs valgrind, nginx and h2load (Debian: valgrind nginx-light nghttp2-client) and a build with symbols:
# TOLLHOUSE=PROGRAM, default target/release/tollhouse, which is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
what=${1:-forward} requests=${2:-2000}
program=${TOLLHOUSE:-target/release/tollhouse}
[ -n "${TOLLHOUSE:-}" ] || cargo build --quiet --release --locked -p tollhouse
for tool in valgrind nginx h2load callgrind_annotate; do
    command -v "$tool" >/dev/null || { echo "there is no $tool; install it" >&2; exit 1; }
done

work=$(mktemp -d) pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT
read -r upstream port < <(python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(socket.getsockname()[1] for socket in sockets))')

head -c 1024 /dev/zero | tr '\0' x > "$work/body"
sed -e "s|WORK|$work|g" -e "s|UPSTREAM|$upstream|g" -e "s|ECHO|$upstream|g" bench/peers/upstream.conf > "$work/upstream.conf"
nginx -c "$work/upstream.conf" 2>/dev/null & pids+=($!)
valgrind --quiet --tool=callgrind --instr-atstart=no --callgrind-out-file="$work/profile" "$program" up \
    --data-dir "$work/data" --http-port 0 --https-port "$port" --admin-port 0 --upstream "bench=http://127.0.0.1:$upstream" \
    > "$work/log" 2>&1 & edge=$!; pids+=("$edge")
until [ -e "$work/data/run.json" ]; do kill -0 "$edge" || { cat "$work/log" >&2; exit 1; }; sleep 0.2; done
tool() { "$program" --data-dir "$work/data" "$@" --json; }
tool project create site --plan free --access public --upstream bench > /dev/null
tool project create metered --plan enterprise --upstream bench --per-minute 4000000000 --per-day 4000000000 > /dev/null
key=$(tool key create metered | sed -n 's/.*"key": *"\(th_[^"]*\)".*/\1/p')

case $what in
    forward) host=site path=/ ;;
    metered) host=metered path=/ ;;
    refused) host=demo-free path=/v1/store/orders key=none ;;
    *) echo 'forward, metered or refused?' >&2; exit 2 ;;
esac
ask() {
    local options=(--h1 -c 4 -n "$1" --connect-to "127.0.0.1:$port")
    [ "$what" != metered ] || options+=(-H "authorization: Bearer $key")
    h2load "${options[@]}" "https://$host.tollhouse.localhost:$port$path" > "$work/load"
}
ask 200
callgrind_control --instr=on "$edge" > /dev/null 2>&1
ask "$requests"
callgrind_control --instr=off "$edge" > /dev/null 2>&1
callgrind_control --dump "$edge" > /dev/null 2>&1

callgrind_annotate --inclusive=yes --threshold=100 "$work"/profile.1 2>/dev/null |
    sed -E 's/ \[[^]]*\]$//; s#/[^ :]*/registry/src/[^/]*/##; s#/rustc/[0-9a-f]*/##' |
    awk -v n="$requests" '/process_new::\{\{closure\}\}/ && !seen++ { whole = $1; gsub(",", "", whole) }
        whole && /^ *[0-9,]+ \(/ { count = $1; gsub(",", "", count); if (count * 50 > whole) { $1 = ""; sub(/^ *\([^)]*\) */, ""); printf "%8d %5.1f %%  %s\n", count / n, count / whole * 100, substr($0, 1, 130) } }' |
    head -60
