"""The load generator, in a process of its own on uvloop.

Started as `python -m topics.bench.load` with a plan on standard input; a `Sample` comes back on standard output.
Whatever presses on the target, a round goes the same way: everybody connects and settles, then there is a phase that is
not counted, then one that is.
"""

import gc
import sys
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec
import uvloop

from topics.bench.child_process import cpu_ns
from topics.bench.clients import Client, connect
from topics.bench.closed_loop import circles
from topics.bench.errors import BenchError
from topics.bench.live_load import Fanout, Media
from topics.bench.plan import AnyPlan, CirclePlan, FanoutPlan, MediaPlan, QueuePlan
from topics.bench.queue_workers import Workers
from topics.bench.samples import Counts, Sample, sample_of
from topics.clock import Clock, SystemClock


class Load(Protocol):
    """One way to press on a target."""

    @property
    def clients(self) -> Sequence[Client]: ...

    async def settle(self) -> None:
        """Waits until everybody who is connected is ready."""
        ...

    async def press(self, seconds: float) -> int:
        """One phase of that length. Gives back the nanoseconds to count, and leaves nothing under way."""
        ...

    def counts(self) -> Counts:
        """What the last phase gave."""
        ...


async def run_plan(plan: AnyPlan, clock: Clock) -> Sample:
    load = _load_of(plan, clock)
    process_id = plan.target.process_id
    try:
        await connect(load.clients, plan.target.host, plan.target.port)
        await load.settle()
        gc.freeze()
        if plan.settings.warm_up_s:
            await load.press(plan.settings.warm_up_s)
        own_ns = time.process_time_ns()
        target_ns = cpu_ns(process_id)
        elapsed_ns = await load.press(plan.settings.seconds)
        own_ns = time.process_time_ns() - own_ns
        after_ns = cpu_ns(process_id)
        spent_ns = None if target_ns is None or after_ns is None else after_ns - target_ns
        return sample_of(load.counts(), elapsed_ns, own_ns, spent_ns)
    finally:
        for client in load.clients:
            client.close()


def _load_of(plan: AnyPlan, clock: Clock) -> Load:
    match plan:
        case CirclePlan():
            return circles(plan, clock)
        case QueuePlan():
            return Workers(plan, clock)
        case FanoutPlan():
            return Fanout(plan, clock)
        case MediaPlan():
            return Media(plan, clock)


def main() -> int:
    plan: AnyPlan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=AnyPlan)
    try:
        sample = uvloop.run(run_plan(plan, SystemClock()))
    except BenchError as problem:
        print(f"bench: {problem.message}", file=sys.stderr)
        return 1
    # Not `sys.stdout`: unbuffered, it may write less than all.
    with open(sys.stdout.fileno(), "wb", closefd=False) as output:
        output.write(msgspec.msgpack.encode(sample))
    return 0


if __name__ == "__main__":
    sys.exit(main())
