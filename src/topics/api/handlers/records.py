"""Records: append, read the difference, delete."""

from collections.abc import Coroutine
from typing import Any

from msgspec.json import encode

from topics import limits
from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.http import Response
from topics.api.routing import Answer
from topics.api.waiting import once_committed
from topics.delivery.long_poll import LongPolls
from topics.engine.admission import byte_length
from topics.engine.engine import Engine, Write
from topics.engine.topic import Topic
from topics.engine.topic_log import ReadBatch, ReadOptions
from topics.errors import InvalidRequest
from topics.model.config import Durability, clamp
from topics.model.tag_match import parse_match
from topics.wire.render import diff_reply, write_reply
from topics.wire.requests import DeleteRecordsRequest, DiffRequest, WriteRequest
from topics.wire.responses import DeleteRecordsResponse


class RecordHandlers:
    def __init__(self, engine: Engine, long_polls: LongPolls, *, diff_limit_max: int, node_bytes_max: int) -> None:
        self._engine = engine
        self._long_polls = long_polls
        self._diff_limit_max = diff_limit_max
        self._node_bytes_max = node_bytes_max

    def write(self, call: Call) -> Answer:
        """Hot."""
        body = call.body(WriteRequest)
        request = call.request
        with_seqs = not request.query or call.query.boolean("return_seqs", default=True)
        if body.config is not None and self._engine.find_topic(call.name) is None:
            call.key.require_scope(Scope.ADMIN)
            call.require_names_in(body.config)
        key = body.idempotency_key
        if key is None and b"idempotency-key" in request.headers:
            key = _header_key(request.headers[b"idempotency-key"])
        appended = self._engine.append(call.name, Write(body.records, body.node, key, body.create, body.config))
        commit = appended.commit

        def reply() -> Response:
            gated = commit is not None and appended.topic.config.durability is Durability.FSYNC
            return Response(
                201 if appended.created else 200,
                write_reply(
                    call.name,
                    appended.first_seq,
                    appended.record_count,
                    appended.topic.log.head_seq,
                    created=appended.created,
                    deduped=appended.deduped,
                    with_seqs=with_seqs,
                    total_ms=call.elapsed_ms(),
                    wal_append_ms=appended.journal_ns / 1e6,
                    fsync_ms=commit.sync_ns / 1e6 if gated and commit else 0.0,
                    throttle_wait_ms=0.0,
                ),
            )

        return once_committed(commit, reply)

    def diff(self, call: Call) -> Answer:
        """Hot."""
        body = call.body(DiffRequest)
        options = ReadOptions(
            limit=min(body.limit or limits.DIFF_LIMIT_DEFAULT, self._diff_limit_max),
            bytes_max=limits.DIFF_REPLY_BYTES_MAX,
            include_tags=body.include_tags,
            include_meta=body.include_meta,
            own_nodes=self._own_nodes(body.node),
        )
        topic, batch = self._engine.read(call.name, body.from_seq, options)
        if body.wait_ms and not batch.fragments and batch.gap is None:
            wait_ms = clamp(body.wait_ms, 0, limits.DIFF_WAIT_MS_MAX)
            return self._wait(call, topic, batch.next_from_seq, options, wait_ms)
        return _diff_response(call, topic, batch)

    def delete(self, call: Call) -> Answer:
        body = call.body(DeleteRecordsRequest)
        if body.before_seq is None and body.match is None:
            raise InvalidRequest("give before_seq, match, or both")
        match = None if body.match is None else parse_match(body.match)
        deleted = self._engine.delete_records(call.name, body.before_seq, match)

        def reply() -> Response:
            log = deleted.topic.log
            performance = call.performance()
            performance.fsync_ms = round(deleted.commit.sync_ns / 1e6, 3) if deleted.commit else 0.0
            body = DeleteRecordsResponse(
                deleted.topic.name, deleted.count, log.earliest_seq, log.head_seq, log.count, log.bytes, performance
            )
            return Response(200, encode(body))

        return once_committed(deleted.commit, reply)

    def _wait(
        self, call: Call, topic: Topic, from_seq: int, options: ReadOptions, wait_ms: int
    ) -> Coroutine[Any, Any, Response]:
        async def answer() -> Response:
            batch = await self._long_polls.read(topic, from_seq, options, wait_ms)
            return _diff_response(call, topic, batch)

        return answer()

    def _own_nodes(self, node: str | list[str] | None) -> frozenset[str]:
        if node is None:
            return frozenset()
        nodes = [node] if isinstance(node, str) else node
        if len(nodes) > limits.NODE_FILTER_ENTRIES_MAX:
            raise InvalidRequest.in_field("node", f"at most {limits.NODE_FILTER_ENTRIES_MAX} are allowed")
        for one in nodes:
            byte_length(one, self._node_bytes_max, "node")
        return frozenset(nodes)


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
