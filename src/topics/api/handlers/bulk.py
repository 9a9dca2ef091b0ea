"""Extensions for readers and writers in bulk: named cursors, producers, the ledger of losses, exports."""

from msgspec.json import encode

from topics.api.accept import preferred
from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.http import Response, Streaming
from topics.api.live import LiveConnections
from topics.api.routing import NUMBER, ON_BODY, TOPIC, Answer, Parameter, Route
from topics.api.waiting import once_committed
from topics.delivery.export_format import ArrowStream, ExportFormat, JsonLines
from topics.delivery.export_stream import ExportStream, OffLoop
from topics.delivery.hub import CallLater
from topics.engine.engine import Engine
from topics.engine.topic import Topic
from topics.errors import CursorNotFound, InvalidRequest, NotAcceptable
from topics.model.image import NamedCursor
from topics.model.producer import check_producer_name
from topics.wire.requests import PutCursorRequest
from topics.wire.responses import (
    CursorList,
    CursorResponse,
    CursorState,
    DeleteCursorResponse,
    LossList,
    LossOut,
    ProducerResponse,
)

_FORMATS: dict[bytes, ExportFormat] = {JsonLines.media_type: JsonLines(), ArrowStream.media_type: ArrowStream()}
_EXPORT_HEADERS = ((b"vary", b"accept"),)

_CURSOR = f"{TOPIC}/cursors/{{cursor}}"


class BulkHandlers:
    def __init__(self, engine: Engine, connections: LiveConnections, call_later: CallLater, off_loop: OffLoop) -> None:
        self._engine = engine
        self._connections = connections
        self._call_later = call_later
        self._off_loop = off_loop

    @Route(
        "PUT",
        _CURSOR,
        Scope.WRITE,
        "Extension: remember how far somebody has read",
        {200: CursorResponse},
        (*ON_BODY, 404),
        body=PutCursorRequest,
        body_required=True,
    )
    def put_cursor(self, call: Call) -> Answer:
        topic, commit = self._engine.put_cursor(call.name, call.item, call.body(PutCursorRequest).seq)
        return once_committed(commit, lambda: _cursor_response(call, topic, topic.cursors[call.item]))

    @Route("GET", _CURSOR, Scope.READ, "Extension: a named cursor", {200: CursorResponse}, (400, 404))
    def get_cursor(self, call: Call) -> Response:
        topic = self._engine.topic(call.name, wait=False)
        cursor = topic.cursors.get(call.item)
        if cursor is None:
            raise CursorNotFound(call.name, call.item)
        return _cursor_response(call, topic, cursor)

    @Route("DELETE", _CURSOR, Scope.WRITE, "Extension: forget a named cursor", {200: DeleteCursorResponse}, (400, 404))
    def delete_cursor(self, call: Call) -> Answer:
        deleted, commit = self._engine.delete_cursor(call.name, call.item)

        def reply() -> Response:
            return Response(200, encode(DeleteCursorResponse(call.name, call.item, deleted, call.performance())))

        return once_committed(commit, reply)

    @Route("GET", f"{TOPIC}/cursors", Scope.READ, "Extension: all named cursors", {200: CursorList}, (400, 404))
    def list_cursors(self, call: Call) -> Response:
        topic = self._engine.topic(call.name, wait=False)
        states = [CursorState(*_cursor_fields(topic, name, cursor)) for name, cursor in sorted(topic.cursors.items())]
        return Response(200, encode(CursorList(topic.name, states, call.performance())))

    @Route(
        "GET",
        f"{TOPIC}/producers/{{producer}}",
        Scope.READ,
        "Extension: the number a producer goes on with",
        {200: ProducerResponse},
        (400, 404),
    )
    def producer(self, call: Call) -> Response:
        check_producer_name(call.item)
        topic = self._engine.topic(call.name, touch=False)  # waits for what is under way: that counts
        mark = topic.keys.producers.find(call.item)
        next_sequence = 0 if mark is None else mark.last_number + 1
        reply = ProducerResponse(topic.name, call.item, next_sequence, call.performance())
        return Response(200, encode(reply))

    @Route(
        "GET",
        f"{TOPIC}/losses",
        Scope.READ,
        "Extension: what was lost involuntarily, and why",
        {200: LossList},
        (400, 404),
    )
    def losses(self, call: Call) -> Response:
        topic = self._engine.topic(call.name)
        losses = [LossOut(loss.gap_from, loss.gap_to, loss.reason, loss.ts) for loss in topic.losses]
        return Response(200, encode(LossList(topic.name, losses, call.performance())))

    @Route(
        "GET",
        f"{TOPIC}/export",
        Scope.READ,
        "Extension: a range as newline-delimited JSON or as an Arrow IPC stream, with a trailer",
        {200: tuple(media_type.decode() for media_type in _FORMATS)},
        (400, 404, 406),
        parameters=(
            Parameter("from_seq", NUMBER, "Exclusive; 0 is from the earliest record."),
            Parameter("to_seq", NUMBER, "Inclusive; default is the current head."),
        ),
    )
    def export(self, call: Call) -> Response:
        query = call.query
        topic = self._engine.topic(call.name, touch=True)
        from_seq = query.seq("from_seq", 0)
        to_seq = min(query.seq("to_seq", topic.log.head_seq), topic.log.head_seq)
        if from_seq > topic.log.head_seq:
            raise InvalidRequest.in_field("from_seq", f"is beyond the head of the topic, {topic.log.head_seq}")
        media_type = _export_type(call.request.headers.get(b"accept"))
        release = self._connections.enter(call.key)
        stream = ExportStream(
            self._engine, topic, from_seq, to_seq, _FORMATS[media_type], self._off_loop, self._call_later, release
        )
        return Streaming(200, b"", media_type, _EXPORT_HEADERS, owner=stream, ends=True)


def _export_type(accept: bytes | None) -> bytes:
    """NDJSON, unless the client prefers Arrow and the server has it."""
    known = tuple(_FORMATS)
    there = known if ArrowStream.is_there() else (JsonLines.media_type,)
    chosen = preferred(accept, there)
    if chosen is not None:
        return chosen
    if preferred(accept, known) is not None:
        raise NotAcceptable(
            'this server has no Arrow: install it there with pip install "topics-engine[spark]", or send '
            f"Accept: {JsonLines.media_type.decode()}"
        )
    raise NotAcceptable(f"send Accept: {' or '.join(kind.decode() for kind in known)}")


def _cursor_fields(topic: Topic, name: str, cursor: NamedCursor) -> tuple[str, str, int, int, int, int]:
    head_seq = topic.log.head_seq
    return topic.name, name, cursor.seq, head_seq, max(head_seq - cursor.seq, 0), cursor.updated_ts


def _cursor_response(call: Call, topic: Topic, cursor: NamedCursor) -> Response:
    fields = _cursor_fields(topic, call.item, cursor)
    return Response(200, encode(CursorResponse(*fields, performance=call.performance())))
