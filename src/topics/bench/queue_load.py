"""The load of many workers on one queue, in a process of its own: each claims some jobs, acks them, and goes on.

Started as `python -m topics.bench.queue_load` with a `QueuePlan` on standard input; a `QueueResult` comes back. Ends
when the time is up or the queue is empty. What is timed is the claim, from request to reply.
"""

import asyncio
import re
import resource
import sys
from array import array
from typing import Literal, Protocol, cast

import msgspec
import uvloop

from topics.bench.errors import MalformedReply
from topics.bench.http1 import HEAD_END, render_request
from topics.bench.plan import hand_back
from topics.bench.resp import encode_command, lines_per_stream_entry
from topics.clock import Clock, SystemClock

GROUP = b"workers"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SEQ = re.compile(rb'\{"\$seq":(\d+)')
_ENTRY_ID = re.compile(rb"\r\n(\d+-\d+)\r\n")
_HEADER_LINES = 5  # *1, *2, the name in two lines, *n


class QueuePlan(msgspec.Struct, frozen=True):
    host: str
    port: int
    speaks: Literal["http", "resp"]
    api_key: str | None
    topic: str
    workers: int
    jobs_per_claim: int
    fields_per_entry: int
    seconds: float


class QueueResult(msgspec.Struct, frozen=True):
    """`latencies`: the memory of an `array('Q')` of nanoseconds, one a claim. `acked`: jobs by worker."""

    latencies: bytes
    elapsed_ns: int
    cpu_ns: int
    acked: list[int]
    errors: int
    first_error: str | None


class Dialect(Protocol):
    def claim(self, worker: int) -> bytes: ...

    def ack(self, worker: int, jobs: list[bytes]) -> bytes: ...

    def jobs_in(self, reply: bytes) -> list[bytes] | None:
        """The ids in the reply to a claim; None while it is not complete."""
        ...

    def is_complete(self, reply: bytes) -> bool:
        """The reply to an ack."""
        ...


class HttpDialect:
    def __init__(self, plan: QueuePlan) -> None:
        self._host, self._key, path = plan.host, plan.api_key, f"/v0/topics/{plan.topic}"
        self._ack_path = f"{path}/ack"
        self._claims = [
            self._render(f"{path}/claim", b'{"node":"w%d","max":%d}' % (worker, plan.jobs_per_claim))
            for worker in range(plan.workers)
        ]

    def claim(self, worker: int) -> bytes:
        return self._claims[worker]

    def ack(self, worker: int, jobs: list[bytes]) -> bytes:
        return self._render(self._ack_path, b'{"node":"w%d","seqs":[%b]}' % (worker, b",".join(jobs)))

    def jobs_in(self, reply: bytes) -> list[bytes] | None:
        return _SEQ.findall(reply) if self.is_complete(reply) else None

    def is_complete(self, reply: bytes) -> bool:
        end = reply.find(HEAD_END)
        length = _LENGTH.search(reply, 0, max(end, 0))
        if end < 0 or length is None:
            return False
        if not reply.startswith(b"HTTP/1.1 2"):
            raise MalformedReply(reply[:300].decode("utf-8", "replace"))
        return len(reply) >= end + len(HEAD_END) + int(length[1])

    def _render(self, path: str, body: bytes) -> bytes:
        return render_request("POST", path, body, host=self._host, api_key=self._key)


class RespDialect:
    def __init__(self, plan: QueuePlan) -> None:
        self._stream = plan.topic.encode("ascii")
        self._entry_lines = lines_per_stream_entry(plan.fields_per_entry)
        count = b"%d" % plan.jobs_per_claim
        self._claims = [
            encode_command(
                b"XREADGROUP", b"GROUP", GROUP, b"w%d" % worker, b"COUNT", count, b"STREAMS", self._stream, b">"
            )
            for worker in range(plan.workers)
        ]

    def claim(self, worker: int) -> bytes:
        return self._claims[worker]

    def ack(self, worker: int, jobs: list[bytes]) -> bytes:
        return encode_command(b"XACK", self._stream, GROUP, *jobs)

    def jobs_in(self, reply: bytes) -> list[bytes] | None:
        if reply.startswith(b"*-1\r\n"):
            return []
        self.is_complete(reply)
        head = reply.split(b"\r\n", _HEADER_LINES)
        if len(head) <= _HEADER_LINES:
            return None
        entries = int(head[_HEADER_LINES - 1][1:])
        if reply.count(b"\n") < _HEADER_LINES + entries * self._entry_lines:
            return None
        return _ENTRY_ID.findall(reply)

    def is_complete(self, reply: bytes) -> bool:
        if reply.startswith(b"-"):
            raise MalformedReply(reply[:300].decode("utf-8", "replace"))
        return reply.endswith(b"\r\n")


class Workers:
    """What the workers share."""

    def __init__(self, plan: QueuePlan, clock: Clock) -> None:
        self.dialect: Dialect = HttpDialect(plan) if plan.speaks == "http" else RespDialect(plan)
        self.now_ns = clock.monotonic_ns
        self.latencies_ns = array("Q")
        self.acked = [0] * plan.workers
        self.working = plan.workers
        self.running = True
        self.ended_ns = 0
        self.errors = 0
        self.first_error: str | None = None
        self.finished = asyncio.Event()

    def rest(self) -> None:
        """A worker has stopped: there was nothing for it, or the time is up."""
        self.ended_ns = self.now_ns()
        self.working -= 1
        if self.working == 0:
            self.finished.set()


class Worker(asyncio.Protocol):
    """One connection: claim, ack, claim."""

    def __init__(self, number: int, workers: Workers) -> None:
        self._number = number
        self._workers = workers
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._jobs: list[bytes] | None = None  # being acked
        self._sent_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def claim(self) -> None:
        if self._transport is not None:
            self._sent_ns = self._workers.now_ns()
            self._transport.write(self._workers.dialect.claim(self._number))

    def data_received(self, data: bytes) -> None:
        """Hot."""
        self._received = data = self._received + data if self._received else data
        workers = self._workers
        try:
            if self._jobs is None:
                jobs = workers.dialect.jobs_in(data)
                if jobs is None:
                    return
                workers.latencies_ns.append(workers.now_ns() - self._sent_ns)
                self._received = b""
                if not jobs:
                    self._end(None)
                elif self._transport is not None:
                    self._jobs = jobs
                    self._transport.write(workers.dialect.ack(self._number, jobs))
            elif workers.dialect.is_complete(data):
                self._received = b""
                workers.acked[self._number] += len(self._jobs)
                self._jobs = None
                if workers.running:
                    self.claim()
                else:
                    self._end(None)
        except MalformedReply as problem:
            self._end(problem.message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection lost: {exc or 'closed by the target'}")

    def _end(self, error: str | None) -> None:
        if self._transport is None:
            return
        self._transport.abort()
        self._transport = None
        if error is not None:
            self._workers.errors += 1
            self._workers.first_error = self._workers.first_error or error
        self._workers.rest()


async def run_plan(plan: QueuePlan, clock: Clock) -> QueueResult:
    loop = asyncio.get_running_loop()
    workers = Workers(plan, clock)
    connected: list[Worker] = []
    for number in range(plan.workers):
        worker = Worker(number, workers)
        await loop.create_connection(lambda worker=worker: worker, plan.host, plan.port)  # type: ignore[misc]
        connected.append(worker)
    used = resource.getrusage(resource.RUSAGE_SELF)
    started_ns = clock.monotonic_ns()
    for worker in connected:
        worker.claim()
    loop.call_later(plan.seconds, lambda: setattr(workers, "running", False))
    await workers.finished.wait()
    after = resource.getrusage(resource.RUSAGE_SELF)
    busy_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return QueueResult(
        latencies=workers.latencies_ns.tobytes(),
        elapsed_ns=workers.ended_ns - started_ns,
        cpu_ns=int(busy_s * 1e9),
        acked=workers.acked,
        errors=workers.errors,
        first_error=workers.first_error,
    )


def main() -> None:
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=QueuePlan)
    hand_back(uvloop.run(run_plan(plan, SystemClock())))


if __name__ == "__main__":
    main()
