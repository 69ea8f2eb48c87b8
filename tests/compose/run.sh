#!/usr/bin/env bash
# Starts docker-compose.yml and checks the promises of docs/operator/containers.md.
#   tests/compose/run.sh docker|podman
# Needs root, curl and a Docker engine with docker-compose 1.29 or Compose v2; or podman, and python3 for podman-compose.
# Programs are taken from PROGRAMS (default: target/debug, built if it has none), so that nothing is compiled in a
# container. Images that the engine does not have are made by tests/compose/debian-images.sh. Grafana is left out: Debian has no
# package of it. On machines where limits may not be raised: DESCRIPTORS=4096. KEEP=1 leaves everything running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

engine=${1:?which engine: docker or podman}
programs=${PROGRAMS:-target/debug}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tollhouse-tools
project=tollhouse-test-$$
work=$(mktemp -d)
always=(balancer gateway-1 gateway-2 orders-service domains-service redis postgres prometheus)
services=("${always[@]}")
orders=/v1/store/orders

# A tag, ports and a network of its own: several of these may run at the same time.
read -r HTTP_PORT HTTPS_PORT PROMETHEUS_PORT < <(python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(socket.getsockname()[1] for socket in sockets))')
edge=172.31.$((192 + RANDOM % 63))
export DEV_SUBNET=$edge.64/28 DEV_EDGE=$edge.77 DEV_DNS=$edge.78
export EDGE_SUBNET=$edge.0/26 EDGE_BALANCER=$edge.62 PLATFORM_SUBNET=$edge.128/25
export TOLLHOUSE_TAG=$project LISTEN_ADDRESS=127.0.0.1 HTTP_PORT HTTPS_PORT PROMETHEUS_PORT
export DESCRIPTORS=${DESCRIPTORS:-4096} BALANCER_CONNECTIONS=1500

say() { printf '%s\n' "$*" >&2; }
step() { say "==> $*"; }
fail() {
    say "FAILED: $*"
    say "--- the last lines of ${composer[*]}"
    tail -20 "$work/compose.log" >&2 2>/dev/null || true
    for service in "${services[@]}"; do
        say "--- the last lines of $service"
        timeout 20 "$engine" logs --tail "${TAIL:-15}" "$(container "$service")" >&2 2>&1 || true
    done
    exit 1
}

# --- the engine

files=(-f docker-compose.yml)
case "$engine" in
    docker) if docker compose version >/dev/null 2>&1; then composer=(docker compose); else composer=(docker-compose); fi ;;
    podman)
        # crun needs control groups of one version, runc works with all. Limits that cannot be raised are not set.
        if command -v runc >/dev/null && [ -z "${CONTAINERS_CONF:-}" ]; then
            printf '%s\n' '[engine]' 'runtime = "runc"' '[containers]' \
                'default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]' >"$work/containers.conf"
            export CONTAINERS_CONF=$work/containers.conf
        fi
        files+=(-f tests/compose/podman.yml)
        # Older versions do not wait for `init`.
        composer=("$cache/podman-compose/bin/podman-compose")
        [ -x "${composer[0]}" ] || { python3 -m venv "$cache/podman-compose" && "$cache/podman-compose/bin/pip" install -q podman-compose==1.6.0; }
        ;;
    *) fail "unknown engine $engine: use docker or podman" ;;
esac
[ -z "${COMPOSE:-}" ] || read -ra composer <<<"$COMPOSE"

# Every command has a deadline: a test that hangs has failed.
compose() {
    timeout 240 "${composer[@]}" -p "$project" "${files[@]}" "$@" >>"$work/compose.log" 2>&1 </dev/null ||
        { tail -20 "$work/compose.log" >&2; fail "compose $*"; }
}
# The operators' command line.
tollhouse() {
    timeout 120 "${composer[@]}" -p "$project" "${files[@]}" --profile tools run --rm -T --no-deps tollhouse "$@" \
        2>>"$work/compose.log" </dev/null
}
container() {
    "$engine" ps -aq --filter "label=com.docker.compose.project=$project" --filter "label=com.docker.compose.service=$1" 2>/dev/null
}
look() { "$engine" inspect --format "$1" "$(container "$2")" 2>/dev/null; }
pid_of() { look '{{.State.Pid}}' "$1"; }
runs() { [ "$(look '{{.State.Running}}' "$1")" = true ]; }
# Without systemd podman checks health only when asked.
healthy() {
    if [ "$engine" = podman ]; then timeout 20 podman healthcheck run "$(container "$1")" >/dev/null 2>&1
    else [ "$(look '{{.State.Health.Status}}' "$1")" = healthy ]; fi
}
all_healthy() { for service in "${services[@]}"; do healthy "$service" || return 1; done; }

# within SECONDS WHAT COMMAND...: repeats the command until it succeeds.
within() {
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || fail "not in time: $what"
        sleep 0.2
    done
}

# start SERVICE...: one after the other, with retries: podman-compose starts all at once and does not report a failed start.
start() {
    local service
    for service in "$@"; do within 30 "$service runs" started "$service"; done
}
started() { runs "$1" || { compose start "$1"; runs "$1"; }; }

finish() {
    local outcome=$?
    touch "$work/enough"
    wait
    if [ -z "${KEEP:-}" ]; then
        timeout 240 "${composer[@]}" -p "$project" "${files[@]}" --profile more --profile dev down -v >>"$work/compose.log" 2>&1 </dev/null || true
        "$engine" rmi -f "tollhouse:$TOLLHOUSE_TAG" >/dev/null 2>&1 || true
        rm -rf "$work"
    fi
    exit "$outcome"
}
trap finish EXIT

# --- clients

host_of() { printf '%s.tollhouse.localhost' "$1"; }
# fetch PROJECT PATH [curl options]: one request on a connection of its own; prints the status.
fetch() {
    local host
    host=$(host_of "$1")
    curl --silent --output "$work/body.$BASHPID" --write-out '%{http_code}' --max-time 10 --cacert "$work/ca.pem" \
        --resolve "$host:$HTTPS_PORT:127.0.0.1" "${@:3}" "https://$host:$HTTPS_PORT$2" || true
    rm -f "$work/body.$BASHPID"
}
key_of() { python3 -c 'import json,sys; print(next(p["keys"][0]["key"] for p in json.load(open(sys.argv[1]))["projects"] if p["id"] == sys.argv[2]))' "$work/demo.json" "$1"; }
# expect STATUS PROJECT PATH [curl options]
expect() {
    local status
    status=$(fetch "${@:2}")
    [ "$status" = "$1" ] || fail "${*:2:2} answers $status, not $1"
}
identity_of() { in_postgres domains "SELECT id FROM projects WHERE name = '$1'"; }
answers() { [ "$(fetch demo-pro "$orders" -H "Authorization: Bearer $pro")" = 200 ]; }
field() { python3 -c 'import json,sys
value = json.load(sys.stdin)
for name in sys.argv[1].split("."): value = value[name]
print(value)' "$1"; }

# Two clients that send a request every 150 ms, each on a new connection.
visitors_come() {
    rm -f "$work/enough" "$work"/visits.*
    local visitor
    for visitor in 1 2; do
        while [ ! -e "$work/enough" ]; do
            printf '%s\n' "$(fetch demo-business "$orders" -H "Authorization: Bearer $business")" >>"$work/visits.$visitor"
            sleep 0.15 # the plan allows 1000 a minute
        done &
    done
}
visits() { cat "$work"/visits.* 2>/dev/null | wc -l; }
visited() { [ "$(visits)" -ge "$1" ]; }
# visitors_leave FAILURES: waits for 20 more requests, then checks that at most FAILURES were not served.
visitors_leave() {
    within 30 '20 more requests' visited $(($(visits) + 20))
    touch "$work/enough"
    wait
    local all failed
    all=$(visits)
    failed=$(cat "$work"/visits.* | grep -cvx 200 || true)
    say "    $all requests, $failed not served"
    [ "$failed" -le "$1" ] || fail "$failed requests were not served: $(cat "$work"/visits.* | sort | uniq -c | tr '\n' ' ')"
}

# --- checks

hardened() {
    local service=$1 pid
    pid=$(pid_of "$service")
    local status=/proc/$pid/status
    grep -qE '^Uid:\s+0\s' "$status" && fail "$service runs as root"
    grep -qE '^CapEff:\s+0+$' "$status" || fail "$service has capabilities"
    grep -qE '^CapBnd:\s+0+$' "$status" || fail "$service could get capabilities"
    grep -qE '^NoNewPrivs:\s+1$' "$status" || fail "$service could gain privileges"
    grep -qE '^Seccomp:\s+2$' "$status" || fail "$service may make any system call"
    awk '$5 == "/" && $6 ~ /(^|,)ro(,|$)/ { found = 1 } END { exit !found }' "/proc/$pid/mountinfo" || fail "$service may write to its image"
    [ "$(look '{{.HostConfig.Memory}}' "$service")" -gt 0 ] || fail "$service has no memory limit"
    [ "$(look '{{.HostConfig.PidsLimit}}' "$service")" -gt 0 ] || fail "$service has no process limit"
    [ "$(look '{{.HostConfig.NanoCpus}}' "$service")" -gt 0 ] || fail "$service has no CPU limit"
}
# shares SERVICE FILE...: the service can read exactly these secrets.
shares() {
    local found
    found=$(cd "/proc/$(pid_of "$1")/root/run/tollhouse" && find . -type f -printf '%P ' | tr ' ' '\n' | sort | xargs)
    [ "$found" = "${*:2}" ] || fail "$1 has these secrets: $found"
}
# Prints every port with a listener in these containers: `SERVICE ADDRESS PORT`, for each address of the container.
listening_ports() {
    local service pid
    for service in "$@"; do
        pid=$(pid_of "$service")
        # From the kernel's own table: state 0A listens; 0B00007F, 127.0.0.11, is the nameserver of the engine.
        nsenter -t "$pid" -n python3 - "$service" <<'PYTHON'
import subprocess, sys
ports = set()
for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
    for line in open(table).readlines()[1:]:
        words = line.split()
        address, port = words[1].split(":")
        if words[3] == "0A" and not address.endswith("00007F") and address != "0B00007F":
            ports.add(int(port, 16))
found = subprocess.run(["ip", "-o", "-4", "addr", "show", "scope", "global"], capture_output=True, text=True, check=True)
for line in found.stdout.splitlines():
    for port in sorted(ports):
        print(sys.argv[1], line.split()[3].split("/")[0], port)
PYTHON
    done
}
# reached_from PID: of the ports on stdin, prints `SERVICE:PORT` of those that this process's network reaches.
reached_from() {
    nsenter -t "$1" -n python3 -c 'import socket, sys
from concurrent.futures import ThreadPoolExecutor
def open_port(line):
    service, address, port = line.split()
    try:
        socket.create_connection((address, int(port)), 2).close()
        return f"{service}:{port}"
    except OSError:
        return None
with ThreadPoolExecutor(64) as pool:
    print(*sorted({port for port in pool.map(open_port, sys.stdin) if port}))'
}
# may_reach SERVICE PATTERN...: every port that the service reaches matches a pattern, and every pattern matches such a port.
may_reach() {
    local service=$1 reached port pattern
    shift
    reached=$(grep -v "^$service " "$work/ports" | reached_from "$(pid_of "$service")")
    for port in $reached; do
        for pattern in "$@"; do [[ $port =~ ^($pattern)$ ]] && continue 2; done
        fail "$service reaches $port"
    done
    for pattern in "$@"; do
        grep -qE "(^| )($pattern)( |\$)" <<<"$reached" || fail "$service does not reach $pattern, but only: $reached"
    done
}
targets_up() {
    local up
    up=$(curl --silent "http://127.0.0.1:$PROMETHEUS_PORT/api/v1/targets?state=active" | grep -o '"health":"up"' | wc -l)
    [ "$up" -eq 5 ]
}
# Exit code 3: the status lists problems, and is complete.
quota_mode() { { tollhouse status --json || [ $? -eq 3 ]; } | field edge.quota.mode; }
counts_exactly() { case "$(quota_mode)" in lease | exact) ;; *) return 1 ;; esac; }
counts_degraded() { ! counts_exactly; }
used_today() { tollhouse quota show "$1" --json | field day.used; }
used_is() { [ "$(used_today "$1")" -eq "$2" ]; }
# The UTC day, in which requests are counted.
today() { date -u +%F; }
# Both gateways have found the servers: a restarted container may have another address.
settled() { for _ in 1 2 3 4 5 6; do answers || return 1; done; }
in_redis() {
    "$engine" exec -e "REDISCLI_AUTH=$(cat "/proc/$(pid_of gateway-1)/root/run/tollhouse/secrets/redis.password")" \
        "$(container redis)" redis-cli --user tollhouse "$@"
}
# in_databases PROGRAM...: runs a PostgreSQL program in the container, as administrator.
in_databases() { "$engine" exec -i "$(container postgres)" "$1" -h /tmp -U postgres "${@:2}"; }
# in_postgres DATABASE STATEMENT: prints the result.
in_postgres() { in_databases psql -X -A -t -d "$1" -c "$2" </dev/null; }
orders_status() { [ "$(fetch demo-pro "$orders" -H "Authorization: Bearer $pro")" = "$1" ]; }
served() { "$engine" logs "$(container "$1")" 2>&1 | grep -c "\"path\":\"$orders\"" || true; }
# The minute limit holds over both gateways: of 70 requests exactly the remaining ones are served. False if the minute ended.
limit_is_exact() {
    local before left resets served
    before=$(tollhouse quota show demo-free --json)
    left=$(field minute.remaining <<<"$before")
    resets=$(field minute.resets_at <<<"$before")
    seq 70 | xargs -P 4 -I{} curl --silent --output /dev/null --max-time 10 --cacert "$work/ca.pem" \
        --resolve "$(host_of demo-free):$HTTPS_PORT:127.0.0.1" -H "Authorization: Bearer $free" \
        --write-out '%{http_code} %header{x-ratelimit-reset}\n' "https://$(host_of demo-free):$HTTPS_PORT$orders" >"$work/limit"
    [ "$(cut -d' ' -f2 "$work/limit" | sort -u)" = "$resets" ] || return 1
    served=$(grep -c '^200 ' "$work/limit" || true)
    [ "$served" -eq "$left" ] || fail "$of 70 requests were served, but $left were left: $(sort "$work/limit" | uniq -c | tr '\n' ' ')"
    [ "$(grep -c '^429 ' "$work/limit")" -eq $((70 - left)) ] || fail "a refusal has another status than 429: $(sort "$work/limit" | uniq -c | tr '\n' ' ')"
    say "    $served served, $((70 - left)) refused, over two gateways"
}

# --- the test

[ "$(id -u)" -eq 0 ] || fail "run as root: the test inspects the containers' network namespaces"
for tool in curl python3 nsenter ip "$engine" "${composer[0]}"; do
    command -v "$tool" >/dev/null || fail "$tool is missing; install it"
done

step "Images: $engine, ${composer[*]}"
names=(gateway orders-service domains-service tollhouse dev-world)
missing() { for program in "${names[@]}"; do [ -x "$programs/$program" ] || printf '%s ' "$program"; done; }
[ -n "${PROGRAMS:-}" ] || [ -z "$(missing)" ] || cargo build --locked --workspace --bins
[ -z "$(missing)" ] || fail "$programs lacks $(missing)(build them with: cargo build --locked --workspace --bins)"
tests/compose/debian-images.sh "$engine" >>"$work/compose.log" 2>&1 || { cat "$work/compose.log" >&2; exit 1; }
mkdir "$work/programs"
for program in "${names[@]}"; do
    strip --strip-debug -o "$work/programs/$program" "$programs/$program"
done
"$engine" build -q -t "tollhouse:$TOLLHOUSE_TAG" --target prebuilt -f Dockerfile "$work/programs" >/dev/null

step 'A gateway without secrets: it is restarted until they exist'
compose up -d --no-deps gateway-1
tried_again() { [ "$(look '{{.RestartCount}}' gateway-1)" -ge 1 ]; }
within 30 'the gateway is restarted' tried_again

step 'Up: everything is healthy'
compose up -d init "${services[@]}"
within 120 'all are healthy' all_healthy
[ "$(look '{{.State.ExitCode}}' init)" = 0 ] || fail 'init failed'

step 'Hardened: users, capabilities, file systems, limits, ports, networks, secrets'
for service in "${services[@]}"; do hardened "$service"; done
for service in gateway-1 gateway-2 orders-service domains-service redis postgres; do
    [ -z "$("$engine" ps --filter "id=$(container "$service")" --format '{{.Ports}}' | grep -e '->' || true)" ] || fail "$service publishes a port"
done
shares orders-service ca/internal.pem secrets/database.url secrets/services/orders-service.key tls/orders-service.key tls/orders-service.pem
shares domains-service ca/ca.key ca/ca.pem secrets/database.url secrets/gateways/gateway-{1,2,more}.key secrets/platform.key secrets/sealing.key \
    secrets/services/orders-service.key tls/domains-service.key tls/domains-service.pem
for gateway in gateway-1 gateway-2; do
    shares "$gateway" ca/internal.pem ca/platform.key ca/platform.pem "secrets/gateways/$gateway.key" secrets/redis.password secrets/sealing.key \
        "tls/$gateway.key" "tls/$gateway.pem"
done
shares redis users.acl
shares postgres roles.sql
shares prometheus internal.pem

step 'Networks: every pair of containers, every port'
listening_ports "${services[@]}" >"$work/ports"
for port in 'redis .* 6379' 'postgres .* 5432' 'gateway-1 .* 9901' 'orders-service .* 7004' 'prometheus .* 9090'; do
    grep -q "^$port\$" "$work/ports" || fail "no listener at $port: $(sort "$work/ports" | tr '\n' ';')"
done
services_ports='(orders-service:(7001|7004|9902)|domains-service:(7002|7003|9903))'
may_reach balancer 'gateway-[12]:(8080|8443|9901)' prometheus:9090
may_reach gateway-1 'gateway-2:(8080|8443|9901)' "$services_ports" redis:6379 'balancer:(8080|8443|8404)' prometheus:9090
may_reach gateway-2 'gateway-1:(8080|8443|9901)' "$services_ports" redis:6379 'balancer:(8080|8443|8404)' prometheus:9090
may_reach orders-service 'domains-service:(7002|7003|9903)' postgres:5432 prometheus:9090
may_reach domains-service 'orders-service:(7001|7004|9902)' postgres:5432 prometheus:9090 'balancer:(8080|8443|8404)'
may_reach prometheus 'gateway-[12]:(8080|8443|9901)' "$services_ports" 'balancer:(8080|8443|8404)'
may_reach redis
may_reach postgres
# An upstream that the operator adds.
upstream=$("$engine" run -d --label "com.docker.compose.project=$project" --name "$project-upstream" --network "${project}_upstreams" \
    --entrypoint sleep "$("$engine" inspect --format '{{.Config.Image}}' "$(container redis)")" 86400)
upstream_pid=$("$engine" inspect --format '{{.State.Pid}}' "$upstream")
reached=$(reached_from "$upstream_pid" <"$work/ports")
[ -z "$reached" ] || fail "the added upstream reaches $reached"
address=$(nsenter -t "$upstream_pid" -n ip -o -4 addr show scope global | awk '{ sub("/.*", "", $4); print $4 }')
nsenter -t "$upstream_pid" -n python3 -m http.server --bind "$address" 9000 --directory "$work" >/dev/null 2>&1 &
listening=$!
upstream_is_reached() { [ "$(printf 'upstream %s 9000\n' "$address" | reached_from "$(pid_of gateway-1)")" = upstream:9000 ]; }
within 10 'the gateways reach an upstream' upstream_is_reached
kill "$listening"
wait "$listening" 2>/dev/null || true
"$engine" rm -f "$upstream" >/dev/null

step 'Demo: a request through TLS with a key'
tollhouse ca >"$work/ca.pem"
tollhouse demo --json >"$work/demo.json" || fail 'tollhouse demo failed'
free=$(key_of demo-free) pro=$(key_of demo-pro) business=$(key_of demo-business)
within 10 'both gateways know the key' answers
expect 200 demo-pro "$orders" -H "Authorization: Bearer $pro"
expect 401 demo-pro "$orders"
expect 204 demo-pro "$orders/1" -X DELETE -H "Authorization: Bearer $pro"
identity=$(identity_of demo-pro) quota="tollhouse:bucket:{$(identity_of demo-free)}"
[ -n "$identity" ] || fail 'the control plane does not use PostgreSQL'
[ "$(in_postgres orders "SELECT status FROM orders WHERE project = '$identity' AND id = 1")" = cancelled ] ||
    fail 'PostgreSQL does not have the cancelled order'
"$engine" exec -e PGPASSWORD=wrong "$(container postgres)" psql -X -h postgres -U orders -d orders -c 'SELECT 1' >/dev/null 2>&1 &&
    fail 'PostgreSQL accepts a wrong password'
[ "$(curl --silent --output /dev/null --write-out '%{http_code} %{redirect_url}' --resolve "$(host_of demo-pro):$HTTP_PORT:127.0.0.1" \
    "http://$(host_of demo-pro):$HTTP_PORT/a?b=c")" = "301 https://$(host_of demo-pro):$HTTPS_PORT/a?b=c" ] || fail 'plain HTTP does not redirect to https'
for gateway in gateway-1 gateway-2; do
    "$engine" logs "$(container "$gateway")" 2>&1 | grep -qF "\"client_ip\":\"$edge." && fail "$gateway logs the balancer as the client"
done

step 'Quota: both gateways count together in Redis'
ask_twelve() { for _ in $(seq 12); do expect 200 demo-free "$orders" -H "Authorization: Bearer $free"; done; }
day=$(today) before=$(used_today demo-free)
ask_twelve
# If the day ends meanwhile, the requests are in two days: check again in the new day.
twelve_more() { [ "$(today)" != "$day" ] || used_is demo-free $((before + 12)); }
within 15 '12 more are counted' twelve_more
if [ "$(today)" != "$day" ]; then
    day=$(today) before=$(used_today demo-free)
    ask_twelve
    within 15 '12 more are counted in a new day' used_is demo-free $((before + 12))
fi
[ -n "$(in_redis HGETALL "$quota")" ] || fail 'Redis has no bucket of the project'
[ "$("$engine" exec "$(container redis)" redis-cli ping 2>&1 | grep -c NOAUTH)" -eq 1 ] || fail 'Redis accepts a client without password'
for gateway in gateway-1 gateway-2; do [ "$(served "$gateway")" -gt 0 ] || fail "$gateway served nothing"; done
within 150 '70 requests within one minute' limit_is_exact

step 'Prometheus: five targets and the alert rules'
within 60 'all targets are up' targets_up
rules=$(curl --silent "http://127.0.0.1:$PROMETHEUS_PORT/api/v1/rules" | grep -o '"type":"alerting"' | wc -l)
[ "$rules" -gt 20 ] || fail "Prometheus has $rules alerts"

step 'Scale: a gateway stops and starts; no request fails'
visitors_come
compose stop gateway-2
within 20 'the other gateway serves' answers
start gateway-2
within 60 'it is back' healthy gateway-2
visitors_leave 0

step 'Scale: a third gateway starts; no request fails'
visitors_come
compose --profile more up -d --no-deps --scale gateway-more=1 gateway-more
third_serves() { [ "$(served gateway-more)" -gt 0 ]; }
within 60 'the third gateway serves' third_serves
visitors_leave 0

step 'Roll: both gateways are replaced, one after the other; no request fails'
visitors_come
for gateway in gateway-1 gateway-2; do
    old=$(container "$gateway")
    compose up -d --no-deps --force-recreate "$gateway"
    [ "$(container "$gateway")" != "$old" ] || fail "$gateway was not replaced"
    within 60 "$gateway is back" healthy "$gateway"
done
visitors_leave 0

step 'Kill: a killed gateway is restarted; at most its requests in progress fail'
old=$(pid_of gateway-1)
visitors_come
within 30 '10 requests' visited 10
kill -9 "$old"
came_back() { local pid; pid=$(pid_of gateway-1) && [ "$pid" != "$old" ] && [ "$pid" != 0 ] && healthy gateway-1; }
within 60 'it is back' came_back
visitors_leave 2

step 'Scale: the third gateway stops; no request fails'
visitors_come
compose --profile more stop gateway-more
visitors_leave 0

step 'Redis stops and starts: requests are served'
compose stop redis
within 30 'the gateways count without Redis' counts_degraded
expect 200 demo-pro "$orders" -H "Authorization: Bearer $pro"
start redis
within 60 'they count together again' counts_exactly

step 'Redis restarts: it keeps its counts'
compose restart redis
within 30 'Redis is healthy' healthy redis
[ -n "$(in_redis HGETALL "$quota")" ] || fail 'Redis lost the bucket of a project without requests since its restart'

step 'PostgreSQL stops and starts: orders answer 503, then recover'
compose stop postgres
within 30 'orders are refused as unavailable' orders_status 503
expect 401 demo-pro "$orders"
[ "$(curl --silent --output /dev/null --write-out '%{http_code}' --resolve "$(host_of demo-pro):$HTTP_PORT:127.0.0.1" \
    "http://$(host_of demo-pro):$HTTP_PORT/")" = 301 ] || fail 'without PostgreSQL plain HTTP does not redirect to https'
start postgres
within 60 'orders are listed again' orders_status 200
expect 409 demo-pro "$orders/1" -X DELETE -H "Authorization: Bearer $pro"

step 'Everything but the gateways stops, and they restart: they still authenticate requests'
compose stop redis domains-service orders-service postgres
for gateway in gateway-1 gateway-2; do
    compose restart "$gateway"
    within 60 "$gateway is ready" healthy "$gateway"
done
expect 401 demo-pro "$orders"
expect 502 demo-pro "$orders" -H "Authorization: Bearer $pro"
start postgres orders-service
within 60 'requests are served without control plane and Redis' settled
start redis domains-service
within 60 'all are healthy' all_healthy
within 60 'they count together again' counts_exactly

step 'Backup and restore of the databases, by the commands of docs/operator/backup.md'
mkdir "$work/backups"
# documented TEXT: prints the block of commands after the line that ends with this text, adapted to this test.
documented() {
    awk -v text="$1" 'found && /^    /{ print; said = 1; next } said && !/^$/{ exit } index($0, text) && $0 ~ text "$" { found = 1 }' docs/operator/backup.md |
        sed -e "s|/backups/monday|$work/backups|g" -e "s|docker-compose|timeout 240 ${composer[*]} -p $project ${files[*]} --profile tools|g"
}
# run_documented TEXT: runs these commands.
run_documented() {
    local script
    script=$(documented "$1")
    [ -n "$script" ] || fail "docs/operator/backup.md has no commands after: $1"
    bash -c "$script" >>"$work/compose.log" 2>&1 </dev/null || { tail -20 "$work/compose.log" >&2; fail "$script"; }
}
run_documented 'In containers:'
expect 204 demo-pro "$orders/2" -X DELETE -H "Authorization: Bearer $pro"
run_documented 'and to restore:'
[ "$(in_postgres orders_lost 'SELECT COUNT(*) FROM orders')" -gt 0 ] || fail 'the replaced database is not kept'
within 60 'all are healthy' all_healthy
within 30 'requests are served by both gateways' settled
expect 204 demo-pro "$orders/2" -X DELETE -H "Authorization: Bearer $pro"
expect 409 demo-pro "$orders/1" -X DELETE -H "Authorization: Bearer $pro"
new=$(tollhouse key create demo-pro --json | field key)
new_key_is_known() { [ "$(fetch demo-pro "$orders" -H "Authorization: Bearer $new")" = 200 ]; }
within 30 'the gateways apply new changes' new_key_is_known

step 'Test world: a domain is attached with DNS and an authority'
export DOMAINS_CONFIG=./config/dev/domains-service.toml NAMESERVERS=$DEV_DNS:8053
compose --profile dev up -d --no-deps test-world pebble domains-service
services+=(test-world pebble)
shop=shop.customer.test
within 60 'the control plane is healthy' healthy domains-service
root=/proc/$(pid_of test-world)/root/data/test-world/root.pem
within 60 'the authority has its root certificate' test -s "$root"
tollhouse domain add demo-pro "$shop" >"$work/added" || fail "cannot add the domain: $(cat "$work/added")"
"$engine" exec "$(container test-world)" dev-world dns set "$shop" CNAME "$(tollhouse project show demo-pro --json | field cname_target)"
tollhouse domain verify demo-pro "$shop" >"$work/verified" || fail "cannot verify the domain: $(cat "$work/verified")"
shop_status() {
    [ "$(curl --silent --output /dev/null --write-out '%{http_code}' --max-time 10 --cacert "$root" \
        --resolve "$shop:$HTTPS_PORT:127.0.0.1" -H "Authorization: Bearer $pro" "https://$shop:$HTTPS_PORT$orders")" = 200 ]
}
within 90 'the domain is served with a certificate of the authority' shop_status

step 'Down and up: data, keys and counts are kept'
cp "$root" "$work/root.pem"
root=$work/root.pem
down_and_up() {
    compose --profile more --profile dev down
    services=("${always[@]}")
    [ -z "$(container gateway-1)" ] || fail 'a container is left'
    compose up -d init "${services[@]}"
    within 120 'all are healthy' all_healthy
    tollhouse ca | cmp - "$work/ca.pem" || fail 'the certificate authority changed'
    within 30 'requests are served' answers
    expect 409 demo-pro "$orders/1" -X DELETE -H "Authorization: Bearer $pro"
    within 30 'the domain is served' shop_status
    within 30 'they count together' counts_exactly
}
# Counts start at zero each day. If the day ends meanwhile, the test is repeated in the new day.
for attempt in 1 2; do
    day=$(today) before=$(used_today demo-free)
    if [ "$before" -lt 12 ]; then
        ask_twelve
        within 15 'they are counted' used_is demo-free $((before + 12))
        before=$(used_today demo-free)
    fi
    down_and_up
    after=$(used_today demo-free)
    [ "$(today)" != "$day" ] || break
    [ "$attempt" -eq 1 ] || fail 'a second day ended within minutes'
done
[ "$after" -ge "$before" ] && [ "$before" -ge 12 ] || fail "$before requests were counted today, now $after"

say "docker-compose.yml keeps its promises under $engine ($SECONDS s)."
