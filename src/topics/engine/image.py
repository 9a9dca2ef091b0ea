"""A topic as a snapshot keeps it: taken for a checkpoint, and brought back at a start.

Whatever a topic remembers beyond its records is written and read here, side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from topics.engine.block import AnyBlock, Block, Unread
from topics.engine.lease_queue import Lease, LeaseQueue
from topics.engine.topic import Router, Topic
from topics.engine.topic_log import TopicLog
from topics.model.config import DEFAULT_CONFIG, Durability
from topics.model.image import (
    BlockCapture,
    LeaseImage,
    QueueImage,
    RouterImage,
    SegmentImage,
    TopicCapture,
    TopicImage,
)
from topics.model.record import RECORD_OVERHEAD_BYTES, Batch, Columns

LoadBlock = Callable[[TopicImage, SegmentImage], AnyBlock]
"""Makes the block of a segment."""

# Writing


class Flushed(NamedTuple):
    """How much of a block was in snapshots before it was captured."""

    block: Block
    record_count: int
    size: int


def capture(topic: Topic, flushed: list[Flushed]) -> TopicCapture:
    """The topic as it is now. From now on its records count as flushed: what is deleted next has to be listed. What
    they were before is added to `flushed`, for `give_back`."""
    log = topic.log
    return TopicCapture(
        image=image_of(topic),
        blocks=[_capture_block(block, flushed) for block in log.blocks if not log.is_resident(block)],
    )


def give_back(flushed: list[Flushed]) -> None:
    """The capture was not written: its records still have to be flushed."""
    for block, count, size in reversed(flushed):
        block.flushed_count, block.flushed_bytes = count, size
        block.unflagged = [position for position in block.unflagged if position < count]


def image_of(topic: Topic) -> TopicImage:
    """Without its segments."""
    log = topic.log
    return TopicImage(
        topic_id=topic.topic_id,
        name=topic.name,
        config=topic.config,
        exchange=topic.exchange,
        head_seq=log.head_seq,
        earliest_seq=log.earliest_seq,
        last_ts=log.last_ts,
        cap_lost_seq=log.cap_lost_seq,
        ttl_lost_seq=log.ttl_lost_seq,
        crash_lost_seq=log.crash_lost_seq,
        source_trim_lost_seq=log.source_trim_lost_seq,
        lost_ranges=list(log.lost_ranges),
        ceiling=topic.ceiling,
        last_write_ts=topic.last_write_ts,
        keys=list(topic.keys.items(log.resident_from)),
        cursors=dict(topic.cursors),
        losses=list(topic.losses),
        queue=None if topic.queue is None else _queue_image(topic.queue),
        routers=[_router_image(router) for router in topic.inbound.values()],
        hops=dict(topic.hops),
    )


def _queue_image(queue: LeaseQueue) -> QueueImage:
    return QueueImage(
        claim_cursor=queue.claim_cursor,
        dead_lettered=queue.dead_lettered,
        last_lease_id=queue.last_lease_id,
        leases=[
            LeaseImage(seq, lease.node, lease.lease_id, lease.claimed_ms, lease.deadline_ms)
            for seq, lease in queue.leases.by_seq.items()
        ],
        deliveries=dict(queue.deliveries),
        delayed=dict(queue.delayed),
        # Jobs about to leave are there until that has happened.
        reclaimable=sorted((queue.reclaimable - queue.leases.expired) | queue.leaving),
    )


def _router_image(router: Router) -> RouterImage:
    return RouterImage(
        router.router_id,
        router.name,
        router.source.topic_id,
        router.settings,
        router.created_ts,
        router.cursor,
        router.forwarded_total,
    )


def _capture_block(block: AnyBlock, flushed: list[Flushed]) -> BlockCapture:
    columns = None
    unflagged = list(block.unflagged)
    start, size, added_bytes = block.flushed_count, block.flushed_bytes, 0
    if isinstance(block, Block):
        columns = columns_from(block, start)
        if start < len(block):
            flushed.append(Flushed(block, start, size))
            added_bytes = stored_bytes(block, start)
            block.flushed_count = len(block)
            block.flushed_bytes = size + added_bytes
    return BlockCapture(
        first_seq=block.first_seq,
        record_count=len(block),
        live_count=block.live_count,
        live_bytes=block.live_bytes,
        first_ts=block.first_ts,
        last_ts=block.last_ts,
        sealed=not isinstance(block, Block),
        cold=block.cold,
        flushed_count=start,
        flushed_bytes=size,
        added_bytes=added_bytes,
        columns=columns,
        unflagged=unflagged,
    )


def _place_of(block: Block, start: int) -> tuple[Block, int]:
    """Where the records from position `start` on are: the block whose columns have them, and the position there. The
    block is read only if some of them are unread."""
    unread = block.unread
    if unread is None or start < unread.count:
        return block, start
    added = Block(block.first_seq + unread.count) if unread.added is None else unread.added
    return added, start - unread.count


def columns_from(block: Block, start: int) -> Columns:
    block, start = _place_of(block, start)
    return Columns(
        block.fragments[start:],
        block.timestamps[start:],
        block.meta_at[start:],
        block.nodes[start:],
        block.tags[start:],
    )


def stored_bytes(block: Block, start: int) -> int:
    """What the records from `start` on take in a file, where a dead one keeps nothing but its place."""
    block, start = _place_of(block, start)
    sizes = block.sizes
    if block.live_count == len(block):
        return sum(sizes[start:]) if start or len(sizes) > 1 else sizes[0]
    fragments = block.fragments
    return sum(
        RECORD_OVERHEAD_BYTES if fragments[position] is None else sizes[position]
        for position in range(start, len(fragments))
    )


# Reading


def load(image: TopicImage, log: TopicLog, load_block: LoadBlock) -> Topic:
    """The topic, with an empty `log` filled for it. Its routers come when all topics are there (`load_routers`)."""
    for segment in image.segments:
        block = load_block(image, segment)
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
    # Topics with the defaults share one object: 200 bytes a topic less.
    config = DEFAULT_CONFIG if image.config == DEFAULT_CONFIG else image.config
    topic = Topic(image.name, image.topic_id, config, log)
    topic.exchange = image.exchange
    topic.last_write_ts = image.last_write_ts
    topic.ceiling = topic.requested_ceiling = image.ceiling
    if image.cursors or image.hops or image.losses or image.keys:
        extras = topic.own_extras()
        extras.cursors = dict(image.cursors)
        extras.hops = dict(image.hops)
        for loss in image.losses:
            extras.losses.note(*loss)
        for key, write in image.keys:
            extras.keys.restore(key, write)
    if topic.queue is not None and image.queue is not None:
        _load_queue(topic.queue, image.queue)
    return topic


def unread_tail(segment: SegmentImage, read: Callable[[], Block]) -> Block:
    """The block of a segment that is not sealed yet, its records still to be read: by `load_tail`, once somebody wants
    one. As the image has it, the block that is read has the same counts."""
    block = Block(segment.first_seq, Unread(segment.count, segment.first_ts, segment.last_ts, read))
    block.live_count, block.live_bytes = segment.live_count, segment.live_bytes
    block.written_bytes = segment.data_bytes
    block.flushed_count, block.flushed_bytes = segment.count, segment.data_bytes
    block.unflagged = list(segment.deleted)
    return block


def load_tail(
    earliest_seq: int, segment: SegmentImage, batch: Batch, timestamps: Sequence[int], deleted: Sequence[bool]
) -> Block:
    """The block of a segment that is not sealed yet. `earliest_seq`: of its topic."""
    block = Block(segment.first_seq)
    if batch.fragments:
        block.extend(batch, timestamps)
    dead_below = min(max(earliest_seq - segment.first_seq, 0), len(deleted))
    for position in range(dead_below):
        block.kill(position, deleted=False)
    if True in deleted:
        for position in range(dead_below, len(deleted)):
            if deleted[position]:
                block.kill(position, deleted=False)
    block.flushed_count, block.flushed_bytes = len(block), segment.data_bytes
    block.unflagged = list(segment.deleted)
    return block


def load_routers(image: TopicImage, topics: Mapping[int, Topic]) -> list[Router]:
    """The routers into the topic, not linked yet."""
    return [
        Router(
            each.router_id,
            each.name,
            topics[each.source_id],
            topics[image.topic_id],
            each.settings,
            each.created_ts,
            each.cursor,
            each.forwarded_total,
        )
        for each in image.routers
    ]


def _load_queue(queue: LeaseQueue, image: QueueImage) -> None:
    queue.claim_cursor = image.claim_cursor
    queue.dead_lettered = image.dead_lettered
    queue.last_lease_id = image.last_lease_id
    queue.deliveries = dict(image.deliveries)
    leases = {
        lease.seq: Lease(lease.node, lease.lease_id, lease.claimed_ms, lease.deadline_ms) for lease in image.leases
    }
    queue.restore(leases, image.delayed, image.reclaimable)


def _lose_resident(log: TopicLog) -> None:
    """Records that were never written are lost with their process: those that are in no segment."""
    head_seq = log.head_seq
    if log.blocks and log.blocks[-1].last_seq == head_seq:
        return
    log.head_seq = max(
        log.earliest_seq - 1,
        log.blocks[-1].last_seq if log.blocks else 0,
        log.lost_ranges[-1].last if log.lost_ranges else 0,
    )
    if log.head_seq < head_seq:
        log.lose(log.head_seq + 1, head_seq)
