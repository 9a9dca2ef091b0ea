"""Whether a write fits into its topic: never, not now, or yes; and which part of it would."""

from collections.abc import Sequence

from topics.engine.topic import Topic
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
    """The positions of records that together fit now, and into so many bytes. Those too large are passed over."""
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
