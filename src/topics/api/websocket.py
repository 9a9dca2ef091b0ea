"""JSON over WebSocket: one connection that subscribes and publishes.

The same engine and delivery paths as HTTP and SSE; only the framing differs. The protocol itself (frames, masking,
ping and close) is the `websockets` library's, without its I/O. What a message asks for is the business of
`websocket_commands`.
"""

from collections.abc import Callable

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from topics import limits
from topics.api.auth import Key
from topics.api.http import Channel
from topics.api.websocket_commands import Spawn, WebSocketCommands, text_of
from topics.clock import Clock, monotonic_ms
from topics.delivery import sse
from topics.delivery.hub import CallLater, Hub
from topics.delivery.shared_batches import Crowd, SharedBatch
from topics.delivery.slow_reader import SlowReader
from topics.delivery.subscriber import Feed, Subscriber, record_body
from topics.engine.engine import Engine
from topics.errors import InvalidRequest, ShuttingDown, TopicsError
from topics.model.gap import Gap


class WebSocketConnection:
    """Owns a connection after its upgrade. `release` gives its slot back; `spawn` runs a coroutine."""

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        clock: Clock,
        key: Key,
        call_later: CallLater,
        spawn: Spawn,
        release: Callable[[], None],
        *,
        message_bytes_max: int,
        watch_topics_max: int,
        diff_limit_max: int,
        node_bytes_max: int,
    ) -> None:
        self._clock = clock
        self._call_later = call_later
        self._release = release
        self._protocol = Protocol(Side.SERVER, state=State.OPEN, max_size=message_bytes_max)
        self._subscriber = Subscriber(engine, hub, self)
        self._commands = WebSocketCommands(
            engine,
            self._subscriber,
            clock,
            key,
            call_later,
            spawn,
            self._send_text,
            watch_topics_max=watch_topics_max,
            diff_limit_max=diff_limit_max,
            node_bytes_max=node_bytes_max,
        )
        self._channel: Channel | None = None
        self._fragments = bytearray()  # one buffer: a list would grow with fragments that hold nothing
        self._in_binary = False  # the fragments that come are those of a message nobody keeps
        self._last_heard_ms = monotonic_ms(clock)
        self._reader = SlowReader(clock)
        self._unread_bytes = 0

    # The connection

    def opened(self, channel: Channel) -> None:
        self._channel = channel
        self._commands.opened(channel)
        self._later()

    def received(self, data: bytes) -> None:
        self._last_heard_ms = monotonic_ms(self._clock)
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._on_frame(event)
        self._flush()

    def drained(self) -> None:
        self._reader.drained()
        self._unread_bytes = 0
        self._subscriber.drained()

    def closed(self) -> None:
        self._channel = None
        self._subscriber.close()
        self._commands.closed()
        self._release()

    def end_with(self, error: TopicsError) -> None:
        self._send({"op": "error", "code": error.code, "message": error.message})
        stops = isinstance(error, ShuttingDown)
        self._end(CloseCode.GOING_AWAY if stops else CloseCode.POLICY_VIOLATION, error.message)

    def _on_frame(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.BINARY:
                self._in_binary = not frame.fin
                if frame.fin:
                    self._refuse_binary()
            case Opcode.CONT if self._in_binary:
                if frame.fin:
                    self._in_binary = False
                    self._refuse_binary()
            case Opcode.TEXT | Opcode.CONT:
                self._fragments += frame.data
                if frame.fin:
                    message = bytes(self._fragments)
                    self._fragments.clear()
                    self._take(message)
            case _:
                return

    def _refuse_binary(self) -> None:
        message = "this was a binary message: send commands as text messages, each one JSON object"
        self._send({"op": "error", "code": InvalidRequest.code, "message": message})

    def _take(self, message: bytes) -> None:
        if not message.isascii() and not _is_utf_8(message):
            self._end(CloseCode.INVALID_DATA, "a text message has to be UTF-8")
        elif not self._commands.take(message):
            self._end(CloseCode.POLICY_VIOLATION, "too many commands wait for an answer")

    def _end(self, code: int, reason: str) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
        self._flush()
        channel = self._channel
        if channel is not None:
            self.closed()
            channel.close()

    def _flush(self) -> None:
        """Sends what the protocol has to say; an empty piece is its end of the conversation."""
        for data in self._protocol.data_to_send():
            if self._channel is None:
                return
            if data:
                self._channel.write(data)
            else:
                channel = self._channel
                self.closed()
                channel.close()

    # The subscriber

    @property
    def writable(self) -> bool:
        channel = self._channel
        if channel is None:
            return False
        if channel.writable:
            return True
        self._reader.refused(channel.left_bytes)
        return False

    def records(self, feed: Feed, shared: SharedBatch, from_seq: int, head_seq: int) -> int:
        # A server's frames are not masked, so one rendering serves everybody.
        key = ("websocket", from_seq)
        frame = shared.texts.get(key)
        if frame is None:
            body = b'{"op":"record",' + record_body(feed, shared, from_seq, head_seq)
            frame = shared.texts[key] = Frame(Opcode.TEXT, body).serialize(mask=False)
        self._write(frame)
        return len(frame)

    def join(self, crowd: Crowd) -> int:
        return 0

    def tombstone(self, feed: Feed, gap: Gap, earliest_seq: int, head_seq: int, *, first: bool) -> None:
        data = sse.tombstone_data(feed.topic.name, gap, gap.reason.value, earliest_seq, head_seq)
        self._send_text(b'{"op":"tombstone",' + data[1:])

    def caught_up(self, feed: Feed, head_seq: int) -> None:
        self._send({"op": "caught_up", "topic": feed.topic.name, "head_seq": head_seq})

    def topic_deleted(self, feed: Feed, head_seq: int) -> None:
        self._send({"op": "topic_deleted", "topic": feed.topic.name, "head_seq": head_seq, "reason": "deleted"})

    def failed(self, feed: Feed, error: TopicsError) -> None:
        self._send(
            {"op": "error", "code": error.code, "message": error.message, "detail": {"topics": [feed.topic.name]}}
        )
        self._end(CloseCode.INTERNAL_ERROR, "a topic cannot be read any further")

    def paced(self, topics: list[str], retry_after_ms: int) -> None:
        self._send(
            {
                "op": "error",
                "code": "throttled",
                "message": "pushes are paced under CPU pressure",
                "detail": {"topics": topics, "retry_after_ms": retry_after_ms},
            }
        )

    # Writing

    def _send(self, frame: dict[str, object]) -> None:
        self._send_text(text_of(frame))

    def _send_text(self, text: bytes) -> None:
        self._write(Frame(Opcode.TEXT, text).serialize(mask=False))

    def _write(self, data: bytes) -> None:
        # The client's close may have been read already: what came before it is answered before our close is flushed.
        channel = self._channel
        if channel is None:
            return
        was_writable = channel.writable
        channel.write(data)
        if not was_writable:
            # Answers are not held back like deliveries; a client that never reads them is let go.
            self._unread_bytes += len(data)
            if self._unread_bytes > limits.WEBSOCKET_UNREAD_BYTES_MAX:
                self._end(CloseCode.TRY_AGAIN_LATER, "the client does not read its answers")

    def _later(self) -> None:
        self._call_later(limits.WEBSOCKET_PING_MS / 1000, self._check)

    def _check(self) -> None:
        """Pings a silent client, and disconnects one that does not answer or does not read."""
        if self._channel is None:
            return
        now_ms = monotonic_ms(self._clock)
        silent_ms = now_ms - self._last_heard_ms
        if self._reader.is_gone(self._channel.left_bytes):
            self._end(CloseCode.TRY_AGAIN_LATER, "the client did not read for too long")
            return
        if silent_ms >= 3 * limits.WEBSOCKET_PING_MS:
            self._end(CloseCode.GOING_AWAY, "no answer to pings")
            return
        if silent_ms >= limits.WEBSOCKET_PING_MS and self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")
            self._flush()
        self._later()


def _is_utf_8(message: bytes) -> bool:
    try:
        message.decode()
    except UnicodeDecodeError:
        return False
    return True
