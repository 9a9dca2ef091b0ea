"""Numbers out of rounds: percentiles, rates, the median round, and ratios of rounds run side by side."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from topics.bench.plan import LoadResult


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one workload against one target."""

    requests: int
    records: int
    elapsed_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    errors: int
    first_error: str | None
    generator_busy: float
    unevenness: float | None = None  # how much the busiest worker did, as a multiple of the mean

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def records_per_s(self) -> float:
        return self.records / self.elapsed_s if self.elapsed_s else 0.0


def percentile(ascending: Sequence[int], per_mille: int) -> int:
    """The nearest rank: the smallest value with at least that share of all values at or below it."""
    if not ascending:
        return 0
    rank = -(-len(ascending) * per_mille // 1000)
    return ascending[max(rank, 1) - 1]


def sample_of(result: LoadResult, records_per_request: int) -> Sample:
    latencies_ns = array("Q")
    latencies_ns.frombytes(result.latencies)
    ascending = sorted(latencies_ns)
    return Sample(
        requests=len(ascending),
        records=len(ascending) * records_per_request,
        elapsed_s=result.elapsed_ns / 1e9,
        p50_ms=percentile(ascending, 500) / 1e6,
        p99_ms=percentile(ascending, 990) / 1e6,
        p999_ms=percentile(ascending, 999) / 1e6,
        errors=result.errors,
        first_error=result.first_error,
        generator_busy=result.cpu_ns / result.elapsed_ns if ascending else 0.0,
    )


def median_round(rounds: Sequence[Sample]) -> Sample:
    """The round whose rate is in the middle (the lower one of two), as it was: no mixing of rounds."""
    ascending = sorted(rounds, key=lambda sample: sample.records_per_s)
    return ascending[(len(ascending) - 1) // 2]


def median_latency_round(rounds: Sequence[Sample]) -> Sample:
    """The same, for rounds at a fixed rate: the one whose p99 is in the middle."""
    ascending = sorted(rounds, key=lambda sample: sample.p99_ms)
    return ascending[(len(ascending) - 1) // 2]


def paired_ratio(subject: Sequence[Sample], peer: Sequence[Sample]) -> float | None:
    """The median of the ratios round by round.

    Rounds of the same number ran next to each other, so what else the machine did then touches both.
    """
    ratios = [a.records_per_s / b.records_per_s for a, b in zip(subject, peer, strict=True) if b.records]
    return median(ratios) if ratios else None
