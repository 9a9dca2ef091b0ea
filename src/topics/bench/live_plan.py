"""What the generator of live load is told and what it tells back, as values that cross a process boundary."""

from array import array

import msgspec

from topics.bench.plan import run_generator
from topics.bench.samples import Sample, percentile

SETUP_S_MAX = 60.0


class LivePlan(msgspec.Struct, frozen=True):
    """What all rounds have in common."""

    host: str
    port: int
    api_key: str | None
    topic: str
    warm_up_s: float
    seconds: float


class FanoutPlan(LivePlan, frozen=True, tag=True):
    """One writer, and many who watch its topic over SSE."""

    watchers: int
    writes_per_s: int


class MediaPlan(LivePlan, frozen=True, tag=True):
    """A room of participants over WebSocket; each publishes packets and gets those of all others."""

    participants: int
    packets_per_s: int
    packet_bytes: int


class LiveResult(msgspec.Struct, frozen=True):
    """What one round gave. `latencies` is the memory of an `array('Q')` of nanoseconds, one for each delivery."""

    latencies: bytes
    sent: int
    expected: int
    elapsed_ns: int
    cpu_ns: int
    errors: list[str]


def run_live_load(plan: FanoutPlan | MediaPlan) -> Sample:
    """Runs one round in a process of its own: who writes and who receives read the same clock."""
    encoded = msgspec.msgpack.encode(plan)
    output = run_generator("topics.bench.live_load", encoded, SETUP_S_MAX + plan.warm_up_s + plan.seconds)
    return sample_of(msgspec.msgpack.decode(output, type=LiveResult))


def sample_of(result: LiveResult) -> Sample:
    """Requests are what was sent, records what was delivered; each delivery that is missing is an error."""
    latencies_ns = array("Q")
    latencies_ns.frombytes(result.latencies)
    ascending = sorted(latencies_ns)
    missing = max(result.expected - len(ascending), 0)
    errors = list(result.errors)
    if missing:
        errors.append(f"{missing} of {result.expected} deliveries did not come")
    return Sample(
        requests=result.sent,
        records=len(ascending),
        elapsed_s=result.elapsed_ns / 1e9,
        p50_ms=percentile(ascending, 500) / 1e6,
        p99_ms=percentile(ascending, 990) / 1e6,
        p999_ms=percentile(ascending, 999) / 1e6,
        errors=len(result.errors) + missing,
        first_error=errors[0] if errors else None,
        generator_busy=result.cpu_ns / result.elapsed_ns if ascending else 0.0,
    )
