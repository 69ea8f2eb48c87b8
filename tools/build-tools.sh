# Sourced by ./up and ./check: finds or installs what they need beside Rust. Prints nothing when nothing is missing.
# Linux. tools/packages names the packages.
# shellcheck shell=bash

# Debian keeps servers where only root looks.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# Messages go to the error stream: the output belongs to the program.
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

# have COMMAND: whether it is here.
have() {
    case "$1" in
        # A compiler is here when it compiles: on many systems the compiler and the headers of the C library are two packages.
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

# packages_of MANAGER COMMAND...: the packages that have these commands. Fails for a command that the table does not know.
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

# need GROUP...: everything these groups need is here, or is installed now. Fails, naming the commands, where it cannot be.
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
        "There is no apt-get and no dnf to install them with. Install them (tools/packages names Debian's packages) and run this again."
    # shellcheck disable=SC2207
    wanted=($(packages_of "$manager" "$@")) || exit 1
    [ ${#wanted[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail \
            "Missing: $*. Installing them takes root, and there is no sudo." \
            "As root, run: $manager install ${wanted[*]}"
        as_root=(sudo)
    fi
    say "Installing with $manager: ${wanted[*]}"
    case "$manager" in
        apt-get)
            # On a fresh machine the lists of packages are not there yet.
            run_quietly ${as_root[@]+"${as_root[@]}"} apt-get update || true
            set -- env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends
            ;;
        dnf) set -- dnf install --assumeyes ;;
    esac
    # One package that cannot be had must not keep the others away.
    if ! run_quietly ${as_root[@]+"${as_root[@]}"} "$@" "${wanted[@]}"; then
        local package
        for package in "${wanted[@]}"; do
            run_quietly ${as_root[@]+"${as_root[@]}"} "$@" "$package" || true
        done
    fi
    # PostgreSQL is wanted for its programs. Its service is not needed and not left on.
    if [ -d /run/systemd/system ] && [[ " ${wanted[*]} " == *" postgresql"* ]]; then
        ${as_root[@]+"${as_root[@]}"} systemctl disable --now postgresql >/dev/null 2>&1 || true
    fi
}

# Runs a command and shows what it printed only if it failed.
run_quietly() {
    local log outcome=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || outcome=$?
    if [ "$outcome" -ne 0 ]; then
        cat "$log" >&2
        say "This failed: $*"
    fi
    rm -f "$log"
    return "$outcome"
}
