"""An engine and a hub with a fake clock and a fake loop: live delivery without sockets, files or time."""

from msgspec import Raw, convert
from msgspec.json import encode

from doubles.fake_loop import FakeLoop
from topics.delivery.governor import Governor
from topics.delivery.hub import Hub
from topics.engine.engine import Engine, Write
from topics.engine.flow import EngineLimits
from topics.engine.journal import Journal, NoJournal
from topics.engine.topic import Topic
from topics.model.config import TopicConfigPatch
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.testing.fake_clock import FakeClock


class LiveStage:
    def __init__(self, journal: Journal | None = None, *, block_events_max: int = 4) -> None:
        self.clock = FakeClock()
        self.loop = FakeLoop(self.clock)
        self.governor = Governor()
        limits = EngineLimits(block_events_max=block_events_max)
        self.engine = Engine(self.clock, limits, NoJournal() if journal is None else journal)
        self.hub = Hub(self.clock, self.governor, self.loop.call_later)
        self.engine.state.on_change = self.hub.changed

    def configure(self, name: str = "t", **config: object) -> Topic:
        return self.engine.put_topic(name, convert(config, TopicConfigPatch)).topic

    def write(self, name: str = "t", count: int = 1, *, node: str | None = None, data: object = 0) -> None:
        """Appends records that are all alike."""
        record = NewRecord(Raw(encode(data)), node=node)
        self.engine.append(name, Write([record] * count))

    def settle(self) -> None:
        self.loop.settle()


def read_options(limit: int = 100, own: tuple[str, ...] = ()) -> ReadOptions:
    return ReadOptions(limit=limit, bytes_max=1_000_000, own_nodes=frozenset(own))
