"""The engine: every operation on topics, as plain synchronous calls. Validate, decide, journal, apply, wake.

Deterministic: the clock is handed in, and there are no sockets, files, threads or tasks. All calls come from
one thread, so a call sees the effects of all calls before it and of none after it.

An operation that has to be durable before anybody may see it returns a `commit`: its result holds once that is
done. A call whose answer would reveal something not yet durable raises `Busy`.
"""

from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct

from topics import limits
from topics.clock import Clock
from topics.engine.admission import WriteLimits, admit
from topics.engine.block import Batch
from topics.engine.control import EngineLimits
from topics.engine.journal import Busy, Commit, Journal, NoJournal, all_of
from topics.engine.producers import RememberedWrite
from topics.engine.room import check_caps, those_that_fit
from topics.engine.router_graph import ring_of, upstream
from topics.engine.single_append import SingleAppend
from topics.engine.topic import Removal, Staged, Topic
from topics.engine.topic_log import ReadBatch
from topics.errors import (
    InvalidRequest,
    ProducerDiffers,
    Throttled,
    TopicFull,
    TopicNotEmpty,
    TopicNotFound,
    TopicsError,
)
from topics.model.config import Durability, TopicConfigPatch, merge
from topics.model.lease_event import Delayed
from topics.model.names import check_topic_name
from topics.model.producer import Producer, check_key, check_producer, hash_of, producer_key
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch


class Write(Struct, frozen=True, gc=False):
    """One atomic append, as asked for."""

    records: list[NewRecord]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicConfigPatch | None = None
    gated: bool = False  # nobody is to see it before it is durable, whatever the class of the topic
    producer: Producer | None = None  # in place of a key


class Appended(Struct, frozen=True, gc=False):
    topic: Topic
    first_seq: int
    record_count: int
    created: bool
    deduped: bool
    commit: Commit | None = None
    journal_ns: int = 0
    next_number: int = 0  # of its producer, if it has one


class PutTopic(NamedTuple):
    topic: Topic
    created: bool
    commit: Commit | None


class DeletedTopic(NamedTuple):
    deleted: bool
    commit: Commit | None
    routers_removed: tuple[str, ...] = ()


class DeletedRecords:
    """`count`, how many were live until then, is known once the commit, if there is one, is done."""

    __slots__ = ("commit", "count", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.count = 0
        self.commit: Commit | None = None


class Page(NamedTuple):
    topics: list[Topic]
    last_name: str
    more: bool


class Engine(SingleAppend):
    def __init__(
        self,
        clock: Clock,
        bounds: EngineLimits = EngineLimits(),  # noqa: B008 - immutable
        journal: Journal = NoJournal(),  # noqa: B008 - stateless
    ) -> None:
        super().__init__(clock, bounds, journal)

    # Topics

    def put_topic(self, name: str, patch: TopicConfigPatch) -> PutTopic:
        """Creates the topic or merges `patch` into its configuration."""
        check_topic_name(name)
        self._await_control(name)
        topic = self.topics.get(name)
        now_ms = self._clock.now_ms()
        if topic is None:
            topic = self._new_topic(name, patch)
            return PutTopic(topic, created=True, commit=self._create_durably(topic, now_ms))
        config = merge(name, topic.config, patch, exists=True)
        if config == topic.config:
            return PutTopic(topic, created=False, commit=None)
        self._journal.admit(topic.topic_id)
        version = topic.config_version + 1
        commit = self._journal.update_config(topic.topic_id, now_ms, config, version)
        self._when_durable(name, commit, lambda: self.apply_config(topic, config, version, self._clock.now_ms()))
        return PutTopic(topic, created=False, commit=commit)

    def find_topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic(self, name: str, *, touch: bool = False, wait: bool = True) -> Topic:
        """The topic with everything forwarded and expired that has to be, for reading its state. `wait`: exactly."""
        topic = self.topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFound(name)
        now_ms = self._clock.now_ms()
        if touch:
            topic.last_read_ts = now_ms
        if wait and topic.inbound:
            self.catch_up(topic)
        return self._current(topic, now_ms, wait=wait)

    def await_control(self, name: str) -> None:
        """Raises `Busy` while a topic of this name is being made, changed or deleted."""
        if self._pending:
            self._await_control(name)

    def refresh(self, topic: Topic) -> None:
        """A delivery of this topic: counts as reading it, fetches what its routers have for it, and takes what its TTL
        says is gone."""
        topic.last_read_ts = now_ms = self._clock.now_ms()
        if topic.inbound:
            self.catch_up(topic)
        self._current(topic, now_ms, wait=True)

    def page_of_topics(self, after: str, prefixes: tuple[str, ...], page_size: int, *, touch: bool = False) -> Page:
        """Topics named after `after` that begin with one of `prefixes`, in the order of their names."""
        page: list[Topic] = []
        for name in self.topics.names_after(after, prefixes):
            if len(page) == page_size:
                return Page(page, page[-1].name, more=True)
            page.append(self.topic(name, touch=touch, wait=False))
        return Page(page, after, more=False)

    def delete_topic(self, name: str, *, if_empty: bool = False) -> DeletedTopic:
        """Removes the topic with all it holds, and the routers from and to it."""
        check_topic_name(name)
        self._await_control(name)
        topic = self.topics.get(name)
        if topic is None:
            return DeletedTopic(deleted=False, commit=None)
        if topic.inbound or topic.outbound:
            self._await_routers()
            self.catch_up(topic)
        now_ms = self._clock.now_ms()
        self._current(topic, now_ms)
        if if_empty and topic.log.count + topic.staged_count:
            if topic.staged:
                raise Busy(topic.staged[-1].commit)
            raise TopicNotEmpty(
                f'topic "{name}" holds {topic.log.count} records and if_empty was set',
                topic=name,
                count=topic.log.count,
            )
        # Of a cycle it was on, all lose it but the one that loses its routers.
        opened = upstream(topic)[1:-1] if ring_of(topic) else []
        self._admit_change(topic, *opened)
        routers = (*topic.inbound.values(), *topic.outbound.values())
        dest_ids = sorted({router.dest.topic_id for router in topic.outbound.values()})
        commit = all_of([self._journal.delete_topic(topic.topic_id, now_ms, dest_ids), *self._change_ring(opened, 0)])
        closed = (name, *(each.name for each in opened))
        self._when_durable(closed, commit, lambda: self.apply_delete_topic(topic))
        return DeletedTopic(True, commit, tuple(sorted(router.name for router in routers)))

    # Records

    def append(self, name: str, write: Write, bounds: WriteLimits | None = None) -> Appended:
        """Appends all records of the write with contiguous seqs, or none. `bounds`: others than a client's."""
        records, key, next_number = write.records, write.idempotency_key, 0
        if len(records) == 1 and key is None and write.producer is None and not write.gated and bounds is None:
            seq = self.append_single(name, records[0], write.node)
            if seq:
                return Appended(self.topics.by_name[name], seq, 1, created=False, deduped=False)
        if self._pending:
            self._await_control(name)
        topic = self.topics.get(name)
        created = topic is None
        if topic is None:
            check_topic_name(name)
            if write.create is False:
                raise TopicNotFound(name)
            topic = self._new_topic(name, write.config or TopicConfigPatch())
        now_ms = self._clock.now_ms()
        if key is not None or write.producer is not None:
            earlier = None
            if write.producer is not None:
                key, records, earlier = _unknown(topic, write, write.producer)
                next_number = write.producer.sequence + len(write.records)
            elif key is not None:
                check_key(key)
                earlier = topic.keys.find(key, now_ms, topic.config.idempotency_window_ms)
            if earlier is not None:
                return _repeated(topic, earlier, write.producer)
        first_seq = topic.assigned_seq + 1
        ts = max(now_ms, topic.assigned_ts)
        batch = admit(records, write.node, first_seq, ts, bounds or self._limits.write)
        delays = _delays(topic, records, first_seq, now_ms) if batch.has_delays else []
        config = topic.config
        if config.ttl_ms:
            self._current(topic, now_ms)
        self._check_room(topic, batch)
        commit, journal_ns = None, 0
        if config.durability is not Durability.EPHEMERAL or created or topic.staged:
            started_ns = self._clock.monotonic_ns()
            commit = self._hand_over(topic, batch, ts, key, now_ms, delays, created=created, gated=write.gated)
            journal_ns = self._clock.monotonic_ns() - started_ns
        count = len(batch.fragments)
        topic.assigned_seq += count
        topic.assigned_ts = ts
        if key is not None:
            topic.keys.remember(key, first_seq, count, now_ms, topic.log.resident_from)
        if commit is None:
            if created:
                self.apply_add_topic(topic)
            if delays:
                self.apply_delays(topic, delays)
            self.apply_append(topic, batch, (ts,) if count == 1 else array("q", (ts,)) * count)
        else:
            if created:
                self._when_durable(name, commit, lambda: self.apply_add_topic(topic), new=True)
            topic.stage(Staged(batch, ts, key, commit, delays))
            commit.when_done(lambda _: self._settle(topic))
        return Appended(topic, first_seq, count, created, False, commit, journal_ns, next_number)

    def read(self, name: str, from_seq: int, options: ReadOptions) -> tuple[Topic, ReadBatch]:
        topic = self.topic(name, touch=True)
        if options.own_nodes and not topic.config.dedupe_node:
            options = options._replace(own_nodes=frozenset())
        return topic, topic.log.read(from_seq, options)

    def cursor_at(self, name: str, ts: int) -> int:
        """Where to begin for records of `ts` or later."""
        return self.topic(name).log.cursor_at(ts)

    def delete_records(self, name: str, before_seq: int | None, match: TagMatch | None) -> DeletedRecords:
        """Removes records for good, by seq and/or by tag."""
        if self._pending:
            self._await_control(name)
        topic = self.topic(name)
        self.forward_from(topic)
        # Point in time: nothing that is not published yet is touched.
        bound = topic.log.head_seq + 1 if before_seq is None else min(before_seq, topic.log.head_seq + 1)
        topic.log.prepare_delete(bound)
        result = DeletedRecords(topic)
        resident_from = topic.log.resident_from
        if resident_from is None or (topic.log.earliest_seq < min(bound, resident_from)):
            self._journal.admit(topic.topic_id)
            self.note_lag(topic)
            gated = topic.config.durability is Durability.FSYNC
            result.commit = self._journal.delete_records(
                topic.topic_id, self._clock.now_ms(), bound, match, gated=gated
            )

        def remove() -> None:
            result.count = self.apply_delete_records(topic, bound, match)

        self._remove(topic, result.commit, Removal(bound, match), remove)
        return result

    def delete_jobs(
        self, topic: Topic, seqs: list[int], *, node: str | None, move: str | None, journalled: bool
    ) -> Commit | None:
        """Removes single records for good: acked by `node`, or moved away. Done with the commit, if there is one."""
        self.forward_from(topic)
        commit = None
        if journalled:
            # What belongs to a move that was begun is taken all the same when the disk does not keep up.
            with suppress(*(() if move is None else (Throttled,))):
                self._journal.admit(topic.topic_id)
            self.note_lag(topic)
            gated = topic.config.durability is Durability.FSYNC
            commit = self._journal.delete_jobs(
                topic.topic_id, self._clock.now_ms(), seqs, node=node, move=move, gated=gated
            )
        removal = Removal(seqs=frozenset(seqs))
        self._remove(topic, commit, removal, lambda: self.apply_delete_jobs(topic, seqs, move))
        return commit

    def _remove(self, topic: Topic, commit: Commit | None, removal: Removal, remove: Callable[[], object]) -> None:
        """Removes records now, or when that is durable."""

        def apply(commit: Commit | None) -> None:
            if (commit is None or commit.error is None) and not topic.deleted:
                remove()
            if commit is not None:
                topic.held -= 1
                topic.removals.remove(removal)
            if topic.inbound:
                self._resume_forwarding(topic)

        if commit is None:
            apply(None)
        else:
            # What is copied into it meanwhile would be behind the delete in the log, and before it here. Of what it
            # takes, the log says already that routers that lag have not copied it.
            topic.held += 1
            topic.removals.append(removal)
            commit.when_done(apply)

    def expire_all(self) -> None:
        """Gives back what TTLs have taken, also in topics nobody reads, and has it noted."""
        now_ms = self._clock.now_ms()
        for topic in self._with_ttl:
            try:
                self._current(topic, now_ms)
            except TopicsError:
                continue  # a damaged segment: whoever reads the topic is told, the other topics go on
            if topic.noted_ttl_seq != topic.log.ttl_lost_seq:
                topic.noted_ttl_seq = topic.log.ttl_lost_seq
                if topic.config.durability is not Durability.EPHEMERAL:
                    self._journal.watermark(topic.topic_id, now_ms, topic.noted_ttl_seq)

    # Named cursors

    def put_cursor(self, name: str, cursor: str, seq: int) -> tuple[Topic, Commit | None]:
        """Remembers how far somebody has read."""
        topic = self._topic_for_cursor(name, cursor)
        if cursor not in topic.cursors and len(topic.cursors) >= limits.CURSORS_PER_TOPIC_MAX:
            raise Throttled(
                f'topic "{name}" has {limits.CURSORS_PER_TOPIC_MAX} named cursors, as many as it may',
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_cursors",
                max=limits.CURSORS_PER_TOPIC_MAX,
            )
        return topic, self._set_cursor(topic, cursor, seq)

    def delete_cursor(self, name: str, cursor: str) -> tuple[bool, Commit | None]:
        topic = self._topic_for_cursor(name, cursor)
        if cursor not in topic.cursors:
            return False, None
        return True, self._set_cursor(topic, cursor, None)

    def _topic_for_cursor(self, name: str, cursor: str) -> Topic:
        check_topic_name(cursor, "cursor")
        if self._pending:
            self._await_control(name)
        return self.topic(name, wait=False)

    def _set_cursor(self, topic: Topic, cursor: str, seq: int | None) -> Commit | None:
        now_ms = self._clock.now_ms()
        self._journal.admit(topic.topic_id)
        commit = self._journal.set_cursor(topic.topic_id, now_ms, cursor, seq)
        self._when_durable(topic.name, commit, lambda: self.apply_cursor(topic, cursor, seq, now_ms))
        return commit

    # Deciding

    def fitting_records(self, topic: Topic, records: list[NewRecord], bounds: WriteLimits) -> list[int]:
        """The positions of those that one write can take now. Raises what refuses the write when there are none."""
        self._current(topic, self._clock.now_ms())
        batch = admit(records, None, topic.assigned_seq + 1, 0, bounds)
        total_max = self._limits.total_bytes_max
        free = total_max - self.bytes_live - topic.staged_bytes if total_max else limits.U64_MAX
        fitting = those_that_fit(topic, batch.sizes, free)
        if not fitting:
            self._check_room(topic, batch)
        return fitting

    def _check_room(self, topic: Topic, batch: Batch) -> None:
        config = topic.config
        if config.cap_bytes or config.cap_records:
            try:
                check_caps(topic, batch)
            except TopicFull:
                if topic.staged:
                    raise Busy(topic.staged[-1].commit) from None
                raise
        total_max = self._limits.total_bytes_max
        if total_max and self.bytes_live + topic.staged_bytes + batch.total_bytes > total_max:
            if topic.staged:
                raise Busy(topic.staged[-1].commit)
            raise Throttled(
                f"this server may hold {total_max} bytes of records and holds {self.bytes_live}; "
                f"this write brings {batch.total_bytes}",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_total_bytes",
                max=total_max,
            )

    # Journalling

    def _hand_over(
        self,
        topic: Topic,
        batch: Batch,
        ts: int,
        key: str | None,
        now_ms: int,
        delays: list[Delayed],
        *,
        created: bool,
        gated: bool,
    ) -> Commit | None:
        """Gives a write to the journal; returns the commit to wait for, if it or its class has to."""
        durability = topic.config.durability
        gated = gated or durability is Durability.FSYNC or bool(topic.staged)
        if topic.inbound and durability is Durability.DISK:
            # Lost unseen: a copy behind it, made again, would take its seq.
            gated = True
        # A durable write makes all it comes after durable, also copies, whose originals may be in another shard: were
        # one lost before it, a filter behind this topic could not tell which seqs the copies after it had.
        sources = upstream(topic)[1:] if gated and topic.inbound else []
        for each in (topic, *sources):
            self._journal.admit(each.topic_id)
        created_commit = None
        if created:
            # A `disk` topic has no seqs reserved yet, so its first write waits for that.
            created_commit = self._create(topic, now_ms, gated=gated or durability is Durability.DISK)
        if durability is Durability.EPHEMERAL and not topic.staged:
            return created_commit
        last_seq = topic.assigned_seq + len(batch.fragments)
        if durability is Durability.DISK:
            ceiling = topic.next_ceiling(last_seq, now_ms)
            if ceiling is not None:
                self._note_ceiling(topic, ceiling, self._journal.reserve(topic.topic_id, now_ms, ceiling))
            gated = gated or (last_seq > topic.ceiling)
        commit = self._journal.append(
            topic.topic_id,
            topic.assigned_seq + 1,
            ts,
            batch.fragments,
            batch.meta_at,
            batch.nodes,
            batch.tags,
            key,
            gated=gated or topic.strong_readers > 0,
            delays=delays,
        )
        if commit is not None and topic.strong_readers:
            if topic.inbound:
                self._note_when_durable(topic, last_seq)
            else:
                commit.when_done(lambda done: self._note_durable(topic, last_seq, done))
        if not gated:
            return None  # it is not for the writer to wait for
        if sources:
            return all_of([commit, *(self._journal.barrier_of(source.topic_id) for source in sources)])
        return commit

    def add_strong_reader(self, topic: Topic) -> None:
        """From now on `durable_seq` follows what is durable; until the first sync it is not known."""
        topic.strong_readers += 1
        if topic.strong_readers == 1:
            topic.durable_seq = 0
            self._note_when_durable(topic, topic.assigned_seq)  # staged writes are before the barrier, too

    def durable_seq(self, topic: Topic) -> int:
        """The last seq a strong reader may see. What `fsync` publishes is durable, but for copies, which are as
        durable as their originals; `ephemeral` never is."""
        durability = topic.config.durability
        if durability is Durability.EPHEMERAL or (durability is Durability.FSYNC and not topic.inbound):
            return topic.log.head_seq
        return topic.durable_seq


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
    mark = topic.keys.producers.find(producer.name)
    if mark is None or mark.last_number < producer.sequence:
        return key, records, None
    if mark.last_number > last_number:
        return key, [], mark.write._replace(record_count=0)
    known = mark.last_number - producer.sequence + 1
    if mark.last_hash and hash_of(records[known - 1]) != mark.last_hash:
        raise ProducerDiffers(topic.name, producer.name, mark.last_number)
    return key, records[known:], mark.write if known == len(records) else None


def _repeated(topic: Topic, earlier: RememberedWrite, producer: Producer | None) -> Appended:
    """The answer to a write that was made before."""
    mark = None if producer is None else topic.keys.producers.find(producer.name)
    waiting = topic.staged[-1].commit if topic.staged and earlier.first_seq > topic.log.head_seq else None
    next_number = 0 if mark is None else mark.last_number + 1
    return Appended(topic, earlier.first_seq, earlier.record_count, False, True, waiting, next_number=next_number)


def _delays(topic: Topic, records: list[NewRecord], first_seq: int, now_ms: int) -> list[Delayed]:
    """Which of these jobs are not to be claimed before when."""
    if topic.queue is None:
        raise InvalidRequest.in_field("delay_ms", f'only jobs can be delayed; topic "{topic.name}" is not a queue')
    seqs_by_delay: dict[int, list[int]] = {}
    for seq, record in enumerate(records, first_seq):
        if record.delay_ms:
            seqs_by_delay.setdefault(record.delay_ms, []).append(seq)
    return [Delayed(seqs, now_ms + delay_ms) for delay_ms, seqs in seqs_by_delay.items()]
