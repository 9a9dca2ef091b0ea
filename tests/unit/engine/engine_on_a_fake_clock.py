"""What the engine's tests share: an engine whose clock stands still, and short ways to write and read."""

import json
from typing import Any

from msgspec import UNSET, Raw

from topics import limits
from topics.engine.engine import Appended, Engine, Write
from topics.engine.flow import EngineLimits
from topics.engine.journal import Journal, NoJournal
from topics.engine.log_reading import ReadBatch
from topics.engine.topic import Topic
from topics.model.config import TopicConfigPatch
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.testing.fake_clock import FakeClock

TOPIC = "t"


def record(
    data: bytes = b"0", *, tag: str | None = None, node: str | None = None, meta: bytes | None = None
) -> NewRecord:
    return NewRecord(Raw(data), tag, node, UNSET if meta is None else Raw(meta))


class EngineOnAFakeClock:
    """An engine with one topic in mind. Checks its totals after every operation."""

    def __init__(
        self,
        topics_max: int = 0,
        total_bytes_max: int = 0,
        journal: Journal | None = None,
        block_events_max: int = limits.SEGMENT_EVENTS_MAX,
    ) -> None:
        self.clock = FakeClock()
        bounds = EngineLimits(topics_max=topics_max, total_bytes_max=total_bytes_max, block_events_max=block_events_max)
        self.engine = Engine(self.clock, bounds, journal or NoJournal())

    @property
    def topic(self) -> Topic:
        return self.engine.topic(TOPIC)

    def configure(self, patch: TopicConfigPatch, topic: str = TOPIC) -> None:
        self.engine.put_topic(topic, patch)
        self.check_totals()

    def write(self, *records: NewRecord, topic: str = TOPIC, key: str | None = None) -> Appended:
        appended = self.engine.append(topic, Write(list(records), idempotency_key=key))
        self.check_totals()
        return appended

    def fill(self, count: int, topic: str = TOPIC) -> None:
        """Appends records one by one; the data is the position."""
        for position in range(count):
            self.write(record(b"%d" % position), topic=topic)

    def read(self, from_seq: int = 0, topic: str = TOPIC, **options: Any) -> ReadBatch:
        merged = ReadOptions(**{"limit": 1000, "bytes_max": 1 << 20, **options})
        _, batch = self.engine.read(topic, from_seq, merged)
        self.check_totals()
        return batch

    def seqs(self, from_seq: int = 0, **options: Any) -> list[int]:
        return seqs(self.read(from_seq, **options))

    def check_totals(self) -> None:
        logs = [topic.log for topic in self.engine.topics]
        assert self.engine.state.records_live == sum(log.count for log in logs)
        assert self.engine.state.bytes_live == sum(log.bytes for log in logs)


def seqs(batch: ReadBatch) -> list[int]:
    return [json.loads(fragment)["$seq"] for fragment in batch.fragments]
