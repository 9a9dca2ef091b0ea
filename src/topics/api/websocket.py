"""JSON over WebSocket: one connection that subscribes and publishes.

The same engine and delivery paths as HTTP and SSE; only the framing differs. The protocol itself (frames, masking,
ping and close) is the `websockets` library's, without its I/O. Commands are carried out in the order they come; one
that has to wait for something holds up those behind it, an answer that waits for its sync does not.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.json import encode
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from topics import limits
from topics.api.auth import Key, Scope
from topics.api.http import Channel
from topics.api.live import find_topics, read_options
from topics.api.writes import reply_to, waits_for_room, write_of
from topics.clock import Clock, monotonic_ms
from topics.delivery import sse
from topics.delivery.commits import committed
from topics.delivery.hub import CallLater, Hub
from topics.delivery.shared_batches import SharedBatch
from topics.delivery.subscriber import Feed, Subscriber, record_body
from topics.engine.engine import Engine
from topics.engine.journal import Busy, Commit
from topics.errors import Throttled, TopicsError
from topics.model.gap import Gap
from topics.wire.live_requests import (
    Command,
    Ping,
    Publish,
    Subscribe,
    TopicStart,
    Unsubscribe,
    decode_command,
    request_id_of,
)

log = logging.getLogger("topics.websocket")

Spawn = Callable[[Coroutine[Any, Any, None]], object]


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
        self._engine = engine
        self._clock = clock
        self._key = key
        self._call_later = call_later
        self._spawn = spawn
        self._release = release
        self._watch_topics_max = watch_topics_max
        self._diff_limit_max = diff_limit_max
        self._node_bytes_max = node_bytes_max
        self._protocol = Protocol(Side.SERVER, state=State.OPEN, max_size=message_bytes_max)
        self._subscriber = Subscriber(engine, hub, self)
        self._channel: Channel | None = None
        self._fragments = bytearray()  # one buffer: a list would grow with fragments that hold nothing
        self._commands: deque[bytes] = deque()
        self._busy = False
        self._last_heard_ms = monotonic_ms(clock)
        self._stuck_since_ms: int | None = None
        self._unread_bytes = 0

    # The connection

    def opened(self, channel: Channel) -> None:
        self._channel = channel
        self._later()

    def received(self, data: bytes) -> None:
        self._last_heard_ms = monotonic_ms(self._clock)
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._on_frame(event)
        self._flush()

    def drained(self) -> None:
        self._stuck_since_ms = None
        self._unread_bytes = 0
        self._subscriber.drained()

    def closed(self) -> None:
        self._channel = None
        self._subscriber.close()
        self._commands.clear()
        self._release()

    def shutting_down(self) -> None:
        self._send({"op": "error", "code": "shutting_down", "message": "the server is shutting down"})
        self._end(CloseCode.GOING_AWAY, "the server is shutting down")

    def _on_frame(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.TEXT | Opcode.CONT:
                self._fragments += frame.data
                if frame.fin:
                    message = bytes(self._fragments)
                    self._fragments.clear()
                    self._take(message)
            case Opcode.BINARY:
                self._end(CloseCode.UNSUPPORTED_DATA, "commands are JSON text messages")
            case _:
                return

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

    # Commands

    def _take(self, message: bytes) -> None:
        if not message.isascii() and not _is_utf_8(message):
            self._end(CloseCode.INVALID_DATA, "a text message has to be UTF-8")
            return
        if len(self._commands) >= limits.WEBSOCKET_COMMANDS_MAX:
            self._end(CloseCode.POLICY_VIOLATION, "too many commands wait for an answer")
            return
        self._commands.append(message)
        self._work()

    def _work(self) -> None:
        while self._commands and not self._busy and self._channel is not None:
            self._run(self._commands.popleft())

    def _run(self, message: bytes) -> None:
        try:
            self._carry_out(decode_command(message))
        except Busy as busy:
            self._busy = True
            if self._channel is not None:
                self._channel.pause_reading()  # what comes meanwhile waits with the client, not here
            self._spawn(self._ask_again(message, busy))
        except TopicsError as error:
            self._refuse(request_id_of(message), error)

    async def _ask_again(self, message: bytes, busy: Busy) -> None:
        try:
            await committed(busy.commit)
        except TopicsError as error:
            self._refuse(request_id_of(message), error)
        else:
            self._commands.appendleft(message)
        self._busy = False
        self._work()
        if self._channel is not None and not self._busy:
            self._channel.resume_reading()

    def _carry_out(self, command: Command) -> None:
        match command:
            case Subscribe():
                self._subscribe(command)
            case Unsubscribe():
                topic = self._engine.find_topic(command.topic)
                if topic is not None:
                    self._subscriber.remove(topic)
                self._send({"op": "unsubscribed", "request_id": command.request_id, "topic": command.topic})
            case Publish():
                self._publish(command)
            case Ping():
                self._send({"op": "pong", "request_id": command.request_id})

    def _subscribe(self, command: Subscribe) -> None:
        self._key.require_scope(Scope.READ)
        starts = dict(command.topics or {})
        if command.topic is not None:
            starts[command.topic] = TopicStart(command.from_seq, command.tail)
        options = read_options(command, self._diff_limit_max, self._node_bytes_max)
        kept = sum(topic.name not in starts for topic in self._subscriber.feeds)  # the others begin anew
        room = max(self._watch_topics_max - kept, 0)
        found = find_topics(self._engine, self._key, starts, room, lenient=False)
        self._send(
            {
                "op": "subscribed",
                "request_id": command.request_id,
                "topics": {
                    topic.name: {
                        "from_seq": from_seq,
                        "head_seq": topic.log.head_seq,
                        "earliest_seq": topic.log.earliest_seq,
                    }
                    for topic, from_seq in found
                },
            }
        )
        for topic, from_seq in found:
            self._subscriber.add(Feed(topic, from_seq, options))

    def _publish(self, command: Publish) -> None:
        key = self._key
        key.require_scope(Scope.WRITE)
        key.require_name(command.topic)
        if command.config is not None:
            key.require_scope(Scope.ADMIN)
            key.require_names_in(command.config)
        began_ns = self._clock.monotonic_ns()
        try:
            appended = self._engine.append(command.topic, write_of(command, command.idempotency_key))
        except Throttled as error:
            if command.disable_backpressure and waits_for_room(error):
                raise Busy(self._later_again()) from None
            raise
        commit = appended.commit

        def acknowledge() -> None:
            total_ms = (self._clock.monotonic_ns() - began_ns) / 1e6
            reply = reply_to(command.topic, appended, command.return_seqs, total_ms, None)
            asked = b"" if command.request_id is None else b'"request_id":%b,' % encode(command.request_id)
            self._send_text(b'{"op":"ack",%b%b' % (asked, reply[1:]))

        if commit is None:
            acknowledge()
        else:
            commit.when_done(
                lambda done: acknowledge() if done.error is None else self._refuse(command.request_id, done.error)
            )

    def _later_again(self) -> Commit:
        """For a writer that would rather wait than be refused: done when it is time to look for room again."""
        commit = Commit()
        self._call_later(limits.BACKPRESSURE_RETRY_MS / 1000, lambda: commit.resolve(None, 0))
        return commit

    def _refuse(self, request_id: str | None, error: TopicsError) -> None:
        frame: dict[str, object] = {"op": "error", "request_id": request_id, "code": error.code}
        frame["message"] = error.message
        if error.detail:
            frame["detail"] = error.detail
        self._send(frame)

    # The subscriber

    @property
    def writable(self) -> bool:
        channel = self._channel
        if channel is None:
            return False
        if channel.writable:
            return True
        if self._stuck_since_ms is None:
            self._stuck_since_ms = monotonic_ms(self._clock)
        return False

    def records(self, feed: Feed, shared: SharedBatch, from_seq: int, head_seq: int) -> None:
        # A server's frames are not masked, so one rendering serves everybody.
        key = ("websocket", from_seq)
        frame = shared.texts.get(key)
        if frame is None:
            body = b'{"op":"record",' + record_body(feed, shared, from_seq, head_seq)
            frame = shared.texts[key] = Frame(Opcode.TEXT, body).serialize(mask=False)
        self._write(frame)

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
        self._send_text(encode({name: value for name, value in frame.items() if value is not None}))

    def _send_text(self, text: bytes) -> None:
        self._write(Frame(Opcode.TEXT, text).serialize(mask=False))

    def _write(self, data: bytes) -> None:
        # The client's close may have been read already: what came before it is answered before our close is flushed.
        channel = self._channel
        if channel is None:
            return
        channel.write(data)
        if not channel.writable:
            # Answers are not held back like deliveries; a client that never reads them is let go.
            self._unread_bytes += len(data)
            if self._unread_bytes > limits.WEBSOCKET_UNREAD_BYTES_MAX:
                self._end(CloseCode.TRY_AGAIN_LATER, "the answers are not read")

    def _later(self) -> None:
        self._call_later(limits.WEBSOCKET_PING_MS / 1000, self._check)

    def _check(self) -> None:
        """Pings who has been silent, lets go who does not answer or does not read."""
        if self._channel is None:
            return
        now_ms = monotonic_ms(self._clock)
        silent_ms = now_ms - self._last_heard_ms
        if self._stuck_since_ms is not None and now_ms - self._stuck_since_ms >= limits.SLOW_CONSUMER_TIMEOUT_MS:
            self._end(CloseCode.TRY_AGAIN_LATER, "the connection was not read for too long")
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
