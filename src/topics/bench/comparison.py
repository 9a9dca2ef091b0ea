"""Runs workloads against targets, in short rounds that alternate between the targets.

The machine is rarely quiet. Rounds with the same number run one after the other, so their ratio means something even
when their rates do not; the order shifts by one each round, so no target is always first.

Servers of this project share a round in short turns. They differ by only a few per cent, and work that one puts off
lands in the other's turns as often as the other way round. A peer of another kind gets separate rounds, because in
shared ones it would pay for work that this server puts off.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from topics.bench.measurement import Figure
from topics.bench.plan import LoadSettings
from topics.bench.samples import (
    CPU,
    P50,
    RATE,
    VALUES,
    PairedRatio,
    Sample,
    median_latency_round,
    median_round,
    paired_ratio,
)
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import Expectation, Workload

Progress = Callable[[str], None]
UNMARKED = Expectation(TargetKind.TOPICS)


@dataclass(frozen=True, slots=True)
class TargetResult:
    """All rounds of one workload against one target."""

    name: str
    kind: TargetKind
    rounds: tuple[Sample, ...]
    fixed_rate: bool = False
    older: bool = False

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
    """The subject's rate or time as a multiple of a peer's, and its mark, if it has one.

    Two servers of this project differ by only a few per cent, so their ratio comes with its pairs, which show the
    noise.
    """

    subject: str
    peer: str
    value: float
    least: float | None
    of: str = RATE
    pairs: PairedRatio | None = None
    most: float | None = None

    @property
    def missed(self) -> bool:
        too_little = self.least is not None and self.value < self.least
        return too_little or (self.most is not None and self.value > self.most)


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
    offering = [target for target in targets if workload.offered_by(target)]
    if workload.connections is not None:
        settings = replace(settings, connections=workload.connections)
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
        TargetResult(target.name, target.kind, tuple(samples[target]), workload.fixed_rate, target.older)
        for target in offering
    )
    caveats = tuple(dict.fromkeys(workload.caveats))
    return WorkloadResult(
        workload.name,
        workload.summary,
        results,
        ratios_of(workload, results),
        caveats,
        figures_of(workload, offering, results),
    )


def figures_of(workload: Workload, targets: Sequence[Target], results: Sequence[TargetResult]) -> tuple[Figure, ...]:
    """The workload's own figures about each server, and how evenly each target served its workers."""
    figures: list[Figure] = []
    for target, result in zip(targets, results, strict=True):
        if target.kind is TargetKind.TOPICS:
            figures += workload.own_figures(target, result.typical)
        if (unevenness := result.typical.unevenness) is not None:
            figures.append(Figure(f"busiest worker of {result.name}", unevenness, "times the mean"))
    return tuple(figures)


def ratios_of(workload: Workload, results: Sequence[TargetResult]) -> tuple[Ratio, ...]:
    """The first result compared with each of the others: by rate, or by time where the rate is fixed.

    Two servers of this project are also compared by CPU time per record. Most changes show there, and other work on the
    machine affects it least.
    """
    if not results or results[0].kind is not TargetKind.TOPICS:
        return ()
    subject, *peers = results
    ratios = []
    for peer in peers:
        alike = peer.kind is TargetKind.TOPICS
        marks = {
            each.of: each for each in workload.expectations if each.peer is peer.kind and (peer.older or not alike)
        }
        compared = [P50 if workload.fixed_rate else RATE, *([CPU] if alike else []), *marks]
        for of in dict.fromkeys(compared):
            pairs = paired_ratio(subject.turns, peer.turns, VALUES[of]) if alike else None
            found = pairs or paired_ratio(subject.rounds, peer.rounds, VALUES[of])
            if found is not None:
                mark = marks.get(of, UNMARKED)
                ratio = Ratio(subject.name, peer.name, found.median, mark.at_least, of, pairs, mark.at_most)
                ratios.append(ratio)
    return tuple(ratios)
