"""A session over WebSocket: commands out, events in, over one connection. Does no I/O itself.

The positions are kept here. After a break the session connects again, subscribes from its positions, and repeats the
command that was under way; a publish carries an idempotency key, so it is written once.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypedDict
from uuid import uuid4

import msgspec
from msgspec import Struct

from topics import limits
from topics.client import calls
from topics.client.caller import Broken, Caller
from topics.client.calls import Match, NewRecord
from topics.client.core import Answer, refusal, told_error
from topics.client.errors import ClientClosed, SessionBusy, UnexpectedReply
from topics.client.events import CaughtUp, TopicDeleted
from topics.client.reading import Losses
from topics.client.retries import Retries
from topics.client.watching import Frames, Places, Starts, TombstoneFrame, TopicFrame, starts_of
from topics.wire.responses import WriteResponse


class SessionWishes(TypedDict, total=False):
    """What a session gets of its topics."""

    match: Match  # only records whose tag matches
    node: str | list[str]  # the session's own identities: their records are left out
    include_meta: bool


class TextSocket(Protocol):
    """A WebSocket connection of a shell. Raises `Broken`."""

    async def send(self, text: bytes) -> None: ...

    async def receive(self) -> bytes: ...

    def close(self) -> None: ...


Connect = Callable[[], Coroutine[Any, Any, TextSocket]]


class Frame(Struct):
    """What all frames have: what they are, and which command they answer."""

    op: str
    request_id: str | None = None


class Refusal(Struct):
    code: str
    message: str
    detail: dict[str, Any] = {}


class Subscribed(Struct):
    class Topic(Struct):
        from_seq: int

    topics: dict[str, Topic]


class Handshake(Protocol):
    """A response to a handshake, as `websockets` has it."""

    status_code: int
    headers: Any
    body: Any


def refused_handshake(response: Handshake) -> Exception:
    """Tries a busy server again; raises every other refusal."""
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    answer = Answer(response.status_code, headers, bytes(response.body or b""))
    if answer.status in {429, 503}:
        return Broken(f"status {answer.status}", sent=False)
    return refusal(answer)


class Conversation:
    def __init__(
        self, caller: Caller, connect: Connect, losses: Losses, wishes: SessionWishes, as_type: type[Any] | None
    ) -> None:
        self._caller = caller
        self._connect = connect
        self._wishes = wishes
        self._places = Places(losses)
        self._frames = Frames(as_type)
        self._socket: TextSocket | None = None
        self._items: deque[Any] = deque()
        self._retries: Retries | None = None
        self._busy = False
        self.over = False

    async def subscribe(self, topics: Starts, *, tail: bool = False) -> None:
        """Subscribes to these topics, in addition to those it has."""
        starts = starts_of(topics, tail=tail)
        for topic in starts:
            self._places.epochs[topic] = (await self._caller.send(calls.topic(topic))).epoch
        self._places.seqs.update(starts)
        try:
            await self._ask(lambda: self._subscription(list(starts)))
        except BaseException:
            for topic in starts:
                self._places.remove(topic)
            raise

    async def unsubscribe(self, topic: str) -> None:
        self._places.remove(topic)
        await self._ask(lambda: {"op": "unsubscribe", "topic": topic})

    async def publish(
        self, topic: str, records: Iterable[object], *, key: str | None, config: Mapping[str, object] | None
    ) -> WriteResponse:
        command: dict[str, object] = {
            "op": "publish",
            "topic": topic,
            "records": [each if isinstance(each, NewRecord) else NewRecord(each) for each in records],
            "idempotency_key": key or uuid4().hex,
            "return_seqs": False,
        }
        if config is not None:
            command["config"] = config
        return msgspec.json.decode(await self._ask(lambda: command), type=WriteResponse)

    async def ping(self) -> None:
        await self._ask(lambda: {"op": "ping"})

    async def next_items(self) -> list[Any] | None:
        """What comes next, at least one item; None when the session was closed."""
        with self._alone():
            while not self.over:
                if self._items:
                    items = [*self._items]
                    self._items.clear()
                    return items
                try:
                    await self._receive(await self._connected())
                except Broken as broken:
                    await self._pause(broken.reason)
        return None

    def close(self) -> None:
        self.over = True
        self._disconnect()

    async def _ask(self, command: Callable[[], Mapping[str, object]]) -> bytes:
        """Sends a command and waits for its answer; what arrives before it is kept for the iteration."""
        with self._alone():
            while not self.over:
                try:
                    return await self._ask_once(await self._connected(), command())
                except Broken as broken:
                    await self._pause(broken.reason)
            raise ClientClosed("this session was closed; open a new one")

    async def _ask_once(self, socket: TextSocket, command: Mapping[str, object]) -> bytes:
        request_id = uuid4().hex
        await socket.send(msgspec.json.encode({**command, "request_id": request_id}))
        while True:
            text = await self._receive(socket, request_id)
            if text is not None:
                return text

    async def _connected(self) -> TextSocket:
        """The connection; a new one has every subscription before it is used."""
        if self._socket is None:
            socket = await self._connect()
            try:
                if self._places.seqs:
                    for topic in self._places.seqs.keys() - self._places.epochs.keys():
                        self._places.epochs[topic] = (await self._caller.send(calls.topic(topic))).epoch
                    await self._ask_once(socket, self._subscription(list(self._places.seqs)))
            except BaseException:
                socket.close()
                raise
            self._socket = socket
        return self._socket

    def _subscription(self, topics: list[str]) -> dict[str, object]:
        return {
            "op": "subscribe",
            "topics": {topic: self._places.start(topic) for topic in topics},
            "limit": limits.DIFF_LIMIT_MAX,
            "include_tags": True,
            **self._wishes,
        }

    async def _receive(self, socket: TextSocket, request_id: str | None = None) -> bytes | None:
        """Takes one frame; returns it if it answers the command. Raises the refusal of that."""
        text = await socket.receive()
        self._retries = None
        frame = msgspec.json.decode(text, type=Frame)
        if frame.op == "error":
            told = msgspec.json.decode(text, type=Refusal)
            error = told_error(told.code, told.message, told.detail)
            if frame.request_id is None and told.code in {"throttled", "shutting_down"}:
                return None  # pushes pause, or the server is about to close the connection
            raise error
        if frame.request_id is not None:
            if frame.op == "subscribed":
                for topic, place in msgspec.json.decode(text, type=Subscribed).topics.items():
                    self._places.seqs[topic] = place.from_seq
            return text if frame.request_id == request_id else None
        self._take(frame.op, text)
        if len(self._items) > limits.CLIENT_SESSION_ITEMS_MAX:
            raise UnexpectedReply("too many events wait to be iterated over; publish over another session", 0)
        return None

    def _take(self, op: str, text: bytes) -> None:
        items: list[Any] = []
        match op:
            case "record":
                self._places.take_records(self._frames.records(text), items)
            case "tombstone":
                tombstone = msgspec.json.decode(text, type=TombstoneFrame)
                self._places.take_tombstone(tombstone, items)
                if tombstone.reason == "recreated":
                    self._disconnect()
            case "caught_up":
                there = msgspec.json.decode(text, type=TopicFrame)
                items.append(CaughtUp(there.topic, there.head_seq))
            case "topic_deleted":
                gone = msgspec.json.decode(text, type=TopicFrame)
                self._places.remove(gone.topic)
                items.append(TopicDeleted(gone.topic, gone.head_seq))
        self._items += items

    async def _pause(self, reason: str) -> None:
        self._disconnect()
        if self._retries is None:
            self._retries = self._caller.new_retries()
        await self._caller.port.pause(self._retries.after_failure(reason, self._caller.url) / 1000)

    def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def _alone(self) -> "_Alone":
        return _Alone(self)


class _Alone:
    """Refuses a second user at the same time, because their answers would be mixed up."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def __enter__(self) -> None:
        if self._conversation._busy:
            raise SessionBusy("a session is for one thread or task at a time; open another one")
        self._conversation._busy = True

    def __exit__(self, *exc_info: object) -> None:
        self._conversation._busy = False
