"""A write, over HTTP or WebSocket: what the engine is given, who waits for room, and the reply. A large one is decoded
and rendered in many turns of the loop."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

from topics.engine.admission import Prepared
from topics.engine.engine import Appended, Engine, Write
from topics.errors import Throttled, TopicsError
from topics.model.config import Durability
from topics.wire.large_write import LargeWrite
from topics.wire.render import write_reply
from topics.wire.requests import WriteRequest

Result = TypeVar("Result")


async def in_turns(steps: Generator[object, None, Result]) -> Result:
    """What the steps come to, each in a turn of the loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await asyncio.sleep(0)


async def decoded_in_turns(engine: Engine, large: LargeWrite[Result]) -> Result | None:
    """None if it has to be decoded in one go. Too many records are refused before all of them are decoded."""
    steps = large.decode()
    while True:
        try:
            engine.check_record_count(next(steps))
        except StopIteration as end:
            result: Result | None = end.value
            return result
        await asyncio.sleep(0)


async def prepared_in_turns(engine: Engine, topic: str, body: WriteRequest) -> Prepared | None:
    """None if something is wrong with it: whether that matters, and what is told first, shows when it is appended."""
    try:
        return await in_turns(engine.prepare(topic, body.records, body.node))
    except TopicsError:
        return None


def write_of(body: WriteRequest, idempotency_key: str | None, prepared: Prepared | None = None) -> Write:
    return Write(body.records, body.node, idempotency_key, body.create, body.config, body.producer, prepared)


def waits_for_room(error: Throttled) -> bool:
    """Whether waiting helps: it does if the disk is behind, but not if a cap is reached."""
    return "limit" not in error.detail


def reply_to(
    topic: str,
    appended: Appended,
    with_seqs: bool,
    total_ms: float,
    throttle_wait_ms: float | None,
    place: int | None = None,
) -> bytes:
    """The reply to send once `appended.commit`, if there is one, is done. It leaves out a `throttle_wait_ms` of
    None. `place`: of the only record that was asked for, among all that were appended together."""
    commit = appended.commit
    fsync_ms = 0.0
    if commit is not None and appended.topic.config.durability is Durability.FSYNC:
        # Only for a class that waits for its sync: a `disk` write may wait for its seqs, too.
        fsync_ms = commit.sync_ns / 1e6
    return write_reply(
        topic,
        appended.first_seq + (place or 0),
        appended.record_count if place is None else 1,
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
