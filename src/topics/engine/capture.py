"""Takes topics as they are for a checkpoint, and puts what came of it back into their logs."""

from collections.abc import Callable

from topics.engine.block import AnyBlock, Block
from topics.engine.lease_queue import LeaseQueue
from topics.engine.topic import Topic
from topics.model.capture import BlockCapture, Columns, TopicCapture
from topics.model.image import CursorImage, KeyImage, LeaseImage, LossImage, MoveImage, QueueImage, TopicImage

Seal = Callable[[Topic, Block], AnyBlock]


def capture(topic: Topic, now_ms: int, block_age_ms_max: int) -> TopicCapture:
    """The topic as it is now. Closes blocks that are full, and one that has waited too long for more records."""
    log = topic.log
    for block in log.blocks[:-1]:
        if isinstance(block, Block):
            block.closed = True
    if log.blocks and isinstance(last := log.blocks[-1], Block):
        aged = block_age_ms_max and len(last) and now_ms - last.timestamps[0] >= block_age_ms_max
        last.closed = last.closed or log.is_full(last) or bool(aged)
    return TopicCapture(
        image=TopicImage(
            topic_id=topic.topic_id,
            name=topic.name,
            config=topic.config,
            config_version=topic.config_version,
            head_seq=log.head_seq,
            earliest_seq=log.earliest_seq,
            last_ts=log.last_ts,
            cap_lost_seq=log.cap_lost_seq,
            ttl_lost_seq=log.ttl_lost_seq,
            crash_lost_seq=log.crash_lost_seq,
            lost_ranges=list(log.lost_ranges),
            ceiling=topic.ceiling,
            last_write_ts=topic.last_write_ts,
            keys=[
                KeyImage(key, write.first_seq, write.record_count, write.at_ms)
                for key, write in topic.keys.items(log.resident_from)
            ],
            segments=[],
            cursors=[CursorImage(name, cursor.seq, cursor.updated_ts) for name, cursor in topic.cursors.items()],
            losses=[LossImage(*loss) for loss in topic.losses],
            queue=None if topic.queue is None else _capture_queue(topic.queue),
            moves=[MoveImage(key, *move) for key, move in topic.moves.items()],
            event_number=topic.event_number,
            source_trim_lost_seq=log.source_trim_lost_seq,
            hops=dict(topic.hops),
            routers=[router.image() for router in topic.inbound.values()],
        ),
        blocks=[_capture_block(block) for block in log.blocks if not log.is_resident(block)],
    )


def _capture_queue(queue: LeaseQueue) -> QueueImage:
    return QueueImage(
        claim_cursor=queue.claim_cursor,
        dead_lettered=queue.dead_lettered,
        last_lease_id=queue.last_lease_id,
        leases=[LeaseImage(seq, lease.node, lease.lease_id, lease.deadline_ms) for seq, lease in queue.leases.items()],
        deliveries=dict(queue.deliveries),
        delayed=dict(queue.delayed),
        # Jobs on their way out are there until that is done; what is left of them then was not.
        reclaimable=sorted((queue.reclaimable - queue.expired) | queue.leaving),
    )


def _capture_block(block: AnyBlock) -> BlockCapture:
    columns = None
    if isinstance(block, Block):
        start = block.flushed_count
        columns = Columns(
            block.fragments[start:],
            block.timestamps[start:],
            block.meta_at[start:],
            block.nodes[start:],
            block.tags[start:],
        )
    return BlockCapture(
        first_seq=block.first_seq,
        record_count=len(block),
        live_count=block.live_count,
        live_bytes=block.live_bytes,
        first_ts=block.first_ts,
        last_ts=block.last_ts,
        sealed=not isinstance(block, Block),
        seal=isinstance(block, Block) and block.closed,
        cold=block.cold,
        flushed_count=block.flushed_count,
        columns=columns,
        unflagged=list(block.unflagged),
    )


def settle(topic: Topic, captured: BlockCapture, seal: Seal) -> None:
    """A captured block is on disk now: note it, and swap it for its sealed segment if it became one."""
    block = topic.log.block_at(captured.first_seq)
    if block is None:
        return
    # Deleted before the capture and flagged by now; what was deleted since stays to be flagged.
    del block.unflagged[: len(captured.unflagged)]
    if isinstance(block, Block):
        if block.live_count < len(block):
            block.unflagged += [
                position
                for position in range(captured.flushed_count, captured.record_count)
                if not block.is_live(position)
                and captured.columns
                and captured.columns.fragments[position - captured.flushed_count] is not None
            ]
        block.flushed_count = captured.record_count
        if captured.seal:
            topic.log.replace_block(seal(topic, block))
