"""Whether a write fits into its topic: never, not now, or yes."""

from topics.engine.block import Batch
from topics.engine.topic import Topic
from topics.errors import RecordTooLarge, TopicFull
from topics.model.config import Discard


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
