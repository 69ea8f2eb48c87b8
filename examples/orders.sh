#!/usr/bin/env bash
# The orders API with curl: list orders, place one (idempotent), get it, cancel it, read /v2 in pages.
#   API_KEY=th_live_... examples/orders.sh https://HOST[:PORT]
# CA_FILE is the trusted CA certificate; for ./up it is data/ca/ca.pem. Needs curl 7.76 or newer.
set -euo pipefail
base=${1:?usage: API_KEY=... examples/orders.sh https://HOST[:PORT]}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The key is in a file that only this user can read, because other users can see the arguments of programs.
(umask 077 && printf 'header = "Authorization: Bearer %s"\n' "${API_KEY:?set API_KEY}" > "$work/key")

# curl waits as long as Retry-After says (429, 503), otherwise 1, 2, 4... seconds, and stops after two minutes.
api() {
    curl --silent --show-error --fail-with-body --config "$work/key" ${CA_FILE:+--cacert "$CA_FILE"} \
        --retry 6 --retry-max-time 120 --compressed "$@"
}

echo "All orders, only if they have changed since last time:"
api --etag-save "$work/etag" "$base/v1/store/orders" --output "$work/orders.json"
printf '  %s bytes\n' "$(wc -c < "$work/orders.json")"
api --etag-compare "$work/etag" "$base/v1/store/orders" --output "$work/again.json" --write-out '  again: %{http_code}\n'

echo "A new order. The Idempotency-Key makes it safe to send again:"
place() {
    api --request POST "$base/v2/store/orders" --header 'Content-Type: application/json' \
        --header "Idempotency-Key: $once" --data '{"petId": 7, "quantity": 2, "shipDate": "2030-01-01T00:00:00Z"}' \
        --dump-header "$work/head"
}
once=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
place | sed 's/^/  /'
place > "$work/same.json" && echo && grep -i '^idempotency-replayed' "$work/head" | sed 's/^/  sent again: /'
order=$(tr -d '\r' < "$work/head" | sed -n 's/^location: //pI')

echo "The order, and its history:"
api "$base$order" | sed 's/^/  /' && echo
api "$base$order/history" | sed 's/^/  /' && echo

echo "Cancel it. The second attempt is refused, because the order is cancelled already:"
api --request DELETE "$base/v1/store/orders/${order##*/}" --write-out '  %{http_code}\n'
api --request DELETE "$base/v1/store/orders/${order##*/}" --write-out '\n  %{http_code}\n' | sed 's/^/  /' || true

echo "Pending orders, three at a time, by the links:"
next="/v2/store/orders?status=pending&limit=3"
pages=0
while [ -n "$next" ] && [ "$pages" -lt 3 ]; do
    api "$base$next" --dump-header "$work/head" | tr -d '\n' | cut -c1-100 | sed 's/^/  /'
    next=$(tr -d '\r' < "$work/head" | sed -n 's/.*<\([^>]*\)>; rel="next".*/\1/p')
    pages=$((pages + 1))
done
