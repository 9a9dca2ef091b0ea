"""The engine: every operation on topics, as plain synchronous calls. Validate, decide, journal, apply, wake.

Deterministic: the clock is handed in, and there are no sockets, files, threads or tasks. All calls come from
one thread, so a call sees the effects of all calls before it and of none after it.

An operation that has to be durable before anybody may see it returns a `commit`: its result holds once that is
done. A call whose answer would reveal something not yet durable raises `Busy`.
"""

from array import array
from collections.abc import Callable
from typing import NamedTuple

from topics import limits
from topics.clock import Clock
from topics.engine.admission import WriteLimits, admit
from topics.engine.block import AnyBlock, Batch
from topics.engine.journal import Busy, Commit, Journal, NoJournal
from topics.engine.registry import Registry
from topics.engine.topic import NamedCursor, Staged, Topic
from topics.engine.topic_log import ReadBatch, TopicLog
from topics.errors import (
    InvalidRequest,
    RecordTooLarge,
    Throttled,
    TopicFull,
    TopicNotEmpty,
    TopicNotFound,
)
from topics.model.config import DEFAULT_CONFIG, Discard, Durability, TopicConfig, TopicConfigPatch, merge
from topics.model.gap import GapReason
from topics.model.names import check_topic_name
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch


class EngineLimits(NamedTuple):
    """Instance-wide caps; 0 is no cap."""

    write: WriteLimits = WriteLimits()
    topics_max: int = limits.TOPICS_MAX
    total_bytes_max: int = limits.TOTAL_BYTES_MAX
    block_events_max: int = limits.SEGMENT_EVENTS_MAX
    block_bytes_max: int = limits.SEGMENT_BYTES_MAX


class Write(NamedTuple):
    """One atomic append, as asked for."""

    records: list[NewRecord]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicConfigPatch | None = None


class Appended(NamedTuple):
    topic: Topic
    first_seq: int
    record_count: int
    created: bool
    deduped: bool
    commit: Commit | None = None
    journal_ns: int = 0


class PutTopic(NamedTuple):
    topic: Topic
    created: bool
    commit: Commit | None


class DeletedTopic(NamedTuple):
    deleted: bool
    commit: Commit | None


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


class Engine:
    def __init__(
        self,
        clock: Clock,
        bounds: EngineLimits = EngineLimits(),  # noqa: B008 - immutable
        journal: Journal = NoJournal(),  # noqa: B008 - stateless
    ) -> None:
        self._clock = clock
        self._limits = bounds
        self._journal = journal
        self._with_ttl: dict[Topic, None] = {}  # a set in the order they came: everything here is deterministic
        # Names a control operation is under way for, and those of them that do not exist yet.
        self._pending: dict[str, Commit] = {}
        self._pending_new = 0
        # What the next checkpoint has to write.
        self._changed: set[Topic] = set()
        self._removed: list[int] = []
        self.topics = Registry()
        self.next_topic_id = 1
        self.bytes_live = 0
        self.records_live = 0
        self.on_change: Callable[[Topic], None] = _nobody  # told of every append, and of a topic's end
        self.blocks_filled = 0  # ever: full blocks wait to be sealed

    # Topics

    def put_topic(self, name: str, patch: TopicConfigPatch) -> PutTopic:
        """Creates the topic or merges `patch` into its configuration."""
        check_topic_name(name)
        self._await_control(name)
        topic = self.topics.get(name)
        now_ms = self._clock.now_ms()
        if topic is None:
            topic = self._new_topic(name, patch)
            self._journal.admit(topic.topic_id)
            commit = self._create(topic, now_ms, gated=True)
            self._when_durable(name, commit, lambda: self.apply_add_topic(topic), new=True)
            return PutTopic(topic, created=True, commit=commit)
        config = merge(name, topic.config, patch, exists=True)
        if config == topic.config:
            return PutTopic(topic, created=False, commit=None)
        self._journal.admit(topic.topic_id)
        commit = self._journal.update_config(topic.topic_id, now_ms, config)
        self._when_durable(name, commit, lambda: self.apply_config(topic, config, self._clock.now_ms()))
        return PutTopic(topic, created=False, commit=commit)

    def find_topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic(self, name: str, *, touch: bool = False, wait: bool = True) -> Topic:
        """The topic with everything expired that has to be, for reading its state. `wait`: exactly."""
        topic = self.topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFound(name)
        now_ms = self._clock.now_ms()
        if touch:
            topic.last_read_ts = now_ms
        return self._current(topic, now_ms, wait=wait)

    def refresh(self, topic: Topic) -> None:
        """A delivery of this topic: counts as reading it, and takes what its TTL says is gone."""
        topic.last_read_ts = now_ms = self._clock.now_ms()
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
        """Removes the topic with all it holds."""
        check_topic_name(name)
        self._await_control(name)
        topic = self.topics.get(name)
        if topic is None:
            return DeletedTopic(deleted=False, commit=None)
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
        self._journal.admit(topic.topic_id)
        commit = self._journal.delete_topic(topic.topic_id, now_ms)
        self._when_durable(name, commit, lambda: self.apply_delete_topic(topic))
        return DeletedTopic(deleted=True, commit=commit)

    # Records

    def append(self, name: str, write: Write) -> Appended:
        """Appends all records of the write with contiguous seqs, or none."""
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
        key = write.idempotency_key
        if key is not None:
            _check_key(key)
            earlier = topic.keys.find(key, now_ms, topic.config.idempotency_window_ms)
            if earlier is not None:
                waiting = topic.staged[-1].commit if earlier.first_seq > topic.log.head_seq else None
                return Appended(topic, earlier.first_seq, earlier.record_count, False, True, waiting)
        first_seq = topic.assigned_seq + 1
        ts = max(now_ms, topic.assigned_ts)
        batch = admit(write.records, write.node, first_seq, ts, self._limits.write)
        self._check_room(self._current(topic, now_ms), batch)
        started_ns = self._clock.monotonic_ns()
        commit = self._hand_over(topic, batch, ts, key, now_ms, created=created)
        journal_ns = self._clock.monotonic_ns() - started_ns
        count = len(batch.fragments)
        topic.assigned_seq += count
        topic.assigned_ts = ts
        if key is not None:
            topic.keys.remember(key, first_seq, count, now_ms)
        if commit is None:
            if created:
                self.apply_add_topic(topic)
            self.apply_append(topic, batch, array("q", (ts,)) * count)
        else:
            if created:
                self._when_durable(name, commit, lambda: self.apply_add_topic(topic), new=True)
            topic.stage(Staged(batch, ts, key, commit))
            commit.when_done(lambda _: self._settle(topic))
        return Appended(topic, first_seq, count, created, False, commit, journal_ns)

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
        # Point in time: nothing that is not published yet is touched.
        bound = topic.log.head_seq + 1 if before_seq is None else min(before_seq, topic.log.head_seq + 1)
        topic.log.prepare_delete(bound)
        result = DeletedRecords(topic)
        resident_from = topic.log.resident_from
        if resident_from is None or (topic.log.earliest_seq < min(bound, resident_from)):
            self._journal.admit(topic.topic_id)
            gated = topic.config.durability is Durability.FSYNC
            result.commit = self._journal.delete_records(
                topic.topic_id, self._clock.now_ms(), bound, match, gated=gated
            )

        def apply(commit: Commit | None) -> None:
            if commit is None or commit.error is None:
                result.count = self.apply_delete_records(topic, bound, match)

        if result.commit is None:
            apply(None)
        else:
            result.commit.when_done(apply)
        return result

    def expire_all(self) -> None:
        """Gives back what TTLs have taken, also in topics nobody reads, and has it noted."""
        now_ms = self._clock.now_ms()
        for topic in self._with_ttl:
            self._current(topic, now_ms)
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

    def _new_topic(self, name: str, patch: TopicConfigPatch) -> Topic:
        if self._limits.topics_max and len(self.topics) + self._pending_new >= self._limits.topics_max:
            raise Throttled(
                f"this server holds {self._limits.topics_max} topics, as many as it may",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_topics",
                max=self._limits.topics_max,
            )
        config = merge(name, DEFAULT_CONFIG, patch, exists=False)
        return Topic(name, self.next_topic_id, config, self.new_log())

    def new_log(self) -> TopicLog:
        return TopicLog(self._limits.block_events_max, self._limits.block_bytes_max)

    def _check_room(self, topic: Topic, batch: Batch) -> None:
        config = topic.config
        if config.cap_bytes or config.cap_records:
            try:
                _check_caps(topic, batch)
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

    def _await_control(self, name: str) -> None:
        commit = self._pending.get(name)
        if commit is not None:
            raise Busy(commit)

    def _create(self, topic: Topic, now_ms: int, *, gated: bool) -> Commit | None:
        ceiling = 0
        if topic.config.durability is Durability.DISK:
            ceiling = topic.next_ceiling(0, now_ms) or 0
        commit = self._journal.create_topic(topic.topic_id, now_ms, topic.name, topic.config, ceiling, gated=gated)
        self.next_topic_id = topic.topic_id + 1
        self._note_ceiling(topic, ceiling, commit)
        return commit

    def _hand_over(
        self, topic: Topic, batch: Batch, ts: int, key: str | None, now_ms: int, *, created: bool
    ) -> Commit | None:
        """Gives a write to the journal; returns the commit to wait for, if its class has to."""
        durability = topic.config.durability
        gated = durability is Durability.FSYNC or bool(topic.staged)
        if created or durability is not Durability.EPHEMERAL or topic.staged:
            self._journal.admit(topic.topic_id)
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
        )
        if commit is not None and not gated:
            # Not for the writer to wait for, only for the strong readers.
            commit.when_done(lambda done: self._note_durable(topic, last_seq, done))
            return None
        return commit

    def add_strong_reader(self, topic: Topic) -> None:
        """From now on `durable_seq` follows what is durable; until the first sync it is not known."""
        topic.strong_readers += 1
        if topic.strong_readers == 1:
            topic.durable_seq = 0
            head_seq = topic.log.head_seq
            commit = self._journal.barrier_of(topic.topic_id)
            if commit is None:
                topic.durable_seq = limits.U64_MAX
            else:
                commit.when_done(lambda done: self._note_durable(topic, head_seq, done))

    def _note_durable(self, topic: Topic, seq: int, commit: Commit) -> None:
        if commit.error is None and seq > topic.durable_seq:
            topic.durable_seq = seq
            self.on_change(topic)

    def durable_seq(self, topic: Topic) -> int:
        """The last seq a strong reader may see. What `fsync` publishes is durable; `ephemeral` never is."""
        if topic.config.durability in (Durability.FSYNC, Durability.EPHEMERAL):
            return topic.log.head_seq
        return topic.durable_seq

    def _note_ceiling(self, topic: Topic, ceiling: int, commit: Commit | None) -> None:
        topic.requested_ceiling = max(topic.requested_ceiling, ceiling)

        def reserved(done: Commit | None) -> None:
            if done is None or done.error is None:
                topic.ceiling = max(topic.ceiling, ceiling)
                self._changed.add(topic)

        if commit is None:
            reserved(None)
        else:
            commit.when_done(reserved)

    def _when_durable(
        self, name: str, commit: Commit | None, apply: Callable[[], object], *, new: bool = False
    ) -> None:
        """Applies a control operation once it is durable; until then the name is closed for others."""
        if commit is None:
            apply()
            return
        self._pending[name] = commit
        self._pending_new += new

        def done(commit: Commit) -> None:
            del self._pending[name]
            self._pending_new -= new
            if commit.error is None:
                apply()

        commit.when_done(done)

    def _settle(self, topic: Topic) -> None:
        """Publishes, in order, the staged writes that are durable; drops those that failed."""
        while topic.staged and topic.staged[0].commit.done:
            staged = topic.unstage()
            if staged.commit.error is None:
                self.apply_append(topic, staged.batch, array("q", (staged.ts,)) * len(staged.batch.fragments))
            elif staged.key is not None:
                topic.keys.forget(staged.key)
        if not topic.staged:
            # Seqs of dropped writes were never told to anybody.
            topic.assigned_seq, topic.assigned_ts = topic.log.head_seq, topic.log.last_ts

    # Applying: what has been decided, now or in an earlier life of this engine

    def apply_add_topic(self, topic: Topic) -> None:
        self.topics.add(topic)
        topic.log.keep_resident(topic.config.durability is Durability.EPHEMERAL)
        self._note_ttl(topic)
        self.bytes_live += topic.log.bytes
        self.records_live += topic.log.count
        self._changed.add(topic)

    def apply_delete_topic(self, topic: Topic) -> None:
        self.topics.remove(topic.name)
        self._with_ttl.pop(topic, None)
        self._changed.discard(topic)
        self._removed.append(topic.topic_id)
        self.bytes_live -= topic.log.bytes
        self.records_live -= topic.log.count
        topic.deleted = True
        self.on_change(topic)

    def apply_config(self, topic: Topic, config: TopicConfig, now_ms: int) -> None:
        self._current(topic, now_ms)  # what the old TTL took stays taken
        topic.config = config
        topic.log.keep_resident(config.durability is Durability.EPHEMERAL)
        self._note_ttl(topic)
        self._current(topic, now_ms)
        if config.discard is Discard.OLD:
            self._evict(topic)
        self._changed.add(topic)

    def apply_cursor(self, topic: Topic, cursor: str, seq: int | None, ts: int) -> None:
        if seq is None:
            topic.cursors.pop(cursor, None)
        else:
            topic.cursors[cursor] = NamedCursor(seq, ts)
        self._changed.add(topic)

    def apply_append(self, topic: Topic, batch: Batch, timestamps: "array[int]") -> None:
        """Publishes a batch: from here on readers see it."""
        blocks = topic.log.blocks
        block_count = len(blocks)
        topic.log.append(batch, timestamps)
        if len(blocks) > block_count > 0:
            self.blocks_filled += 1
        self.bytes_live += batch.total_bytes
        self.records_live += len(batch.fragments)
        if topic.config.discard is Discard.OLD:
            self._evict(topic)
        topic.last_write_ts = timestamps[-1]
        self._changed.add(topic)
        self.on_change(topic)

    def apply_delete_records(self, topic: Topic, before_seq: int, match: TagMatch | None) -> int:
        """Returns how many records it took."""
        log = topic.log
        bytes_before, count_before = log.bytes, log.count
        deleted = log.delete_before(before_seq) if match is None else log.delete_matching(match, before_seq)
        self._account(topic, bytes_before, count_before)
        return deleted

    def apply_expired(self, topic: Topic, ttl_lost_seq: int) -> None:
        bytes_before, count_before, first_seq = topic.log.bytes, topic.log.count, topic.log.earliest_seq
        topic.log.expire_through(ttl_lost_seq)
        topic.losses.note(first_seq, topic.log.ttl_lost_seq, GapReason.TTL, topic.log.last_ts)
        self._account(topic, bytes_before, count_before)

    def recount(self, topic: Topic, count: Callable[[AnyBlock, int], None]) -> None:
        bytes_before, count_before = topic.log.bytes, topic.log.count
        topic.log.recount(count)
        self._account(topic, bytes_before, count_before)

    def reset_totals(self) -> None:
        """Before all topics are added anew."""
        self.bytes_live = self.records_live = 0

    def take_changes(self) -> tuple[list[Topic], list[int]]:
        """The topics changed since the last call, and the ids of those removed."""
        changed = sorted((topic for topic in self._changed if not topic.deleted), key=lambda topic: topic.topic_id)
        removed = self._removed
        self._changed, self._removed = set(), []
        return changed, removed

    def return_changes(self, changed: list[Topic], removed: list[int]) -> None:
        """They could not be made durable: they are still changes."""
        self._changed.update(topic for topic in changed if not topic.deleted)
        self._removed = removed + self._removed

    def _note_ttl(self, topic: Topic) -> None:
        if topic.config.ttl_ms:
            self._with_ttl[topic] = None
        else:
            self._with_ttl.pop(topic, None)

    def _current(self, topic: Topic, now_ms: int, *, wait: bool = False) -> Topic:
        """The topic after its TTL has been applied at `now_ms`; see `TopicLog.expire` for `wait`."""
        if topic.config.ttl_ms:
            log = topic.log
            bytes_before, count_before, first_seq = log.bytes, log.count, log.earliest_seq
            topic.expire(now_ms, wait=wait)
            if count_before != log.count:
                topic.losses.note(first_seq, log.ttl_lost_seq, GapReason.TTL, now_ms)
                self._account(topic, bytes_before, count_before)
        return topic

    def _evict(self, topic: Topic) -> None:
        config, log = topic.config, topic.log
        if config.cap_records or config.cap_bytes:
            bytes_before, count_before, first_seq = log.bytes, log.count, log.earliest_seq
            log.evict(config.cap_records, config.cap_bytes)
            if count_before != log.count:
                topic.losses.note(first_seq, log.cap_lost_seq, GapReason.CAP, log.last_ts)
                self._account(topic, bytes_before, count_before)

    def _account(self, topic: Topic, bytes_before: int, count_before: int) -> None:
        self.bytes_live += topic.log.bytes - bytes_before
        self.records_live += topic.log.count - count_before
        self._changed.add(topic)


def _nobody(topic: Topic) -> None:
    """Nobody watches."""


def _check_key(key: str) -> None:
    if not 1 <= len(key) <= limits.IDEMPOTENCY_KEY_CHARS_MAX:
        raise InvalidRequest.in_field(
            "idempotency_key",
            f"is {len(key)} characters long; use 1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX}",
        )


def _check_caps(topic: Topic, batch: Batch) -> None:
    """Refuses what can never fit, and with `discard: reject` what does not fit now."""
    config, log = topic.config, topic.log
    count = len(batch.fragments)
    largest = max(batch.sizes) if config.cap_bytes else 0
    reject = config.discard is Discard.REJECT
    if largest > config.cap_bytes or (
        reject
        and (
            (config.cap_records and count > config.cap_records)
            or (config.cap_bytes and batch.total_bytes > config.cap_bytes)
        )
    ):
        raise RecordTooLarge(
            f"this write ({count} records, {batch.total_bytes} bytes) can never fit into topic "
            f'"{topic.name}" (cap_records {config.cap_records}, cap_bytes {config.cap_bytes})',
            topic=topic.name,
            cap_records=config.cap_records,
            cap_bytes=config.cap_bytes,
        )
    held_count, held_bytes = log.count + topic.staged_count, log.bytes + topic.staged_bytes
    if reject and (
        (config.cap_records and held_count + count > config.cap_records)
        or (config.cap_bytes and held_bytes + batch.total_bytes > config.cap_bytes)
    ):
        raise TopicFull(
            f'topic "{topic.name}" is full ({log.count} records, {log.bytes} bytes) and discards nothing; '
            "retry after consumers have drained it",
            topic=topic.name,
            cap_records=config.cap_records,
            cap_bytes=config.cap_bytes,
            head_seq=log.head_seq,
            earliest_seq=log.earliest_seq,
        )
