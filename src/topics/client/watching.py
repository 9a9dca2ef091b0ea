"""Watching many topics over one connection: a session, its event stream, and what its events mean. Does no I/O itself.

The positions are kept here. Every break ends the session, and the next one begins after what was delivered, so that
nothing is missed or repeated. The epoch of each topic goes with its position, so that the server notices a recreated
topic.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
from msgspec import Struct

from topics import limits
from topics.client import calls
from topics.client.caller import Broken, ByteStream, Caller
from topics.client.calls import Match
from topics.client.errors import LossMet, UnexpectedReply
from topics.client.events import CaughtUp, Event, Gap, TopicDeleted, event_type
from topics.client.reading import Losses
from topics.client.retries import Retries
from topics.errors import InvalidRequest, NotFound, TopicNotFound

Item_co = TypeVar("Item_co", covariant=True)

Starts = str | Iterable[str] | Mapping[str, int | None]


class WatchOptions(TypedDict, total=False):
    """How a watch is made."""

    tail: bool  # only what comes from now on, where no place is given
    tag: Match  # only records whose tag matches
    node: str | list[str]  # the reader's own identities: their records are left out
    consistency: str  # "strong": only what is durable
    heartbeat_ms: int  # the server is taken for dead after twice this time without a sign of it
    include_meta: bool
    lenient: bool  # leave out topics that do not exist
    caught_up: bool  # also tell when there is no more in a topic right now


class ServerEvent(NamedTuple):
    name: bytes
    data: bytes


class EventLines:
    """Server-sent events from the bytes of a stream. Heartbeats are comments, and are ignored."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[ServerEvent]:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        if len(self._rest) > limits.CLIENT_LINE_BYTES_MAX:
            raise UnexpectedReply("an event of a watch is too long", 200)
        return [event for block in blocks if (event := _event(block)) is not None]


def _event(block: bytes) -> ServerEvent | None:
    name, data = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b": ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return ServerEvent(name, b"\n".join(data)) if data else None


class RecordFrame(Struct):
    topic: str
    records: list[Event[Any]]
    to_seq: int


class TombstoneFrame(Struct):
    topic: str
    reason: str
    gap_from: int
    gap_to: int
    earliest_seq: int


class TopicFrame(Struct):
    """Of `caught-up` and `topic-deleted`."""

    topic: str
    head_seq: int


class ErrorFrame(Struct):
    code: int
    error: str


class Frames:
    """Turns record frames into events of one type, for SSE and WebSocket alike."""

    def __init__(self, as_type: type[Any] | None) -> None:
        kind: Any = RecordFrame
        if as_type is not None:
            events: Any = list.__class_getitem__(event_type(as_type))
            kind = msgspec.defstruct("RecordFrame", [("records", events)], bases=(RecordFrame,))
        self._decoder: msgspec.json.Decoder[RecordFrame] = msgspec.json.Decoder(kind)

    def records(self, data: bytes) -> RecordFrame:
        frame = self._decoder.decode(data)
        for event in frame.records:
            event.topic = frame.topic
        return frame


class Places:
    """The position in each topic, and which topic of that name it belongs to."""

    def __init__(self, losses: Losses) -> None:
        if losses not in {"yield", "hide", "raise"}:
            raise InvalidRequest.in_field("losses", 'is "yield", "hide" or "raise"')
        self._losses = losses
        self.seqs: dict[str, int | None] = {}  # None: at the head, wherever that is when it begins
        self.epochs: dict[str, int] = {}

    def add_loss(self, items: list[Any], gap: Gap) -> None:
        if self._losses == "raise":
            raise LossMet(gap.topic, gap.first, gap.last, gap.reason)
        if self._losses == "yield":
            items.append(gap)

    def take_records(self, frame: RecordFrame, items: list[Any]) -> None:
        if frame.topic in self.epochs:  # else it is about to start over
            items += frame.records
            self.seqs[frame.topic] = frame.to_seq

    def take_tombstone(self, frame: TombstoneFrame, items: list[Any]) -> None:
        if frame.topic not in self.epochs:
            return
        if frame.reason == "recreated":
            # Read it from its beginning, once its epoch is known: by then it may be yet another topic.
            self.seqs[frame.topic] = 0
            self.epochs.pop(frame.topic, None)
        else:
            self.seqs[frame.topic] = frame.gap_to
        self.add_loss(items, Gap(frame.gap_from, frame.gap_to, frame.reason, frame.topic))

    def start(self, topic: str) -> dict[str, object]:
        """Where a subscription to the topic begins, as requests say it."""
        seq = self.seqs[topic]
        return {"tail": True} if seq is None else {"from_seq": seq, "epoch": self.epochs[topic]}

    def remove(self, topic: str) -> None:
        self.seqs.pop(topic, None)
        self.epochs.pop(topic, None)


class Watching(Generic[Item_co]):
    def __init__(
        self, caller: Caller, topics: Starts, options: WatchOptions, losses: Losses, as_type: type[Any] | None
    ) -> None:
        if unknown := options.keys() - WatchOptions.__annotations__.keys():
            raise TypeError(f"watch() has no argument {min(unknown)!r}")
        self._caller = caller
        self._options = options
        self._places = Places(losses)
        self._places.seqs = starts_of(topics, tail=options.get("tail", False))
        self._frames = Frames(as_type)
        heartbeat_ms = options.get("heartbeat_ms", limits.HEARTBEAT_MS_DEFAULT)
        self._silence_s = 2 * heartbeat_ms / 1000 + limits.CLIENT_SILENCE_SLACK_S
        self._stream: ByteStream | None = None
        self._lines = EventLines()
        self._retries: Retries | None = None
        self._begun = False
        self.over = False

    async def next_items(self) -> list[Item_co] | None:
        """What comes next, at least one item; None when every topic is deleted, or it was closed."""
        items: list[Any] = []
        while not self.over and self._places.seqs:
            try:
                if self._stream is None:
                    await self._connect(items)
                if self._stream is not None and not items:
                    await self._read(self._stream, items)
            except Broken as broken:
                await self._pause(broken.reason)
            except BaseException:
                self.close()
                raise
            if items:
                return items
        self.close()
        return None

    def close(self) -> None:
        self.over = True
        self._disconnect()

    async def _connect(self, items: list[Any]) -> None:
        """A new session from the current positions. Afterwards there is a stream, unless nothing is left to watch."""
        places = self._places
        lenient = self._begun or self._options.get("lenient", False)
        await self._learn_epochs(items, lenient=lenient)
        if not places.seqs:
            return
        reply = await self._caller.send(calls.new_watch(self._body(), lenient=lenient))
        self._begun = True
        for topic in [*places.seqs]:
            if topic in reply.topics:
                places.seqs[topic] = reply.topics[topic].from_seq
            else:
                self._gone(topic, items)
        if places.seqs:
            self._lines = EventLines()
            try:
                self._stream = await self._caller.open(calls.watch_stream(reply.wid))
            except NotFound as error:  # the server was restarted since it gave the session out
                raise Broken(error.message, sent=False) from None

    async def _learn_epochs(self, items: list[Any], *, lenient: bool) -> None:
        for topic in self._places.seqs.keys() - self._places.epochs.keys():
            try:
                self._places.epochs[topic] = (await self._caller.send(calls.topic(topic))).epoch
            except TopicNotFound:
                if not lenient:
                    raise
                self._gone(topic, items)

    def _gone(self, topic: str, items: list[Any]) -> None:
        items.append(TopicDeleted(topic, self._places.seqs[topic] or 0))
        self._places.remove(topic)

    def _body(self) -> dict[str, object]:
        options = self._options
        body: dict[str, object] = {
            "topics": {topic: self._places.start(topic) for topic in self._places.seqs},
            "limit": limits.DIFF_LIMIT_MAX,
            "max_batch_bytes": limits.CLIENT_WATCH_BATCH_BYTES,
            "include_tags": True,
            "heartbeat_ms": options.get("heartbeat_ms", limits.HEARTBEAT_MS_DEFAULT),
        }
        if "tag" in options:
            body["match"] = options["tag"]
        for name in ("node", "consistency", "include_meta"):
            if name in options:
                body[name] = options.get(name)
        return body

    async def _read(self, stream: ByteStream, items: list[Any]) -> None:
        data = await stream.read(self._silence_s)
        if not data:
            raise Broken("the stream has ended", sent=True)
        for event in self._lines.feed(data):
            self._retries = None  # it works, so the next failure is the first one
            if self._stream is None:
                return  # the event before ended it
            self._take(event, items)

    def _take(self, event: ServerEvent, items: list[Any]) -> None:
        places = self._places
        match event.name:
            case b"record":
                places.take_records(self._frames.records(event.data), items)
            case b"tombstone":
                tombstone = msgspec.json.decode(event.data, type=TombstoneFrame)
                places.take_tombstone(tombstone, items)
                if tombstone.reason == "recreated":
                    self._disconnect()
            case b"caught-up":
                there = msgspec.json.decode(event.data, type=TopicFrame)
                if self._options.get("caught_up", False):
                    items.append(CaughtUp(there.topic, there.head_seq))
            case b"topic-deleted":
                gone = msgspec.json.decode(event.data, type=TopicFrame)
                places.remove(gone.topic)
                items.append(TopicDeleted(gone.topic, gone.head_seq))
            case b"error":
                error = msgspec.json.decode(event.data, type=ErrorFrame)
                if error.code == 500:
                    raise UnexpectedReply(f"the server cannot read any further: {error.error}", error.code)
                if error.code != 429:  # then pushes only pause
                    self._disconnect()

    async def _pause(self, reason: str) -> None:
        self._disconnect()
        if self._retries is None:
            self._retries = self._caller.new_retries()
        await self._caller.port.pause(self._retries.after_failure(reason, self._caller.url) / 1000)

    def _disconnect(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def starts_of(topics: Starts, *, tail: bool) -> dict[str, int | None]:
    if isinstance(topics, str):
        topics = [topics]
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, None if tail else 0)
