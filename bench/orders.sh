#!/usr/bin/env bash
# Very many orders in one store: rows per second, first byte and peak memory of the list, fifty lists at once, cancels per
# second (each on the disk before its answer), over SQLite beside sqlite3 and Datasette, which serves such files as JSON,
# and over PostgreSQL beside psql. Writes docs/reference/orders-performance.md.
# Figures of different machines or runs are not comparable; their relations are. Takes some minutes.
#   bench/run orders [ORDERS, default 1000000]
# Needs sqlite3, PostgreSQL and python3 (./check installs them); Datasette comes from PyPI into a directory of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v sqlite3 >/dev/null || { echo 'sqlite3 is missing: install sqlite3' >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
peer=${XDG_CACHE_HOME:-$HOME/.cache}/tollhouse-tools/datasette
[ -x "$peer/bin/datasette" ] || { python3 -m venv "$peer" && "$peer/bin/pip" install --quiet datasette==0.65.5; }
cargo test --quiet --release --locked -p orders-service --test it --no-run
# Figures of a machine that does other things are worth less; the page says how much there was.
busy=$(cut -d' ' -f1 /proc/loadavg)
BENCH_DATASETTE=$peer/bin/datasette BENCH_ORDERS=${1:-1000000} cargo test --release --locked -p orders-service --test it very_many_orders -- \
    --nocapture --test-threads 1 | tee "$work/all"
{
    cat <<'TEXT'
# Orders: figures

The orders-service runs as a process without the gateway. Clients on the same machine use it over HTTP, as many as a row
says: first with an SQLite file, then with a PostgreSQL server that waits for its disk. The service checks the checksum
of every listed order, and every cancellation is on disk before its response. `sqlite3`, `psql` and Datasette read the
same rows one after the other and check nothing. Written by `bench/run orders`. What a list may show while orders change: [the decision](../develop/decisions/orders.md).

| What | Figure |
|---|---|
TEXT
    grep '^| ' "$work/all"
    printf '\nMeasured %s on %s, %s processors, with a load of %s before it began; sqlite3 %s; %s.\n' \
        "$(date -u +%F)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(nproc)" "$busy" \
        "$(sqlite3 --version | cut -d' ' -f1)" "$(psql --version)"
} > docs/reference/orders-performance.md
