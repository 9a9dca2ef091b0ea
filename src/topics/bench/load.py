"""The load generator: N keep-alive connections in a closed loop, in a process of its own on uvloop.

Started as `python -m topics.bench.load` with a `LoadPlan` on standard input; a `LoadResult` comes back
on standard output. Every connection has exactly one request outstanding: the reply releases the next.
"""

import asyncio
import resource
import sys
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Protocol, cast

import msgspec
import uvloop

from topics.bench.errors import MalformedReply
from topics.bench.http1 import HttpReply
from topics.bench.plan import LoadPlan, LoadResult, hand_back
from topics.bench.resp import RespReply
from topics.clock import Clock, SystemClock

DRAIN_S_MAX = 5.0


class Reply(Protocol):
    """Follows one reply at a time; `failure` tells after a complete reply whether it was a refusal."""

    failure: bytes | None

    def feed(self, data: bytes) -> bool: ...


class Tally:
    """What the connections share during one phase: latencies, errors, and whether to go on."""

    __slots__ = ("errors", "first_error", "latencies_ns", "outstanding", "requests_max", "running", "wake")

    def __init__(self, requests_max: int) -> None:
        self.latencies_ns = array("Q")
        self.requests_max = requests_max
        self.errors = 0
        self.first_error: str | None = None
        self.outstanding = 0
        self.running = True
        self.wake = asyncio.Event()

    def note_error(self, message: str) -> None:
        self.errors += 1
        if self.first_error is None:
            self.first_error = message

    def stop(self) -> None:
        self.running = False
        self.wake.set()

    def note_resting(self) -> None:
        self.outstanding -= 1
        if self.outstanding == 0:
            self.wake.set()


class Connection(asyncio.Protocol):
    """One connection and its circle of requests."""

    def __init__(self, script: Sequence[bytes], reply: Reply, clock: Clock) -> None:
        self._script = script
        self._reply = reply
        self._now_ns = clock.monotonic_ns
        self._at = 0
        self._sent_ns = 0
        self._tally: Tally | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def start(self, tally: Tally) -> None:
        """Goes round the circle until the tally stops; a lost connection stays lost."""
        if self._transport is None:
            return
        self._tally = tally
        tally.outstanding += 1
        self._sent_ns = self._now_ns()
        self._transport.write(self._script[self._at])

    def data_received(self, data: bytes) -> None:
        """Hot: one reply in, one latency noted, one request out."""
        try:
            if not self._reply.feed(data):
                return
        except MalformedReply as problem:
            self._lose(problem.message)
            return
        now_ns = self._now_ns()
        tally = self._tally
        transport = self._transport
        if tally is None or transport is None:
            return
        if tally.running:
            failure = self._reply.failure
            if failure is None:
                tally.latencies_ns.append(now_ns - self._sent_ns)
            else:
                tally.note_error(failure.decode("utf-8", "replace"))
            if len(tally.latencies_ns) + tally.errors >= tally.requests_max:
                tally.stop()
        following = self._at + 1
        self._at = following = following if following < len(self._script) else 0
        if tally.running:
            self._sent_ns = now_ns
            transport.write(self._script[following])
        else:
            self._tally = None
            tally.note_resting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(f"connection lost: {exc or 'closed by the target'}")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _lose(self, message: str) -> None:
        self.close()
        if self._tally is not None:
            self._tally.note_error(message)
            self._tally.note_resting()
            self._tally = None


async def run_plan(plan: LoadPlan, clock: Clock) -> LoadResult:
    """Connects, warms up without counting, then counts for the plan's seconds."""
    loop = asyncio.get_running_loop()
    connections: list[Connection] = []
    try:
        for script in plan.scripts:
            factory = partial(Connection, script, _reply_of(plan), clock)
            _, connection = await loop.create_connection(factory, plan.host, plan.port)
            connections.append(connection)
        warm_up = Tally(plan.requests_max)
        await _run_phase(warm_up, connections, plan.warm_up_s, clock)
        counted = Tally(plan.requests_max)
        cpu_ns = _cpu_ns()
        elapsed_ns = await _run_phase(counted, connections, plan.seconds, clock)
        return LoadResult(
            latencies=counted.latencies_ns.tobytes(),
            elapsed_ns=elapsed_ns,
            cpu_ns=_cpu_ns() - cpu_ns,
            errors=warm_up.errors + counted.errors,
            first_error=warm_up.first_error or counted.first_error,
        )
    finally:
        for connection in connections:
            connection.close()


async def _run_phase(tally: Tally, connections: list[Connection], seconds: float, clock: Clock) -> int:
    """Runs the connections, gives back the time counted, and leaves no request outstanding."""
    start_ns = clock.monotonic_ns()
    for connection in connections:
        connection.start(tally)
    if tally.outstanding:
        await _wait(tally.wake, seconds)
    elapsed_ns = clock.monotonic_ns() - start_ns
    tally.running = False
    tally.wake.clear()
    if tally.outstanding and not await _wait(tally.wake, DRAIN_S_MAX):
        tally.note_error(f"{tally.outstanding} requests unanswered {DRAIN_S_MAX:.0f} s after the end")
    return elapsed_ns


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _reply_of(plan: LoadPlan) -> Reply:
    return HttpReply() if plan.speaks == "http" else RespReply(plan.lines_per_reply)


def _cpu_ns() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e9)


def main() -> None:
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=LoadPlan)
    result = uvloop.run(run_plan(plan, SystemClock()))
    hand_back(result)


if __name__ == "__main__":
    main()
