# Sourced by ./up and ./check: what a build needs beside Rust, found or installed. Says nothing when nothing is missing.
# shellcheck shell=bash

# Words for people go to the error stream: the output belongs to the program.
say() { printf '%s\n' "$*" >&2; }
fail() { printf '%s\n' "$@" >&2; exit 1; }

# Rust. rustup reads rust-toolchain.toml and fetches that version by itself.
need_rust() {
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    command -v cargo >/dev/null || fail \
        "Rust is missing: there is no cargo on the PATH." \
        "Get it from https://rustup.rs (or your system's package rustup), open a new shell, and run this again." \
        "The version this project is built with is in rust-toolchain.toml."
    local complaint
    complaint=$(cargo --version 2>&1 >/dev/null) || fail \
        "cargo does not start. It says:" "$complaint" \
        "If it asks for a toolchain, run this in $PWD: rustup toolchain install"
}

# A compiler is there when it compiles: on many systems the compiler and the headers of the C library are two packages.
c_compiler_works() {
    command -v "${CC:-cc}" >/dev/null || return 1
    printf '#include <stdlib.h>\n#include <pthread.h>\nint main(void) { return 0; }\n' |
        "${CC:-cc}" -x c -o /dev/null - >/dev/null 2>&1
}

# Why: rustc links with cc, and aws-lc, SQLite and zstd are C; pingora's zlib-ng is built with cmake, jemalloc with make.
need_build_tools() {
    local missing=()
    c_compiler_works || missing+=(compiler)
    command -v make >/dev/null || missing+=(make)
    command -v cmake >/dev/null || missing+=(cmake)
    [ ${#missing[@]} -eq 0 ] || install_tools "${missing[@]}"
    c_compiler_works || fail "There is still no working C compiler (cc). Install one, for example gcc with the headers of the C library."
    local tool
    for tool in make cmake; do
        command -v "$tool" >/dev/null || fail "There is still no $tool on the PATH. Install it and run this again."
    done
}

# need COMMAND PACKAGE: what only tests need, from the system's packages.
need() {
    command -v "$1" >/dev/null || install_tools "$2"
    command -v "$1" >/dev/null || fail "There is still no $1 on the PATH. Install it (package $2) and run this again."
}

# A PostgreSQL server to test with; Debian keeps its programs off the path. Its service is not needed and not left on.
need_postgres() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || {
        install_tools postgresql
        if [ -d /run/systemd/system ]; then systemctl disable --now postgresql >/dev/null 2>&1 || true; fi
    }
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ||
        fail "There is still no PostgreSQL server (initdb). Install it (package postgresql) and run this again."
}

# Installs tools with whatever the system installs packages with.
install_tools() {
    local manager='' packages=() tool
    for manager in apt-get dnf brew none; do
        command -v "$manager" >/dev/null && break
    done
    for tool in "$@"; do
        case "$manager:$tool" in
            apt-get:compiler) packages+=(gcc libc6-dev) ;;
            dnf:compiler) packages+=(gcc glibc-devel) ;;
            brew:compiler) fail "The C compiler is missing. Install Apple's with: xcode-select --install" ;;
            *:python3 | *:curl | *:make | *:cmake | *:prometheus | *:redis-* | *:faketime | *:pebble | *:valgrind | *:npm | *:chromium*) packages+=("$tool") ;;
            apt-get:python3-venv | apt-get:sqlite3 | apt-get:postgresql | brew:postgresql) packages+=("$tool") ;;
            dnf:postgresql) packages+=(postgresql-server) ;;
            *:sqlite3) packages+=(sqlite) ;;
            none:*) packages+=("$tool") ;;
            *) fail "Nobody knows how to install $tool here." ;;
        esac
    done
    [ "$manager" != none ] || fail \
        "Missing: ${packages[*]/compiler/a C compiler}." \
        "Neither apt-get, dnf nor brew is here to install them. Install them yourself and run this again."
    local as_root=()
    if [ "$manager" != brew ] && [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail \
            "Missing: ${packages[*]}. Installing them takes root, and there is no sudo." \
            "As root, run: $manager install ${packages[*]}"
        as_root=(sudo)
    fi
    say "Installing with $manager what the build needs: ${packages[*]}"
    case "$manager" in
        apt-get)
            # On a fresh machine the lists of packages are not there yet.
            run_quietly ${as_root[@]+"${as_root[@]}"} apt-get update
            run_quietly ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
                apt-get install --yes --no-install-recommends "${packages[@]}"
            ;;
        dnf) run_quietly ${as_root[@]+"${as_root[@]}"} dnf install --assumeyes "${packages[@]}" ;;
        brew) run_quietly brew install "${packages[@]}" ;;
    esac
}

# A package manager's chatter is worth reading when it failed.
run_quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail "This did not work: $*"
    fi
    rm -f "$log"
}
