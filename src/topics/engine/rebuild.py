"""Rebuilds the engine's state from what storage recovered: images of topics, then operations in order.

Operations may repeat what an image already has. Each is written so that doing it again changes nothing.
"""

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence

from topics import limits
from topics.engine.block import AnyBlock, Batch, Block
from topics.engine.engine import Engine
from topics.engine.lease_queue import Lease, LeaseQueue
from topics.engine.producers import RememberedWrite
from topics.engine.rederivation import Rederivation
from topics.engine.router_graph import source_of
from topics.engine.topic import Move, NamedCursor, Topic
from topics.engine.topic_log import TopicLog
from topics.model.config import Durability, TopicConfig
from topics.model.image import QueueImage, SegmentImage, TopicImage
from topics.model.lease_event import Delayed, LeaseEvent
from topics.model.operation import CursorSet, RouterChanged, TopicCreated, TopicDeleted
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
        self._rederivation = Rederivation(engine)
        self.lost_copies = False  # some that were given out could not be made again
        self._copied = False

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
        log.source_trim_lost_seq = image.source_trim_lost_seq
        log.lost_ranges = list(image.lost_ranges)
        _lose_resident(log)
        log.keep_resident(image.config.durability is Durability.EPHEMERAL)
        topic = Topic(image.name, image.topic_id, image.config, log)
        topic.last_write_ts = image.last_write_ts
        topic.config_version = image.config_version
        topic.hops = dict(image.hops)
        topic.noted_ttl_seq = image.ttl_lost_seq
        topic.ceiling = topic.requested_ceiling = image.ceiling
        for cursor in image.cursors:
            topic.cursors[cursor.name] = NamedCursor(cursor.seq, cursor.updated_ts)
        for loss in image.losses:
            topic.losses.note(loss.gap_from, loss.gap_to, loss.reason, loss.ts)
        topic.event_number = image.event_number
        for move in image.moves:
            topic.moves[move.key] = Move(move.seqs, move.dest_id, move.dead_letters)
        if topic.queue is not None and image.queue is not None:
            _load_queue(topic.queue, image.queue)
        for key in image.keys:
            topic.keys.restore(key.key, RememberedWrite(key.first_seq, key.record_count, key.at_ms))
        self._by_id[topic.topic_id] = topic
        self._rederivation.load(image)

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
        if topic is None:
            return

        def update() -> None:
            # One the image has already is over: applied again, its cap would take records written after it.
            if version > topic.config_version:
                self._engine.apply_config(topic, config, version, ts)

        self._do(topic_id, update)

    def cursor_set(self, topic_id: int, ts: int, cursor: CursorSet) -> None:
        if topic := self._by_id.get(topic_id):
            self._engine.apply_cursor(topic, cursor.name, cursor.seq, ts)

    def topic_deleted(self, topic_id: int, deleted: TopicDeleted) -> None:
        if topic := self._by_id.pop(topic_id, None):
            topic.deleted = True
            self._removed.append(topic_id)
            self._rederivation.begin({topic_id: topic, **self._by_id})
            self._rederivation.topic_deleted(topic, deleted)

    def router_changed(self, topic_id: int, change: RouterChanged) -> None:
        if topic_id in self._by_id:
            self._rederivation.begin(self._by_id)
            self._rederivation.router_changed(topic_id, change)

    def router_deleted(self, topic_id: int, router_id: int) -> None:
        self._rederivation.router_deleted(topic_id, router_id)

    def forwarded_through(self, topic_id: int, seq: int) -> None:
        self._rederivation.forwarded_through(topic_id, seq)

    def _do(self, topic_id: int, action: Callable[[], None], before_seq: int = 0) -> None:
        """Now, or when the copies before it have been made again."""
        self._rederivation.begin(self._by_id)
        if not self._rederivation.put_off(topic_id, before_seq, action):
            action()

    def appended(self, topic_id: int, first_seq: int, records: Sequence[tuple[int, int, bytes, bytes, bytes]]) -> None:
        if topic := self._by_id.get(topic_id):
            self._do(topic_id, lambda: self._append(topic, first_seq, records), first_seq)

    def _append(self, topic: Topic, first_seq: int, records: Sequence[tuple[int, int, bytes, bytes, bytes]]) -> None:
        """Hot: once per record."""
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
            self._rederivation.keep_lost(topic.topic_id, first_seq - 1)
        batch, timestamps = _batch(first_seq, records)
        self._rederivation.keep(topic.topic_id, first_seq, batch, timestamps)
        self._engine.apply_append(topic, batch, timestamps)

    def records_deleted(self, topic_id: int, before_seq: int, match: TagMatch | None) -> None:
        topic = self._by_id.get(topic_id)
        if topic is None:
            return

        def delete() -> None:
            self._recount_once(topic)
            self._rederivation.records_deleted(topic_id, before_seq, match)
            self._engine.apply_delete_records(topic, before_seq, match)

        self._do(topic_id, delete)

    def _recount_once(self, topic: Topic) -> None:
        if topic.topic_id not in self._recounted:
            self._recounted.add(topic.topic_id)
            self._engine.recount(topic, self._recount)

    def jobs_deleted(self, topic_id: int, seqs: list[int], move: str | None) -> None:
        topic = self._by_id.get(topic_id)
        if topic is None:
            return

        def delete() -> None:
            self._recount_once(topic)
            self._rederivation.jobs_deleted(topic_id, seqs)
            self._engine.apply_delete_jobs(topic, seqs, move)

        self._do(topic_id, delete)

    def lease_changed(self, topic_id: int, event: LeaseEvent) -> None:
        topic = self._by_id.get(topic_id)
        if topic is None:
            return

        def change() -> None:
            if not isinstance(event, Delayed):
                self._engine.apply_lease_event(topic, event)
            elif event.seqs[0] > topic.log.head_seq:
                # Jobs that are there already have what became of their delay.
                self._engine.apply_delays(topic, [event])

        self._do(topic_id, change)

    def head_reserved(self, topic_id: int, ceiling: int) -> None:
        if topic := self._by_id.get(topic_id):
            topic.ceiling = topic.requested_ceiling = max(topic.ceiling, ceiling)

    def records_expired(self, topic_id: int, ttl_lost_seq: int) -> None:
        if topic := self._by_id.get(topic_id):
            self._do(topic_id, lambda: self._engine.apply_expired(topic, ttl_lost_seq))

    # At the end

    @property
    def topics(self) -> Collection[Topic]:
        """The topics as replayed so far. Of two with the same name, the one of the higher id is the later one."""
        return self._by_id.values()

    def rederive(self, heads: Mapping[int, int] | None) -> None:
        """Of a log that may still be written: makes the copies again that are certain to have been made."""
        self._rederivation.run(self._by_id, heads, complete=False)

    def make_copies(self, *, clean: bool, heads: Mapping[int, int] | None) -> None:
        """Everything was replayed: makes the copies of routers again. Takes as long as there are many of them, and may
        run on any one thread."""
        if not self._copied:
            self._copied = True
            self._drop_failed_topics()
            self._rederivation.run(self._by_id, None if clean else heads, complete=not clean)

    def finish(self, next_topic_id: int, *, clean: bool, heads: Mapping[int, int] | None) -> None:
        """Everything was replayed: settle what a crash took, and be ready for new operations.

        Only now do topics get their names: shards are replayed one after the other, so until here a topic and
        its successor of the same name may both have been there.

        `heads`: the last seq given out for each topic, where that is known for certain; else the reserved
        ceilings say how far it may have been.
        """
        self.make_copies(clean=clean, heads=heads)
        self._engine.reset_totals()
        self._engine.return_changes([], self._removed)
        self._engine.next_topic_id = max(self._engine.next_topic_id, next_topic_id)
        for topic in self._by_id.values():
            self._finish_moves(topic)
        lost: dict[Topic, tuple[int, int]] = {}
        for topic in self._rederivation.in_order(self._by_id):
            if not clean:
                head_seq = topic.log.head_seq
                lost[topic] = head_seq, self._lose_given_out(topic, heads, lost)
            for first_seq, last_seq, reason in topic.log.lost_ranges:
                topic.losses.note(first_seq, last_seq, reason, topic.log.last_ts)
            topic.assigned_seq = topic.log.head_seq
            topic.assigned_ts = topic.log.last_ts
            if topic.queue is not None:
                _settle_queue(topic.queue, topic, clean=clean)
            self._engine.apply_add_topic(topic)
        for topic in self._by_id.values():
            for router in topic.inbound.values():
                self._engine.routers.add(router)
                self._engine.on_forwardable(router.source)

    @property
    def dest_ids(self) -> Collection[int]:
        """Topics that have copies routers made."""
        return self._rederivation.dest_ids & self._by_id.keys()

    def _lose_given_out(
        self, topic: Topic, heads: Mapping[int, int] | None, lost: Mapping[Topic, tuple[int, int]]
    ) -> int:
        """Declares lost what was given out and is not there. `lost`: of topics before, the head, and how many were."""
        log, is_disk = topic.log, topic.config.durability is Durability.DISK
        given_out = 0
        if heads is not None and (is_disk or topic.topic_id in self._rederivation.dest_ids):
            given_out = heads.get(topic.topic_id, 0)
        elif heads is None:
            given_out = topic.ceiling if is_disk else 0
        source = source_of(topic)
        source_head, source_lost = (0, 0) if source is None else lost.get(source, (source.log.head_seq, 0))
        behind = [router for router in topic.inbound.values() if router.cursor < source_head]
        if heads is None and not behind:
            # Whatever the source has lost may have been forwarded, behind all there was.
            given_out = max(given_out, log.head_seq) + source_lost
        count = max(given_out - log.head_seq, 0)
        if count:
            log.lose(log.head_seq + 1, given_out)
            self.lost_copies = self.lost_copies or topic.topic_id in self._rederivation.dest_ids
        for router in topic.inbound.values():
            if source is not None and (router.cursor > source.log.head_seq or (count and not behind)):
                router.cursor = source.log.head_seq
        return count

    def _finish_moves(self, topic: Topic) -> None:
        """A crash came between the copy and the deletion: the copy's key says whether it is there."""
        for key, move in list(topic.moves.items()):
            dest = self._by_id.get(move.dest_id)
            if dest is not None and any(known == key for known, _ in dest.keys.items()):
                self._recount_once(topic)
                left = [seq for seq in move.seqs if topic.log.is_live(seq)]
                self._engine.apply_delete_jobs(topic, left, key)
            else:
                del topic.moves[key]
                if topic.queue is not None:
                    topic.queue.stay(move.seqs)

    def _drop_failed_topics(self) -> None:
        """Of two topics with one name the older was refused: its disk failed while it was made, and the name was
        taken by the next one, on another shard."""
        by_name: dict[str, Topic] = {}
        for topic in sorted(self._by_id.values(), key=lambda topic: topic.topic_id):
            older = by_name.get(topic.name)
            if older is not None:
                self.topic_deleted(older.topic_id, TopicDeleted())
            by_name[topic.name] = topic


def _settle_queue(queue: LeaseQueue, topic: Topic, *, clean: bool) -> None:
    log = topic.log
    queue.forget_dead(log.is_live, limits.U64_MAX)
    # Jobs that were claimed and lost may have had these seqs; the next ones are new.
    queue.claim_cursor = min(queue.claim_cursor, log.head_seq + 1)
    queue.reclaim_strays(log.live_below(queue.claim_cursor))
    if not (clean or topic.config.leases_durable):
        queue.release_all()


def _load_queue(queue: LeaseQueue, image: QueueImage) -> None:
    queue.claim_cursor = image.claim_cursor
    queue.dead_lettered = image.dead_lettered
    queue.last_lease_id = image.last_lease_id
    queue.deliveries = image.deliveries
    leases = {lease.seq: Lease(lease.node, lease.lease_id, lease.deadline_ms) for lease in image.leases}
    queue.restore(leases, image.delayed, image.reclaimable)


def _lose_resident(log: TopicLog) -> None:
    """Records that were never written are lost with their process: they are the ones no segment has."""
    head_seq = log.head_seq
    log.head_seq = max(
        log.earliest_seq - 1,
        log.blocks[-1].last_seq if log.blocks else 0,
        log.lost_ranges[-1].last if log.lost_ranges else 0,
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
