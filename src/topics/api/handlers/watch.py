"""Watch sessions over HTTP: create one, and open its SSE stream."""

from hmac import compare_digest

from msgspec.json import encode

from topics import limits
from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.http import Response
from topics.api.live import LiveConnections, event_stream, find_topics, read_options, require_event_stream
from topics.api.routing import BOOLEAN, ON_BODY, TEXT, TOKEN, Parameter, Route
from topics.clock import Clock
from topics.delivery.cursor_ids import decode_id
from topics.delivery.hub import CallLater, Hub
from topics.delivery.watch_session import Position, WatchOptions, WatchSessions, epoch_of
from topics.delivery.watch_stream import WatchStream
from topics.engine.engine import Engine
from topics.errors import InvalidRequest, NotFound, Unauthorized
from topics.model.config import clamp
from topics.wire.live_requests import Consistency, WatchRequest
from topics.wire.responses import WatchedTopic, WatchResponse


class WatchHandlers:
    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        clock: Clock,
        sessions: WatchSessions,
        connections: LiveConnections,
        call_later: CallLater,
        *,
        watch_topics_max: int,
        diff_limit_max: int,
        node_bytes_max: int,
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._clock = clock
        self._sessions = sessions
        self._connections = connections
        self._call_later = call_later
        self._watch_topics_max = watch_topics_max
        self._diff_limit_max = diff_limit_max
        self._node_bytes_max = node_bytes_max

    @Route(
        "POST",
        "/v0/watch",
        Scope.READ,
        "Create a watch session over one or many topics",
        {200: WatchResponse},
        (*ON_BODY, 404),
        body=WatchRequest,
        body_required=True,
        parameters=(Parameter("lenient", BOOLEAN, "true: leave out topics that do not exist."),),
    )
    def create(self, call: Call) -> Response:
        lenient = call.query.boolean("lenient", default=False)
        body = call.body(WatchRequest)
        options = WatchOptions(
            read=read_options(body, self._diff_limit_max, self._node_bytes_max),
            heartbeat_ms=clamp(body.heartbeat_ms, limits.HEARTBEAT_MS_MIN, limits.HEARTBEAT_MS_MAX),
            strong=body.consistency is Consistency.STRONG,
        )
        found = find_topics(self._engine, call.key, body.topics, self._watch_topics_max, lenient=lenient)
        positions = {topic.name: Position(epoch, from_seq) for topic, from_seq, epoch in found}
        if body.cursor is not None:
            _go_on(positions, body.cursor)
        session = self._sessions.create(call.key.digest, options, positions)
        reply = WatchResponse(
            session.wid,
            f"/v0/watch/{session.wid}",
            limits.SESSION_TTL_MS,
            {
                topic.name: WatchedTopic(positions[topic.name].cursor, topic.log.head_seq, topic.log.earliest_seq)
                for topic, _, _ in found
            },
            call.performance(),
        )
        return Response(200, encode(reply))

    @Route(
        "GET",
        "/v0/watch/{wid}",
        Scope.READ,
        "Open the event stream of a watch session",
        {200: "text/event-stream"},
        (400, 404, 406),
        parameters=(Parameter("Last-Event-ID", TEXT, "The id of the last event processed.", header=True), TOKEN),
        token_query=True,
    )
    def stream(self, call: Call) -> Response:
        require_event_stream(call)
        session = self._sessions.find(call.name)
        if session is None:
            raise NotFound("there is no such watch session, or it has ended: create one with POST /v0/watch")
        if not compare_digest(session.key_digest, call.key.digest):
            raise Unauthorized("the watch session belongs to another API key")
        release = self._connections.enter(call.key)
        last_event_id = call.request.headers.get(b"last-event-id")
        cursors = decode_id(last_event_id.decode("latin-1")) if last_event_id else None
        stream = WatchStream(
            self._engine, self._hub, self._clock, self._sessions, session, self._call_later, release, cursors
        )
        return event_stream(stream)


def _go_on(positions: dict[str, Position], cursor: str) -> None:
    """Continues where a stream of an earlier session was."""
    cursors = decode_id(cursor)
    if cursors is None:
        raise InvalidRequest.in_field("cursor", "is not the id of an event of this server")
    for name, position in positions.items():
        if name in cursors:
            position.left(cursors.get(epoch_of(name), position.topic_id), cursors[name])
            position.begin()
