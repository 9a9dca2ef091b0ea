"""What a workload is. A new one is a class of its own and a line in `workloads.py`.

A workload knows how to ask each kind of target for the same work; it does not know how the rounds are
ordered or shown. Most send a closed loop of prepared requests (`ClosedLoop`); one that measures something
else, such as a recovery, implements `Workload` itself.
"""

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from topics.bench.plan import LoadPlan, LoadSettings, run_load
from topics.bench.samples import Sample, sample_of
from topics.bench.targets import Target, TargetKind


@dataclass(frozen=True, slots=True)
class Expectation:
    """The least rate this server should have, as a multiple of the peer's."""

    peer: TargetKind
    ratio_min: float


class Workload(ABC):
    """One thing to measure. `group` is the word that selects it on the command line."""

    name: str
    group: str
    summary: str
    kinds: frozenset[TargetKind]
    expectations: tuple[Expectation, ...] = ()
    fixed_rate: bool = False  # it sends so much a second, however fast the target is: what counts is the latency
    p99_ms_max: float | None = None

    def __init__(self) -> None:
        # What a reader must know to read the figures rightly; the report shows it.
        self.caveats: list[str] = []

    @abstractmethod
    def prepare(self, target: Target) -> None:
        """Once per target, before its first round."""

    @abstractmethod
    def run_round(self, target: Target, settings: LoadSettings) -> Sample:
        """One measured round."""

    @abstractmethod
    def clean_up(self, target: Target) -> None:
        """Once per target, after its last round: nothing of the workload stays behind."""


class ClosedLoop(Workload):
    """A workload of prepared requests; subclasses render them."""

    records_per_request: int
    script_length: int
    lines_per_reply: int

    def __init__(self) -> None:
        super().__init__()
        # Unique, because a URL may point to a server that holds somebody's topics.
        self.topic = f"bench-{self.name}-{secrets.token_hex(4)}"

    @abstractmethod
    def request(self, target: Target, connection: int, number: int) -> bytes:
        """The `number`-th request of a connection."""

    def run_round(self, target: Target, settings: LoadSettings) -> Sample:
        speaks: Literal["http", "resp"] = "resp" if target.kind is TargetKind.REDIS else "http"
        plan = LoadPlan(
            host=target.host,
            port=target.port,
            speaks=speaks,
            lines_per_reply=self.lines_per_reply,
            scripts=[
                [self.request(target, connection, number) for number in range(self.script_length)]
                for connection in range(settings.connections)
            ],
            warm_up_s=settings.warm_up_s,
            seconds=settings.seconds,
            requests_max=settings.requests_max,
        )
        return sample_of(run_load(plan), self.records_per_request)
