"""What no server on this machine can beat: one sync, one trip over loopback, one copy."""

import os
import socket
import tempfile
import threading
from collections.abc import Callable

from topics.bench.child_process import LOOPBACK
from topics.bench.measurement import Figure, Measurement, MeasurementResult, Progress
from topics.bench.records import write_body
from topics.bench.samples import percentile
from topics.clock import SystemClock

FRAME = b"x" * 200
PROBES = 500
ECHO_BYTES = 200
COPY_RECORDS = 1000


def sync_ms(probes: int) -> float:
    """The median of one small append and `fdatasync`, in the directory where the benchmark keeps its servers' data."""
    with tempfile.TemporaryFile(prefix="topics-bench-") as file:
        descriptor = file.fileno()

        def append() -> None:
            os.write(descriptor, FRAME)
            os.fdatasync(descriptor)

        return _median_ms(append, probes)


def loopback_ms(probes: int) -> float:
    """The median of one small message to a thread that sends it back."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        echo = threading.Thread(target=_echo, args=(listener,))
        echo.start()
        with socket.create_connection(listener.getsockname()) as near:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def there_and_back() -> None:
                near.sendall(FRAME)
                received = 0
                while received < len(FRAME):
                    received += len(near.recv(ECHO_BYTES))

            found = _median_ms(there_and_back, probes)
        echo.join()
    return found


def copy_ms(probes: int) -> float:
    """The median of one copy of a thousand records."""
    body = write_body(0, COPY_RECORDS)
    return _median_ms(lambda: bytearray(body), probes)


class FloorsMeasurement(Measurement):
    name = "floors"

    def measure(self, progress: Progress) -> MeasurementResult:
        progress("floors: a sync, a trip over loopback, a copy")
        return MeasurementResult(
            self.name,
            "what no server on this machine can beat, medians",
            (
                Figure("one append of 200 bytes and fdatasync", sync_ms(PROBES) * 1000, "µs"),
                Figure("one trip over loopback to another thread and back", loopback_ms(PROBES) * 1000, "µs"),
                Figure(f"one copy of {COPY_RECORDS} records", copy_ms(PROBES) * 1000, "µs"),
            ),
        )


def _echo(listener: socket.socket) -> None:
    far, _ = listener.accept()
    with far:
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := far.recv(ECHO_BYTES):
            far.sendall(data)


def _median_ms(work: Callable[[], object], probes: int) -> float:
    now_ns = SystemClock().monotonic_ns
    times: list[int] = []
    for _ in range(probes):
        began_ns = now_ns()
        work()
        times.append(now_ns() - began_ns)
    return percentile(sorted(times), 500) / 1e6
