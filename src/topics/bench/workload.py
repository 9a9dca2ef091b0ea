"""What a workload is. A new one is a class and a line in `workloads.py`.

A workload knows how to ask each kind of target for the same work, but not how rounds are ordered or shown. It plans
what the load generator does in a round; mostly that is a closed loop of prepared requests (`ClosedLoop`).
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from topics.bench.measurement import Figure
from topics.bench.plan import AnyPlan, CirclePlan, LoadSettings, run_load
from topics.bench.samples import RATE, Sample
from topics.bench.targets import Target, TargetKind


@dataclass(frozen=True, slots=True)
class Expectation:
    """What this server should reach, as a multiple of a peer's value. Peer `topics` is the server of an older
    checkout."""

    peer: TargetKind
    at_least: float | None = None
    at_most: float | None = None
    of: str = RATE


class Workload(ABC):
    """One thing to measure. `group` is the word that selects it on the command line.

    Every round begins with a new topic, so that the last round is like the first and memory is bounded by one round.
    """

    name: str
    group: str
    summary: str
    kinds: frozenset[TargetKind]
    expectations: tuple[Expectation, ...] = ()
    fixed_rate: bool = False  # it sends at a fixed rate, however fast the target is, so only the latency counts
    synced: bool  # every answer waits for the disk, so it is compared with peers that always sync
    connections: int | None = None  # instead of the number in the settings

    def __init__(self, durability: str) -> None:
        # Unique, because a URL may point to a server with somebody's topics.
        self.topic = f"bench-{self.name}-{secrets.token_hex(4)}"
        self.config = b'{"durability":"%b"}' % durability.encode("ascii")
        self.synced = durability == "fsync"
        # What a reader must know to understand the figures; the report shows it.
        self.caveats: list[str] = []

    @abstractmethod
    def plan(self, target: Target, settings: LoadSettings) -> AnyPlan:
        """What the load generator does in a round."""

    def prepare(self, target: Target) -> None:  # noqa: B027 (most need nothing)
        """Called once per target, before its first round. Most workloads keep nothing between rounds and do nothing
        here."""

    def offered_by(self, target: Target) -> bool:
        """Whether this target can do the work, as durably as the others."""
        alike = target.kind is not TargetKind.REDIS or target.sync_always == self.synced
        return target.kind in self.kinds and alike

    def own_figures(self, target: Target, typical: Sample) -> tuple[Figure, ...]:
        """Figures about one of this project's servers alone, with their marks."""
        return ()

    def run_round(self, targets: Sequence[Target], settings: LoadSettings) -> list[Sample]:
        """Runs one measured round, which targets of one kind share in turns."""
        try:
            for target in targets:
                self.set_up(target, settings)
            return self.measure(targets, settings)
        finally:
            for target in targets:
                self.clean_up(target)

    def set_up(self, target: Target, settings: LoadSettings) -> None:
        """Creates what a round needs. Redis creates a stream on the first write."""
        if target.kind is TargetKind.TOPICS:
            with target.http() as control:
                control.call("PUT", f"/v0/topics/{self.topic}", self.config)
        elif target.kind is TargetKind.NATS:
            stream = {"name": self.topic, "subjects": [self.topic], "storage": "file"}
            with target.nats() as nats:
                nats.call(f"$JS.API.STREAM.CREATE.{self.topic}".encode("ascii"), msgspec.json.encode(stream))

    def measure(self, targets: Sequence[Target], settings: LoadSettings) -> list[Sample]:
        return run_load([self.plan(target, settings) for target in targets])

    def clean_up(self, target: Target) -> None:
        """Removes everything of the workload. Called after each round, and once more per target at the end."""
        match target.kind:
            case TargetKind.TOPICS:
                with target.http() as control:
                    control.call("DELETE", f"/v0/topics/{self.topic}")
            case TargetKind.REDIS:
                with target.redis() as control:
                    control.call(b"DEL", self.topic.encode("ascii"))
            case TargetKind.NATS:
                with target.nats() as nats:  # the last time, the stream is gone and the target refuses
                    nats.request(b"$JS.API.STREAM.DELETE." + self.topic.encode("ascii"), b"")
            case TargetKind.EMPTY_HANDLER:
                pass


class ClosedLoop(Workload):
    """A workload of prepared requests; subclasses render them."""

    records_per_request: int
    script_length: int
    lines_per_reply: int

    @abstractmethod
    def request(self, target: Target, connection: int, number: int) -> bytes:
        """The `number`-th request of a connection."""

    def plan(self, target: Target, settings: LoadSettings) -> CirclePlan:
        return CirclePlan(
            target=target,
            settings=settings,
            scripts=[
                [self.request(target, connection, number) for number in range(self.script_length)]
                for connection in range(settings.connections)
            ],
            lines_per_reply=self.lines_per_reply,
            records_per_request=self.records_per_request,
        )
