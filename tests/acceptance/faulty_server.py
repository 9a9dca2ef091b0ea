"""A server whose system calls on files fail when told: `python faulty_server.py serve`.

Everything is the real server, but that the calls of `storage/fs.py` can be refused as the kernel would refuse them, and
that files are small, so that all of them are begun, replaced and read again within a second.

A line of JSON on standard input says what fails from then on (`Fault`), `null` that nothing does any more. What was
refused is in the file of TOPICS_TEST_REFUSED, a line each, and so is that it was told.
TOPICS_TEST_FAULT is a fault to begin with.
"""

import builtins
import errno
import io
import json
import mmap
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from topics import limits

SMALL = {
    "WAL_FILE_BYTES": 64 * limits.KIB,
    "CHECKPOINT_POLL_S": 0.05,
    "CHECKPOINT_INTERVAL_S": 0.2,
    "SEAL_POLL_S": 0.05,
    "FOLD_BYTES_MIN": 16 * limits.KIB,
    "INCREMENTS_MAX": 4,
    "SEGMENTS_OPEN_MAX": 4,
    "COLD_LOADED_BYTES_MAX": 16 * limits.KIB,
    "EXPIRY_INTERVAL_S": 0.1,
    "ROOM_WAIT_AT_STOP_S": 0.5,
}
TOLD = "told what to refuse"
REFUSED_LINES_MAX = 10_000


class Fault(NamedTuple):
    """Calls of `kind` on files whose path has `place` in it fail with `error`: `times` of them, after `skip` others."""

    kind: str
    error: str
    place: str = ""
    skip: int = 0
    times: int = 1


class Faults:
    """Decides about every call. Used from any thread."""

    def __init__(self, root: str, refused_path: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._refused = os.open(refused_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lines = 0
        self._write = os.write

    def listen(self, lines: io.TextIOBase) -> None:
        for line in lines:
            self.set(line)

    def set(self, text: str) -> None:
        found = json.loads(text)
        with self._lock:
            self._fault = None if found is None else Fault(**found)
            self._write(self._refused, f"{TOLD}\n".encode())

    def ask(self, kind: str, call: str, target: object) -> None:
        """Raises what the call is to fail with, if it is its turn."""
        fault = self._fault
        if fault is None or fault.kind != kind:
            return
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(target)
        if not path.startswith(self._root) or fault.place not in path:
            return
        with self._lock:
            fault = self._fault
            if fault is None:
                return
            if fault.skip:
                self._fault = fault._replace(skip=fault.skip - 1)
                return
            self._fault = fault._replace(times=fault.times - 1) if fault.times > 1 else None
            self._lines += 1
            if self._lines <= REFUSED_LINES_MAX:
                self._write(self._refused, f"{call} {fault.error} {path.removeprefix(self._root)}\n".encode())
        number = getattr(errno, fault.error)
        raise OSError(number, os.strerror(number), path)


CALLS = {
    "open": ("open",),
    "read": ("read", "pread"),
    "write": ("write", "pwrite", "writev", "pwritev"),
    "sync": ("fsync", "fdatasync"),
    "rename": ("rename", "replace"),
    "unlink": ("unlink", "remove", "rmdir"),
    "truncate": ("ftruncate",),
    "allocate": ("posix_fallocate",),
    "stat": ("stat", "fstat", "statvfs", "listdir", "scandir"),
    "mkdir": ("mkdir",),
}


def install(faults: Faults) -> None:
    for kind, names in CALLS.items():
        for name in names:
            setattr(os, name, asking(faults, kind, name, getattr(os, name)))
    real_open = builtins.open

    class ReadFile(io.FileIO):
        def readall(self) -> bytes:
            faults.ask("read", "read", self.fileno())
            return super().readall()

    def open_file(path: Any, mode: str = "r", buffering: int = -1, **more: Any) -> Any:
        faults.ask("open", "open", path)
        if (mode, buffering) == ("rb", 0):
            return ReadFile(path, mode)
        return real_open(path, mode, buffering, **more)

    class Map(mmap.mmap):
        def __new__(cls, fileno: int, *arguments: Any, **more: Any) -> "Map":
            if fileno >= 0:
                faults.ask("mmap", "mmap", fileno)
            return super().__new__(cls, fileno, *arguments, **more)

    builtins.open = open_file  # type: ignore[assignment]
    mmap.mmap = Map  # type: ignore[misc]


def asking(faults: Faults, kind: str, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def ask_first(target: Any, *arguments: Any, **more: Any) -> Any:
        faults.ask(kind, name, target)
        return call(target, *arguments, **more)

    return ask_first


def main() -> int:
    for name, value in SMALL.items():
        setattr(limits, name, value)
    faults = Faults(os.environ["TOPICS_TEST_ROOT"], os.environ["TOPICS_TEST_REFUSED"])
    install(faults)
    if fault := os.environ.get("TOPICS_TEST_FAULT"):
        faults.set(fault)
    threading.Thread(target=faults.listen, args=(sys.stdin,), daemon=True).start()

    from topics.cli.main import main as serve  # noqa: PLC0415 - it reads the limits

    return serve()


if __name__ == "__main__":
    sys.exit(main())
