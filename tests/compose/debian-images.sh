#!/usr/bin/env bash
# Builds the images of Dockerfile and docker-compose.yml from Debian's packages, for machines without a registry:
#   tests/compose/debian-images.sh docker|podman
# They have the tags, users, folders and commands of the published images, so that the files are tested unchanged.
# Versions are Debian's. Debian has no package of Grafana, so that image is missing.
# Needs root and debootstrap. Downloads are cached. Existing images, and images that can be pulled, are not built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
engine=${1:?which engine: docker or podman}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tollhouse-tools/images
release=bookworm
packages=(haproxy redis-server prometheus postgresql pebble bash ca-certificates)
servers=$cache/servers.${#packages[@]}

# named PATTERN FILE: prints the only matching image reference of a file.
named() {
    local found
    found=$(grep -oE "$1" "$2" | sort -u)
    [ "$(wc -l <<<"$found")" -eq 1 ] && [ -n "$found" ] || { echo "$2 names not one image like $1: $found" >&2; exit 1; }
    printf '%s' "$found"
}

there() { "$engine" image inspect "$1" >/dev/null 2>&1; }

# A small Debian with the servers, under users with the numbers of the published images.
servers_root() {
    # Its name contains the packages: with other packages a new one is built.
    local root=$servers
    [ -e "$root.done" ] && return
    rm -rf "$cache"/servers.* "$root"
    mkdir -p "$cache"
    debootstrap --variant=minbase --include="$(IFS=,; printf '%s' "${packages[*]}")" "$release" "$root" >"$cache/debootstrap.log" ||
        { tail "$cache/debootstrap.log" >&2; exit 1; }
    install -d -o 999 -g 999 "$root/data"
    install -d -o 65534 -g 65534 "$root/prometheus"
    # The server needs the name of its user.
    sed -i -E 's/^postgres:x:[0-9]+:[0-9]+:/postgres:x:999:999:/' "$root/etc/passwd"
    sed -i -E 's/^postgres:x:[0-9]+:/postgres:x:999:/' "$root/etc/group"
    rm -rf "$root/var/lib/postgresql"
    install -d -o 999 -g 999 -m 0700 "$root/var/lib/postgresql/data"
    install -d "$root/usr/local/etc/haproxy" "$root/usr/local/etc/redis" "$root/etc/prometheus"
    rm -rf "$root/var/cache/apt" "$root/var/lib/apt/lists"
    touch "$root.done"
}

# Like distroless cc: the C library, certificates, time zones, one user, no shell.
distroless_root() {
    local root=$cache/distroless package
    [ -e "$root.done" ] && return
    rm -rf "$root" "$cache/packages"
    mkdir -p "$root" "$cache/packages"
    (cd "$cache/packages" && apt-get download -q base-files netbase tzdata libc6 libgcc-s1 gcc-12-base ca-certificates) >/dev/null 2>&1 ||
        { echo 'apt-get download does not work; is this Debian, with lists of packages (apt-get update)?' >&2; exit 1; }
    for package in "$cache"/packages/*.deb; do dpkg-deb -x "$package" "$root"; done
    install -d "$root/etc/ssl/certs"
    find "$root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$root/etc/ssl/certs/ca-certificates.crt"
    printf '%s\n' 'root:x:0:0:root:/root:/sbin/nologin' 'nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin' >"$root/etc/passwd"
    printf '%s\n' 'root:x:0:' 'nonroot:x:65532:' >"$root/etc/group"
    install -d -m 0700 -o 65532 -g 65532 "$root/home/nonroot"
    install -d -m 1777 "$root/tmp"
    touch "$root.done"
}

# imported NAME ROOT CHANGE...: makes an image of a root directory.
imported() {
    local name=$1 root=$2 change changes=()
    shift 2
    there "$name" && return
    for change in "$@"; do changes+=(--change "$change"); done
    echo "Making $name from Debian's packages" >&2
    tar -C "$root" --numeric-owner -c . | "$engine" import ${changes[@]+"${changes[@]}"} - "$name" >/dev/null
}

images=("$(named 'gcr\.io/distroless/[a-z0-9:-]+' Dockerfile)" "$(named 'docker\.io/library/haproxy:[a-z0-9.-]+' docker-compose.yml)"
    "$(named 'docker\.io/library/redis:[a-z0-9.-]+' docker-compose.yml)" "$(named 'docker\.io/prom/prometheus:[a-z0-9.-]+' docker-compose.yml)"
    "$(named 'docker\.io/library/postgres:[a-z0-9.-]+' docker-compose.yml)" "$(named 'ghcr\.io/letsencrypt/pebble:[a-z0-9.-]+' docker-compose.yml)")
# If one image cannot be pulled, there is no registry: do not wait for the next one.
missing=0
for image in "${images[@]}"; do
    there "$image" || timeout 120 "$engine" pull -q "$image" >/dev/null 2>&1 || { missing=1 && break; }
done
[ "$missing" -eq 1 ] || exit 0
[ "$(id -u)" -eq 0 ] || { echo 'Making images from packages takes root.' >&2; exit 1; }
command -v debootstrap >/dev/null || { echo 'debootstrap is missing; install it: apt-get install debootstrap' >&2; exit 1; }
servers_root
distroless_root
imported "${images[0]}" "$cache/distroless" \
    'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' 'USER 65532' 'WORKDIR /home/nonroot'
imported "${images[1]}" "$servers" 'USER 99'
imported "${images[2]}" "$servers" \
    'WORKDIR /data' 'VOLUME /data' 'CMD ["redis-server"]'
imported "${images[3]}" "$servers" \
    'USER 65534' 'WORKDIR /prometheus' 'VOLUME /prometheus' 'ENTRYPOINT ["/usr/bin/prometheus"]'
imported "${images[4]}" "$servers" \
    'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/15/bin' \
    'USER 999' 'VOLUME /var/lib/postgresql/data'
imported "${images[5]}" "$servers" 'ENTRYPOINT ["/usr/bin/pebble"]'
