# Sourced by ./serve and ./test: makes .venv with this project installed, once per change of pyproject.toml.
# usage: . scripts/environment.sh; environment "<extras with commas between, or nothing>"
say() { printf 'topics: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

find_python() {
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

make_venv() {
    "$1" -m venv --clear .venv >/dev/null 2>&1 && return 0
    # Debian ships Python without ensurepip; its own package brings it.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing Debian's python3-venv"
        { apt-get update -qq && apt-get install -y -qq python3-venv; } >/dev/null 2>&1 || true
        "$1" -m venv --clear .venv && return 0
    fi
    die "could not create a virtual environment with $1. On Debian or Ubuntu: apt-get install python3-venv"
}

# Spark runs on Java. Without it, and without the means to install it, its tests are skipped and say so.
java_for_spark() {
    if [ -n "${JAVA_HOME:-}" ] || command -v java >/dev/null 2>&1; then
        return 0
    fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing Debian's openjdk-17-jre-headless for the tests of Spark (once)"
        { apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless; } >/dev/null 2>&1 && return 0
    fi
    say "there is no Java, so the tests of Spark are skipped. On Debian or Ubuntu: apt-get install openjdk-17-jre-headless"
}

environment() {
    extras="$1"
    python="$(find_python)" || die "needs Python 3.11 or newer. Install it, or set PYTHON=/path/to/python3"
    wanted="$("$python" -c 'import hashlib, sys; print(hashlib.sha256(open("pyproject.toml", "rb").read() + sys.version.encode()).hexdigest())')"
    stamp=".venv/.installed${extras:+-$extras}"
    if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    if [ ! -x .venv/bin/python ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        say "creating .venv"
        make_venv "$python"
    fi
    say "installing dependencies into .venv (once)"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".${extras:+[$extras]}" ||
        die "pip could not install the dependencies listed in pyproject.toml; its message is above." \
            "Check the network or your package index, then run this command again."
    printf '%s' "$wanted" >"$stamp"
}
