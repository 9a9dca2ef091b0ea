"""The engine: every operation on topics, as plain synchronous calls. Validate, decide, apply, wake.

Deterministic: the clock is handed in, and there are no sockets, files, threads or tasks. All calls
come from one thread, so a call sees the effects of all calls before it and of none after it.
"""

from typing import NamedTuple

from topics import limits
from topics.clock import Clock
from topics.engine.admission import WriteLimits, admit
from topics.engine.block import Batch
from topics.engine.registry import Registry
from topics.engine.topic import Topic
from topics.engine.topic_log import ReadBatch, ReadOptions
from topics.errors import (
    InvalidRequest,
    RecordTooLarge,
    Throttled,
    TopicFull,
    TopicNotEmpty,
    TopicNotFound,
)
from topics.model.config import DEFAULT_CONFIG, Discard, TopicConfigPatch, merge
from topics.model.names import check_topic_name
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch


class EngineLimits(NamedTuple):
    """Instance-wide caps; 0 is no cap."""

    write: WriteLimits = WriteLimits()
    topics_max: int = limits.TOPICS_MAX
    total_bytes_max: int = limits.TOTAL_BYTES_MAX


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


class Page(NamedTuple):
    topics: list[Topic]
    last_name: str
    more: bool


class Engine:
    def __init__(self, clock: Clock, bounds: EngineLimits = EngineLimits()) -> None:  # noqa: B008
        self._clock = clock
        self._limits = bounds
        self._epoch = 0
        self._with_ttl: set[Topic] = set()
        self.topics = Registry()
        self.bytes_live = 0
        self.records_live = 0

    # Topics

    def put_topic(self, name: str, patch: TopicConfigPatch) -> tuple[Topic, bool]:
        """Creates the topic or merges `patch` into its configuration; says whether it was created."""
        check_topic_name(name)
        topic = self.topics.get(name)
        if topic is None:
            return self._add_topic(self._new_topic(name, patch)), True
        config = merge(name, topic.config, patch, exists=True)
        if config != topic.config:
            now_ms = self._clock.now_ms()
            self._current(topic, now_ms)  # what the old TTL took stays taken
            topic.config = config
            self._note_ttl(topic)
            self._trim(topic, now_ms)
        return topic, False

    def find_topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic(self, name: str, *, touch: bool = False) -> Topic:
        """The topic with everything expired that has to be, for reading its state."""
        topic = self.topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFound(name)
        now_ms = self._clock.now_ms()
        if touch:
            topic.last_read_ts = now_ms
        return self._current(topic, now_ms)

    def page_of_topics(self, after: str, prefixes: tuple[str, ...], page_size: int, *, touch: bool = False) -> Page:
        """Topics named after `after` that begin with one of `prefixes`, in the order of their names."""
        page: list[Topic] = []
        for name in self.topics.names_after(after, prefixes):
            if len(page) == page_size:
                return Page(page, page[-1].name, more=True)
            page.append(self.topic(name, touch=touch))
        return Page(page, after, more=False)

    def delete_topic(self, name: str, *, if_empty: bool = False) -> bool:
        """Removes the topic with all it holds; False when there was none."""
        check_topic_name(name)
        topic = self.topics.get(name)
        if topic is None:
            return False
        self._current(topic, self._clock.now_ms())
        if if_empty and topic.log.count:
            raise TopicNotEmpty(
                f'topic "{name}" holds {topic.log.count} records and if_empty was set',
                topic=name,
                count=topic.log.count,
            )
        self.topics.remove(name)
        self._with_ttl.discard(topic)
        self.bytes_live -= topic.log.bytes
        self.records_live -= topic.log.count
        topic.deleted = True
        topic.wake_all()
        return True

    # Records

    def append(self, name: str, write: Write) -> Appended:
        """Appends all records of the write with contiguous seqs, or none."""
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
                return Appended(topic, earlier.first_seq, earlier.record_count, created=False, deduped=True)
        log = topic.log
        first_seq = log.head_seq + 1
        ts = log.next_ts(now_ms)
        batch = admit(write.records, write.node, first_seq, ts, self._limits.write)
        self._check_room(self._current(topic, now_ms), batch)
        if created:
            self._add_topic(topic)
        self._publish(topic, batch, ts)
        if key is not None:
            topic.keys.remember(key, first_seq, len(batch.fragments), now_ms)
        return Appended(topic, first_seq, len(batch.fragments), created, deduped=False)

    def read(self, name: str, from_seq: int, options: ReadOptions) -> tuple[Topic, ReadBatch]:
        topic = self.topic(name, touch=True)
        if options.own_nodes and not topic.config.dedupe_node:
            options = options._replace(own_nodes=frozenset())
        return topic, topic.log.read(from_seq, options)

    def delete_records(self, name: str, before_seq: int | None, match: TagMatch | None) -> tuple[Topic, int]:
        """Removes records for good, by seq and/or by tag; says how many were live until now."""
        topic = self.topic(name)
        log = topic.log
        bytes_before, count_before = log.bytes, log.count
        bound = log.head_seq + 1 if before_seq is None else min(before_seq, log.head_seq + 1)
        deleted = log.delete_before(bound) if match is None else log.delete_matching(match, bound)
        self._account(topic, bytes_before, count_before)
        return topic, deleted

    def expire_all(self) -> None:
        """Gives back what TTLs have taken, also in topics nobody reads."""
        now_ms = self._clock.now_ms()
        for topic in self._with_ttl:
            self._current(topic, now_ms)

    # The parts

    def _new_topic(self, name: str, patch: TopicConfigPatch) -> Topic:
        return Topic(name, self._epoch + 1, merge(name, DEFAULT_CONFIG, patch, exists=False))

    def _add_topic(self, topic: Topic) -> Topic:
        if self._limits.topics_max and len(self.topics) >= self._limits.topics_max:
            raise Throttled(
                f"this server holds {self._limits.topics_max} topics, as many as it may",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_topics",
                max=self._limits.topics_max,
            )
        self._epoch = topic.epoch
        self.topics.add(topic)
        self._note_ttl(topic)
        return topic

    def _note_ttl(self, topic: Topic) -> None:
        if topic.config.ttl_ms:
            self._with_ttl.add(topic)
        else:
            self._with_ttl.discard(topic)

    def _current(self, topic: Topic, now_ms: int) -> Topic:
        """The topic after its TTL has been applied at `now_ms`."""
        if topic.config.ttl_ms:
            log = topic.log
            bytes_before, count_before = log.bytes, log.count
            topic.expire(now_ms)
            self._account(topic, bytes_before, count_before)
        return topic

    def _trim(self, topic: Topic, now_ms: int) -> None:
        """Applies a changed TTL or cap to what is there."""
        self._current(topic, now_ms)
        config = topic.config
        if config.discard is Discard.OLD:
            log = topic.log
            bytes_before, count_before = log.bytes, log.count
            log.evict(config.cap_records, config.cap_bytes)
            self._account(topic, bytes_before, count_before)

    def _check_room(self, topic: Topic, batch: Batch) -> None:
        config = topic.config
        if config.cap_bytes or config.cap_records:
            _check_caps(topic, batch)
        total_max = self._limits.total_bytes_max
        if total_max and self.bytes_live + batch.total_bytes > total_max:
            raise Throttled(
                f"this server may hold {total_max} bytes of records and holds {self.bytes_live}; "
                f"this write brings {batch.total_bytes}",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_total_bytes",
                max=total_max,
            )

    def _publish(self, topic: Topic, batch: Batch, ts: int) -> None:
        log = topic.log
        bytes_before, count_before = log.bytes, log.count
        log.append(batch, ts)
        config = topic.config
        if config.cap_records or config.cap_bytes:
            log.evict(config.cap_records, config.cap_bytes)
        self._account(topic, bytes_before, count_before)
        topic.last_write_ts = ts
        topic.wake_all()

    def _account(self, topic: Topic, bytes_before: int, count_before: int) -> None:
        self.bytes_live += topic.log.bytes - bytes_before
        self.records_live += topic.log.count - count_before


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
    if reject and (
        (config.cap_records and log.count + count > config.cap_records)
        or (config.cap_bytes and log.bytes + batch.total_bytes > config.cap_bytes)
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
