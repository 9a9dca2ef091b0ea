"""The generator of live load: everybody who writes and everybody who receives, in one process on uvloop.

Started as `python -m topics.bench.live_load` with a plan on standard input; a `LiveResult` comes back on standard
output. Whoever writes puts the time into the record, whoever receives it takes the difference: one clock, and what is
measured ends when the record has been found in the bytes that came. Writes keep to their schedule whether or not
deliveries keep up.
"""

import asyncio
import gc
import math
import re
import resource
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import uvloop

from topics.bench.control import HttpControl
from topics.bench.errors import BenchError
from topics.bench.http1 import render_request
from topics.bench.live_clients import EventStreamClient, LiveClient, RequestClient, WebSocketClient, connect
from topics.bench.live_plan import FanoutPlan, LiveResult, MediaPlan
from topics.bench.plan import hand_back
from topics.bench.records import DATA_BYTES
from topics.bench.websocket_frames import render_frame, render_handshake
from topics.clock import Clock, SystemClock

LIVE_S_MAX = 30.0
DRAIN_S_MAX = 10.0
TICK_S = 0.001
WRITERS = 8

sent_times = re.compile(rb'"t":(\d+)').findall


class Deliveries:
    """What all receivers share: the latencies of the records sent since counting began."""

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.monotonic_ns
        self.latencies_ns = array("Q")
        self.counted_from_ns: float = math.inf  # what is sent before is not counted
        self.last_ns = 0
        self.live = 0  # receivers that have caught up

    def begin(self) -> None:
        self.counted_from_ns = self._now_ns()

    def take(self, text: bytes) -> None:
        """Hot: once for each event or message."""
        times = sent_times(text)
        if not times:
            if b"caught-up" in text or b'"caught_up"' in text:
                self.live += 1
            return
        self.last_ns = now_ns = self._now_ns()
        for time in times:
            sent_ns = int(time)
            if sent_ns >= self.counted_from_ns:
                self.latencies_ns.append(now_ns - sent_ns)


class Schedule:
    """`send` is called with the number of each thing to send when it is due, at a fixed rate."""

    def __init__(self, clock: Clock, per_s: float, send: Callable[[int], None]) -> None:
        self._now_ns = clock.monotonic_ns
        self._interval_ns = 1e9 / per_s
        self._send = send
        self._next = 0

    async def run(self, seconds: float) -> int:
        """Goes on for that long; returns how many were sent. Numbers go on from the last run."""
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


async def run_fanout(plan: FanoutPlan, clock: Clock) -> LiveResult:
    deliveries = Deliveries(clock)
    watchers: list[LiveClient] = [
        EventStreamClient(request, deliveries.take) for request in _watch_requests(plan, plan.watchers)
    ]
    writers = [RequestClient() for _ in range(WRITERS)]
    path = f"/v0/topics/{plan.topic}?return_seqs=false"
    filler = b"x" * (DATA_BYTES - len(b'{"t":1000000000000000,"note":""}'))

    def write(number: int) -> None:
        # The one that is free: a write that waits for its sync holds up nobody.
        writer = next((each for each in writers if each.ready.is_set()), writers[0])
        if not writer.ready.is_set():
            late.append(number)
            return
        body = b'{"records":[{"data":{"t":%d,"note":"%b"}}]}' % (clock.monotonic_ns(), filler)
        writer.request(render_request("POST", path, body, host=plan.host, api_key=plan.api_key))

    late: list[int] = []
    schedule = Schedule(clock, plan.writes_per_s, write)
    result = await _measure(plan, clock, deliveries, [*watchers, *writers], len(watchers), schedule, plan.watchers)
    errors = [writer.failure for writer in writers if writer.failure is not None]
    if late:
        errors.append(f"{len(late)} writes could not be sent: the answers to earlier ones had not come")
    return msgspec.structs.replace(result, errors=result.errors + errors)


async def run_media(plan: MediaPlan, clock: Clock) -> LiveResult:
    deliveries = Deliveries(clock)
    handshake = render_handshake(plan.host, plan.api_key)
    topic = plan.topic.encode("ascii")
    participants = [
        WebSocketClient(
            handshake,
            [b'{"op":"subscribe","topic":"%b","tail":true,"node":"p%04d","include_meta":false}' % (topic, number)],
            deliveries.take,
        )
        for number in range(plan.participants)
    ]
    filler = b"x" * max(plan.packet_bytes - len(b'{"t":1000000000000000,"p":""}'), 0)

    def publish(number: int) -> None:
        sender = number % len(participants)
        command = b'{"op":"publish","topic":"%b","return_seqs":false,"records":[{"node":"p%04d","data":%b}]}'
        data = b'{"t":%d,"p":"%b"}' % (clock.monotonic_ns(), filler)
        participants[sender].send(render_frame(command % (topic, sender, data)))

    schedule = Schedule(clock, plan.participants * plan.packets_per_s, publish)
    return await _measure(plan, clock, deliveries, participants, len(participants), schedule, plan.participants - 1)


async def _measure(
    plan: FanoutPlan | MediaPlan,
    clock: Clock,
    deliveries: Deliveries,
    clients: Sequence[LiveClient],
    receivers: int,
    schedule: Schedule,
    deliveries_each: int,
) -> LiveResult:
    """Connects everybody, warms up without counting, counts, and waits for what is under way."""
    try:
        await connect(clients, plan.host, plan.port)
        if not await _until(lambda: deliveries.live >= receivers, LIVE_S_MAX, clock):
            lost = next((client.lost for client in clients if client.lost), "no reason given")
            raise BenchError(f"only {deliveries.live} of {receivers} receivers became live: {lost}")
        gc.freeze()
        await schedule.run(plan.warm_up_s)
        deliveries.begin()
        start_ns, cpu_ns = clock.monotonic_ns(), _cpu_ns()
        sent = await schedule.run(plan.seconds)
        expected = sent * deliveries_each
        await _until(lambda: len(deliveries.latencies_ns) >= expected, DRAIN_S_MAX, clock)
        return LiveResult(
            latencies=deliveries.latencies_ns.tobytes(),
            sent=sent,
            expected=expected,
            elapsed_ns=max(deliveries.last_ns - start_ns, 1),
            cpu_ns=_cpu_ns() - cpu_ns,
            errors=[client.lost for client in clients if client.lost],
        )
    finally:
        for client in clients:
            client.close()


def _watch_requests(plan: FanoutPlan, count: int) -> list[bytes]:
    """Creates the sessions; the requests that open their streams."""
    body = b'{"topics":{"%b":{"tail":true}}}' % plan.topic.encode("ascii")
    with HttpControl(plan.host, plan.port, plan.api_key) as control:
        urls = [msgspec.json.decode(control.call("POST", "/v0/watch", body))["stream_url"] for _ in range(count)]
    return [render_request("GET", url, b"", host=plan.host, api_key=plan.api_key) for url in urls]


async def _until(condition: Callable[[], bool], seconds: float, clock: Clock) -> bool:
    deadline_ns = clock.monotonic_ns() + int(seconds * 1e9)
    while not condition():
        if clock.monotonic_ns() > deadline_ns:
            return False
        await asyncio.sleep(TICK_S)
    return True


def _cpu_ns() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e9)


def main() -> int:
    plan: FanoutPlan | MediaPlan = msgspec.msgpack.decode(
        sys.stdin.buffer.read(),
        type=FanoutPlan | MediaPlan,
    )
    work = partial(run_fanout, plan) if isinstance(plan, FanoutPlan) else partial(run_media, plan)
    try:
        result = uvloop.run(work(SystemClock()))
    except BenchError as problem:
        print(f"bench: {problem.message}", file=sys.stderr)
        return 1
    hand_back(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
