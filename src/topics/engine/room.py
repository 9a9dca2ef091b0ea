"""Whether a write fits into its topic and into the server (yes, not now, or never), and which part of it would."""

from collections.abc import Sequence
from contextlib import suppress

from topics import limits
from topics.engine.topic import Topic
from topics.engine.topic_log import UNREADABLE, TopicLog
from topics.errors import RecordTooLarge, TopicFull
from topics.model.config import Discard
from topics.model.record import Batch


def check_caps(topic: Topic, batch: Batch) -> None:
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
    held_count, held_bytes = log.count + topic.pending_count, log.bytes + topic.pending_bytes
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


def those_that_fit(topic: Topic, sizes: Sequence[int], bytes_free: int) -> list[int]:
    """The positions of records that fit together, into so many bytes. Skips those that are too large."""
    config, log = topic.config, topic.log
    count_free = len(sizes)
    if config.discard is Discard.REJECT:
        if config.cap_records:
            count_free = config.cap_records - log.count - topic.pending_count
        if config.cap_bytes:
            bytes_free = min(bytes_free, config.cap_bytes - log.bytes - topic.pending_bytes)
    fitting: list[int] = []
    for position, size in enumerate(sizes):
        if len(fitting) < count_free and size <= bytes_free and (not config.cap_bytes or size <= config.cap_bytes):
            fitting.append(position)
            bytes_free -= size
    return fitting


def bytes_free(total_max: int, bytes_live: int, topic: Topic, sizes: Sequence[int]) -> int:
    """How many bytes of these records the server may take, where all topics together may hold `total_max` (0: no bound)
    and hold `bytes_live`. What the caps of a topic that discards old records take in return counts as free. May raise
    `Busy`: a cap may reach into the cold tier."""
    free = total_max - bytes_live - topic.pending_bytes if total_max else limits.U64_MAX
    size = sum(sizes)
    if size <= free or not sizes:
        return free
    if bytes_live + growth(topic, len(sizes), size) <= total_max:
        return size
    first_fits = bytes_live + growth(topic, 1, sizes[0]) <= total_max
    return max(free, sizes[0]) if first_fits else free


def growth(topic: Topic, count: int, size: int) -> int:
    """By how many bytes the topic grows with these records, once its caps have evicted what is beyond them."""
    config, log = topic.config, topic.log
    held = log.bytes + topic.pending_bytes + size
    if config.discard is Discard.OLD:
        if config.cap_records:
            held -= _bytes_beyond(log, config.cap_records - topic.pending_count - count)
        if config.cap_bytes:
            held = min(held, config.cap_bytes)
    return held - log.bytes


def _bytes_beyond(log: TopicLog, records_max: int) -> int:
    """The bytes of the oldest records that have to go until only so many are left."""
    if records_max <= 0:
        return log.bytes
    excess, freed = log.count - records_max, 0
    for block in log.blocks:
        if excess <= 0:
            break
        if block.live_count <= excess:
            freed += block.live_bytes
            excess -= block.live_count
        else:
            block.prepare()
            with suppress(*UNREADABLE):  # the cap takes it as a whole, later
                positions, _ = block.window(max(log.earliest_seq - block.first_seq, 0), excess)
                freed += block.size(positions)
            break
    return freed
