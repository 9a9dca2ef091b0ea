"""The processes Spark has started, seen from the test: the executors, and the Python workers of those."""

import os
import signal
import subprocess
from typing import NamedTuple

EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER_DAEMON = "pyspark.daemon"


class Process(NamedTuple):
    pid: int
    parent: int
    command: str


def _descendants() -> list[Process]:
    """All processes this one has started, and those they have."""
    listed = subprocess.run(["ps", "-axwwo", "pid=,ppid=,command="], check=True, capture_output=True, text=True).stdout
    processes = [Process(int(pid), int(parent), command) for pid, parent, command in map(_fields, listed.splitlines())]
    known = {os.getpid()}
    found: list[Process] = []
    while fresh := [process for process in processes if process.parent in known and process not in found]:
        found += fresh
        known |= {process.pid for process in fresh}
    return found


def _fields(line: str) -> list[str]:
    return line.split(None, 2) if len(line.split(None, 2)) == 3 else [*line.split(None, 2), ""]


def kill_an_executor() -> int:
    """How many there were to kill."""
    return _kill([process.pid for process in _descendants() if EXECUTOR in process.command][:1])


def kill_python_workers() -> int:
    """Kills those that run tasks: each is a child of a daemon, and a daemon itself by name."""
    daemons = [process for process in _descendants() if WORKER_DAEMON in process.command]
    known = {process.pid for process in daemons}
    return _kill([process.pid for process in daemons if process.parent in known])


def _kill(pids: list[int]) -> int:
    killed = 0
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed += 1
    return killed
