"""What a WebSocket client may ask for: subscribe, unsubscribe, publish and ping, one after the other.

Knows JSON texts and no frames. A command that has to wait for something holds up those behind it, and reading pauses
meanwhile; an answer that waits for its sync holds up nothing.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.json import encode

from topics import limits
from topics.api.auth import Key, Scope
from topics.api.http import Channel
from topics.api.live import find_topics, read_options
from topics.api.writes import decoded_in_turns, prepared_in_turns, reply_to, waits_for_room, write_of
from topics.clock import Clock
from topics.delivery.commits import committed
from topics.delivery.hub import CallLater
from topics.delivery.subscriber import Feed, Subscriber
from topics.engine.admission import Prepared
from topics.engine.engine import Engine
from topics.engine.journal import Busy, Commit
from topics.errors import Throttled, TopicsError
from topics.wire.large_write import LargeWrite
from topics.wire.live_requests import (
    Command,
    Ping,
    Publish,
    Subscribe,
    TopicStart,
    Unsubscribe,
    decode_command,
    decode_command_leniently,
    request_id_of,
)
from topics.wire.unknown_fields import UnknownFields

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class WebSocketCommands:
    """The commands of one connection. `send` takes the text of each answer; `spawn` runs a coroutine."""

    def __init__(
        self,
        engine: Engine,
        subscriber: Subscriber,
        clock: Clock,
        key: Key,
        call_later: CallLater,
        spawn: Spawn,
        send: Callable[[bytes], None],
        *,
        watch_topics_max: int,
        diff_limit_max: int,
        node_bytes_max: int,
    ) -> None:
        self._engine = engine
        self._subscriber = subscriber
        self._clock = clock
        self._key = key
        self._call_later = call_later
        self._spawn = spawn
        self._send_text = send
        self._watch_topics_max = watch_topics_max
        self._diff_limit_max = diff_limit_max
        self._node_bytes_max = node_bytes_max
        self._channel: Channel | None = None  # for its reading side only
        self._waiting: deque[bytes] = deque()
        self._busy = False
        self._no_room_since_ns: int | None = None  # the command that is first waits for the disk to catch up
        self._warnings: list[str] | None = None  # of the command that is being carried out

    def opened(self, channel: Channel) -> None:
        self._channel = channel

    def closed(self) -> None:
        """Nobody waits for an answer any more: what has not begun never does."""
        self._channel = None
        self._waiting.clear()

    def take(self, message: bytes) -> bool:
        """Carries a command out, now or after those before it. False when too many wait already."""
        if len(self._waiting) >= limits.WEBSOCKET_COMMANDS_MAX:
            return False
        self._waiting.append(message)
        self._work()
        return True

    def _work(self) -> None:
        while self._waiting and not self._busy and self._channel is not None:
            self._run(self._waiting.popleft())

    def _run(self, message: bytes) -> None:
        if len(message) > limits.WRITE_TURN_BYTES_MAX:
            self._hold_up(self._run_in_turns(message))
        else:
            self._run_now(message)

    def _run_now(self, message: bytes) -> None:
        self._warnings = None
        try:
            try:
                command = decode_command(message)
            except UnknownFields as unknown:
                self._warnings = unknown.warnings
                command = decode_command_leniently(message)
        except TopicsError as error:
            self._refuse(request_id_of(message), error, self._warnings)
            self._no_room_since_ns = None
        else:
            self._run_decoded(message, command)

    def _run_decoded(self, message: bytes, command: Command, prepared: Prepared | None = None) -> None:
        try:
            self._carry_out(command, prepared)
        except Busy as busy:
            self._hold_up(self._ask_again(message, command, busy))
            return
        except TopicsError as error:
            self._refuse(command.request_id, error, self._warnings)
        self._no_room_since_ns = None

    def _hold_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Until this is done, other commands wait."""
        self._busy = True
        if self._channel is not None:
            self._channel.pause_reading()  # what comes meanwhile waits with the client, not here
        self._spawn(work)

    async def _run_in_turns(self, message: bytes) -> None:
        """For a large message: it is decoded and rendered in many turns of the loop, and appended in another."""
        large: LargeWrite[Command] = LargeWrite(message, Command)
        command, prepared, refusal = None, None, None
        try:
            command = await decoded_in_turns(self._engine, large)
        except TopicsError as error:
            refusal = error
        if isinstance(command, Publish):
            prepared = await prepared_in_turns(self._engine, command.topic, command)
        self._busy = False
        self._warnings = large.warnings
        if self._channel is not None:
            if refusal is not None:
                self._refuse(request_id_of(large.outline()), refusal, self._warnings)
            elif command is not None:
                self._run_decoded(message, command, prepared)
            else:
                self._run_now(message)
        self._go_on()

    async def _ask_again(self, message: bytes, command: Command, busy: Busy) -> None:
        try:
            await committed(busy.commit)
        except TopicsError as error:
            self._refuse(command.request_id, error)
        else:
            self._waiting.appendleft(message)
        self._busy = False
        self._go_on()

    def _go_on(self) -> None:
        self._work()
        if self._channel is not None and not self._busy:
            self._channel.resume_reading()

    def _carry_out(self, command: Command, prepared: Prepared | None) -> None:
        match command:
            case Subscribe():
                self._subscribe(command)
            case Unsubscribe():
                topic = self._engine.find_topic(command.topic)
                if topic is not None:
                    self._subscriber.remove(topic)
                self._answer({"op": "unsubscribed", "request_id": command.request_id, "topic": command.topic})
            case Publish():
                self._publish(command, prepared)
            case Ping():
                self._answer({"op": "pong", "request_id": command.request_id})

    def _subscribe(self, command: Subscribe) -> None:
        self._key.require_scope(Scope.READ)
        starts = dict(command.topics or {})
        if command.topic is not None:
            starts[command.topic] = TopicStart(command.from_seq, command.tail, command.epoch)
        options = read_options(command, self._diff_limit_max, self._node_bytes_max)
        kept = sum(topic.name not in starts for topic in self._subscriber.feeds)  # the others begin anew
        room = max(self._watch_topics_max - kept, 0)
        found = find_topics(self._engine, self._key, starts, room, lenient=False)
        self._answer(
            {
                "op": "subscribed",
                "request_id": command.request_id,
                "topics": {
                    topic.name: {
                        "from_seq": from_seq,
                        "head_seq": topic.log.head_seq,
                        "earliest_seq": topic.log.earliest_seq,
                    }
                    for topic, from_seq, _ in found
                },
            }
        )
        for topic, from_seq, epoch in found:
            self._subscriber.add(Feed(topic, from_seq, options, recreated=epoch != topic.topic_id))

    def _publish(self, command: Publish, prepared: Prepared | None) -> None:
        key = self._key
        key.require_scope(Scope.WRITE)
        key.require_name(command.topic)
        if command.config is not None:
            key.require_scope(Scope.ADMIN)
            key.require_names_in(command.config)
        began_ns = self._clock.monotonic_ns()
        try:
            appended = self._engine.append(command.topic, write_of(command, command.idempotency_key, prepared))
        except Throttled as error:
            if command.disable_backpressure and waits_for_room(error) and not self._waited_long_enough(began_ns):
                raise Busy(self._later_again()) from None
            raise
        commit, warnings = appended.commit, self._warnings

        def acknowledge() -> None:
            total_ms = (self._clock.monotonic_ns() - began_ns) / 1e6
            reply = reply_to(command.topic, appended, command.return_seqs, total_ms, None)
            asked = b"" if command.request_id is None else b'"request_id":%b,' % encode(command.request_id)
            if warnings is not None:
                reply = b'%b,"warnings":%b}' % (reply[:-1], encode(warnings))
            self._send_text(b'{"op":"ack",%b%b' % (asked, reply[1:]))

        if commit is None:
            acknowledge()
        else:
            commit.when_done(
                lambda done: (
                    acknowledge() if done.error is None else self._refuse(command.request_id, done.error, warnings)
                )
            )

    def _waited_long_enough(self, now_ns: int) -> bool:
        if self._no_room_since_ns is None:
            self._no_room_since_ns = now_ns
        return now_ns - self._no_room_since_ns > limits.BACKPRESSURE_WAIT_MS_MAX * 1_000_000

    def _later_again(self) -> Commit:
        """For a writer that waits instead of being refused: done when it is time to look for room again."""
        commit = Commit()
        self._call_later(limits.BACKPRESSURE_RETRY_MS / 1000, lambda: commit.resolve(None, 0))
        return commit

    def _refuse(self, request_id: str | None, error: TopicsError, warnings: list[str] | None = None) -> None:
        frame: dict[str, object] = {"op": "error", "request_id": request_id, "code": error.code}
        frame["message"] = error.message
        frame["warnings"] = warnings
        if error.detail:
            frame["detail"] = error.detail
        self._send(frame)

    def _answer(self, frame: dict[str, object]) -> None:
        """Answers the current command, with warnings about its unknown fields."""
        self._send({**frame, "warnings": self._warnings})

    def _send(self, frame: dict[str, object]) -> None:
        self._send_text(text_of(frame))


def text_of(frame: dict[str, object]) -> bytes:
    """JSON, without the fields that have no value."""
    return encode({name: value for name, value in frame.items() if value is not None})
