"""Records: append, read the difference, delete."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from msgspec import Raw
from msgspec.json import encode

from topics import limits
from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.gathered_writes import GatheredWrites
from topics.api.http import Response
from topics.api.live import read_options
from topics.api.routing import BOOLEAN, ON_BODY, TEXT, TOPIC, Answer, Parameter, Route
from topics.api.waiting import once_committed
from topics.api.writes import decoded_in_turns, prepared_in_turns, reply_to, waits_for_room, write_of
from topics.delivery.commits import committed
from topics.delivery.long_poll import LongPolls
from topics.engine.admission import Prepared
from topics.engine.engine import Appended, Engine, Write
from topics.engine.journal import Busy
from topics.engine.log_reading import ReadBatch
from topics.engine.removal import Removal
from topics.engine.topic import Topic
from topics.errors import InvalidRequest, Throttled
from topics.model.config import Durability, clamp
from topics.model.read_options import ReadOptions
from topics.model.tag_match import TagMatch, parse_match
from topics.wire.large_write import LargeWrite
from topics.wire.render import diff_reply, write_reply
from topics.wire.requests import DeleteRecordsRequest, DiffRequest, WriteRequest
from topics.wire.responses import DeletePreview, DeleteRecordsResponse, DiffResponse, WriteResponse

Result = TypeVar("Result")


class RecordHandlers:
    def __init__(
        self,
        engine: Engine,
        long_polls: LongPolls,
        at_turn_end: Callable[[Callable[[], None]], object],
        *,
        diff_limit_max: int,
        node_bytes_max: int,
    ) -> None:
        self._engine = engine
        self._long_polls = long_polls
        self._gathered = GatheredWrites(engine, at_turn_end)
        self._diff_limit_max = diff_limit_max
        self._node_bytes_max = node_bytes_max

    @Route(
        "POST",
        TOPIC,
        Scope.WRITE,
        "Append records",
        {200: WriteResponse, 201: WriteResponse},
        (*ON_BODY, 404, 409, 422),
        body=WriteRequest,
        body_required=True,
        parameters=(
            Parameter("return_seqs", BOOLEAN, "false: leave out the list of seqs."),
            Parameter("Idempotency-Key", TEXT, "Used when the body has no idempotency_key.", header=True),
        ),
    )
    def write(self, call: Call) -> Answer:
        """Hot: once per write. Most are answered in this very call, without a task."""
        if len(call.request.body) > limits.WRITE_TURN_BYTES_MAX:
            return self._write_in_turns(call)
        return self._write(call, call.body(WriteRequest))

    async def _write_in_turns(self, call: Call) -> Response:
        """For a large body: it was read in one turn of the loop, is decoded and rendered in several, and appended in
        another."""
        body = await self._decoded_in_turns(call)
        prepared = await prepared_in_turns(self._engine, call.name, body)
        while True:
            await asyncio.sleep(0)
            try:
                answer = self._write(call, body, prepared)
            except Busy as busy:
                await committed(busy.commit)
            else:
                return answer if isinstance(answer, Response) else await answer

    async def _decoded_in_turns(self, call: Call) -> WriteRequest:
        call.require_json()
        large: LargeWrite[WriteRequest] = LargeWrite(call.request.body, WriteRequest)
        write = await decoded_in_turns(self._engine, large)
        if write is None:
            return call.body(WriteRequest)
        call.warnings = large.warnings
        return write

    def _write(self, call: Call, body: WriteRequest, prepared: Prepared | None = None) -> Answer:
        request = call.request
        if (
            len(body.records) == 1
            and body.idempotency_key is None
            and body.producer is None
            and not request.query
            and b"idempotency-key" not in request.headers
        ):
            # Most writes. `append` would find the same way; here it needs no objects for what such a write has not.
            seq = self._engine.append_single(call.name, body.records[0], body.node)
            if seq:
                return Response(200, write_reply(call.name, seq, 1, None, call.elapsed_ms()))
            topic = self._engine.find_topic(call.name)
            if topic is not None and topic.config.durability is Durability.FSYNC and not body.disable_backpressure:
                return self._gathered.write(call, topic, write_of(body, None, prepared))
        with_seqs = not request.query or call.query.boolean("return_seqs", default=True)
        if body.config is not None and self._engine.find_topic(call.name) is None:
            call.key.require_scope(Scope.ADMIN)
            call.key.require_names_in(body.config)
        key = body.idempotency_key
        if key is None and b"idempotency-key" in request.headers:
            key = _header_key(request.headers[b"idempotency-key"])
        write = write_of(body, key, prepared)
        try:
            appended = self._engine.append(call.name, write)
        except Throttled as error:
            if body.disable_backpressure and waits_for_room(error):
                return self._when_there_is_room(call, write, with_seqs)
            raise
        pause_ms = self._engine.flow.pause_ms() if len(body.records) > 1 else 0.0
        if pause_ms >= 1:
            return _written_later(call, appended, with_seqs, pause_ms)
        return _written(call, appended, with_seqs)

    async def _when_there_is_room(self, call: Call, write: Write, with_seqs: bool) -> Response:
        """A writer that would rather wait than be refused: tries again until the disk has caught up."""
        began_ms = call.elapsed_ms()
        while True:
            await asyncio.sleep(limits.BACKPRESSURE_RETRY_MS / 1000)
            waited_ms = call.elapsed_ms() - began_ms
            try:
                appended = self._engine.append(call.name, write)
            except Busy as busy:
                await committed(busy.commit)
            except Throttled as error:
                if not waits_for_room(error) or waited_ms > limits.BACKPRESSURE_WAIT_MS_MAX:
                    raise
            else:
                answer = _written(call, appended, with_seqs, waited_ms)
                return answer if isinstance(answer, Response) else await answer

    @Route(
        "POST",
        f"{TOPIC}/diff",
        Scope.READ,
        "Read the records after a cursor",
        {200: DiffResponse},
        (*ON_BODY, 404),
        body=DiffRequest,
    )
    def diff(self, call: Call) -> Answer:
        """Hot: once per read. Where nothing has to be waited for, the reply is made in this very call."""
        body = call.body(DiffRequest)
        options = read_options(body, self._diff_limit_max, self._node_bytes_max)
        from_seq = body.from_seq
        if body.from_ts is not None:
            from_seq = max(from_seq, self._engine.cursor_at(call.name, body.from_ts))
        if body.epoch is not None and body.epoch != self._engine.topic(call.name).topic_id:
            from_seq = limits.U64_MAX  # beyond any head: it is of an earlier topic
        topic, batch = self._engine.read(call.name, from_seq, options)
        may_wait = body.wait_ms and batch.next_from_seq < options.to_seq
        if may_wait and not batch.fragments and batch.gap is None:
            wait_ms = clamp(body.wait_ms, 0, limits.DIFF_WAIT_MS_MAX)
            return self._wait(call, topic, batch.next_from_seq, options, wait_ms)
        return _diff_response(call, topic, batch)

    @Route(
        "POST",
        f"{TOPIC}/delete",
        Scope.DELETE,
        "Delete records for good, by seq and/or tag",
        {200: DeleteRecordsResponse},
        (*ON_BODY, 404),
        body=DeleteRecordsRequest,
        body_required=True,
    )
    def delete(self, call: Call) -> Answer:
        deleted = self._engine.delete_records(call.name, *_what_to_delete(call))

        def reply() -> Response:
            log = deleted.topic.log
            performance = call.performance_with_sync(deleted.commit)
            body = DeleteRecordsResponse(
                deleted.topic.name, deleted.count, log.earliest_seq, log.head_seq, log.count, log.bytes, performance
            )
            return Response(200, encode(body))

        return once_committed(deleted.commit, reply)

    @Route(
        "POST",
        f"{TOPIC}/delete/preview",
        Scope.READ,
        "Extension: what a delete with this body would remove",
        {200: DeletePreview},
        (*ON_BODY, 404),
        body=DeleteRecordsRequest,
        body_required=True,
    )
    def preview_delete(self, call: Call) -> Answer:
        """A path of its own, so that a server that does not know previews refuses instead of deleting."""
        before_seq, match = _what_to_delete(call)
        topic = self._engine.topic(call.name)
        return _preview(call, topic, Removal(topic.log, before_seq, match))

    def _wait(
        self, call: Call, topic: Topic, from_seq: int, options: ReadOptions, wait_ms: int
    ) -> Coroutine[Any, Any, Response]:
        call.request.waits = True

        async def answer() -> Response:
            batch = await self._long_polls.read(topic, from_seq, options, wait_ms)
            return _diff_response(call, topic, batch)

        return answer()


def _what_to_delete(call: Call) -> tuple[int | None, TagMatch | None]:
    body = call.body(DeleteRecordsRequest)
    if body.before_seq is None and body.match is None:
        raise InvalidRequest("give before_seq, match, or both")
    return body.before_seq, None if body.match is None else parse_match(body.match)


async def _preview(call: Call, topic: Topic, removal: Removal) -> Response:
    """Block by block, with others let in between."""
    for block in tuple(topic.log.blocks):
        await _when_at_hand(partial(removal.add, block))
        await asyncio.sleep(0)
    last_seq = await _when_at_hand(removal.last_seq)
    texts = await _when_at_hand(partial(removal.sample, topic.log))
    reply = {
        "topic": topic.name,
        "count": removal.count,
        "bytes": removal.bytes,
        "first_seq": removal.sample_seqs[0] if removal.sample_seqs else None,
        "last_seq": last_seq,
        "sample": Raw(b"[%b]" % b",".join(texts)),
        "performance": call.performance(),
    }
    return Response(200, encode(reply))


async def _when_at_hand(look: Callable[[], Result]) -> Result:
    """The result of the call, once everything it needs has been fetched."""
    while True:
        try:
            return look()
        except Busy as busy:
            await committed(busy.commit)


def _diff_response(call: Call, topic: Topic, batch: ReadBatch) -> Response:
    log = topic.log
    return Response(
        200,
        diff_reply(
            topic.name,
            batch.fragments,
            batch.gap,
            batch.next_from_seq,
            log.head_seq,
            log.earliest_seq,
            scanned=batch.scanned,
            cold_count=batch.cold_count,
            total_ms=call.elapsed_ms(),
        ),
    )


def _header_key(value: bytes) -> str | None:
    try:
        return value.decode() or None
    except UnicodeDecodeError:
        raise InvalidRequest.in_field("Idempotency-Key", "the header is not valid UTF-8") from None


def _written(call: Call, appended: Appended, with_seqs: bool, throttle_wait_ms: float = 0.0) -> Answer:
    """The answer to a write, as soon as its durability class allows it."""
    if appended.commit is None:
        return _write_response(call, appended, with_seqs, throttle_wait_ms)
    return once_committed(appended.commit, lambda: _write_response(call, appended, with_seqs, throttle_wait_ms))


async def _written_later(call: Call, appended: Appended, with_seqs: bool, pause_ms: float) -> Response:
    """The answer to a write that is slowed down."""
    await asyncio.sleep(pause_ms / 1000)
    answer = _written(call, appended, with_seqs, pause_ms)
    return answer if isinstance(answer, Response) else await answer


def _write_response(call: Call, appended: Appended, with_seqs: bool, throttle_wait_ms: float) -> Response:
    reply = reply_to(call.name, appended, with_seqs, call.elapsed_ms(), throttle_wait_ms)
    return Response(201 if appended.created else 200, reply)
