"""A server of this project as a process that can be started, killed, stopped and started again on the same data.

It runs from given sources: those of this program, or of an older checkout.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from topics.bench.child_process import (
    LOOPBACK,
    START_S_MAX,
    STOP_S_MAX,
    address_in,
    environment_with,
    family,
    running,
    stop,
    wait_for,
)
from topics.bench.control import HttpControl
from topics.bench.errors import BenchError
from topics.clock import SystemClock

READY_POLL_S = 0.002
OWN_SOURCES = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """A server that is ready. `started_s` is how long that took from the start of its process."""

    process: subprocess.Popen[bytes]
    port: int
    started_s: float

    def control(self) -> HttpControl:
        return HttpControl(LOOPBACK, self.port)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = STOP_S_MAX) -> None:
        stop(self.process, seconds)
        if self.process.returncode != 0:
            raise BenchError(f"the server ended with status {self.process.returncode}")

    def anonymous_bytes(self) -> int:
        """Its memory, and that of processes it has started, without mapped files: heap, stacks, and what the allocator
        keeps."""
        return sum(_anonymous_bytes(process_id) for process_id in family(self.process.pid))


def _anonymous_bytes(process_id: int) -> int:
    try:
        status = Path(f"/proc/{process_id}/status").read_text()
    except OSError as problem:
        raise BenchError(f"the memory of a process cannot be read here: {problem}") from problem
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0]) * 1024
    raise BenchError("this kernel does not report the anonymous memory of a process")


@contextmanager
def server_on(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    sources: Path = OWN_SOURCES,
    ready_s_max: float = START_S_MAX,
) -> Iterator[OwnProcess]:
    """Starts a server with its data in `directory`, and stops it, if it still runs, at the end of the block."""
    port_file = directory / "port"
    port_file.unlink(missing_ok=True)  # left by an earlier server
    environment = environment_with(
        # The sources come before anything installed, and the working directory is not searched at all.
        PYTHONPATH=os.pathsep.join(filter(None, [str(sources), os.environ.get("PYTHONPATH")])),
        PYTHONSAFEPATH="1",
        PYTHONDONTWRITEBYTECODE="",  # a server is compiled once, not at each of its starts
        PYTHONHASHSEED="0",  # so that two compared servers lay out their dictionaries alike
        TOPICS_HOST=LOOPBACK,
        TOPICS_PORT="0",
        TOPICS_PORT_FILE=str(port_file),
        TOPICS_DATA_DIR=str(directory / "data"),
        TOPICS_MAX_TOPICS="1000000",  # more than the largest measurement creates
        **(settings or {}),
    )
    log = directory / "server.log"
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    with running([sys.executable, "-m", "topics.cli.main", "serve"], log, environment) as process:
        wait_for(process, "the server", port_file.exists, log, READY_POLL_S, ready_s_max)
        _, port = address_in(port_file)
        with HttpControl(LOOPBACK, port) as control:
            wait_for(process, "the server", lambda: control.is_there("/v0/ready"), log, READY_POLL_S, ready_s_max)
        yield OwnProcess(process, port, (clock.monotonic_ns() - began_ns) / 1e9)


def sources_in(checkout: Path) -> Path:
    """The sources of a checkout of this project."""
    sources = checkout.resolve() / "src"
    if not (sources / "topics").is_dir():
        raise BenchError(f"{checkout} is not a checkout of this project: it has no src/topics")
    return sources
