"""The load generator: a separate process on uvloop.

`python -m topics.bench.load` reads plans from standard input and writes a `Sample` of each to standard output. Every
kind of load runs a round in the same way: it connects, settles, sends for a while without counting, and then counts.
Plans for several targets take short turns.
"""

import gc
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Protocol

import msgspec
import uvloop

from topics.bench.child_process import cpu_ns
from topics.bench.clients import Client, connect
from topics.bench.closed_loop import circles
from topics.bench.errors import BenchError
from topics.bench.live_load import Fanout, Media
from topics.bench.many_topics_load import ManyTopics
from topics.bench.plan import AnyPlan, CirclePlan, FanoutPlan, ManyTopicsPlan, MediaPlan, QueuePlan
from topics.bench.queue_workers import Workers
from topics.bench.samples import Counts, Sample, sample_of
from topics.clock import Clock, SystemClock

TURN_S_MIN = 0.05  # short, so that the machine is the same for all
TURN_LATENCIES_MIN = 10  # long enough that few replies come after their turn, where they are not counted


class Load(Protocol):
    """One kind of load."""

    @property
    def clients(self) -> Sequence[Client]: ...

    async def settle(self) -> None:
        """Waits until every connection is ready."""
        ...

    async def press(self, seconds: float, requests_max: int) -> Counts:
        """Sends for `seconds` and leaves nothing in flight. May be called repeatedly."""
        ...


class Round:
    """One plan's part in a round: what it has counted so far, turn by turn."""

    def __init__(self, plan: AnyPlan, load: Load) -> None:
        self.turn_s = plan.settings.seconds
        self._plan = plan
        self._load = load
        self._total = Counts.nothing()
        self._turns: list[Counts] = []
        self._generator_ns: list[int] = []
        self._target_ns: list[int | None] = []  # when each turn began, and at the end

    async def begin(self) -> None:
        """Connects and warms up. The warm-up shows how long a turn should be, and its errors are kept."""
        settings = self._plan.settings
        await connect(self._load.clients, self._plan.target.host, self._plan.target.port)
        await self._load.settle()
        if settings.warm_up_s:
            warm_up = await self._load.press(settings.warm_up_s, settings.requests_max)
            self._total.errors, self._total.first_error = warm_up.errors, warm_up.first_error
            if warm_up.latencies_ns:
                self.turn_s = max(TURN_S_MIN, TURN_LATENCIES_MIN * median(warm_up.latencies_ns) / 1e9)

    async def take_turn(self, turns: int) -> None:
        """Takes one of the `turns` turns that share the plan's seconds."""
        settings = self._plan.settings
        left = settings.requests_max - self._total.requests
        if left <= 0:
            return
        self._target_ns.append(cpu_ns(self._plan.target.process_id))
        began_ns = time.process_time_ns()
        counts = await self._load.press(settings.seconds / turns, left)
        self._generator_ns.append(time.process_time_ns() - began_ns)
        self._turns.append(counts)
        self._total += counts

    def end(self) -> Sample:
        self._target_ns.append(cpu_ns(self._plan.target.process_id))
        # Whatever the target does between two turns was caused by the first, and is counted there.
        spent_ns = [None if a is None or b is None else b - a for a, b in pairwise(self._target_ns)]
        turns = map(sample_of, self._turns, self._generator_ns, spent_ns)
        known_ns = [ns for ns in spent_ns if ns is not None]
        total = sample_of(self._total, sum(self._generator_ns), sum(known_ns) if known_ns else None)
        return replace(total, turns=tuple(turns))

    def close(self) -> None:
        for client in self._load.clients:
            client.close()


async def run(rounds: Sequence[Round], seconds: float) -> list[Sample]:
    """Runs the rounds. A single plan gets one long turn; several take short turns, and which goes first rotates."""
    try:
        for each in rounds:
            await each.begin()
        gc.freeze()
        turn_s = max(each.turn_s for each in rounds)
        turns = max(round(seconds / turn_s), 1) if len(rounds) > 1 else 1
        for number in range(turns):
            first = number % len(rounds)
            for each in (*rounds[first:], *rounds[:first]):
                await each.take_turn(turns)
        return [each.end() for each in rounds]
    finally:
        for each in rounds:
            each.close()


def _load_of(plan: AnyPlan, clock: Clock) -> Load:
    match plan:
        case CirclePlan():
            return circles(plan, clock)
        case QueuePlan():
            return Workers(plan, clock)
        case FanoutPlan():
            return Fanout(plan, clock)
        case ManyTopicsPlan():
            return ManyTopics(plan, clock)
        case MediaPlan():
            return Media(plan, clock)


def main() -> int:
    clock = SystemClock()
    plans = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[AnyPlan])
    try:
        samples = uvloop.run(run([Round(plan, _load_of(plan, clock)) for plan in plans], plans[0].settings.seconds))
    except BenchError as problem:
        print(f"topics: {problem.message}", file=sys.stderr)
        return 1
    # Not `sys.stdout`: if unbuffered, it may write only a part.
    with open(sys.stdout.fileno(), "wb", closefd=False) as output:
        output.write(msgspec.msgpack.encode(samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
