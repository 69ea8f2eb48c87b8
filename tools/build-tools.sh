# Sourced by ./up and ./check: finds or installs their tools besides Rust. Prints nothing if none is missing.
# Linux. tools/packages names the packages.
# shellcheck shell=bash

# Debian installs servers into directories that only root has in PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# Messages go to the error stream: the output belongs to the program.
say() { printf '%s\n' "$*" >&2; }
fail() { printf '%s\n' "$@" >&2; exit 1; }

# Rust. rustup reads rust-toolchain.toml and fetches that version automatically.
need_rust() {
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    command -v cargo >/dev/null || fail \
        "Rust is missing: cargo is not in PATH." \
        "Install it from https://rustup.rs (or your system's package rustup), open a new shell, and run this again." \
        "rust-toolchain.toml names the version."
    local complaint
    complaint=$(cargo --version 2>&1 >/dev/null) || fail \
        "cargo does not start:" "$complaint" \
        "If it asks for a toolchain, run this in $PWD: rustup toolchain install"
}

# have COMMAND: whether it is installed.
have() {
    case "$1" in
        # Compiles a program, because on many systems the headers of the C library are a separate package.
        cc) printf '#include <stdlib.h>\n#include <pthread.h>\nint main(void) { return 0; }\n' |
            "${CC:-cc}" -x c -o /dev/null - >/dev/null 2>&1 ;;
        ensurepip) python3 -c 'import ensurepip' 2>/dev/null ;;
        initdb) command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

# commands_of GROUP...: the commands that these groups need.
commands_of() {
    awk -v wanted="$*" '
        BEGIN { count = split(wanted, groups, " "); for (i = 1; i <= count; i++) want[groups[i]] = 1 }
        /^#/ || !NF { next }
        { count = split($2, groups, ","); for (i = 1; i <= count; i++) if (groups[i] in want) { print $1; next } }' tools/packages
}

# packages_of MANAGER COMMAND...: the packages with these commands. Fails for a command that the table lacks.
packages_of() {
    local manager=$1 column command found
    shift
    case "$manager" in apt-get) column=3 ;; dnf) column=4 ;; esac
    for command in "$@"; do
        found=$(awk -v command="$command" -v column="$column" '$1 == command { print $column }' tools/packages)
        [ -n "$found" ] || fail "$command is missing from tools/packages."
        [ "$found" = - ] || printf '%s\n' "${found//,/ }"
    done
}

# need GROUP...: installs the missing commands of these groups. Fails with their names if it cannot.
need() {
    local missing=() command
    for command in $(commands_of "$@"); do have "$command" || missing+=("$command"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    install_packages "${missing[@]}"
    local still=()
    for command in "${missing[@]}"; do have "$command" || still+=("$command"); done
    [ ${#still[@]} -eq 0 ] || fail "Still missing: ${still[*]}. Install them (tools/packages names Debian's packages) and run this again."
}

# install_packages COMMAND...: installs the packages of these commands with the system's package manager.
install_packages() {
    local manager='' wanted as_root=()
    for manager in apt-get dnf none; do
        command -v "$manager" >/dev/null && break
    done
    [ "$manager" != none ] || fail "Missing: $*." \
        "Neither apt-get nor dnf was found. Install them (tools/packages names Debian's packages) and run this again."
    # shellcheck disable=SC2207
    wanted=($(packages_of "$manager" "$@")) || exit 1
    [ ${#wanted[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail \
            "Missing: $*. Installing them needs root, and sudo was not found." \
            "As root, run: $manager install ${wanted[*]}"
        as_root=(sudo)
    fi
    say "Installing with $manager: ${wanted[*]}"
    case "$manager" in
        apt-get)
            # A new machine has no package lists yet.
            run_quietly ${as_root[@]+"${as_root[@]}"} apt-get update || true
            set -- env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends
            ;;
        dnf) set -- dnf install --assumeyes ;;
    esac
    # If one package cannot be installed, install the others.
    if ! run_quietly ${as_root[@]+"${as_root[@]}"} "$@" "${wanted[@]}"; then
        local package
        for package in "${wanted[@]}"; do
            run_quietly ${as_root[@]+"${as_root[@]}"} "$@" "$package" || true
        done
    fi
    # Only PostgreSQL's programs are needed, so its service is disabled.
    if [ -d /run/systemd/system ] && [[ " ${wanted[*]} " == *" postgresql"* ]]; then
        ${as_root[@]+"${as_root[@]}"} systemctl disable --now postgresql >/dev/null 2>&1 || true
    fi
}

# Runs a command and prints its output only if it fails.
run_quietly() {
    local log outcome=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || outcome=$?
    if [ "$outcome" -ne 0 ]; then
        cat "$log" >&2
        say "Failed: $*"
    fi
    rm -f "$log"
    return "$outcome"
}
