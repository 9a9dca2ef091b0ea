"""Processes the benchmark starts: watched while they start, and stopped whatever happens.

Each runs in its own session, so that Ctrl-C reaches only the benchmark, which then stops them in order.
"""

import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from topics.bench.errors import BenchError
from topics.clock import SystemClock

LOOPBACK = "127.0.0.1"
POLL_S = 0.02
START_S_MAX = 30.0
STOP_S_MAX = 10.0
LOG_BYTES_SHOWN_MAX = 2000


@contextmanager
def running(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process with its output in `log`, and stops it at the end of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes], seconds: float = STOP_S_MAX) -> None:
    """Sends SIGTERM, then SIGKILL if the process does not end."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def wait_for(
    process: subprocess.Popen[bytes],
    what: str,
    condition: Callable[[], bool],
    log: Path,
    poll_s: float = POLL_S,
    seconds: float = START_S_MAX,
) -> None:
    """Waits until `condition` holds. If the process ends first, or takes too long, the error shows its log."""
    clock = SystemClock()
    deadline_ns = clock.monotonic_ns() + int(seconds * 1e9)
    while not condition():
        if clock.monotonic_ns() > deadline_ns:
            raise BenchError(f"{what} was not ready after {seconds:.0f} s\n{_end_of(log)}")
        try:
            process.wait(poll_s)
        except subprocess.TimeoutExpired:
            continue
        raise BenchError(f"{what} ended with status {process.returncode} while starting\n{_end_of(log)}")


def family(process_id: int) -> list[int]:
    """A process and those it has started, where the system tells."""
    found = [process_id]
    for known in found:
        for children in Path(f"/proc/{known}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def cpu_ns(process_id: int | None) -> int | None:
    """The CPU time of a process with all its threads, and of those it has started; None if it cannot be read."""
    find_clock = getattr(ctypes.CDLL(None), "clock_getcpuclockid", None)
    clock_id = ctypes.c_int()
    if process_id is None or find_clock is None or find_clock(process_id, ctypes.byref(clock_id)) != 0:
        return None
    total_ns = time.clock_gettime_ns(clock_id.value)
    for child in family(process_id)[1:]:
        if find_clock(child, ctypes.byref(clock_id)) == 0:
            total_ns += time.clock_gettime_ns(clock_id.value)
    return total_ns


def free_port() -> int:
    """A loopback port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def address_in(port_file: Path) -> tuple[str, int]:
    """The address of the process that wrote this file."""
    host, _, port = port_file.read_text().strip().rpartition(":")
    return host.strip("[]"), int(port)


def environment_with(**settings: str) -> dict[str, str]:
    """This process's environment, with its server settings replaced by `settings`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    return inherited | settings


def _end_of(log: Path) -> str:
    return log.read_bytes()[-LOG_BYTES_SHOWN_MAX:].decode("utf-8", "replace").strip()
