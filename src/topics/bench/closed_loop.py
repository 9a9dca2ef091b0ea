"""The closed loop: every connection has exactly one request outstanding, and the reply releases the next.

A connection sends prepared requests in a circle, or a subclass derives them from the replies. The loop ends when the
time is up, enough requests were sent, or no connection has any left.
"""

import asyncio
from array import array
from collections.abc import Sequence
from itertools import cycle
from typing import Protocol

from topics.bench.clients import Client
from topics.bench.http1 import HttpReply
from topics.bench.nats_wire import NatsReply
from topics.bench.plan import CirclePlan
from topics.bench.resp import RespReply
from topics.bench.samples import Counts
from topics.bench.targets import TargetKind
from topics.clock import Clock

DRAIN_S_MAX = 5.0


class Reply(Protocol):
    """Follows one reply at a time. After a complete reply, `failure` says whether it was a refusal."""

    failure: bytes | None

    def feed(self, data: bytes) -> bool: ...


class Tally:
    """What the connections share while they send: latencies, errors, and whether to go on."""

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


class Connection(Client):
    """One connection and its circle of requests."""

    def __init__(self, script: Sequence[bytes], reply: Reply, clock: Clock, opening: bytes = b"") -> None:
        super().__init__(opening)
        self._script = cycle(script)
        self._reply = reply
        self._now_ns = clock.monotonic_ns
        self._sent_ns = 0
        self._tally: Tally | None = None

    def next_request(self) -> bytes | None:
        """The next request, or None when there is nothing left to send."""
        return next(self._script)

    def note_success(self, tally: Tally, latency_ns: int) -> None:
        tally.latencies_ns.append(latency_ns)

    def start(self, tally: Tally) -> None:
        """Sends until the tally stops. A lost connection stays closed."""
        request = self.next_request() if self.transport is not None else None
        if request is None:
            return
        self._tally = tally
        tally.outstanding += 1
        self._sent_ns = self._now_ns()
        self.send(request)

    def follow(self, data: bytes) -> None:
        """Hot, once per reply: notes one latency and sends the next request."""
        if not self._reply.feed(data):
            return
        now_ns = self._now_ns()
        tally = self._tally
        transport = self.transport
        if tally is None or transport is None:
            return
        if tally.running:
            failure = self._reply.failure
            if failure is None:
                self.note_success(tally, now_ns - self._sent_ns)
            else:
                tally.note_error(failure.decode("utf-8", "replace"))
            if len(tally.latencies_ns) + tally.errors >= tally.requests_max:
                tally.stop()
            elif (request := self.next_request()) is not None:
                self._sent_ns = now_ns
                transport.write(request)
                return
        self._tally = None
        tally.note_resting()

    def give_up(self, why: str) -> None:
        super().give_up(why)
        if self._tally is not None:
            self._tally.note_error(why)
            self._tally.note_resting()
            self._tally = None


class ClosedLoop:
    """The connections of a round; every success counts as `records_per_request` records."""

    def __init__(self, clients: Sequence[Connection], clock: Clock, records_per_request: int = 1) -> None:
        self.clients = clients
        self._records_per_request = records_per_request
        self._clock = clock

    async def settle(self) -> None:
        """A connection is ready as soon as it is open."""

    async def press(self, seconds: float, requests_max: int) -> Counts:
        """Sends for `seconds`, then waits for outstanding replies, which do not count, nor does the wait."""
        tally = Tally(requests_max)
        start_ns = self._clock.monotonic_ns()
        for client in self.clients:
            client.start(tally)
        if tally.outstanding:
            await _wait(tally.wake, seconds)
        elapsed_ns = self._clock.monotonic_ns() - start_ns
        tally.running = False
        tally.wake.clear()
        if tally.outstanding and not await _wait(tally.wake, DRAIN_S_MAX):
            tally.note_error(f"{tally.outstanding} requests unanswered {DRAIN_S_MAX:.0f} s after the end")
        return self.counts(tally, elapsed_ns)

    def counts(self, tally: Tally, elapsed_ns: int) -> Counts:
        requests = len(tally.latencies_ns)
        records = requests * self._records_per_request
        return Counts(tally.latencies_ns, requests, records, elapsed_ns, tally.errors, tally.first_error)


def circles(plan: CirclePlan, clock: Clock) -> ClosedLoop:
    """A closed loop with a connection for each script."""

    def reply() -> Reply:
        match plan.target.kind:
            case TargetKind.REDIS:
                return RespReply(plan.lines_per_reply)
            case TargetKind.NATS:
                return NatsReply(plan.records_per_request)
            case _:
                return HttpReply()

    openings = plan.openings or [b""] * len(plan.scripts)
    clients = [
        Connection(script, reply(), clock, opening) for script, opening in zip(plan.scripts, openings, strict=True)
    ]
    return ClosedLoop(clients, clock, plan.records_per_request)


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
