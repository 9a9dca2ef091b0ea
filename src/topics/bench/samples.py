"""Computes numbers from rounds: percentiles, rates, the median round, and ratios of neighbouring rounds."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import comb
from statistics import median

LIKELY_MISSED_SHARE = 0.05

RATE = "records/s"
P50 = "p50"
P99 = "p99"
CPU = "CPU a record"


@dataclass(slots=True)
class Counts:
    """What a load counted in some time; only successes have latencies."""

    latencies_ns: "array[int]"
    requests: int
    records: int
    elapsed_ns: int
    errors: int = 0
    first_error: str | None = None
    by_worker: tuple[int, ...] = ()  # the records of each worker, if that matters

    @classmethod
    def nothing(cls) -> "Counts":
        return cls(array("Q"), 0, 0, 0)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            latencies_ns=self.latencies_ns + other.latencies_ns,
            requests=self.requests + other.requests,
            records=self.records + other.records,
            elapsed_ns=self.elapsed_ns + other.elapsed_ns,
            errors=self.errors + other.errors,
            first_error=self.first_error or other.first_error,
            by_worker=tuple(map(sum, zip_longest(self.by_worker, other.by_worker, fillvalue=0))),
        )


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
    target_cpu_s: float | None = None  # of all its threads; None for a process that somebody else started
    turns: tuple["Sample", ...] = ()  # if targets of one kind shared the round

    @property
    def cpu_us_per_record(self) -> float | None:
        return self.target_cpu_s * 1e6 / self.records if self.target_cpu_s is not None and self.records else None

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


def sample_of(counts: Counts, generator_cpu_ns: int, target_cpu_ns: int | None = None) -> Sample:
    ascending = sorted(counts.latencies_ns)
    busiest = max(counts.by_worker, default=0) * len(counts.by_worker)
    return Sample(
        requests=counts.requests,
        records=counts.records,
        elapsed_s=counts.elapsed_ns / 1e9,
        p50_ms=percentile(ascending, 500) / 1e6,
        p99_ms=percentile(ascending, 990) / 1e6,
        p999_ms=percentile(ascending, 999) / 1e6,
        errors=counts.errors,
        first_error=counts.first_error,
        generator_busy=generator_cpu_ns / counts.elapsed_ns if ascending else 0.0,
        unevenness=busiest / sum(counts.by_worker) if busiest else None,
        target_cpu_s=None if target_cpu_ns is None else target_cpu_ns / 1e9,
    )


def median_round(rounds: Sequence[Sample]) -> Sample:
    """The round with the median rate (the lower of two), unchanged: rounds are not mixed."""
    ascending = sorted(rounds, key=lambda sample: sample.records_per_s)
    return ascending[(len(ascending) - 1) // 2]


def median_latency_round(rounds: Sequence[Sample]) -> Sample:
    """The median round of those at a fixed rate: the one with the median p99."""
    ascending = sorted(rounds, key=lambda sample: sample.p99_ms)
    return ascending[(len(ascending) - 1) // 2]


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """The ratios of pairs that ran next to each other: two rounds, or two turns of a round.

    Whatever else the machine did affects both, so their ratio means something even if their rates do not.
    """

    ascending: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.ascending)

    @property
    def likely(self) -> tuple[float, float] | None:
        """The range that has the true median in at least 95 of 100 runs like this one; None if there are too few pairs.

        Whatever their distribution, half of all pairs fall below the true median. So the number of pairs below it is
        like the number of heads in as many coin tosses: the `rank`-th lowest and highest ratios enclose the median,
        unless there are fewer than `rank` heads or fewer than `rank` tails.
        """
        count = len(self.ascending)
        rank = 0
        missed = 1  # ways to toss fewer than rank + 1 heads
        while 2 * missed <= LIKELY_MISSED_SHARE * 2**count:
            rank += 1
            missed += comb(count, rank)
        return (self.ascending[rank - 1], self.ascending[-rank]) if rank else None


def paired_ratio(
    subject: Sequence[Sample], peer: Sequence[Sample], value: Callable[[Sample], float | None]
) -> PairedRatio | None:
    """The ratios of all pairs in which both values are known and not zero; None if there are none."""
    pairs = [(value(a), value(b)) for a, b in zip(subject, peer, strict=True)]
    ratios = [ours / theirs for ours, theirs in pairs if ours and theirs]
    return PairedRatio(tuple(sorted(ratios))) if ratios else None


# The values by which two targets can be compared. A higher rate is faster; everything else is faster if lower.
VALUES: dict[str, Callable[[Sample], float | None]] = {
    RATE: lambda sample: sample.records_per_s,
    P50: lambda sample: sample.p50_ms,
    P99: lambda sample: sample.p99_ms,
    CPU: lambda sample: sample.cpu_us_per_record,
}
