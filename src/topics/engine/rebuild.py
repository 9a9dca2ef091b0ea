"""Rebuilds the engine's state from what storage recovered: images of topics, then operations in order.

Operations may repeat what an image already has. Each is written so that doing it again changes nothing.
"""

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence

from topics.engine.block import AnyBlock, Batch, Block
from topics.engine.engine import Engine
from topics.engine.idempotency import RememberedWrite
from topics.engine.topic import NamedCursor, Topic
from topics.engine.topic_log import TopicLog
from topics.model.config import Durability, TopicConfig
from topics.model.gap import GapReason
from topics.model.image import SegmentImage, TopicImage
from topics.model.operation import CursorSet, TopicCreated
from topics.model.payload import split_payload
from topics.model.record import RECORD_OVERHEAD_BYTES, fragment_of
from topics.model.tag_match import TagMatch

_HAS_TAG = 1
_HAS_NODE = 2

OpenSegment = Callable[[TopicImage, SegmentImage], AnyBlock]
"""Makes the block of a sealed segment."""

Recount = Callable[[AnyBlock, int], None]
"""Counts anew what is live in a sealed block from a position on: its image may be older than the delete bytes in its
file."""


class Rebuild:
    def __init__(self, engine: Engine, open_segment: OpenSegment, recount: Recount) -> None:
        self._engine = engine
        self._open_segment = open_segment
        self._recount = recount
        self._by_id: dict[int, Topic] = {}
        self._recounted: set[int] = set()
        self._removed: list[int] = []

    # From the snapshot

    def load_topic(
        self,
        image: TopicImage,
        tails: Sequence[
            tuple[SegmentImage, Sequence[tuple[int, int, bytes | None, bytes | None, bytes]], Sequence[bool]]
        ],
    ) -> None:
        log = self._engine.new_log()
        unsealed = {segment.first_seq: (records, deleted) for segment, records, deleted in tails}
        for segment in image.segments:
            if segment.first_seq in unsealed:
                records, deleted = unsealed[segment.first_seq]
                block: AnyBlock = _load_tail(segment, image.earliest_seq, records, deleted)
            else:
                block = self._open_segment(image, segment)
            log.add_block(block)
            log.count += block.live_count
            log.bytes += block.live_bytes
        log.head_seq = image.head_seq
        log.last_ts = image.last_ts
        log.earliest_seq = image.earliest_seq
        log.cap_lost_seq = image.cap_lost_seq
        log.ttl_lost_seq = image.ttl_lost_seq
        log.crash_lost_seq = image.crash_lost_seq
        log.lost_ranges = [(first, last) for first, last in image.lost_ranges]
        _lose_resident(log)
        log.keep_resident(image.config.durability is Durability.EPHEMERAL)
        topic = Topic(image.name, image.topic_id, image.config, log)
        topic.last_write_ts = image.last_write_ts
        topic.config_version = image.config_version
        topic.noted_ttl_seq = image.ttl_lost_seq
        topic.ceiling = topic.requested_ceiling = image.ceiling
        for cursor in image.cursors:
            topic.cursors[cursor.name] = NamedCursor(cursor.seq, cursor.updated_ts)
        for loss in image.losses:
            topic.losses.note(loss.gap_from, loss.gap_to, loss.reason, loss.ts)
        for key in image.keys:
            topic.keys.restore(key.key, RememberedWrite(key.first_seq, key.record_count, key.at_ms))
        self._by_id[topic.topic_id] = topic

    # From the WAL

    def topic_created(self, topic_id: int, ts: int, created: TopicCreated) -> None:
        if topic_id in self._by_id:
            return
        topic = Topic(created.name, topic_id, created.config, self._engine.new_log())
        topic.log.keep_resident(created.config.durability is Durability.EPHEMERAL)
        topic.ceiling = topic.requested_ceiling = created.ceiling
        self._by_id[topic_id] = topic

    def config_updated(self, topic_id: int, ts: int, config: TopicConfig, version: int) -> None:
        topic = self._by_id.get(topic_id)
        # One the image has already is over: applied again, its cap would take records written after it.
        if topic is not None and version > topic.config_version:
            self._engine.apply_config(topic, config, version, ts)

    def cursor_set(self, topic_id: int, ts: int, cursor: CursorSet) -> None:
        if topic := self._by_id.get(topic_id):
            self._engine.apply_cursor(topic, cursor.name, cursor.seq, ts)

    def topic_deleted(self, topic_id: int) -> None:
        if topic := self._by_id.pop(topic_id, None):
            topic.deleted = True
            self._removed.append(topic_id)

    def appended(self, topic_id: int, first_seq: int, records: Sequence[tuple[int, int, bytes, bytes, bytes]]) -> None:
        """Hot: once per record."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            return
        log = topic.log
        known = min(max(log.head_seq - first_seq + 1, 0), len(records))
        _restore_keys(topic, first_seq, records)
        records = records[known:]
        first_seq += known
        if not records:
            return
        if first_seq > log.head_seq + 1:
            # Resident-only records came before these, or a crash took them: their seqs are gone.
            log.lose(log.head_seq + 1, first_seq - 1)
        batch, timestamps = _batch(first_seq, records)
        self._engine.apply_append(topic, batch, timestamps)

    def records_deleted(self, topic_id: int, before_seq: int, match: TagMatch | None) -> None:
        topic = self._by_id.get(topic_id)
        if topic is None:
            return
        if topic_id not in self._recounted:
            self._recounted.add(topic_id)
            self._engine.recount(topic, self._recount)
        self._engine.apply_delete_records(topic, before_seq, match)

    def head_reserved(self, topic_id: int, ceiling: int) -> None:
        if topic := self._by_id.get(topic_id):
            topic.ceiling = topic.requested_ceiling = max(topic.ceiling, ceiling)

    def records_expired(self, topic_id: int, ttl_lost_seq: int) -> None:
        if topic := self._by_id.get(topic_id):
            self._engine.apply_expired(topic, ttl_lost_seq)

    # At the end

    @property
    def topics(self) -> Collection[Topic]:
        """The topics as replayed so far. Of two with the same name, the one of the higher id is the later one."""
        return self._by_id.values()

    def finish(self, next_topic_id: int, *, clean: bool, heads: Mapping[int, int] | None) -> None:
        """Everything was replayed: settle what a crash took, and be ready for new operations.

        Only now do topics get their names: shards are replayed one after the other, so until here a topic and
        its successor of the same name may both have been there.

        `heads`: the last seq given out for each topic, where that is known for certain; else the reserved
        ceilings say how far it may have been.
        """
        self._engine.reset_totals()
        self._drop_failed_topics()
        self._engine.return_changes([], self._removed)
        self._engine.next_topic_id = max(self._engine.next_topic_id, next_topic_id)
        for topic in self._by_id.values():
            log = topic.log
            if not clean and topic.config.durability is Durability.DISK:
                given_out = topic.ceiling if heads is None else heads.get(topic.topic_id, 0)
                if given_out > log.head_seq:
                    log.lose(log.head_seq + 1, given_out)
            for first_seq, last_seq in log.lost_ranges:
                topic.losses.note(first_seq, last_seq, GapReason.CRASH, log.last_ts)
            topic.assigned_seq = log.head_seq
            topic.assigned_ts = log.last_ts
            self._engine.apply_add_topic(topic)

    def _drop_failed_topics(self) -> None:
        """Of two topics with one name the older was refused: its disk failed while it was made, and the name was
        taken by the next one, on another shard."""
        by_name: dict[str, Topic] = {}
        for topic in sorted(self._by_id.values(), key=lambda topic: topic.topic_id):
            older = by_name.get(topic.name)
            if older is not None:
                self.topic_deleted(older.topic_id)
            by_name[topic.name] = topic


def _lose_resident(log: TopicLog) -> None:
    """Records that were never written are lost with their process: they are the ones no segment has."""
    head_seq = log.head_seq
    log.head_seq = max(
        log.earliest_seq - 1,
        log.blocks[-1].last_seq if log.blocks else 0,
        log.lost_ranges[-1][1] if log.lost_ranges else 0,
    )
    if log.head_seq < head_seq:
        log.lose(log.head_seq + 1, head_seq)


def _load_tail(
    segment: SegmentImage,
    earliest_seq: int,
    records: Sequence[tuple[int, int, bytes | None, bytes | None, bytes]],
    deleted: Sequence[bool],
) -> Block:
    block = Block(segment.first_seq)
    flagged = [
        (_HAS_NODE * (node is not None) | _HAS_TAG * (tag is not None), ts, node or b"", tag or b"", payload)
        for _, ts, node, tag, payload in records
    ]
    if flagged:
        batch, timestamps = _batch(segment.first_seq, flagged)
        block.extend(batch, timestamps)
    for position, dead in enumerate(deleted):
        if dead or segment.first_seq + position < earliest_seq:
            block.kill(position, deleted=False)
    block.flushed_count = len(block)
    return block


def _batch(first_seq: int, records: Sequence[tuple[int, int, bytes, bytes, bytes]]) -> tuple[Batch, "array[int]"]:
    fragments: list[bytes] = []
    sizes: list[int] = []
    nodes: list[str | None] = []
    tags: list[str | None] = []
    meta_at: list[int] = []
    timestamps = array("q")
    total_bytes = 0
    seq = first_seq
    for flags, ts, node_bytes, tag_bytes, payload in records:
        node = node_bytes.decode() if flags & _HAS_NODE else None
        fragment, at = fragment_of(seq, ts, node, payload)
        # The payload without the key it may carry, which only the log needs.
        key_bytes = 0
        if b"\0" in payload:
            _, meta, key = split_payload(payload)
            if key is not None:
                key_bytes = len(key) + (2 if meta is None else 1)
        size = RECORD_OVERHEAD_BYTES + len(node_bytes) + len(tag_bytes) + len(payload) - key_bytes
        fragments.append(fragment)
        meta_at.append(at)
        nodes.append(node)
        tags.append(tag_bytes.decode() if flags & _HAS_TAG else None)
        timestamps.append(ts)
        sizes.append(size)
        total_bytes += size
        seq += 1
    return Batch(fragments, sizes, nodes, tags, meta_at, total_bytes), timestamps


def _restore_keys(topic: Topic, first_seq: int, records: Sequence[tuple[int, int, bytes, bytes, bytes]]) -> None:
    """The last record of a write carries its key; the flag says where a write ends."""
    start = first_seq
    for seq, (flags, ts, _, _, payload) in enumerate(records, first_seq):
        if flags & _BATCH_CONTINUES:
            continue
        if b"\0" in payload:
            key = split_payload(payload)[2]
            if key is not None:
                topic.keys.restore(key.decode(), RememberedWrite(start, seq - start + 1, ts))
        start = seq + 1


_BATCH_CONTINUES = 8
