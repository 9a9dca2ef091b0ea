# Sourced by ./serve and ./test: makes .venv with this project installed, once per change of pyproject.toml.
# usage: . scripts/environment.sh; environment "<extras with commas between, or nothing>"; browser; java_for_spark
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

debian_package() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    say "installing Debian's $1"
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$1"; } >/dev/null 2>&1
}

make_venv() {
    "$1" -m venv --clear .venv >/dev/null 2>&1 && return 0
    # Debian ships Python without ensurepip; its own package brings it.
    debian_package python3-venv && "$1" -m venv --clear .venv && return 0
    die "could not create a virtual environment with $1. On Debian or Ubuntu: apt-get install python3-venv"
}

# Spark runs on Java. Without it, and without the means to install it, its tests are skipped and say so.
java_for_spark() {
    if [ -n "${JAVA_HOME:-}" ] || command -v java >/dev/null 2>&1; then
        return 0
    fi
    debian_package openjdk-17-jre-headless && return 0
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

# A browser for the tests that need one; they are skipped without.
browser() {
    for candidate in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$candidate" >/dev/null 2>&1 && return 0
    done
    debian_package chromium ||
        say "no Chromium on the PATH: the tests in a browser are skipped. On Debian or Ubuntu: apt-get install chromium"
}
