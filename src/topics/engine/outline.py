"""What is known about a topic without reading its records: how its log is divided, and when things happened.

For those who look at thousands of topics. Nothing here waits, fetches, forwards, or counts as reading. A time asked for
of a record that is in a segment is told from the times of the segment: it is near, and no file is touched.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from topics.engine.block import AnyBlock, Block
from topics.engine.topic import Topic
from topics.engine.topic_log import TopicLog


class Shares(NamedTuple):
    """What became of the seqs a log has given out: `live + lost + deleted` is its head."""

    live: int
    lost: int
    deleted: int


class SeqRange(NamedTuple):
    """Both ends are inclusive."""

    first: int
    last: int


def shares(topic: Topic) -> Shares:
    """`lost` is what the ranges of the ledger hold."""
    log = topic.log
    gone = log.head_seq - log.count
    lost = min(sum(topic.losses.seqs_by_reason().values()), gone)
    return Shares(log.count, lost, gone - lost)


def first_ts(log: TopicLog) -> int | None:
    """The time of the first live record."""
    return near_ts(log, log.earliest_seq) if log.count else None


def near_ts(log: TopicLog, seq: int) -> int:
    """The time of the record `seq`, or of the first one behind it. There has to be a live record there."""
    index = max(bisect_right(log.block_starts, seq) - 1, 0)
    block = log.blocks[index]
    if seq > block.last_seq and index + 1 < len(log.blocks):
        block = log.blocks[index + 1]
    position = min(max(seq - block.first_seq, 0), len(block) - 1)
    if isinstance(block, Block):
        return block.ts(position)
    return block.first_ts + (block.last_ts - block.first_ts) * position // max(len(block) - 1, 1)


def lag(log: TopicLog, seq: int, now_ms: int) -> tuple[int, int]:
    """How far a reader at `seq` is behind the head: in seqs, and for how many milliseconds the first live record has
    been waiting for it. The time is 0 if nothing that waits is still live."""
    behind = max(log.head_seq - seq, 0)
    first_seq = max(seq + 1, log.earliest_seq)
    if not behind or not log.blocks or first_seq > log.blocks[-1].last_seq:
        return behind, 0
    return behind, max(now_ms - near_ts(log, first_seq), 0)


def deleted_before(topic: Topic) -> Iterator[SeqRange]:
    """The seqs below the first live record that were deleted: all that were not lost."""
    next_seq = 1
    for loss in topic.losses:
        if loss.gap_from >= topic.log.earliest_seq:
            break
        if loss.gap_from > next_seq:
            yield SeqRange(next_seq, loss.gap_from - 1)
        next_seq = max(next_seq, loss.gap_to + 1)
    if next_seq < topic.log.earliest_seq:
        yield SeqRange(next_seq, topic.log.earliest_seq - 1)


def deleted_in(block: AnyBlock, earliest_seq: int) -> Iterator[SeqRange]:
    """The seqs of the block that were deleted, those below `earliest_seq` left out. The block has to be ready."""
    start = max(earliest_seq - block.first_seq, 0)
    positions, _ = block.window(start, len(block))
    expected = start
    for position in (*positions, len(block)):
        if position > expected:
            yield SeqRange(block.first_seq + expected, block.first_seq + position - 1)
        expected = position + 1
