"""Live connections under any bytes in any splitting: the same answers, never an exception, and always an end."""

import asyncio
import json
from collections.abc import Callable

from fake_transport import Client, RecordingApplication, echo
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fuzz import split
from test_protocol import turns
from websockets.frames import Frame, Opcode

from topics.api.auth import ANYBODY
from topics.api.http import Request, Response, Streaming, Upgrade
from topics.api.websocket import WebSocketConnection
from topics.bench.websocket_frames import ServerFrames
from topics.delivery.governor import Governor
from topics.delivery.hub import Hub
from topics.delivery.watch_session import Position, WatchOptions, WatchSessions
from topics.delivery.watch_stream import WatchStream
from topics.engine.engine import Engine
from topics.model.config import TopicConfigPatch
from topics.model.read_options import ReadOptions
from topics.testing.fake_clock import FakeClock

SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n"
MESSAGE_BYTES_MAX = 4096
CALLS_MAX = 10_000  # more than any of these connections has work for
LONG_AFTER_MS = 600_000


class FakeChannel:
    """Keeps what is written; has enough from `full_at` bytes on."""

    def __init__(self, full_at: int) -> None:
        self.sent = b""
        self.closed = False
        self._full_at = full_at

    @property
    def writable(self) -> bool:
        return len(self.sent) < self._full_at

    @property
    def written_bytes(self) -> int:
        return len(self.sent)

    @property
    def left_bytes(self) -> int:
        return min(len(self.sent), self._full_at)

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent += data

    def send(self, data: bytes) -> bool:
        self.write(data)
        return self.writable

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class LiveServer:
    """An engine with two topics, and timers that run when told to."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.engine = Engine(self.clock)
        self.hub = Hub(self.clock, Governor(), self._call_later)
        self.engine.state.on_change = self.hub.changed
        self.opened = 0
        self.released = 0
        self._sessions = WatchSessions(self.clock, 0)
        self._timers: list[tuple[int, Callable[[], None]]] = []
        for name in ("t", "u"):
            self.engine.put_topic(name, TopicConfigPatch())

    def web_socket(self) -> WebSocketConnection:
        return WebSocketConnection(
            self.engine,
            self.hub,
            self.clock,
            ANYBODY,
            self._call_later,
            lambda work: work.close(),  # without a journal nothing has to wait
            self._slot(),
            message_bytes_max=MESSAGE_BYTES_MAX,
            watch_topics_max=8,
            diff_limit_max=1000,
            node_bytes_max=128,
        )

    def watch_stream(self) -> WatchStream:
        topic = self.engine.topic("t")
        options = WatchOptions(ReadOptions(limit=10, bytes_max=1 << 20), 15_000, strong=False)
        session = self._sessions.create(b"", options, {"t": Position(topic.topic_id, 0)})
        return WatchStream(self.engine, self.hub, self.clock, self._sessions, session, self._call_later, self._slot())

    def run(self, for_ms: int = 0) -> None:
        """Runs what is due until that much later, in order."""
        end_ms = self.clock.now_ms() + for_ms
        for _ in range(CALLS_MAX):
            due_ms, call = min(self._timers, key=lambda timer: timer[0], default=(end_ms + 1, None))
            if due_ms > end_ms or call is None:
                self.clock.advance(end_ms - self.clock.now_ms())
                return
            self._timers.remove((due_ms, call))
            self.clock.advance(max(due_ms - self.clock.now_ms(), 0))
            call()
        raise AssertionError("it never comes to rest")

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        self._timers.append((self.clock.now_ms() + round(delay_s * 1000), call))
        return None

    def _slot(self) -> Callable[[], None]:
        """Takes one; the call gives it back, however often it is called."""
        given_back: list[None] = []
        self.opened += 1

        def give_back() -> None:
            if not given_back:
                given_back.append(None)
                self.released += 1

        return give_back


def text(value: object) -> bytes:
    return Frame(Opcode.TEXT, json.dumps(value).encode()).serialize(mask=True)


def in_fragments(value: object) -> bytes:
    """With a ping between them, as the protocol allows."""
    message = json.dumps(value).encode()
    return b"".join(
        frame.serialize(mask=True)
        for frame in (
            Frame(Opcode.TEXT, message[:7], fin=False),
            Frame(Opcode.PING, b"between"),
            Frame(Opcode.CONT, b"", fin=False),
            Frame(Opcode.CONT, message[7:]),
        )
    )


def publish(topic: str, count: int) -> dict[str, object]:
    return {"op": "publish", "topic": topic, "records": [{"data": {"n": n}} for n in range(count)], "node": "me"}


COMMANDS = [
    text({"op": "ping", "request_id": "p"}),
    text({"op": "subscribe", "topic": "t", "request_id": "s"}),
    text({"op": "subscribe", "topics": {"t": {"from_seq": 1}, "u": {"tail": True}}}),
    text({"op": "subscribe", "topic": "u", "node": "me", "limit": 1}),
    text({"op": "subscribe", "topic": "unheard-of"}),
    text({"op": "unsubscribe", "topic": "t"}),
    text(publish("t", 1)),
    text(publish("u", 20)),
    text({"op": "publish", "topic": "bad name", "records": []}),
    text({"op": "unheard-of"}),
    text("not a command"),
    in_fragments(publish("t", 3)),
    in_fragments({"op": "ping"}),
    Frame(Opcode.TEXT, b"{").serialize(mask=True),
    Frame(Opcode.TEXT, b"").serialize(mask=True),
    Frame(Opcode.PING, b"are you there").serialize(mask=True),
    Frame(Opcode.PONG, b"").serialize(mask=True),
    Frame(Opcode.BINARY, b"\x00").serialize(mask=True),
    Frame(Opcode.BINARY, b"\x00", fin=False).serialize(mask=True) + Frame(Opcode.CONT, b"\xff").serialize(mask=True),
]
LAST_COMMANDS = [
    b"",
    Frame(Opcode.CLOSE, b"\x03\xe8bye").serialize(mask=True),
    Frame(Opcode.TEXT, b"\xff").serialize(mask=True),
    Frame(Opcode.TEXT, b"not masked").serialize(mask=False),
    Frame(Opcode.TEXT, b"x" * (MESSAGE_BYTES_MAX + 1)).serialize(mask=True),
    Frame(Opcode.CONT, b"of nothing").serialize(mask=True),
]

commands = st.lists(st.sampled_from(COMMANDS), max_size=8).map(b"".join)
cuts = st.lists(st.integers(0, 100_000), max_size=12)
anything = st.one_of(
    st.binary(max_size=500),
    st.lists(st.one_of(st.sampled_from(COMMANDS + LAST_COMMANDS), st.binary(max_size=20)), max_size=12).map(b"".join),
    st.tuples(commands, st.integers(0, 1000), st.binary(max_size=6)).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + len(parts[2]) :]
    ),
)


def frames_in(sent: bytes) -> tuple[list[bytes], list[tuple[int, bytes]]]:
    """Messages and control frames apart: a pong may overtake the answers to what came before its ping."""
    reader = ServerFrames()
    reader.feed(SWITCHING)
    frames = reader.feed(sent)
    return (
        [payload for opcode, payload in frames if opcode == Opcode.TEXT],
        [frame for frame in frames if frame[0] != Opcode.TEXT],
    )


def test_commands_are_answered_that_came_together_with_a_close() -> None:
    server, channel = LiveServer(), FakeChannel(full_at=1 << 30)
    connection = server.web_socket()
    connection.opened(channel)
    connection.received(text(publish("t", 1)) + text({"op": "ping"}) + LAST_COMMANDS[1])
    messages, control = frames_in(channel.sent)
    assert [json.loads(message)["op"] for message in messages] == ["ack", "pong"]
    assert control == [(Opcode.CLOSE, b"\x03\xe8bye")]
    assert channel.closed


@settings(max_examples=200, deadline=None)
@given(stream=commands, last=st.sampled_from(LAST_COMMANDS), cuts=cuts)
def test_a_web_socket_answers_the_same_however_the_stream_is_cut(stream: bytes, last: bytes, cuts: list[int]) -> None:
    sent = []
    for pieces in ([stream + last], split(stream + last, cuts)):
        server, channel = LiveServer(), FakeChannel(full_at=1 << 30)
        connection = server.web_socket()
        connection.opened(channel)
        for piece in pieces:
            connection.received(piece)
        server.run()
        sent.append((frames_in(channel.sent), channel.closed, server.released))
    assert sent[0] == sent[1]
    assert sent[0][1] == bool(last)


@settings(max_examples=300, deadline=None)
@given(stream=anything, cuts=cuts, full_at=st.sampled_from([0, 100, 1 << 30]))
def test_a_web_socket_takes_any_bytes_and_lets_go_of_a_silent_client(
    stream: bytes, cuts: list[int], full_at: int
) -> None:
    server, channel = LiveServer(), FakeChannel(full_at)
    connection = server.web_socket()
    connection.opened(channel)
    for piece in split(stream, cuts):
        connection.received(piece)
        server.run()
    server.run(for_ms=LONG_AFTER_MS)
    assert channel.closed
    assert server.released == 1


class LiveApplication(RecordingApplication):
    """HTTP with two live paths: /ws is a WebSocket, /watch an SSE stream."""

    def __init__(self, server: LiveServer) -> None:
        super().__init__()
        self._server = server
        self.answer = self._answer

    def _answer(self, request: Request) -> Response:
        if request.path == b"/ws" and request.offers_upgrade:
            return Upgrade(101, b"", owner=self._server.web_socket(), head=SWITCHING)
        if request.path == b"/watch":
            return Streaming(200, b"", b"text/event-stream", owner=self._server.watch_stream())
        return Response(200, echo(request))


REQUESTS = [
    b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
]
HANDOVERS = [
    b"GET /watch HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /watch HTTP/1.0\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
]


@settings(max_examples=150, deadline=None)
@given(
    requests=st.lists(st.sampled_from(REQUESTS), max_size=3).map(b"".join),
    handover=st.sampled_from(HANDOVERS),
    stream=commands,
    last=st.sampled_from(LAST_COMMANDS),
    cuts=cuts,
)
def test_what_follows_a_handover_does_not_depend_on_how_it_is_cut(
    requests: bytes, handover: bytes, stream: bytes, last: bytes, cuts: list[int]
) -> None:
    whole = requests + handover + stream + last
    assert asyncio.run(answers([whole])) == asyncio.run(answers(split(whole, cuts)))


@settings(max_examples=150, deadline=None)
@given(
    stream=st.tuples(st.sampled_from(HANDOVERS), st.integers(0, 80), st.binary(max_size=6), anything).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + len(parts[2]) :] + parts[3]
    ),
    cuts=cuts,
)
def test_a_damaged_handover_takes_no_slot_for_good(stream: bytes, cuts: list[int]) -> None:
    asyncio.run(answers(split(stream, cuts)))


async def answers(pieces: list[bytes]) -> tuple[object, ...]:
    """What a client gets that sends these pieces and then hangs up. Its slot is free afterwards."""
    server = LiveServer()
    client = Client(LiveApplication(server))
    transport = client.transport
    for piece in pieces:
        # A transport that is closed, or told to read no more, delivers nothing.
        if not transport.is_closing():
            speaking(client).data_received(piece)
    for _ in range(2):
        await turns()
        server.run()
    replies, _, frames = transport.sent.partition(SWITCHING)
    requests = len(client.application.requests)
    result = (replies, frames_in(frames), transport.closed, transport.eof_written, requests)
    speaking(client).eof_received()
    speaking(client).connection_lost(None)
    server.run(for_ms=LONG_AFTER_MS)
    assert server.released == server.opened
    return result


def speaking(client: Client) -> asyncio.Protocol:
    """Whom the transport talks to now."""
    protocol = client.transport.protocol
    assert protocol is not None
    return protocol
