"""Runs workloads against targets, in short rounds that alternate between the targets.

The machine is rarely quiet. Rounds of the same number run one after the other, so their ratio means
something even when their rates do not; the order turns by one each round, so nobody is always first.

Servers of this project share a round in short turns: they differ by a few per cent, and work that one of them puts off
falls into the other's turn as often as the other way round. A peer of another kind has its rounds for itself, since it
would be charged for work that it does not put off.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topics.bench.measurement import Figure
from topics.bench.plan import LoadSettings
from topics.bench.samples import PairedRatio, Sample, median_latency_round, median_round, paired_ratio
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import Workload

Progress = Callable[[str], None]

RATE = "records/s"
Value = Callable[[Sample], float | None]
CPU: dict[str, Value] = {"CPU a record": lambda sample: sample.cpu_us_per_record}
RATES: dict[str, Value] = {RATE: lambda sample: sample.records_per_s}
TIMES: dict[str, Value] = {"p50": lambda sample: sample.p50_ms}


@dataclass(frozen=True, slots=True)
class TargetResult:
    """All rounds of one workload against one target."""

    name: str
    kind: TargetKind
    rounds: tuple[Sample, ...]
    fixed_rate: bool = False

    @property
    def typical(self) -> Sample:
        return median_latency_round(self.rounds) if self.fixed_rate else median_round(self.rounds)

    @property
    def turns(self) -> list[Sample]:
        return [turn for sample in self.rounds for turn in sample.turns]

    @property
    def errors(self) -> int:
        return sum(sample.errors for sample in self.rounds)

    @property
    def first_error(self) -> str | None:
        return next((sample.first_error for sample in self.rounds if sample.first_error), None)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The subject's rate as a multiple of a peer's, and the least it should be where that is said.

    Two servers of this project differ by a few per cent: their ratio comes with its pairs, which tell what is noise.
    """

    subject: str
    peer: str
    value: float
    least: float | None
    of: str = RATE
    pairs: PairedRatio | None = None

    @property
    def missed(self) -> bool:
        return self.least is not None and self.value < self.least


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """One workload against all targets that offer it. The first target is the subject of the ratios."""

    name: str
    summary: str
    targets: tuple[TargetResult, ...]
    ratios: tuple[Ratio, ...]
    caveats: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()


def compare(
    workload: Workload, targets: Sequence[Target], settings: LoadSettings, rounds: int, progress: Progress
) -> WorkloadResult:
    """Measures one workload against every target that offers it."""
    offering = [target for target in targets if target.kind in workload.kinds]
    by_kind: dict[TargetKind, list[Target]] = {}
    for target in offering:
        by_kind.setdefault(target.kind, []).append(target)
    groups = list(by_kind.values())
    samples: dict[Target, list[Sample]] = {target: [] for target in offering}
    prepared: list[Target] = []
    try:
        for target in offering:
            progress(f"{workload.name}: preparing {target.name}")
            prepared.append(target)
            workload.prepare(target)
        for number in range(rounds):
            turn = number % len(groups) if groups else 0
            for group in groups[turn:] + groups[:turn]:
                names = " and ".join(target.name for target in group)
                progress(f"{workload.name}: round {number + 1} of {rounds}, {names}")
                for target, sample in zip(group, workload.run_round(group, settings), strict=True):
                    samples[target].append(sample)
    finally:
        for target in prepared:
            workload.clean_up(target)
    results = tuple(
        TargetResult(target.name, target.kind, tuple(samples[target]), workload.fixed_rate) for target in offering
    )
    caveats = tuple(dict.fromkeys(workload.caveats))
    return WorkloadResult(
        workload.name,
        workload.summary,
        results,
        ratios_of(workload, results),
        caveats,
        figures_of(workload, results),
    )


def figures_of(workload: Workload, results: Sequence[TargetResult]) -> tuple[Figure, ...]:
    """Each target's p99, beside the most it should be where that is said, and how evenly it served its workers."""
    figures: list[Figure] = []
    for result in results:
        if workload.p99_ms_max is not None:
            figures.append(Figure(f"p99 of {result.name}", result.typical.p99_ms, "ms", workload.p99_ms_max))
        if (unevenness := result.typical.unevenness) is not None:
            figures.append(Figure(f"busiest worker of {result.name}", unevenness, "times the mean"))
    return tuple(figures)


def ratios_of(workload: Workload, results: Sequence[TargetResult]) -> tuple[Ratio, ...]:
    """The first result against each of the others: rates, or times where the rate is fixed.

    Two servers of this project are also compared by the processor time they take for a record. That is what most
    changes change, and other work on the machine touches it least.
    """
    if not results or results[0].kind is not TargetKind.TOPICS:
        return ()
    subject, *peers = results
    least = {expectation.peer: expectation.ratio_min for expectation in workload.expectations}
    compared = TIMES if workload.fixed_rate else RATES
    ratios = []
    for peer in peers:
        alike = peer.kind is TargetKind.TOPICS
        for of, value in (compared | CPU if alike else compared).items():
            pairs = paired_ratio(subject.turns, peer.turns, value) if alike else None
            found = pairs or paired_ratio(subject.rounds, peer.rounds, value)
            if found is not None:
                ratios.append(Ratio(subject.name, peer.name, found.median, least.get(peer.kind), of, pairs))
    return tuple(ratios)
