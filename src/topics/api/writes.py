"""A write, over HTTP or WebSocket: what the engine is given, who waits for room, and the reply."""

from topics.engine.admission import Prepared
from topics.engine.engine import Appended, Write
from topics.errors import Throttled
from topics.model.config import Durability
from topics.wire.render import write_reply
from topics.wire.requests import WriteRequest


def write_of(body: WriteRequest, idempotency_key: str | None, prepared: Prepared | None = None) -> Write:
    return Write(body.records, body.node, idempotency_key, body.create, body.config, body.producer, prepared)


def waits_for_room(error: Throttled) -> bool:
    """Whether waiting helps: it does if the disk is behind, but not if a cap is reached."""
    return "limit" not in error.detail


def reply_to(topic: str, appended: Appended, with_seqs: bool, total_ms: float, throttle_wait_ms: float | None) -> bytes:
    """The reply to send once `appended.commit`, if there is one, is done. It leaves out a `throttle_wait_ms` of
    None."""
    commit = appended.commit
    fsync_ms = 0.0
    if commit is not None and appended.topic.config.durability is Durability.FSYNC:
        # Only for a class that waits for its sync: a `disk` write may wait for its seqs, too.
        fsync_ms = commit.sync_ns / 1e6
    return write_reply(
        topic,
        appended.first_seq,
        appended.record_count,
        appended.topic.log.head_seq,
        total_ms,
        appended.created,
        appended.deduped,
        with_seqs,
        appended.journal_ns / 1e6,
        fsync_ms,
        throttle_wait_ms,
        appended.next_number,
    )
