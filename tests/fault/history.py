"""What clients were told: every operation of a workload, and whether a recovered server keeps the promises made.

Knows nothing of files. A server is asked for two things only: what its readers see, and, at the moment of a crash,
how much of its log was durable by then, so that un-synced operations may be lost and nothing else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from topics.engine.engine import Engine
from topics.engine.journal import Commit
from topics.engine.topic import Topic
from topics.model.config import Durability, TopicConfig
from topics.model.gap import GapReason
from topics.model.producer import RememberedWrite, split_key
from topics.model.read_options import ReadOptions
from topics.model.tag_match import TagMatch
from topics.storage.group_commit import CommitThread
from topics.testing.simulated_server import Reading, SimulatedServer

OVERHEAD_BYTES = 38


@dataclass(slots=True, eq=False)
class Operation:
    """`gated`: its acknowledgement says that it is durable. `shard` is None for what no log ever has."""

    number: int
    gated: bool
    shard: CommitThread[Commit] | None
    end_lsn: int | None = None
    commit: Commit | None = None
    returned: bool = False
    absorbed: bool = False

    def submitted(self, commit: Commit | None = None) -> None:
        self.commit = commit
        if self.shard is not None:
            self.end_lsn = self.shard.submitted_lsn

    @property
    def acked(self) -> bool:
        return self.returned or (self.commit is not None and self.commit.done and self.commit.error is None)

    @property
    def is_durable(self) -> bool:
        if self.absorbed or (self.acked and self.gated):
            return True
        return self.shard is not None and self.end_lsn is not None and self.shard.writer.synced_lsn >= self.end_lsn


@dataclass(slots=True, eq=False)
class Written:
    """One write. `texts` and `sizes` by seq."""

    operation: Operation
    texts: dict[int, bytes]
    tags: dict[int, str | None]
    sizes: dict[int, int]
    key: str | None
    ts: int
    durability: Durability

    @property
    def resident_only(self) -> bool:
        return self.durability is Durability.EPHEMERAL


@dataclass(slots=True, eq=False)
class Deleted:
    operation: Operation
    bound: int
    match: TagMatch | None

    def covers(self, seq: int, tag: str | None) -> bool:
        if seq >= self.bound:
            return False
        if self.match is None:
            return True
        if tag is None:
            return False
        return tag.startswith(self.match.text) if self.match.is_prefix else tag == self.match.text


@dataclass(slots=True, eq=False)
class Configured:
    operation: Operation
    config: TopicConfig


@dataclass(slots=True, eq=False)
class Instance:
    """One life of a topic."""

    name: str
    topic_id: int
    created: Operation
    configs: list[Configured]
    writes: list[Written] = field(default_factory=list)
    deletes: list[Deleted] = field(default_factory=list)
    removed: Operation | None = None
    failed: bool = False  # the disk failed while it was made: nobody was told that it exists
    live_floor: int = 1
    _latest: dict[int, Written] = field(default_factory=dict)

    @property
    def config(self) -> TopicConfig:
        return self.configs[-1].config

    def operations(self) -> Iterator[Operation]:
        yield self.created
        yield from (each.operation for each in self.configs)
        yield from (each.operation for each in self.writes)
        yield from (each.operation for each in self.deletes)

    def was_ever(self, test: Callable[[TopicConfig], bool]) -> bool:
        return any(test(each.config) for each in self.configs)

    def add(self, write: Written) -> None:
        self.writes.append(write)
        self._latest.update(dict.fromkeys(write.texts, write))

    def take_back(self, operation: Operation) -> None:
        """It was refused before anything of it was written."""
        self.configs = [self.configs[0], *(each for each in self.configs[1:] if each.operation is not operation)]
        self.deletes = [each for each in self.deletes if each.operation is not operation]
        if self.removed is operation:
            self.removed = None
        writes, self.writes, self._latest = self.writes, [], {}
        for write in writes:
            if write.operation is not operation:
                self.add(write)

    def write_of(self, seq: int) -> Written | None:
        """The last write that was given this seq: those of records nobody was promised may be given again."""
        return self._latest.get(seq)


class History:
    def __init__(self) -> None:
        self.instances: list[Instance] = []
        self._numbers = 0

    def operation(self, shard: CommitThread[Commit] | None, *, gated: bool) -> Operation:
        self._numbers += 1
        return Operation(self._numbers, gated, shard)

    def current(self, name: str) -> Instance | None:
        for instance in reversed(self.instances):
            if instance.name == name:
                return None if instance.failed or instance.removed is not None else instance
        return None

    def names(self) -> list[str]:
        return sorted({instance.name for instance in self.instances})

    def absorb(self, before_number: int) -> None:
        """A checkpoint is durable that began after these operations."""
        for instance in self.instances:
            for operation in instance.operations():
                if operation.number <= before_number and operation.acked:
                    operation.absorbed = True

    @property
    def last_number(self) -> int:
        return self._numbers

    def note_floors(self, engine: Engine) -> None:
        """What caps and TTLs have taken from readers by now."""
        for instance in self.instances:
            topic = engine.topics.by_id(instance.topic_id)
            if topic is not None:
                instance.live_floor = max(instance.live_floor, topic.log.earliest_seq)

    # Checking

    def check(self, server: SimulatedServer, now_ms: int) -> None:
        for name in self.names():
            lives = [instance for instance in self.instances if instance.name == name]
            topic = server.engine.find_topic(name)
            if topic is None:
                for life in lives:
                    assert life.removed is not None or not life.created.is_durable, (
                        f"{name}: topic {life.topic_id} is gone"
                    )
                continue
            found = next((life for life in lives if life.topic_id == topic.topic_id), None)
            assert found is not None, f"{name}: topic {topic.topic_id} was never made"
            assert found.removed is None or not found.removed.acked, f"{name}: a deleted topic is back"
            newer = [life for life in lives if life.topic_id > found.topic_id and life.created.acked]
            assert not (found.failed and newer), f"{name}: a refused topic took the place of a newer one"
            for life in lives:
                promised = life.created.is_durable and life.removed is None and not life.failed
                assert life is found or not promised, f"{name}: topic {found.topic_id} hides topic {life.topic_id}"
            check_instance(found, server, now_ms)
        unknown = {topic.name for topic in server.engine.topics} - set(self.names())
        assert not unknown, f"topics nobody made: {unknown}"


def check_instance(life: Instance, server: SimulatedServer, now_ms: int) -> None:
    name = life.name
    topic = server.engine.topic(name)
    reading = server.read_all(name)
    check_joined(server, name)
    log = topic.log
    label = f"{name} (topic {life.topic_id})"

    # Its configuration is the last one promised, or one asked for after that.
    promised = max(
        (position for position, each in enumerate(life.configs) if each.operation.acked or each.operation.is_durable),
        default=0,
    )
    assert topic.config in [each.config for each in life.configs[promised:]], f"{label}: configuration {topic.config}"

    # Every record delivered is one that was written, byte for byte.
    for seq, text in reading.records.items():
        write = life.write_of(seq)
        assert write is not None, f"{label}: seq {seq} was never written: {text!r}"
        assert text == write.texts[seq], f"{label}: seq {seq} reads {text!r}, written was {write.texts[seq]!r}"

    # What came before a survivor survived, so these deletes have to be in force.
    cut = max(
        (operation.number for operation in life.operations() if operation.is_durable and operation.shard is not None),
        default=0,
    )
    for write in life.writes:
        if not write.resident_only and any(seq in reading.records for seq in write.texts):
            cut = max(cut, write.operation.number)
    for delete in life.deletes:
        logged = delete.operation.shard is not None
        if delete.operation.is_durable or (delete.operation.number <= cut and logged):
            for seq in reading.records:
                tag = _tag(life, seq)
                written_before = _number(life, seq) < delete.operation.number
                assert not (written_before and delete.covers(seq, tag)), f"{label}: deleted seq {seq} is back"

    _check_nothing_missing(life, reading, label, now_ms)
    _check_batches(life, reading, log.earliest_seq, label)
    _check_keys(life, server, reading, log.earliest_seq, label, now_ms)

    # The figures agree with what is there.
    delivered = [write.sizes[seq] for seq in reading.records if (write := life.write_of(seq)) is not None]
    assert log.count == len(delivered), f"{label}: count {log.count}, {len(delivered)} records delivered"
    assert log.bytes == sum(delivered), f"{label}: bytes {log.bytes}, records have {sum(delivered)}"
    assert log.earliest_seq == min(reading.records, default=reading.head_seq + 1), f"{label}: earliest_seq"
    assert log.evict_floor <= log.earliest_seq, f"{label}: evict_floor {log.evict_floor} > {log.earliest_seq}"


def _check_nothing_missing(life: Instance, reading: Reading, label: str, now_ms: int) -> None:
    silent = set(reading.missing())
    limited = life.was_ever(lambda config: bool(config.cap_records or config.ttl_ms))
    under_way = any(not operation.acked for operation in life.operations())
    shortest_ttl = min((each.config.ttl_ms for each in life.configs if each.config.ttl_ms), default=0)
    for write in life.writes:
        for seq in write.texts:
            if life.write_of(seq) is not write or seq in reading.records:
                continue
            if any(delete.covers(seq, write.tags[seq]) for delete in life.deletes):
                continue
            operation = write.operation
            if seq > reading.head_seq:
                assert not operation.is_durable or write.resident_only, f"{label}: durable seq {seq} is beyond the head"
                assert not (operation.acked and write.durability is Durability.DISK), (
                    f"{label}: seq {seq} was given out and will be again: the head is {reading.head_seq}"
                )
                continue
            assert seq not in silent, f"{label}: seq {seq} is gone without a word"
            if write.resident_only or not operation.is_durable or seq < life.live_floor:
                continue
            expired = shortest_ttl and now_ms - write.ts > shortest_ttl
            if not (expired or (limited and under_way)):
                raise AssertionError(f"{label}: durable seq {seq} is lost: {reading.gaps}")
    written = {seq for write in life.writes for seq in write.texts}
    for seq in silent - written:
        # Seqs that were reserved and never used may only be told as lost.
        raise AssertionError(f"{label}: nothing is said about seq {seq}, which nobody wrote")
    if not life.was_ever(lambda config: config.durability is Durability.DISK):
        assert reading.head_seq <= max(written, default=0), f"{label}: head {reading.head_seq} was never given out"
    for gap in reading.gaps:
        assert gap.reason is not GapReason.RECREATED
        if not limited:
            assert gap.reason is GapReason.CRASH, f"{label}: {gap}"


def _check_batches(life: Instance, reading: Reading, earliest_seq: int, label: str) -> None:
    for write in life.writes:
        expected = [
            seq
            for seq in write.texts
            if seq >= earliest_seq
            and life.write_of(seq) is write
            and not any(delete.covers(seq, write.tags[seq]) for delete in life.deletes)
        ]
        there = [seq for seq in expected if seq in reading.records]
        assert there in ([], expected), f"{label}: of the batch {expected} only {there} survived"


def _remembered(topic: Topic, key: str, now_ms: int) -> RememberedWrite | None:
    if (numbered := split_key(key)) is None:
        return topic.keys.find(key, now_ms, topic.config.idempotency_window_ms)
    name, last_number, last_hash = numbered
    mark = topic.keys.producers.find(name)
    if mark is None or mark.last_number < last_number:
        return None
    assert mark.last_number > last_number or mark.last_hash == last_hash
    return mark.write if mark.last_number == last_number else mark.write._replace(record_count=0)


def _check_keys(
    life: Instance, server: SimulatedServer, reading: Reading, earliest_seq: int, label: str, now_ms: int
) -> None:
    topic = server.engine.topic(life.name)
    for write in life.writes:
        if write.key is None:
            continue
        first_seq = min(write.texts)
        if life.write_of(first_seq) is not write:
            continue
        window_ms = topic.config.idempotency_window_ms
        remembered = _remembered(topic, write.key, now_ms)
        is_producer = split_key(write.key) is not None
        if remembered is None:
            known = is_producer or now_ms - write.ts < window_ms
            due = write.operation.is_durable and not write.resident_only and known
            assert not due, f"{label}: the key of durable seq {first_seq} is forgotten"
            continue
        later = [each for each in life.writes if each.key == write.key]
        if later[-1] is not write or (is_producer and remembered.record_count == 0):
            continue
        assert (remembered.first_seq, remembered.record_count) == (first_seq, len(write.texts)), (
            f"{label}: {remembered}"
        )
        gone = [
            seq
            for seq in write.texts
            if seq >= life.live_floor
            and seq not in reading.records
            and not any(delete.covers(seq, write.tags[seq]) for delete in life.deletes)
        ]
        limited = life.was_ever(lambda config: bool(config.cap_records or config.ttl_ms))
        assert limited or not gone, f"{label}: the key of seq {first_seq} is kept though {gone} are lost"


def _tag(life: Instance, seq: int) -> str | None:
    write = life.write_of(seq)
    return None if write is None else write.tags[seq]


def _number(life: Instance, seq: int) -> int:
    write = life.write_of(seq)
    return 0 if write is None else write.operation.number


def state_of(server: SimulatedServer) -> dict[str, object]:
    """Everything a client could find out, to compare two recoveries."""
    states: dict[str, object] = {}
    for topic in sorted(server.engine.topics, key=lambda each: each.name):
        log = server.engine.topic(topic.name).log
        states[topic.name] = (
            topic.topic_id,
            topic.config,
            server.read_all(topic.name),
            (log.earliest_seq, log.evict_floor, log.count, log.bytes, log.last_ts),
            dict(topic.keys.items()),
        )
    return states


def check_joined(server: SimulatedServer, topic: str) -> None:
    """Whoever takes neighbours as one text gets the bytes of whoever gets each record apart, within any budget."""
    head_seq = server.engine.topic(topic).log.head_seq
    for options in (ReadOptions(5, 150), ReadOptions(4, 200, include_tags=True)):
        from_seq = 0
        while from_seq < head_seq:
            apart = server.engine.read(topic, from_seq, options)[1]
            joined = server.engine.read(topic, from_seq, options._replace(joined=True))[1]
            assert b",".join(joined.fragments) == b",".join(apart.fragments)
            assert joined._replace(fragments=[], joined=False) == apart._replace(fragments=[])
            from_seq = apart.next_from_seq
