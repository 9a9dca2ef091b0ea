"""This project's server as a process that is started, killed, stopped and started again on the same data."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from topics.bench.child_process import START_S_MAX, environment_with, free_port, running, stop
from topics.bench.control import HttpControl
from topics.bench.errors import BenchError
from topics.bench.records import write_body
from topics.bench.targets import LOOPBACK
from topics.clock import SystemClock

READY_POLL_S = 0.002
BATCH_RECORDS = 1000
READ_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """A server that is ready. `started_s` is how long that took, from the start of its process."""

    process: subprocess.Popen[bytes]
    port: int
    started_s: float

    def control(self) -> HttpControl:
        return HttpControl(LOOPBACK, self.port)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        stop(self.process)
        if self.process.returncode != 0:
            raise BenchError(f"the server ended with status {self.process.returncode}")

    def anonymous_bytes(self) -> int:
        """Its memory without mapped files: heap, stacks, and what the allocator keeps."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError as problem:
            raise BenchError(f"the memory of a process cannot be read here: {problem}") from problem
        for line in status.splitlines():
            name, _, value = line.partition(":")
            if name == "RssAnon":
                return int(value.split()[0]) * 1024
        raise BenchError("this kernel does not tell the anonymous memory of a process")


@contextmanager
def server_on(directory: Path, **settings: str) -> Iterator[OwnProcess]:
    """A server with its data in `directory`; it is stopped, if it still runs, at the end of the block."""
    port = free_port()
    environment = environment_with(
        TOPICS_HOST=LOOPBACK, TOPICS_PORT=str(port), TOPICS_DATA_DIR=str(directory / "data"), **settings
    )
    log = directory / "server.log"
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    with running([sys.executable, "-m", "topics.cli.main", "serve"], log, environment) as process:
        with HttpControl(LOOPBACK, port) as control:
            while control.read_if_there("/v0/ready") is None:
                if clock.monotonic_ns() - began_ns > START_S_MAX * 1e9:
                    raise BenchError(f"the server was not ready after {START_S_MAX:.0f} s")
                try:
                    process.wait(READY_POLL_S)
                except subprocess.TimeoutExpired:
                    continue
                shown = log.read_bytes()[-2000:].decode("utf-8", "replace")
                raise BenchError(f"the server ended with status {process.returncode} while starting\n{shown}")
        yield OwnProcess(process, port, (clock.monotonic_ns() - began_ns) / 1e9)


def fill(control: HttpControl, topics: list[str], first: int, records: int) -> None:
    """Writes the records number `first` on, a batch a topic in turn."""
    for number, at in enumerate(range(first, first + records, BATCH_RECORDS)):
        body = write_body(at, min(BATCH_RECORDS, first + records - at))
        control.call("POST", f"/v0/topics/{topics[number % len(topics)]}?return_seqs=false", body)
