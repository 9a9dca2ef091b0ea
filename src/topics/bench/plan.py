"""What the load generator is told and what it tells back, as values that cross a process boundary.

A plan holds every request already rendered: the generator knows neither topics nor workloads.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from topics.bench.child_process import stop
from topics.bench.errors import BenchError

GENERATOR_GRACE_S = 30.0
REQUESTS_MAX_DEFAULT = 2_000_000
WARM_UP_S_DEFAULT = 0.3


class LoadPlan(msgspec.Struct, frozen=True):
    """One round. Connection `i` sends `scripts[i]` in a circle; each reply releases the next request."""

    host: str
    port: int
    speaks: Literal["http", "resp"]
    lines_per_reply: int
    scripts: Sequence[Sequence[bytes]]
    warm_up_s: float
    seconds: float
    requests_max: int


class LoadResult(msgspec.Struct, frozen=True):
    """What one round gave. `latencies` is the memory of an `array('Q')` of nanoseconds, successes only."""

    latencies: bytes
    elapsed_ns: int
    cpu_ns: int
    errors: int
    first_error: str | None


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How hard and how long a round presses."""

    connections: int
    seconds: float
    warm_up_s: float = WARM_UP_S_DEFAULT
    requests_max: int = REQUESTS_MAX_DEFAULT


def run_load(plan: LoadPlan) -> LoadResult:
    """Runs one round of a closed loop."""
    output = run_generator("topics.bench.load", msgspec.msgpack.encode(plan), plan.warm_up_s + plan.seconds)
    return msgspec.msgpack.decode(output, type=LoadResult)


def hand_back(result: msgspec.Struct) -> None:
    """Writes the generator's result to standard output, all of it: unbuffered, `sys.stdout` may write less."""
    with open(sys.stdout.fileno(), "wb", closefd=False) as output:
        output.write(msgspec.msgpack.encode(result))


def run_generator(module: str, plan: bytes, seconds: float) -> bytes:
    """Runs a load generator in a process of its own, so that it has a core and no other duty."""
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    bound_s = seconds + GENERATOR_GRACE_S
    try:
        output, _ = process.communicate(plan, timeout=bound_s)
    except subprocess.TimeoutExpired as problem:
        raise BenchError(f"the load generator did not end within {bound_s:.0f} s") from problem
    finally:
        stop(process)
    if process.returncode != 0:
        raise BenchError(f"the load generator ended with status {process.returncode}")
    return output
