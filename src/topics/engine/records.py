"""Records: appending, reading, deleting and expiring them.

An operation that has to be durable before anybody may see it returns a `commit`: its result holds once that is
done. A call whose answer would reveal something not yet durable raises `Busy`.
"""

from array import array
from collections.abc import Generator

from msgspec import UNSET, Struct

from topics import limits
from topics.engine import log_reading
from topics.engine.admission import Prepared, WriteLimits, admit, prepare
from topics.engine.flow import EngineLimits, Flow, Landed
from topics.engine.forwarding import Forwarding
from topics.engine.journal import Busy, Commit
from topics.engine.log_reading import ReadBatch
from topics.engine.producers import Mark
from topics.engine.room import bytes_free, check_caps, those_that_fit
from topics.engine.topic import Topic
from topics.engine.topics import Topics
from topics.errors import InvalidRequest, ProducerDiffers, Throttled, TopicFull, TopicNotFound, TopicsError
from topics.model import operation
from topics.model.config import Durability, TopicConfigPatch
from topics.model.names import check_topic_name
from topics.model.operation import ClockReached, JobsDelayed, JobsDeleted, RecordsDeleted, WriteEnd
from topics.model.producer import Producer, RememberedWrite, check_key, check_producer, hash_of, producer_key
from topics.model.read_options import ReadOptions
from topics.model.record import RECORD_OVERHEAD_BYTES, Batch, NewRecord, plain_fragment
from topics.model.tag_match import TagMatch


class Write(Struct, frozen=True, gc=False):
    """One atomic append, as asked for."""

    records: list[NewRecord]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicConfigPatch | None = None
    producer: Producer | None = None  # in place of a key
    prepared: Prepared | None = None


class Appended(Struct, frozen=True, gc=False):
    topic: Topic
    first_seq: int
    record_count: int
    created: bool
    deduped: bool
    commit: Commit | None = None
    journal_ns: int = 0
    next_number: int = 0  # of its producer, if it has one


class DeletedRecords:
    """`count`, how many were live, is known once the commit is done, if there is one."""

    __slots__ = ("commit", "count", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.count = 0
        self.commit: Commit | None = None


class Records:
    def __init__(self, flow: Flow, bounds: EngineLimits, topics: Topics, forwarding: Forwarding) -> None:
        self._flow = flow
        self._state = flow.state
        self._limits = bounds
        self._topics = topics
        self._forwarding = forwarding
        # What the hottest call looks at, one step away instead of three.
        # With a cap on all bytes every write has something to decide.
        self._by_name = {} if bounds.total_bytes_max else flow.state.topics.by_name
        self._clock = flow.clock
        self._journal = flow.journal
        self._bounds = bounds.write

    # Appending

    def append(self, name: str, write: Write) -> Appended:
        """Appends all records of the write with contiguous seqs, or none."""
        records, key, next_number = write.records, write.idempotency_key, 0
        if len(records) == 1 and key is None and write.producer is None:
            seq = self.append_single(name, records[0], write.node)
            if seq:
                return Appended(self._state.topics.by_name[name], seq, 1, created=False, deduped=False)
        if self._flow.closed:
            self._flow.await_open(name)
        topic = self._state.topics.get(name)
        created = topic is None
        if topic is None:
            check_topic_name(name)
            if write.create is False:
                raise TopicNotFound(name)
            topic = self._topics.new(name, write.config)
        now_ms = self._flow.clock.now_ms()
        if write.producer is not None or key is not None:
            earlier = None
            if write.producer is not None:
                key, records, earlier = _unknown(topic, write, write.producer)
                next_number = write.producer.sequence + len(write.records)
            elif key is not None:
                check_key(key)
                earlier = topic.extras.pending_keys.get(key) or topic.keys.find(
                    key, now_ms, topic.config.idempotency_window_ms
                )
            if earlier is not None:
                return _repeated(topic, earlier, write.producer)
        ts = max(now_ms, topic.assigned_ts)
        if write.prepared is None or records is not write.records:
            batch = admit(records, write.node, topic.assigned_seq + 1, ts, self._limits.write)
        else:
            if ts - limits.PREPARED_MS_MAX < write.prepared.ts < ts and write.prepared.ts >= topic.assigned_ts:
                ts = write.prepared.ts
            batch = write.prepared.at(topic.assigned_seq + 1, ts)
        if batch.has_delays and topic.queue is None:
            raise InvalidRequest.in_field("delay_ms", f'only jobs can be delayed; topic "{name}" is not a queue')
        if topic.config.ttl_ms:
            self._state.expire(topic, now_ms)
        self.check_room(topic, batch)
        if self._flow.paused is not None:
            raise Busy(self._flow.paused)
        if topic.config.durability is not Durability.EPHEMERAL:  # no disk has a say in what none keeps
            self.check_disk(topic, batch.total_bytes)
        first_seq = topic.assigned_seq + 1
        started_ns = self._flow.clock.monotonic_ns()
        commit = self._hand_over(topic, batch, ts, key, records, now_ms, created=created)
        journal_ns = self._flow.clock.monotonic_ns() - started_ns
        return Appended(topic, first_seq, len(batch.fragments), created, False, commit, journal_ns, next_number)

    def check_disk(self, topic: Topic, size: int = 0) -> None:
        """Raises if the disk, or what waits for it, has no room for so many bytes more."""
        self._journal.admit(topic.topic_id)
        self._flow.check_unsealed()
        self._journal.require_room(size)

    def prepare(self, name: str, records: list[NewRecord], node: str | None) -> Generator[None, None, Prepared]:
        """Admits a large write ahead of `append`, a slice a step. If others write to the topic meanwhile, only the seqs
        in its fragments have to be changed."""
        topic = self._state.topics.get(name)
        now_ms = self._clock.now_ms()
        first_seq, ts = (1, now_ms) if topic is None else (topic.assigned_seq + 1, max(now_ms, topic.assigned_ts))
        return prepare(records, node, first_seq, ts, self._limits.write)

    def append_single(self, name: str, record: NewRecord, default_node: str | None) -> int:
        """`append` for what most writes are: one record that nobody waits for, to a topic where nothing has to be
        decided. Returns its seq; or does nothing and returns 0 where anything is out of the ordinary. Hot: of the
        2400 byte codes a write took on the way of all others, 1750 are left."""
        topic, flow = self._by_name.get(name), self._flow
        if (
            topic is None
            or not topic.plain
            or topic.in_flight
            or topic.inbound
            or topic.strong_readers
            or flow.closed
            or flow.paused
            or self._state.unsealed_bytes > self._limits.unsealed_bytes_max
            or record.meta is not UNSET
            or record.delay_ms
        ):
            return 0
        bounds = self._bounds
        data, tag, node = record.data, record.tag, record.node
        size = len(data)
        if size > bounds.record_bytes_max:
            return 0
        size += RECORD_OVERHEAD_BYTES
        if tag is not None:
            if len(tag) > bounds.tag_bytes_max or not tag.isascii():
                return 0
            size += len(tag)
        if node is None:
            node = default_node
        elif default_node is not None:
            return 0  # it is looked at, too
        if node is not None:
            if len(node) > bounds.node_bytes_max or not node.isascii():
                return 0
            size += len(node)
        seq = topic.assigned_seq + 1
        ts = self._clock.now_ms()
        ts = max(ts, topic.assigned_ts)
        durability = topic.config.durability
        if durability is not Durability.EPHEMERAL:
            if durability is Durability.DISK and topic.ceiling - seq < topic.ceiling_margin:
                return 0
            if not self._journal.append_single(topic.topic_id, seq, ts, node, tag, data):
                return 0
        state = self._state
        if state.uncaptured:
            state.before_change(topic)
        topic.assigned_seq = seq
        topic.assigned_ts = topic.last_write_ts = ts
        if topic.log.append_single(plain_fragment(seq, ts, node, data), size, node, tag, ts):
            state.note_block(topic)
        state.bytes_live += size
        state.records_live += 1
        state.changed[topic] = None
        state.on_change(topic)
        if topic.outbound:
            state.on_forwardable(topic)
        return seq

    def _hand_over(
        self,
        topic: Topic,
        batch: Batch,
        ts: int,
        key: str | None,
        records: list[NewRecord],
        now_ms: int,
        *,
        created: bool,
    ) -> Commit | None:
        """Gives a write to the journal; returns the commit to wait for, if there is one."""
        durability = topic.config.durability
        operations: list[operation.Operation] = []
        if batch.has_delays:
            operations += _delays(topic, records, topic.assigned_seq + 1, now_ms)
        operations.append(self.appended(topic, batch, ts, key))
        # Lost unseen, a write between copies would leave its seq to a copy that is made again.
        gated = durability is Durability.FSYNC or (durability is Durability.DISK and bool(topic.inbound))
        if created and durability is Durability.EPHEMERAL:
            self._topics.create(topic)
        elif created:
            gated = True  # a topic is durable before anybody is told of it, whatever its records are
            operations.insert(0, self._topics.created(topic))
        elif topic.config.ttl_ms and topic.expired_ms > ts and durability is not Durability.EPHEMERAL:
            # The clock was set back: what it has taken stays taken.
            operations.insert(0, ClockReached(ts=topic.expired_ms, topic_ids=[topic.topic_id]))
            topic.expired_ms = 0  # said once: what is written from here on is younger
        last_seq = topic.assigned_seq
        if durability is Durability.DISK and not created:
            gated = not self._flow.reserve(topic, last_seq, now_ms) or gated
        capped = topic.config.cap_records or topic.config.cap_bytes
        commit = self._flow.submit(
            operations,
            (topic,),
            gated=gated,
            journalled=durability is not Durability.EPHEMERAL,
            closes=(topic.name,) if created else (),
            landed=(lambda _: self._topics.evict_cold(topic)) if capped else None,
        )
        if topic.strong_readers:
            self._forwarding.note_when_durable(topic, last_seq)
        return commit

    @staticmethod
    def appended(topic: Topic, batch: Batch, ts: int, key: str | None = None) -> operation.Appended:
        """The operation of one write, which has its seqs from now on."""
        count = len(batch.fragments)
        first_seq = topic.assigned_seq + 1
        topic.assigned_seq += count
        topic.assigned_ts = ts
        timestamps = (ts,) if count == 1 else array("q", (ts,)) * count
        return operation.Appended(topic.topic_id, first_seq, batch, timestamps, (WriteEnd(topic.assigned_seq, key),))

    # Reading

    def read(self, name: str, from_seq: int, options: ReadOptions) -> tuple[Topic, ReadBatch]:
        topic = self._topics.get(name, touch=True)
        if options.own_nodes and not topic.config.dedupe_node:
            options = options._replace(own_nodes=frozenset())
        return topic, log_reading.read(topic.log, from_seq, options)

    def cursor_at(self, name: str, ts: int) -> int:
        """Where to begin for records of `ts` or later."""
        return log_reading.cursor_at(self._topics.get(name).log, ts)

    def add_strong_reader(self, topic: Topic) -> None:
        """From now on `durable_seq` follows what is durable; until the first sync it is not known."""
        topic.strong_readers += 1
        if topic.strong_readers == 1:
            topic.durable_seq = 0
            self._forwarding.note_when_durable(topic, topic.assigned_seq)  # what is in flight is before it, too

    @staticmethod
    def durable_seq(topic: Topic) -> int:
        """The last seq a strong reader may see. What `fsync` publishes is durable, but for copies, which are as
        durable as their originals; `ephemeral` never is."""
        durability = topic.config.durability
        if durability is Durability.EPHEMERAL or (durability is Durability.FSYNC and not topic.inbound):
            return topic.log.head_seq
        return topic.durable_seq

    # Deleting

    def delete(self, name: str, before_seq: int | None, match: TagMatch | None) -> DeletedRecords:
        """Removes records for good, by seq and/or by tag."""
        self._flow.await_open(name)
        topic = self._topics.get(name)
        # Point in time: nothing that is not published yet is touched.
        bound = topic.log.head_seq + 1 if before_seq is None else min(before_seq, topic.log.head_seq + 1)
        if match is None:
            log_reading.prepare_delete(topic.log, bound)
        elif not log_reading.plan_delete(topic.log, match, bound, limits.DELETE_SLICE_RECORDS):
            raise Busy(self._flow.next_turn())
        resident_from = topic.log.resident_from
        journalled = resident_from is None or topic.log.earliest_seq < min(bound, resident_from)
        result = DeletedRecords(topic)

        def landed(count: int) -> None:
            result.count = count

        deleted = RecordsDeleted(topic_id=topic.topic_id, ts=self._flow.clock.now_ms(), before_seq=bound, match=match)
        result.commit = self._delete(topic, deleted, journalled=journalled, landed=landed)
        return result

    def delete_jobs(self, topic: Topic, seqs: list[int], node: str) -> Commit | None:
        """Removes acked jobs for good. Done with the commit, if there is one."""
        resident_from = topic.log.resident_from
        journalled = resident_from is None or any(seq < resident_from for seq in seqs)
        deleted = JobsDeleted(topic_id=topic.topic_id, ts=self._flow.clock.now_ms(), seqs=seqs, node=node)
        return self._delete(topic, deleted, journalled=journalled)

    def _delete(
        self,
        topic: Topic,
        deleted: RecordsDeleted | JobsDeleted,
        *,
        journalled: bool,
        landed: Landed | None = None,
    ) -> Commit | None:
        if topic.outbound:
            self._forwarding.forward_from(topic)
        self._flow.admit(topic)
        gated = topic.config.durability is Durability.FSYNC
        return self._flow.submit([deleted], (topic,), gated=gated, journalled=journalled, landed=landed)

    # What takes records by itself

    def expire_due(self) -> bool:
        """Expires records in topics that nobody touches, and journals that: one operation per log, and none if nothing
        was due. Looks at a limited number of topics; True if there may be more."""
        now_ms = self._flow.clock.now_ms()
        by_lane: dict[int, list[Topic]] = {}
        due = self._state.take_due(now_ms, limits.EXPIRY_SLICE_TOPICS)
        for topic in due:
            self._flow.expire(topic, now_ms)
            self._state.watch_ttl(topic)
            # A reader may have found them before: he was told, so the log has to say it, too.
            if 0 < topic.expired_ms <= now_ms and topic.log.outlives_process and not topic.in_flight:
                by_lane.setdefault(self._flow.journal.lane(topic.topic_id), []).append(topic)
        for topics in by_lane.values():
            try:
                self._flow.admit(topics[0])
            except (Busy, TopicsError):
                continue  # the next operation on each of them says the same
            reached = ClockReached(ts=now_ms, topic_ids=[topic.topic_id for topic in topics])
            self._flow.submit([reached], tuple(topics), gated=False)
            for topic in topics:
                topic.expired_ms = 0
        return len(due) == limits.EXPIRY_SLICE_TOPICS

    # Room

    def fitting(self, topic: Topic, records: list[NewRecord], bounds: WriteLimits) -> list[int]:
        """The positions of the records that fit into one write now. If there are none, raises the error that refuses
        the write."""
        self._state.expire(topic, self._flow.clock.now_ms())
        batch = admit(records, None, topic.assigned_seq + 1, 0, bounds)
        free = bytes_free(self._limits.total_bytes_max, self._state.bytes_live, topic, batch.sizes)
        fitting = those_that_fit(topic, batch.sizes, free)
        if not fitting:
            self.check_room(topic, batch)
        return fitting

    def check_room(self, topic: Topic, batch: Batch) -> None:
        config = topic.config
        if config.cap_bytes or config.cap_records:
            try:
                check_caps(topic, batch)
            except TopicFull:
                if topic.in_flight:
                    raise Busy(topic.in_flight[-1].commit) from None
                raise
        total_max = self._limits.total_bytes_max
        if total_max and bytes_free(total_max, self._state.bytes_live, topic, batch.sizes) < batch.total_bytes:
            if topic.in_flight:
                raise Busy(topic.in_flight[-1].commit)
            raise Throttled(
                f"this server may hold {total_max} bytes of records and holds {self._state.bytes_live}; "
                f"this write brings {batch.total_bytes}",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_total_bytes",
                max=total_max,
            )


def _mark(topic: Topic, producer: str) -> Mark | None:
    return topic.extras.pending_producers.get(producer) or topic.keys.producers.find(producer)


def _unknown(topic: Topic, write: Write, producer: Producer) -> tuple[str, list[NewRecord], RememberedWrite | None]:
    """The key of a producer's write, and those of its records that are not in the topic yet. Where all are, the write
    that brought the last of them; without records if that is not known any more."""
    records = write.records
    if write.idempotency_key is not None:
        raise InvalidRequest.in_field("producer", "takes the place of idempotency_key; give one of them")
    if not records:
        raise InvalidRequest.in_field("records", "must hold at least one record")
    check_producer(producer, len(records))
    last_number = producer.sequence + len(records) - 1
    key = producer_key(producer.name, last_number, hash_of(records[-1]))
    mark = _mark(topic, producer.name)
    if mark is None or mark.last_number < producer.sequence:
        return key, records, None
    if mark.last_number > last_number:
        return key, [], mark.write._replace(record_count=0)
    known = mark.last_number - producer.sequence + 1
    if mark.last_hash and hash_of(records[known - 1]) != mark.last_hash:
        raise ProducerDiffers(topic.name, producer.name, mark.last_number)
    return key, records[known:], mark.write if known == len(records) else None


def _repeated(topic: Topic, earlier: RememberedWrite, producer: Producer | None) -> Appended:
    """The answer to a repeated write."""
    mark = None if producer is None else _mark(topic, producer.name)
    waiting = topic.in_flight[-1].commit if topic.in_flight and earlier.first_seq > topic.log.head_seq else None
    next_number = 0 if mark is None else mark.last_number + 1
    return Appended(topic, earlier.first_seq, earlier.record_count, False, True, waiting, next_number=next_number)


def _delays(topic: Topic, records: list[NewRecord], first_seq: int, now_ms: int) -> list[JobsDelayed]:
    """Which of these jobs are delayed, and until when."""
    seqs_by_delay: dict[int, list[int]] = {}
    for seq, record in enumerate(records, first_seq):
        if record.delay_ms:
            seqs_by_delay.setdefault(record.delay_ms, []).append(seq)
    return [
        JobsDelayed(topic_id=topic.topic_id, ts=now_ms, seqs=seqs, ready_ms=now_ms + delay_ms)
        for delay_ms, seqs in seqs_by_delay.items()
    ]
