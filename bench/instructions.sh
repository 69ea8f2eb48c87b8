#!/usr/bin/env bash
# Counts the instructions per call of the functions that every request passes, and holds them to bench/instructions.txt:
# more than SHARE percent above what is written there fails. Counts do not depend on how busy the machine is.
#   bench/run instructions            compare
#   bench/run instructions --write    count anew and write the file, after a change that is worth its price
# Needs valgrind (Debian: valgrind).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly file=bench/instructions.txt SHARE=10 FEW=1000 MANY=3000
command -v valgrind >/dev/null || { echo 'There is no valgrind; install the package valgrind' >&2; exit 1; }
cargo build --quiet --locked --profile counted -p gateway --example hot_calls
program=target/counted/examples/hot_calls

# count NAME CALLS: instructions of the whole process.
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
        sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p'
}
# What start and end of the process take is in both counts, and falls out of their difference.
per_call() {
    local few many
    few=$(count "$1" "$FEW") many=$(count "$1" "$MANY")
    [ "${few:-0}" -gt 0 ] && [ "${many:-0}" -gt "$few" ] || { echo "valgrind counted nothing for $1" >&2; return 1; }
    echo $(((many - few) / (MANY - FEW)))
}

failed=0 written='' names=$("$program")
[ -n "$names" ] || { echo "$program names no functions" >&2; exit 1; }
while read -r name; do
    now=$(per_call "$name") || exit
    written+="$(printf '%-34s %8d' "$name" "$now")"$'\n'
    before=$(awk -v name="$name" 'index($0, name "  ") == 1 { print $NF }' "$file" 2>/dev/null || true)
    if [ "${1:-}" != --write ]; then
        if [ -z "$before" ]; then
            printf '%-34s %8d   not in %s: run bench/run instructions --write\n' "$name" "$now" "$file" && failed=1
        elif [ $((now * 100)) -gt $((before * (100 + SHARE))) ]; then
            printf '%-34s %8d   was %d: more than %d %% above\n' "$name" "$now" "$before" "$SHARE" && failed=1
        else
            printf '%-34s %8d   was %d\n' "$name" "$now" "$before"
        fi
    fi
done <<<"$names"
if [ "${1:-}" = --write ]; then
    printf '%s' "$written" | tee "$file"
fi
exit "$failed"
