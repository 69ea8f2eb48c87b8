#!/usr/bin/env bash
# Runs ./check quick, with a change in every crate, in an empty Debian: as root, and as an ordinary user with sudo.
#   tests/fresh-machine.sh [root|user]...
# COMMAND replaces ./check quick. Proves that ./check installs everything it needs and that nothing of the tests rests on this machine's packages.
# Needs root, debootstrap and Debian's archive. Rust, cargo's downloaded crates and the settings of package managers are
# this machine's; the build is shared by both runs. Takes about 15 minutes a run on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$(id -u)" = 0 ] || { echo 'tests/fresh-machine.sh makes a system below a folder, which takes root.' >&2; exit 1; }
command -v debootstrap >/dev/null || { echo 'debootstrap is missing; install it: apt-get install debootstrap' >&2; exit 1; }
[ $# -gt 0 ] || set -- user root

release=bookworm
work=$(mktemp -d)
mounted=()
finish() {
    local index
    for ((index = ${#mounted[@]} - 1; index >= 0; index--)); do umount -l "${mounted[index]}"; done
    rm -rf --one-file-system "$work"
}
trap finish EXIT
bind() { mkdir -p "$2" && mount --bind "$1" "$2" && mounted+=("$2"); }

# An empty Debian that installs from where this machine installs.
debootstrap --variant=minbase --include=ca-certificates,git,sudo "$release" "$work/empty" >"$work/log" || { tail "$work/log" >&2; exit 1; }
rm -rf "$work/empty/etc/apt"
cp -a /etc/apt "$work/empty/etc/apt"
cp -L /etc/resolv.conf /etc/hosts "$work/empty/etc/"
cp -a /usr/local/share/ca-certificates "$work/empty/usr/local/share/" 2>/dev/null && chroot "$work/empty" update-ca-certificates >/dev/null 2>&1
for file in /etc/pip.conf "$HOME/.npmrc" "$HOME/.config/pip/pip.conf"; do
    [ ! -e "$file" ] || install -D -m 0644 "$file" "$work/empty/settings/${file##*/}"
done
git clone --quiet . "$work/clone"
for library in "$work"/clone/*/src/lib.rs; do printf '// A change.\n' >>"$library"; done
rust=$(rustc --print sysroot)
crates=${CARGO_HOME:-$HOME/.cargo}
failed=()

for who in "$@"; do
    system=$work/$who
    cp -a "$work/empty" "$system"
    home=/home/dev
    [ "$who" = user ] || home=/root
    if [ "$who" = user ]; then
        chroot "$system" useradd --create-home --shell /bin/bash dev
        echo 'dev ALL=(ALL) NOPASSWD: ALL' >"$system/etc/sudoers.d/dev"
    fi
    cp -a "$work/clone" "$system$home/tollhouse"
    mkdir -p "$work/target" "$system$home/.cargo"
    bind "$work/target" "$system$home/tollhouse/target"
    bind "$rust" "$system/opt/rust"
    for part in registry config.toml; do
        [ ! -e "$crates/$part" ] || cp -a "$crates/$part" "$system$home/.cargo/"
    done
    [ ! -e "$system/settings/pip.conf" ] || cp "$system/settings/pip.conf" "$system/etc/pip.conf"
    [ ! -e "$system/settings/.npmrc" ] || cp "$system/settings/.npmrc" "$system$home/.npmrc"
    for part in proc sys dev dev/pts dev/shm; do bind "/$part" "$system/$part"; done
    chroot "$system" chown -R "$([ "$who" = user ] && echo dev:dev || echo root:root)" "$home"
    begin=(chroot "$system" env HOME="$home" PATH=/opt/rust/bin:/usr/local/bin:/usr/bin:/bin)
    [ "$who" = root ] || begin=(chroot --userspec=dev:dev "$system" env HOME="$home" USER=dev PATH=/opt/rust/bin:/usr/local/bin:/usr/bin:/bin)
    printf '\n==> ./check quick in an empty Debian as %s\n' "$who"
    "${begin[@]}" bash -c "cd $home/tollhouse && ${COMMAND:-./check quick}" || failed+=("$who")
done
[ ${#failed[@]} -eq 0 ] || { printf 'FAILED as: %s\n' "${failed[*]}" >&2; exit 1; }
