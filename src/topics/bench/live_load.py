"""The load of live delivery: all writers and all receivers, in one process.

A writer puts the time into the record, and a receiver takes the difference on the same clock, once it has found the
record in the bytes that arrived. Writes keep to their schedule whether or not deliveries keep up.
"""

import asyncio
import math
import re
from array import array
from collections.abc import Callable, Sequence

import msgspec

from topics.bench.clients import Client, EventStreamClient, RequestClient, StreamReadClient, WebSocketClient
from topics.bench.errors import BenchError
from topics.bench.http1 import HttpReply, render_request
from topics.bench.plan import FanoutPlan, MediaPlan
from topics.bench.records import DATA_BYTES
from topics.bench.resp import LINES_PER_BULK_STRING, RespReply, encode_command
from topics.bench.samples import Counts
from topics.bench.targets import TargetKind
from topics.bench.websocket_frames import render_frame, render_handshake
from topics.clock import Clock

LIVE_S_MAX = 30.0
DRAIN_S_MAX = 10.0
TICK_S = 0.001
WRITERS = 8
NOTE = b"x" * (DATA_BYTES - len(b'{"t":1000000000000000,"note":""}'))

sent_times = re.compile(rb'"t":(\d+)').findall


class Deliveries:
    """What all receivers share: the latencies of the records sent since counting began.

    What arrives is only noted with its time, and decoded when somebody asks for it: otherwise the generator, not the
    server, would be what is measured.
    """

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.monotonic_ns
        self._arrived: list[tuple[int, bytes]] = []
        self._latencies_ns = array("Q")
        self._counted_from_ns: float = math.inf  # records sent earlier are not counted
        self._last_ns = 0
        self._live = 0

    def begin(self) -> None:
        self._look()
        self._counted_from_ns = self._now_ns()
        self._latencies_ns = array("Q")

    def take(self, text: bytes) -> None:
        """Hot: called for each event or message."""
        self._arrived.append((self._now_ns(), text))

    @property
    def latencies_ns(self) -> "array[int]":
        self._look()
        return self._latencies_ns

    @property
    def last_ns(self) -> int:
        """When the last record came."""
        self._look()
        return self._last_ns

    @property
    def live(self) -> int:
        """How many receivers have caught up."""
        self._look()
        return self._live

    def _look(self) -> None:
        """Looks into what has arrived."""
        arrived, self._arrived = self._arrived, []
        for now_ns, text in arrived:
            times = sent_times(text)
            if times:
                self._last_ns = now_ns
            elif b"caught-up" in text or b'"caught_up"' in text:
                self._live += 1
            for time in times:
                sent_ns = int(time)
                if sent_ns >= self._counted_from_ns:
                    self._latencies_ns.append(now_ns - sent_ns)


class Schedule:
    """Calls `send` at a fixed rate, each time with the next number."""

    def __init__(self, clock: Clock, per_s: float, send: Callable[[int], None]) -> None:
        self._now_ns = clock.monotonic_ns
        self._interval_ns = 1e9 / per_s
        self._send = send
        self._next = 0

    async def run(self, seconds: float) -> int:
        """Calls `send` for `seconds` and returns how often. Numbers continue from the last run."""
        first = self._next
        start_ns = self._now_ns()
        count = max(round(seconds * 1e9 / self._interval_ns), 1)
        while self._next < first + count:
            due = min(int((self._now_ns() - start_ns) / self._interval_ns) + 1, count)
            while self._next < first + due:
                self._send(self._next)
                self._next += 1
            await asyncio.sleep(TICK_S)
        return count


class LiveLoad:
    """Sends records at a fixed rate, each of which must reach a number of receivers."""

    def __init__(
        self,
        clock: Clock,
        deliveries: Deliveries,
        receivers: Sequence[Client],
        schedule: Schedule,
        deliveries_each: int,
    ) -> None:
        self.clients = receivers
        self._clock = clock
        self._deliveries = deliveries
        self._receivers = len(receivers)
        self._schedule = schedule
        self._deliveries_each = deliveries_each

    async def settle(self) -> None:
        """Waits until every receiver has caught up."""
        if not await self._until(lambda: self._deliveries.live >= self._receivers, LIVE_S_MAX):
            lost = next((client.lost for client in self.clients if client.lost), "no reason given")
            raise BenchError(f"only {self._deliveries.live} of {self._receivers} receivers became live: {lost}")

    async def press(self, seconds: float, requests_max: int) -> Counts:
        """Sends for `seconds` and waits for what is in flight: the time ends with the last delivery."""
        deliveries = self._deliveries
        deliveries.begin()
        start_ns = self._clock.monotonic_ns()
        sent = await self._schedule.run(seconds)
        expected = sent * self._deliveries_each
        await self._until(lambda: len(deliveries.latencies_ns) >= expected, DRAIN_S_MAX)
        elapsed_ns = max(deliveries.last_ns - start_ns, 1)
        return delivery_counts(deliveries.latencies_ns, sent, expected, elapsed_ns, self._take_problems())

    def _take_problems(self) -> list[str]:
        """The errors since the last call."""
        problems = [client.lost for client in self.clients if client.lost]
        for client in self.clients:
            client.lost = None
        return problems

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline_ns = self._clock.monotonic_ns() + int(seconds * 1e9)
        while not condition():
            if self._clock.monotonic_ns() > deadline_ns:
                return False
            await asyncio.sleep(TICK_S)
        return True


class Fanout(LiveLoad):
    """One writer of single records over several connections, and watchers over SSE, or blocked in XREAD."""

    def __init__(self, plan: FanoutPlan, clock: Clock) -> None:
        deliveries = Deliveries(clock)
        watchers = _watchers(plan, deliveries.take)
        schedule = Schedule(clock, plan.writes_per_s, self._write)
        super().__init__(clock, deliveries, watchers, schedule, plan.watchers)
        self._plan = plan
        self._writers = [RequestClient(_reply(plan)) for _ in range(WRITERS)]
        self._late = 0
        self.clients = [*watchers, *self._writers]

    def _write(self, number: int) -> None:
        # A free connection, so that a write waiting for its sync delays no other.
        writer = next((each for each in self._writers if each.ready.is_set()), None)
        if writer is None:
            self._late += 1
            return
        data = b'{"t":%d,"note":"%b"}' % (self._clock.monotonic_ns(), NOTE)
        target = self._plan.target
        if target.kind is TargetKind.REDIS:
            writer.request(encode_command(b"XADD", self._plan.topic.encode("ascii"), b"*", b"data", data))
            return
        path = f"/v0/topics/{self._plan.topic}?return_seqs=false"
        body = b'{"records":[{"data":%b}]}' % data
        writer.request(render_request("POST", path, body, host=target.host, api_key=target.api_key))

    def _take_problems(self) -> list[str]:
        problems = super()._take_problems()
        problems += [writer.failure for writer in self._writers if writer.failure is not None]
        for writer in self._writers:
            writer.failure = None
        if self._late:
            problems.append(f"{self._late} writes could not be sent: the answers to earlier ones had not come")
            self._late = 0
        return problems


class Media(LiveLoad):
    """Participants over WebSocket. They publish in turn, and each receives what the others publish."""

    def __init__(self, plan: MediaPlan, clock: Clock) -> None:
        deliveries = Deliveries(clock)
        handshake = render_handshake(plan.target.host, plan.target.api_key)
        self._topic = topic = plan.topic.encode("ascii")
        subscribe = b'{"op":"subscribe","topic":"%b","tail":true,"node":"p%04d","include_meta":false}'
        participants = [
            WebSocketClient(handshake, [subscribe % (topic, number)], deliveries.take)
            for number in range(plan.participants)
        ]
        schedule = Schedule(clock, plan.participants * plan.packets_per_s, self._publish)
        super().__init__(clock, deliveries, participants, schedule, plan.participants - 1)
        self._filler = b"x" * max(plan.packet_bytes - len(b'{"t":1000000000000000,"p":""}'), 0)

    def _publish(self, number: int) -> None:
        sender = number % len(self.clients)
        command = b'{"op":"publish","topic":"%b","return_seqs":false,"records":[{"node":"p%04d","data":%b}]}'
        data = b'{"t":%d,"p":"%b"}' % (self._clock.monotonic_ns(), self._filler)
        self.clients[sender].send(render_frame(command % (self._topic, sender, data)))


def delivery_counts(
    latencies_ns: "array[int]", sent: int, expected: int, elapsed_ns: int, problems: Sequence[str]
) -> Counts:
    """Requests are what was sent, records what was delivered; every missing delivery is an error."""
    missing = max(expected - len(latencies_ns), 0)
    first_error = f"{missing} of {expected} deliveries did not come" if missing else None
    return Counts(
        latencies_ns=latencies_ns,
        requests=sent,
        records=len(latencies_ns),
        elapsed_ns=elapsed_ns,
        errors=len(problems) + missing,
        first_error=problems[0] if problems else first_error,
    )


def _watchers(plan: FanoutPlan, take: Callable[[bytes], None]) -> list[Client]:
    if plan.target.kind is TargetKind.REDIS:
        return [StreamReadClient(plan.topic.encode("ascii"), take) for _ in range(plan.watchers)]
    return [EventStreamClient(request, take) for request in _watch_requests(plan)]


def _reply(plan: FanoutPlan) -> HttpReply | RespReply:
    return RespReply(LINES_PER_BULK_STRING) if plan.target.kind is TargetKind.REDIS else HttpReply()


def _watch_requests(plan: FanoutPlan) -> list[bytes]:
    """Creates the sessions, and returns the requests that open their streams."""
    target = plan.target
    body = b'{"topics":{"%b":{"tail":true}}}' % plan.topic.encode("ascii")
    with target.http() as control:
        replies = [control.call("POST", "/v0/watch", body) for _ in range(plan.watchers)]
    urls = [msgspec.json.decode(reply)["stream_url"] for reply in replies]
    return [render_request("GET", url, b"", host=target.host, api_key=target.api_key) for url in urls]
