"""Every class of system calls fails under a server at work. Whatever it is: nothing acknowledged is lost, readers get
everything or are told, nothing spins, the log says it in a few lines, and the process goes on serving reads.

The default run takes one place and one error of each class; TOPICS_TEST_EXHAUSTIVE=1 takes every class with every error
at every file it meets, once and for a while, and at the start and the stop of the server as well.
"""

import contextlib
import errno
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from acceptance import faulty_server
from acceptance.faulty_server import TOLD, Fault
from acceptance.mixed_load import REFUSALS, WRITTEN, MixedLoad
from acceptance.server import Server
from conformance.client import TOO_LATE, eventually, success
from sampling import EXHAUSTIVE

ERRORS = ("EIO", "ENOSPC", "EMFILE")
ONCE, FOR_A_WHILE = 1, 1_000_000
WHILE_S = 1.0
WARM_WRITES = 150
MORE_WRITES = 30
PROBLEM_LINES_MAX = 30
IDLE_S = 0.5
IDLE_CPU_S_MAX = 0.4
IDLE_CONNECTIONS = 60

# Which files each class of calls meets while the server runs.
PLACES = {
    "open": ("wal-", "CURRENT", "wal/shard", "increment", "snapshot", "data/topics", ".text", "cold/"),
    "read": ("data/topics", "cold/topics", "cold/OWNER"),
    "write": ("wal-", "CURRENT", "increment", "snapshot", "data/topics", "cold/"),
    "sync": ("wal-", "CURRENT", "increment", "snapshot", "data/topics", "data/meta", "cold/"),
    "rename": ("wal-", "CURRENT", "increment", "snapshot", ".tags", ".text", "cold/"),
    "unlink": ("wal-", "increment", "snapshot", "data/topics", "cold/"),
    "truncate": ("wal-",),
    "allocate": ("wal-",),
    "stat": ("data/meta", "data/topics", "data", "cold/"),
    "mmap": ("increment", "snapshot", ".data", ".idx", ".text"),
}
MAY_BREAK_THE_LOG = {"open", "write", "sync", "rename", "truncate", "allocate"}
SAMPLE = [
    Fault("open", "EMFILE", "wal-"),
    Fault("read", "EIO", "cold/topics"),
    Fault("write", "ENOSPC", "wal-"),
    Fault("sync", "EIO", "wal-"),
    Fault("rename", "EIO", "increment"),
    Fault("unlink", "EIO", "wal-"),
    Fault("mmap", "EMFILE", "data/topics"),
]
MATRIX = [
    Fault(kind, error, place, skip, times)
    for kind, places in PLACES.items()
    for place, error, (skip, times) in product(places, ERRORS, ((0, ONCE), (2, ONCE), (0, FOR_A_WHILE)))
]
# Which files each class meets at every stop, and at every start, with its first readers, of a server that was killed.
PLACES_AT_A_STOP = {
    "open": ("data/meta",),
    "write": ("wal-", "data/meta"),
    "sync": ("wal-", "data/meta"),
    "rename": ("data/meta",),
    "unlink": ("data/meta",),
    "truncate": ("wal-",),
    "stat": ("data/meta",),
}
PLACES_AT_A_START = {
    "open": ("LOCK", "data/meta", "data/topics", "data/wal", "cold/"),
    "read": ("data/meta", "data/wal", "cold/"),
    "write": ("LOCK", "data/meta", "data/wal", "cold/"),
    "sync": ("data/wal", "cold/"),
    "rename": ("data/meta", "data/wal", "cold/"),
    "unlink": ("data/meta", "data/wal", "cold/"),
    "truncate": ("LOCK",),
    "allocate": ("data/wal",),
    "stat": ("data/meta", "data/topics", "data/wal", "cold/"),
    "mmap": ("data/meta", "data/topics", "data/wal"),
}
AT_A_STOP_SAMPLE = [Fault("truncate", "ENOSPC", "wal-"), Fault("write", "ENOSPC", "wal-", times=FOR_A_WHILE)]
AT_A_START_SAMPLE = [Fault("stat", "EIO", "OWNER")]


def at_an_end(places_by_kind: dict[str, tuple[str, ...]]) -> list[Fault]:
    return [
        Fault(kind, error, place, times=times)
        for kind, places in places_by_kind.items()
        for place, error, times in product(places, ERRORS, (ONCE, FOR_A_WHILE))
    ]


class FaultyServer(Server):
    program = (faulty_server.__file__,)
    stdin = subprocess.PIPE

    def __init__(self, directory: Path, fault: Fault | None = None) -> None:
        self._refused_path = directory / "refused"
        self._refused_path.unlink(missing_ok=True)
        settings = {
            "TOPICS_COLD_DIR": str(directory / "cold"),
            "TOPICS_HOT_RETAIN_SEGMENTS": "2",
            "TOPICS_SEGMENT_MAX_EVENTS": "16",
            "TOPICS_SEGMENT_MAX_AGE_MS": "300",
            "TOPICS_WAL_SHARDS": "2",
            "TOPICS_MIN_FREE_BYTES": "0",
            "TOPICS_TEST_ROOT": f"{directory}/",
            "TOPICS_TEST_REFUSED": str(self._refused_path),
            "TOPICS_TEST_FAULT": _json(fault),
        }
        try:
            super().__init__(directory, **settings)
        except BaseException:
            self._close_stdin()
            raise

    def fail(self, fault: Fault | None) -> None:
        assert self._process.stdin is not None
        told = self._noted.count(TOLD)
        self._process.stdin.write(_json(fault).encode() + b"\n")
        self._process.stdin.flush()
        eventually(lambda: self._noted.count(TOLD) > told)

    def close(self) -> None:
        """Ends it, if it still runs."""
        self.kill()
        self._close_stdin()

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def refused(self) -> list[str]:
        return [line for line in self._noted if line != TOLD]

    @property
    def _noted(self) -> list[str]:
        return self._refused_path.read_text().splitlines() if self._refused_path.exists() else []

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def problem_lines(self) -> list[str]:
        return [line for line in self.log().splitlines() if " INFO " not in line]


def _json(fault: Fault | None) -> str:
    return json.dumps(None if fault is None else fault._asdict())


@contextlib.contextmanager
def under_load(directory: Path) -> Iterator[tuple[FaultyServer, MixedLoad]]:
    server = FaultyServer(directory)
    try:
        load = MixedLoad(server.api)
        try:
            eventually(lambda: load.writes > WARM_WRITES or bool(load.problems))
            yield server, load
        finally:
            load.stop()
            server.close()
            load.leave()
    except BaseException:
        server.close()
        raise


def told(fault: Fault) -> str:
    times = "once" if fault.times == ONCE else f"{fault.times} times" if fault.times < FOR_A_WHILE else "for a while"
    return f"{fault.kind}-{fault.error}-{fault.place.strip('/')}-{times}-after-{fault.skip}"


def reason_of(server: FaultyServer) -> str:
    """Why writes are refused; empty if they are not."""
    ready = success(server.api.get("/v0/ready"))
    assert ready["status"] == "ready"
    return ready["reason"]["code"] if ready["degraded"] else ""


def check_goes_on(server: FaultyServer, load: MixedLoad) -> None:
    """The fault is over, and the load still runs."""
    writes = load.writes
    eventually(lambda: load.writes > writes + MORE_WRITES or reason_of(server) == "storage_failed")
    load.stop()
    load.check_live()
    cpu_s = server.cpu_s
    time.sleep(IDLE_S)
    assert server.cpu_s - cpu_s < IDLE_CPU_S_MAX, "it is busy with nothing"
    assert len(server.problem_lines) < PROBLEM_LINES_MAX, server.problem_lines
    assert "Traceback" not in server.log(), server.log()


def check_kept(directory: Path, load: MixedLoad) -> None:
    server = FaultyServer(directory)
    try:
        load.check_kept(server.api)
        assert not reason_of(server)
        for topic in WRITTEN:
            success(server.api.post(f"/v0/topics/{topic}", {"records": [{"data": "works again"}]}))
        server.stop()
    finally:
        server.close()


@pytest.mark.parametrize("fault", MATRIX if EXHAUSTIVE else SAMPLE, ids=told)
def test_a_call_that_fails_loses_nothing_silences_nobody_and_ends_nothing(tmp_path: Path, fault: Fault) -> None:
    with under_load(tmp_path) as (server, load):
        server.fail(fault)
        eventually(lambda: bool(server.refused) or not server.runs)
        if fault.times > 1:
            time.sleep(WHILE_S)
            server.fail(None)
        assert server.runs, server.log()
        check_goes_on(server, load)
        reason = reason_of(server)
        if reason:
            # Nothing is known about the log after these: it takes nothing more until it was read again.
            assert fault.kind in (MAY_BREAK_THE_LOG if fault.error == "EIO" else {"sync"})
            assert any("data/wal" in line for line in server.refused), server.refused
            assert server.exit_code_after(signal.SIGTERM) > 0
        elif fault.skip:
            server.stop()
    check_kept(tmp_path, load)


@pytest.mark.parametrize("fault", at_an_end(PLACES_AT_A_STOP) if EXHAUSTIVE else AT_A_STOP_SAMPLE, ids=told)
def test_a_call_that_fails_at_a_stop_loses_nothing(tmp_path: Path, fault: Fault) -> None:
    with under_load(tmp_path) as (server, load):
        load.stop()
        load.check_live()
        server.fail(fault)
        # Something for the last checkpoint. Class `disk`: it is acknowledged before the disk is asked.
        success(server.api.post("/v0/topics/quick", {"records": [{"data": "one more"}]}))
        exit_code = server.exit_code_after(signal.SIGTERM)
        assert server.refused
        assert exit_code >= 0, server.log()
        assert "Traceback" not in server.log(), server.log()
        assert exit_code == 0 or os.strerror(getattr(errno, fault.error)) in server.log(), server.log()
    check_kept(tmp_path, load)


def read_through(server: FaultyServer) -> None:
    """A start looks into those segments only that something has to be counted in; a reader looks into all of them."""
    for topic in WRITTEN:
        from_seq, head_seq = 0, 1
        while from_seq < head_seq:
            reply = server.api.post(f"/v0/topics/{topic}/diff", {"from_seq": from_seq, "limit": 40})
            if reply.status != 200:
                assert reply.json["error"]["code"] in REFUSALS, reply.body
                break
            from_seq, head_seq = reply.json["next_from_seq"], reply.json["head_seq"]


@pytest.mark.parametrize("fault", at_an_end(PLACES_AT_A_START) if EXHAUSTIVE else AT_A_START_SAMPLE, ids=told)
def test_a_call_that_fails_at_a_start_loses_nothing(tmp_path: Path, fault: Fault) -> None:
    with under_load(tmp_path) as (_, load):
        # Some segments are known to the last checkpoint; those that are not are made anew, and nobody reads them.
        eventually(lambda: any((tmp_path / "cold").rglob("*.data")))
        load.stop()
        load.check_live()
    refusal, server = "", None
    try:
        server = FaultyServer(tmp_path, fault)
    except (AssertionError, OSError, http.client.HTTPException) as error:
        refusal = repr(error)
    if server is not None:
        with contextlib.closing(server):
            read_through(server)
            assert server.runs, server.log()
    assert TOO_LATE not in refusal
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log, log
    assert not refusal or os.strerror(getattr(errno, fault.error)) in log, log
    assert fault.error in (tmp_path / "refused").read_text()
    check_kept(tmp_path, load)


def test_connections_that_cannot_be_accepted_wait_and_nothing_is_lost(tmp_path: Path) -> None:
    with under_load(tmp_path) as (server, load), contextlib.ExitStack() as idle:
        soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        open_files = len(os.listdir(f"/proc/{server.pid}/fd"))
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_files + 2, hard))
        for _ in range(IDLE_CONNECTIONS):
            idle.enter_context(socket.create_connection((server.api.host, server.api.port)))
        cpu_s = server.cpu_s
        time.sleep(WHILE_S)
        assert server.cpu_s - cpu_s < WHILE_S * 0.9, "it does nothing but try"
        idle.close()
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert server.runs, server.log()
        check_goes_on(server, load)
        server.stop()
    check_kept(tmp_path, load)
