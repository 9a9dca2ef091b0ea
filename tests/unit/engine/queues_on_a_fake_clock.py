"""What the tests of queues share: queues whose clock stands still and whose disk does what the test says."""

import json
from typing import Any

from msgspec import Raw, convert

from doubles.manual_journal import ManualJournal
from topics.engine import log_reading
from topics.engine.engine import Engine, Write
from topics.engine.flow import EngineLimits
from topics.engine.journal import Commit
from topics.engine.queues import Claim, Claimer, Settled
from topics.engine.topic import Topic
from topics.model.config import TopicConfigPatch
from topics.model.record import NewRecord
from topics.testing.fake_clock import FakeClock

QUEUE, DEAD = "jobs", "dead"


class QueuesOnAFakeClock:
    """With one queue in mind. Commits are done when `sync` is called, or at once where the test does not care."""

    def __init__(self, *, auto_sync: bool = True, topics_max: int = 0, **config: Any) -> None:
        self.clock = FakeClock()
        self.journal = ManualJournal()
        self.auto_sync = auto_sync
        self.engine = Engine(self.clock, EngineLimits(topics_max=topics_max, block_events_max=4), self.journal)
        self.queues = self.engine.queues
        self.changes: list[str] = []
        self.queues.on_change = lambda topic: self.changes.append(topic.name)
        self.configure(QUEUE, type="queue", **config)

    @property
    def topic(self) -> Topic:
        return self.engine.topic(QUEUE)

    def sync(self) -> None:
        while self.journal.held:
            self.journal.commit()

    def configure(self, name: str, **config: object) -> None:
        self.engine.put_topic(name, convert(config, TopicConfigPatch))
        self.sync()

    def produce(self, count: int = 1, *, topic: str = QUEUE, delay_ms: int = 0, tag: str | None = None) -> None:
        records = [NewRecord(Raw(b"%d" % number), tag, delay_ms=delay_ms) for number in range(count)]
        self.engine.append(topic, Write(records))
        self.sync()

    def claim(self, node: str = "w", count: int = 10, lease_ms: int = 1_000, connection: int = 0) -> Claim:
        (claim,) = self.queues.claim(self.engine.topic(QUEUE), (Claimer(node, count, lease_ms, connection),))
        if self.auto_sync:
            self.sync()
        return claim

    def claim_seqs(self, *args: Any, **options: Any) -> list[int]:
        return [job.seq for job in self.claim(*args, **options).jobs]

    def ack(self, seqs: list[int], node: str = "w", lease_ids: list[str] | None = None) -> Settled:
        return self._synced(self.queues.ack(QUEUE, node, seqs, lease_ids))

    def nack(self, seqs: list[int], node: str = "w", *, delay_ms: int = 0) -> Settled:
        return self._synced(self.queues.nack(QUEUE, node, seqs, None, delay_ms))

    def extend(self, seqs: list[int], node: str = "w", *, lease_ms: int = 1_000) -> Settled:
        return self._synced(self.queues.extend(QUEUE, node, seqs, None, lease_ms))

    def wear_out(self, count: int = 1) -> None:
        """Jobs that were delivered as often as they may be; the next claim moves them."""
        self.produce(count)
        for _ in range(self.topic.config.max_deliveries):
            self.nack(self.claim_seqs())

    def counts(self) -> tuple[int, ...]:
        return tuple(self.queues.counts(self.engine.topic(QUEUE)))

    def letters(self, topic: str = DEAD) -> list[Any]:
        log = self.engine.topic(topic).log
        return [json.loads(text) for text in log_reading.texts_of(log, log_reading.live_from(log, 1, 100))]

    def _synced(self, settled: Settled) -> Settled:
        if self.auto_sync:
            self.sync()
        return settled


def shown(claim: Claim) -> list[Any]:
    return [json.loads(job.text) for job in claim.jobs]


def done(commit: Commit | None) -> bool:
    return commit is None or commit.done
