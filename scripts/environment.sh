# Sourced by ./serve and ./test: makes .venv with this project installed, once per change of pyproject.toml.
# usage: . scripts/environment.sh; environment "<extras with commas between, or nothing>"; browser; java_for_spark; proxy_for_tls
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

# One at a time: tests install packages while pip installs others, and making .venv may need one too.
debian_package() { # usage: debian_package <names>
    [ -z "${NO_INSTALL:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    say "installing Debian's $*"
    (
        flock 9
        [ -n "${lists_are_new:-}" ] || apt-get update -qq || exit
        apt-get install -y -qq --no-install-recommends "$@"
    ) 9>"${TMPDIR:-/tmp}/topics-packages.lock" >/dev/null 2>&1 && lists_are_new=1
}

make_venv() {
    "$1" -m venv --clear .venv >/dev/null 2>&1 && return 0
    # Debian ships Python without ensurepip; its own package brings it.
    debian_package python3-venv && "$1" -m venv --clear .venv && return 0
    die "could not create a virtual environment with $1. On Debian or Ubuntu: apt-get install python3-venv"
}

# Spark runs on Java. Without it, and without the means to install it, its tests are skipped and say so.
java_for_spark() {
    has_java && return 0
    debian_package openjdk-17-jre-headless && return 0
    say "there is no Java, so the tests of Spark are skipped. On Debian or Ubuntu: apt-get install openjdk-17-jre-headless"
}

# nginx as the guide to security sets it up. Without it, the tests of TLS are skipped and say so.
proxy_for_tls() {
    has_proxy && return 0
    debian_package nginx-light openssl && return 0
    say "there is no nginx, so the tests of TLS are skipped. On Debian or Ubuntu: apt-get install nginx-light"
}

# A .venv that is there keeps its Python. One that was asked for and is another is refused, not ignored.
check_python() {
    [ -n "${PYTHON:-}" ] && [ -x .venv/bin/python ] || return 0
    version='import sys; print(".".join(map(str, sys.version_info[:3])))'
    asked="$("$PYTHON" -c "$version" 2>/dev/null)" || die "PYTHON=$PYTHON is not a Python that can be run"
    there="$(.venv/bin/python -c "$version")"
    [ "$asked" = "$there" ] ||
        die "PYTHON=$PYTHON is Python $asked, but .venv was made with $there: remove .venv, or unset PYTHON"
}

environment() {
    extras="$1"
    check_python
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

has_java() { [ -n "${JAVA_HOME:-}" ] || command -v java >/dev/null 2>&1; }

has_proxy() { [ -x /usr/sbin/nginx ] || command -v nginx >/dev/null 2>&1; }

has_browser() {
    for candidate in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$candidate" >/dev/null 2>&1 && return 0
    done
    return 1
}

# Says what the tests are going to install, before they do. usage: announce "<arguments of ./test>"
announce() {
    [ -x .venv/bin/python ] || say "going to install: the Python packages of pyproject.toml, into .venv here (about 900 MB)"
    [ -z "${NO_INSTALL:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 0
    packages=""
    case "$1" in '' | *browser*) has_browser || packages="$packages chromium" ;; esac
    case "$1" in '' | *spark*) has_java || packages="$packages openjdk-17-jre-headless" ;; esac
    case "$1" in '' | *acceptance*) has_proxy || packages="$packages nginx-light" ;; esac
    [ -z "$packages" ] || say "going to install, for all users of this machine:$packages (about 400 MB)." \
        "With NO_INSTALL=1 nothing outside this directory is installed, and the tests that need it are skipped"
}

# A browser for the tests that need one; they are skipped without.
browser() {
    has_browser && return 0
    debian_package chromium ||
        say "no Chromium on the PATH: the tests in a browser are skipped. On Debian or Ubuntu: apt-get install chromium"
}
