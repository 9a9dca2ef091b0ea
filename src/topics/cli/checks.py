"""What `topics doctor` checks, one function each: what was found, how bad it is, and the next step."""

import argparse
import importlib.util
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from topics import limits
from topics.cli.output import byte_count, duration
from topics.clock import SystemClock
from topics.errors import ConfigurationError, TopicsError
from topics.version import VERSION

FREE_BYTES_MIN = 1 * limits.GIB
FREE_SHARE_MIN = 0.05
FILES_MIN = 4096
FILES_GOOD = limits.CONNECTIONS_MAX + limits.SEGMENTS_OPEN_MAX + 1000
SYNCS = 20
SYNC_MS_MAX = 20.0
MEMORY_BYTES_MIN = 512 * limits.MIB
CLOCK_SKEW_MS_MAX = 2000
ANSWER_MS_MAX = 250
PYTHON_S_MAX = 30.0  # for a start of another interpreter
UNSYNCHRONISED = 5  # what adjtimex returns for a clock that nothing synchronizes
OF_THE_CLIENT = {"TOPICS_URL", "TOPICS_API_KEY"}
FORGETFUL = {"tmpfs", "ramfs"}
FAR_AWAY = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}


class Level(StrEnum):
    GOOD = "good"
    ADVICE = "advice"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    found: str
    advice: str = ""


def versions() -> Finding:
    machine = f"{platform.system()} {platform.machine()}"
    return Finding("version", Level.GOOD, f"topics {VERSION}, Python {platform.python_version()}, {machine}")


def settings(environment: dict[str, str]) -> Iterator[Finding]:
    from topics.server.settings import read_settings  # noqa: PLC0415 (only here the server's rooms are needed)

    given = sorted(name for name in environment if name.startswith("TOPICS_") and name not in OF_THE_CLIENT)
    try:
        found = read_settings(dict(environment))
    except ConfigurationError as error:
        yield Finding("settings", Level.BROKEN, "the server would not start", error.message)
        return
    if found.warnings:
        for warning in found.warnings:
            yield Finding("settings", Level.ADVICE, warning, "correct it, or unset it")
        return
    yield Finding("settings", Level.GOOD, ", ".join(given) if given else "no TOPICS_ variable is set: all defaults")


def keys(environment: dict[str, str]) -> Finding:
    if environment.get("TOPICS_API_KEYS") or environment.get("TOPICS_API_KEYS_FILE"):
        return Finding("keys", Level.GOOD, "a server started here asks for a key")
    return Finding(
        "keys",
        Level.ADVICE,
        "no TOPICS_API_KEYS: a server started here lets everybody on this machine do everything",
        "`topics keys generate` makes a key and says where it goes",
    )


def data_directory(path: str) -> Iterator[Finding]:
    """The data directory, or the nearest existing one above it: that is the disk it would be created on."""
    there = os.path.abspath(path)
    while not os.path.isdir(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding("disk", Level.BROKEN, f"{there} can't be written to", "choose another TOPICS_DATA_DIR")
        return
    kind = filesystem_of(there)
    usage = shutil.disk_usage(there)
    what = f"{path} on {kind or 'a file system'} with {byte_count(usage.free)} free of {byte_count(usage.total)}"
    if kind in FORGETFUL:
        yield Finding(
            "disk", Level.ADVICE, f"{what}; it forgets everything at a reboot", "choose a TOPICS_DATA_DIR on a disk"
        )
    elif kind in FAR_AWAY:
        yield Finding(
            "disk",
            Level.ADVICE,
            f"{what}; syncs over a network are slow, and some only pretend",
            "choose a TOPICS_DATA_DIR on a local disk",
        )
    elif usage.free < FREE_BYTES_MIN or usage.free < FREE_SHARE_MIN * usage.total:
        yield Finding("disk", Level.ADVICE, what, "make room, or set caps and TTLs (`topics config TOPIC --ttl 7d`)")
    else:
        yield Finding("disk", Level.GOOD, what)
    yield _sync_time(there)


def _sync_time(directory: str) -> Finding:
    monotonic_ns = SystemClock.monotonic_ns
    took_ms = []
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            for _ in range(SYNCS):
                began_ns = monotonic_ns()
                os.write(file.fileno(), bytes(4096))
                os.fdatasync(file.fileno())
                took_ms.append((monotonic_ns() - began_ns) / 1e6)
    except OSError as error:
        return Finding(
            "sync", Level.BROKEN, f"a sync in {directory} failed: {error.strerror}", "replace or free the disk"
        )
    median = sorted(took_ms)[SYNCS // 2]
    what = f"4 KiB are safe on this disk after {median:.2f} ms (half of {SYNCS} syncs)"
    if median > SYNC_MS_MAX:
        return Finding(
            "sync", Level.ADVICE, what, "writes to topics of class fsync wait that long; those of class disk do not"
        )
    return Finding("sync", Level.GOOD, what)


def filesystem_of(path: str) -> str:
    """The kind of file system a path is on, or nothing if the system does not say."""
    best, kind = "", ""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, point, type_, *_ = line.split(" ")
                point = point.replace("\\040", " ")
                if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                    best, kind = point, type_
    except OSError:
        return ""
    return kind


def spark(environment: dict[str, str]) -> Iterator[Finding]:
    """Whether Spark would find `format("topics")`: it searches with the Python it runs, which may not be this one."""
    if importlib.util.find_spec("pyspark") is None:
        return
    name = environment.get("PYSPARK_PYTHON", "").strip() or "python3"
    python = shutil.which(name, path=environment.get("PATH"))
    what = f"Spark runs {python or name}"
    if python is not None and _imports(python, "pyspark_topics", environment):
        yield Finding("spark", Level.GOOD, f"{what}, which has this package")
        return
    where = "which does not have this package" if python else "which does not exist"
    yield Finding(
        "spark",
        Level.ADVICE,
        f'{what}, {where}: format("topics") would fail with DATA_SOURCE_NOT_FOUND',
        f"activate this environment ({sys.prefix}), or set PYSPARK_PYTHON={sys.executable}",
    )


def _imports(python: str, module: str, environment: dict[str, str]) -> bool:
    try:
        command = [python, "-c", f"import {module}"]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=PYTHON_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    what = f"{'any number of' if soft == resource.RLIM_INFINITY else f'{soft:,}'} open files"
    if soft != resource.RLIM_INFINITY and soft < FILES_MIN:
        return Finding(
            "files",
            Level.ADVICE,
            f"{what}; each connection is one, and segments take up to {limits.SEGMENTS_OPEN_MAX:,}",
            f"`ulimit -n {min(FILES_GOOD, hard) if hard > 0 else FILES_GOOD}` before the start; LimitNOFILE= in a unit",
        )
    return Finding("files", Level.GOOD, what)


def memory() -> Iterator[Finding]:
    """What this process may use: the machine's memory, or what its control group leaves of it."""
    bounds = [_number_in("/sys/fs/cgroup/memory.max"), _meminfo()]
    known = [bound for bound in bounds if bound is not None]
    if not known:
        return
    what = f"{byte_count(min(known))} of memory; the tails of all topics have to fit"
    if min(known) < MEMORY_BYTES_MIN:
        yield Finding("memory", Level.ADVICE, what, "set TOPICS_MAX_TOTAL_BYTES, and caps on your topics")
    else:
        yield Finding("memory", Level.GOOD, what)


def _number_in(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _meminfo() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            words = file.readline().split()
    except OSError:
        return None
    return int(words[1]) * limits.KIB if len(words) > 1 and words[1].isdigit() else None


def clock() -> Iterator[Finding]:
    """Whether this machine's clock is synchronised. Records get their times from it, and TTLs depend on it."""
    import ctypes  # noqa: PLC0415

    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return
    state = adjtimex(ctypes.create_string_buffer(512))
    if state == UNSYNCHRONISED:
        yield Finding(
            "clock",
            Level.ADVICE,
            "nothing synchronizes this machine's clock, which stamps records and decides TTLs",
            "run chrony, ntpd or systemd-timesyncd",
        )
    elif state >= 0:
        yield Finding("clock", Level.GOOD, "synchronized over the network")


def server(args: argparse.Namespace) -> Iterator[Finding]:
    from topics.cli.connection import connect_briefly, overviews  # noqa: PLC0415

    clocks = SystemClock()
    began_ns = clocks.monotonic_ns()
    try:
        with connect_briefly(args.url) as client:
            pages = list(overviews(client))
    except TopicsError as error:
        yield Finding(
            "server", Level.ADVICE, error.message, "`topics serve` starts one; --url or TOPICS_URL names another"
        )
        return
    took_ms = (clocks.monotonic_ns() - began_ns) // 1_000_000
    found, topics = pages[0].server, [topic for page in pages for topic in page.topics]
    what = f"{args.url} runs topics {found.version}, up for {duration(found.uptime_ms)}, answered in {took_ms} ms"
    if found.version != VERSION:
        yield Finding("server", Level.ADVICE, what, f"this command is {VERSION}: bring both to one version")
    elif took_ms > ANSWER_MS_MAX:
        yield Finding("server", Level.ADVICE, what, "`topics top` shows what it is busy with")
    else:
        yield Finding("server", Level.GOOD, what)
    for shard in found.read_only_shards:
        yield Finding(
            "server",
            Level.BROKEN,
            f"{shard.shard} takes no writes: {shard.reason}",
            "free or replace the disk, then restart the server",
        )
    if found.disk_free_bytes is not None and found.disk_free_bytes < FREE_BYTES_MIN:
        yield Finding(
            "server", Level.ADVICE, f"{byte_count(found.disk_free_bytes)} free on its disk", "make room there"
        )
    skew_ms = abs(found.ts - clocks.now_ms())
    if skew_ms > CLOCK_SKEW_MS_MAX + took_ms:
        yield Finding(
            "clock",
            Level.ADVICE,
            f"its clock and this one are {duration(skew_ms)} apart",
            "synchronize both: `--since` uses this clock, records have the server's",
        )
    lost = sum(topic.lost for topic in topics)
    if lost:
        losing = sorted((topic for topic in topics if topic.lost), key=lambda topic: -topic.lost)
        names = ", ".join(f"{topic.topic} ({topic.lost:,})" for topic in losing[:3])
        yield Finding(
            "losses",
            Level.ADVICE,
            f"{lost:,} records were lost to caps, TTLs or crashes: {names}",
            f"`topics show {losing[0].topic}` tells the ranges and why",
        )
