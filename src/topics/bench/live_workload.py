"""Live delivery at a fixed rate: from a write to its watchers over SSE, and a voice room over WebSocket."""

from dataclasses import dataclass

from topics.bench.measurement import Figure
from topics.bench.plan import FanoutPlan, LoadSettings, MediaPlan
from topics.bench.samples import P50, Sample
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import Expectation, Workload

# A rate that leaves the loop idle most of the time, to measure a delivery and not a queue of them.
DELIVERIES_PER_S = 20_000
WRITES_PER_S_MAX = 200
P99_TIMES_MAX = 5.0  # of the p50, with one watcher
MARKED_WATCHERS = (100, 1000)
PACKET_BYTES = 200


class FanoutWorkload(Workload):
    """One writer of single records, and many watchers of its topic; for Redis, as many clients blocked in XREAD."""

    group = "fanout"
    kinds = frozenset({TargetKind.TOPICS, TargetKind.REDIS})
    fixed_rate = True

    def __init__(self, durability: str, watchers: int) -> None:
        self.name = f"fanout-{watchers}"
        if watchers in MARKED_WATCHERS:
            self.expectations = (
                Expectation(TargetKind.TOPICS, at_most=0.55, of=P50),
                Expectation(TargetKind.REDIS, at_most=1.2, of=P50),
            )
        self._watchers = watchers
        self._writes_per_s = min(WRITES_PER_S_MAX, DELIVERIES_PER_S // watchers)
        to_whom = "1 SSE watcher" if watchers == 1 else f"{watchers} SSE watchers"
        self.summary = f"{self._writes_per_s} single writes/s to {to_whom}, write to delivery, {durability} class"
        super().__init__(durability)

    def own_figures(self, target: Target, typical: Sample) -> tuple[Figure, ...]:
        if self._watchers != 1 or not typical.p50_ms:
            return ()
        most = None if target.older or self.synced else P99_TIMES_MAX
        return (Figure(f"{target.name}: p99 ÷ p50", typical.p99_ms / typical.p50_ms, "times", most),)

    def plan(self, target: Target, settings: LoadSettings) -> FanoutPlan:
        return FanoutPlan(
            target=target,
            settings=settings,
            topic=self.topic,
            watchers=self._watchers,
            writes_per_s=self._writes_per_s,
        )


@dataclass(frozen=True)
class MediaRoom:
    """How many participants there are, and how many packets each sends a second."""

    participants: int = 30
    packets_per_s: int = 50


ROOM = MediaRoom()


class MediaWorkload(Workload):
    """A room in which everybody sends packets at a fixed rate and receives everybody else's.

    Requests are packets, records are deliveries.
    """

    name = group = "media"
    kinds = frozenset({TargetKind.TOPICS})
    fixed_rate = True

    def __init__(self, durability: str, room: MediaRoom = ROOM) -> None:
        self._room = room
        self.summary = (
            f"{room.participants} participants over WebSocket, {room.packets_per_s} packets/s of {PACKET_BYTES} bytes"
            f" each, publish to delivery, {durability} class"
        )
        super().__init__(durability)

    def plan(self, target: Target, settings: LoadSettings) -> MediaPlan:
        return MediaPlan(
            target=target,
            settings=settings,
            topic=self.topic,
            participants=self._room.participants,
            packets_per_s=self._room.packets_per_s,
            packet_bytes=PACKET_BYTES,
        )
