"""A seeded series of operations that reaches every room of the disk: what it does is the same for the same seed.

Each operation is noted in a `History` before it is made, and as acknowledged when it returns.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import UNSET, Raw, convert

from fault.history import OVERHEAD_BYTES, Configured, Deleted, History, Instance, Operation, Written
from topics.engine.topic import Topic
from topics.errors import StorageFailed, StorageFull
from topics.model.config import DEFAULT_CONFIG, Durability, TopicConfig, TopicConfigPatch, merge
from topics.model.producer import Producer, hash_of, producer_key
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch, parse_match
from topics.storage.errors import DiskFailed
from topics.storage.journal import shard_of
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import COLD_DIR, SimulatedServer

TAGS = ("a:1", "a:2", "b:1", None)
NODES = ("eu", None, None)
SHARD_COUNTS = (1, 3, 2)
STAGES = ("instant", "topic", "capture", "barrier", "write")
TTL_MS = 400
WINDOW_MS = 5_000

CONFIGS: dict[str, dict[str, object]] = {
    "ephemeral": {"durability": "ephemeral"},
    "memory": {"durability": "memory"},
    "disk": {"durability": "disk"},
    "fsync": {"durability": "fsync"},
    "capped": {"durability": "fsync", "cap_records": 9},
    "capped-disk": {"durability": "disk", "cap_records": 7},
    "expiring": {"durability": "disk", "ttl_ms": TTL_MS},
    "changing": {"durability": "disk"},
}
CHANGES: tuple[dict[str, object], ...] = (
    {"durability": "ephemeral"},
    {"durability": "disk"},
    {"durability": "fsync"},
    {"durability": "memory"},
    {"cap_records": 3},
    {"cap_records": 0},
    {"ttl_ms": TTL_MS},
    {"ttl_ms": 0},
)


def new_server(disk: FakeDisk, clock: FakeClock, shards: int, *, lazy: bool = False) -> SimulatedServer:
    return SimulatedServer(
        disk,
        clock,
        lazy=lazy,
        wal_file_bytes=1500,
        wal_shards=shards,
        segment_events_max=4,
        segment_age_ms_max=2_000,
        cold_dir=COLD_DIR,
        hot_retain_segments=1,
    )


class WorkloadEnded(Exception):
    """A server whose disk has failed was stopped: what comes next depends on what is left."""


class Workload:
    def __init__(self, disk: FakeDisk, seed: int) -> None:
        self.disk = disk
        self.clock = FakeClock()
        self.history = History()
        self.shards = SHARD_COUNTS[seed % len(SHARD_COUNTS)]
        self._choice = random.Random(seed)
        self._keys = 0
        self._records = 0
        self.disk_fails = False
        self.server = new_server(disk, self.clock, self.shards)

    def run(self, operations: int, *, after_each: Callable[[], None] | None = None) -> None:
        self.server.start()
        for _ in range(operations):
            self.one()
            if after_each is not None:
                after_each()
        self.server.stop()

    def check(self) -> None:
        """What the running server shows is what clients were told."""
        if not self.server.lazy:
            self.server.step()  # or reading would apply what is in flight, and move the floors noted here
        self.history.note_floors(self.server.engine)
        self.history.check(self.server, self.clock.now_ms())

    def one(self, *, nested: bool = False) -> None:
        """One operation, as the seed has it."""
        choice = self._choice
        kind = choice.random()
        name = choice.choice(list(CONFIGS))
        if kind < 0.50:
            self.write(name, choice.randrange(1, 6), staged=nested and choice.random() < 0.5)
        elif kind < 0.64:
            self.delete_some(name)
        elif kind < 0.70:
            self.configure(name if choice.random() < 0.3 else "changing", choice.choice(CHANGES))
        elif kind < 0.73:
            self.remove(name)
        elif kind < 0.78:
            self.clock.advance(choice.choice((10, 200, 500)))
            if choice.random() < 0.2:
                self.clock.set_wall(self.clock.now_ms() - 300)
            self.server.engine.expire_due()
            self.server.step()
        elif kind < 0.82:
            self.server.lazy = not self.server.lazy
        elif nested:
            return
        elif kind < 0.96:
            self.checkpoint()
        elif kind < 0.98:
            self._sync()
        else:
            self.restart()

    # Operations

    def write(self, name: str, count: int, *, staged: bool = False) -> None:
        records, node, key = self._new_records(count)
        life = self._life(name)
        topic = self._topic(life)
        first_seq = 1 if topic is None else topic.assigned_seq + 1
        ts = max(self.clock.now_ms(), 0 if topic is None else topic.assigned_ts)
        config = life.config if life else merge(name, DEFAULT_CONFIG, _patch(CONFIGS[name]), exists=False)
        if life is None:
            created = self._operation(None, Durability.FSYNC)  # made by the write, and waited for whatever its class
            life = self._made(name, created, config)
        operation = self._operation(life, config.durability)
        write = _written(operation, records, node, first_seq, ts, key, config.durability)
        life.add(write)
        with self._refusable(life, operation):
            creating = CONFIGS[name] if topic is None else None
            appended = self.server.hand_over(name, records, key=key, node=node, config=creating)
            assert (appended.first_seq, appended.deduped) == (first_seq, False)
            for each in (operation, life.created) if topic is None else (operation,):
                each.submitted(appended.commit)
            if appended.commit is not None and staged:
                return
            self.server.wait(appended.commit)
            operation.returned = True
            if topic is None:
                life.created.returned = True
            if key is not None and self._choice.random() < 0.5:
                again = self.server.write(name, records, key=key, node=node)
                assert (again.deduped, again.first_seq) == (True, first_seq)

    def delete_some(self, name: str) -> None:
        life = self._life(name)
        topic = self._topic(life)
        if life is None or topic is None:
            return
        choice = self._choice
        kind = choice.random()
        log = self.server.engine.topic(name).log
        before_seq: int | None = None
        match: object = None
        parsed: TagMatch | None = None
        if kind < 0.7:
            match = choice.choice(["a:1", "b:1", ["tag", "Glob", "a:*"]])
            parsed = parse_match(match)
        if kind > 0.5:
            before_seq = log.earliest_seq + choice.randrange(1, 7)
        bound = log.head_seq + 1 if before_seq is None else min(before_seq, log.head_seq + 1)
        operation = self._operation(life, life.config.durability)
        life.deletes.append(Deleted(operation, bound, parsed))
        with self._refusable(life, operation):
            self.server.delete_records(name, before_seq=before_seq, match=match)
            operation.submitted()
            operation.returned = True

    def configure(self, name: str, change: dict[str, object]) -> None:
        life = self._life(name)
        self._topic(life)
        operation = self._operation(life, Durability.FSYNC)
        base = DEFAULT_CONFIG if life is None else life.config
        config = merge(name, base, _patch(change), exists=life is not None)
        if life is not None and config == life.config:
            return
        if life is None:
            life = self._made(name, operation, config)
        else:
            life.configs.append(Configured(operation, config))
        with self._refusable(life, operation):
            self.server.put(name, change)
            operation.returned = True

    def remove(self, name: str) -> None:
        life = self._life(name)
        if self._topic(life) is None or life is None:
            return
        removed = life.removed = self._operation(life, Durability.FSYNC)
        with self._refusable(life, removed):
            self.server.delete_topic(name)
            removed.returned = True

    def checkpoint(self) -> None:
        choice = self._choice
        stage = choice.choice(STAGES) if choice.random() < 0.6 else ""
        count = choice.randrange(1, 4)

        def during(step: str) -> None:
            if step == stage:
                for _ in range(count):
                    self.one(nested=True)

        began = self.history.last_number
        if self.server.checkpoint(during=during):
            self.history.absorb(began)

    def restart(self) -> None:
        """A clean stop, and a start with another number of shards."""
        began = self.history.last_number
        self._sync()
        self.history.note_floors(self.server.engine)
        if not self.server.stop():
            raise WorkloadEnded
        self.history.absorb(began)
        self.shards = self._choice.choice(SHARD_COUNTS)
        self.server = new_server(self.disk, self.clock, self.shards)
        self.server.start()

    def _sync(self) -> None:
        try:
            self.server.sync()
        except (StorageFailed, DiskFailed):
            if not self.disk_fails:
                raise

    # Noting

    def _life(self, name: str) -> Instance | None:
        return self.history.current(name)

    def _topic(self, life: Instance | None) -> Topic | None:
        if life is None:
            return None
        topic = self.server.engine.topics.by_id(life.topic_id)
        if topic is None:
            # Its creation is still under way: let it finish.
            self._sync()
            topic = self.server.engine.topics.by_id(life.topic_id)
        return topic

    def _made(self, name: str, created: Operation, config: TopicConfig) -> Instance:
        life = Instance(name, self.server.engine.state.next_id, created, [Configured(created, config)])
        self.history.instances.append(life)
        return life

    def _operation(self, life: Instance | None, durability: Durability) -> Operation:
        topic_id = self.server.engine.state.next_id if life is None else life.topic_id
        shards = self.server.journal.shards
        shard = None if durability is Durability.EPHEMERAL else shards[shard_of(topic_id, len(shards))]
        return self.history.operation(shard, gated=durability is Durability.FSYNC)

    @contextmanager
    def _refusable(self, life: Instance, operation: Operation) -> Iterator[None]:
        """A refusal because of a disk that failed before leaves no trace; one that fails now may leave any."""
        failed_before = operation.shard is not None and operation.shard.failure is not None
        try:
            yield
        except StorageFull:
            if not self.disk_fails:
                raise
            life.failed = self.server.engine.topics.by_id(life.topic_id) is None
            life.take_back(operation)
        except StorageFailed:
            if not self.disk_fails:
                raise
            life.failed = self.server.engine.topics.by_id(life.topic_id) is None
            if failed_before:
                life.take_back(operation)
        else:
            assert not failed_before, "a server whose disk has failed took an operation"

    def _new_records(self, count: int) -> tuple[list[NewRecord], str | None, str | Producer | None]:
        choice = self._choice
        records: list[NewRecord] = []
        for _ in range(count):
            self._records += 1
            meta = Raw(b'{"k":"%d"}' % self._records) if choice.random() < 0.3 else UNSET
            data = Raw(b'{"n":%d,"x":"%b"}' % (self._records, b"." * choice.randrange(40)))
            records.append(NewRecord(data, tag=choice.choice(TAGS), meta=meta))
        node = choice.choice(NODES)
        if choice.random() < 0.4:
            self._keys += 1
            if self._keys % 2:
                return records, node, Producer("producer", self._records * 10)
            return records, node, f"key-{self._keys}"
        return records, node, None


def _patch(fields: dict[str, object]) -> TopicConfigPatch:
    return convert(fields, TopicConfigPatch)


def _written(
    operation: Operation,
    records: list[NewRecord],
    node: str | None,
    first_seq: int,
    ts: int,
    key: str | Producer | None,
    durability: Durability,
) -> Written:
    """The write with the texts its readers are to get, made without the code under test."""
    if isinstance(key, Producer):
        key = producer_key(key.name, key.sequence + len(records) - 1, hash_of(records[-1]))
    write = Written(operation, {}, {}, {}, key, ts, durability)
    for seq, record in enumerate(records, first_seq):
        data = bytes(record.data)
        meta = b"" if record.meta is UNSET else bytes(record.meta)
        text = b'{"$seq":%d,"$ts":%d' % (seq, ts)
        if node is not None:
            text += b',"$node":"%b"' % node.encode()
        text += b',"data":%b' % data
        if meta:
            text += b',"meta":%b' % meta
        if record.tag is not None:
            text += b',"$tag":"%b"' % record.tag.encode()
        write.texts[seq] = text + b"}"
        write.tags[seq] = record.tag
        write.sizes[seq] = (
            OVERHEAD_BYTES + len(data) + (len(meta) + 1 if meta else 0) + len(node or "") + len(record.tag or "")
        )
    return write
