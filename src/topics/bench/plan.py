"""The load generator's instructions, as values that cross a process boundary, and how it is started."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from topics.bench.child_process import stop
from topics.bench.errors import BenchError
from topics.bench.samples import Sample
from topics.bench.targets import Target

GENERATOR_GRACE_S = 90.0  # to connect everybody, and to wait for the last replies
REQUESTS_MAX_DEFAULT = 2_000_000
WARM_UP_S_DEFAULT = 0.3


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How much load a round puts on a target, and for how long."""

    connections: int
    seconds: float
    warm_up_s: float = WARM_UP_S_DEFAULT
    requests_max: int = REQUESTS_MAX_DEFAULT


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One round against one target."""

    target: Target
    settings: LoadSettings


class CirclePlan(Plan, frozen=True, kw_only=True, tag=True):
    """Connection `i` sends the rendered requests of `scripts[i]` in a circle; each reply releases the next."""

    scripts: Sequence[Sequence[bytes]]
    lines_per_reply: int
    records_per_request: int
    openings: Sequence[bytes] = ()  # what connection `i` sends first, if anything


class QueuePlan(Plan, frozen=True, kw_only=True, tag=True):
    """Workers claim jobs of one queue and ack them."""

    topic: str
    workers: int
    jobs_per_claim: int


class FanoutPlan(Plan, frozen=True, kw_only=True, tag=True):
    """One client writes, and many watch its topic over SSE."""

    topic: str
    watchers: int
    writes_per_s: int


class ManyTopicsPlan(Plan, frozen=True, kw_only=True, tag=True):
    """Every connection writes to its share of the topics, one after the other. Each topic keeps `kept_records`, or all
    records."""

    topics: Sequence[str]
    records_per_request: int
    kept_records: int | None = None
    once: bool = False  # write to each topic only once


class MediaPlan(Plan, frozen=True, kw_only=True, tag=True):
    """A room of participants over WebSocket: each publishes packets and receives everybody else's."""

    topic: str
    participants: int
    packets_per_s: int
    packet_bytes: int


AnyPlan = CirclePlan | QueuePlan | FanoutPlan | ManyTopicsPlan | MediaPlan


def run_load(plans: Sequence[AnyPlan]) -> list[Sample]:
    """Runs one round in a separate process, so that the generator has a core and nothing else to do.

    Several plans take turns; each gives a sample.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "topics.bench.load"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    bound_s = sum(plan.settings.warm_up_s + plan.settings.seconds + GENERATOR_GRACE_S for plan in plans)
    try:
        output, _ = process.communicate(msgspec.msgpack.encode(plans), timeout=bound_s)
    except subprocess.TimeoutExpired as problem:
        raise BenchError(f"the load generator did not end within {bound_s:.0f} s") from problem
    finally:
        stop(process)
    if process.returncode != 0:
        raise BenchError(f"the load generator ended with status {process.returncode}")
    return msgspec.msgpack.decode(output, type=list[Sample])
