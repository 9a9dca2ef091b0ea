"""Batches of one topic, read once for all watchers that are at the same place and ask for the same.

Each watcher may have nodes of its own, whose records it does not get. Near the head, where most are, they still share
one batch, except those who wrote something in it.

They live for one serving of the topic, in which nothing changes. Watchers that keep asking for the same at the same
place become a crowd, which lasts.
"""

from collections.abc import Callable
from typing import Protocol

from topics import limits
from topics.engine import log_reading
from topics.engine.journal import Busy
from topics.engine.log_reading import ReadBatch
from topics.engine.topic import Topic
from topics.errors import TopicsError
from topics.model.read_options import ReadOptions
from topics.model.record import node_of

NOBODY: frozenset[str] = frozenset()


class SharedBatch:
    """A batch and the texts made from it, each made by the first who needs it. `serving` is the one it is part of."""

    __slots__ = ("_nodes", "batch", "serving", "texts")

    def __init__(self, batch: ReadBatch, serving: "SharedBatches") -> None:
        self.batch = batch
        self.serving = serving
        self.texts: dict[object, bytes] = {}
        self._nodes: set[str | None] | None = None

    @property
    def nodes(self) -> set[str | None]:
        """Who wrote its records."""
        if self._nodes is None:
            self._nodes = set(map(node_of, self.batch.fragments))
        return self._nodes


class Watcher(Protocol):
    def serve(self, topic: Topic, shared: "SharedBatches") -> int:
        """The topic has something new, or is gone: sends what can be sent now. Returns how many bytes that was."""
        ...

    def pace(self, topics: list[str], retry_after_ms: int) -> None:
        """The pushes of these topics are paused under pressure."""
        ...


class Way(Protocol):
    """The connection of a member."""

    @property
    def writable(self) -> bool: ...

    def send(self, data: bytes) -> bool:
        """Writes at once. Returns whether that, and all that was written before, has left the process."""
        ...


class Member(Protocol):
    def parted(self, crowd: "Crowd", cursor: int, left_seq: int, told_seq: int) -> None:
        """It is on its own again, behind `cursor`. Texts up to `left_seq` have left its connection, and those up to
        `told_seq` were written to it."""
        ...


class Audience:
    """Who watches one topic. `served`: the crowds, and those who are in none."""

    __slots__ = ("crowds", "served", "watchers")

    def __init__(self) -> None:
        self.watchers: dict[Watcher, None] = {}
        self.served: dict[Watcher, None] = {}
        self.crowds: dict[ReadOptions, Crowd] = {}

    def end_serving(self) -> None:
        """Drops crowds nobody has joined, and texts nobody waits for."""
        for crowd in list(self.crowds.values()):
            crowd.end_serving()


class Crowd:
    """Watchers of one topic that are at the same place, have sent everything, and get the same text next. They move as
    one: a member's own position is out of date until it parts and is told where it is. A text costs a member its `send`
    and a tenth of a microsecond.

    Implements `topics.delivery.hub.Watcher`.
    """

    __slots__ = (
        "_audience",
        "_changed",
        "_encode",
        "_left_seq",
        "_members",
        "_refresh",
        "_removed_count",
        "_serving",
        "_told_seq",
        "_unsent",
        "from_seq",
        "last_sent_ms",
        "options",
        "text",
        "to_seq",
        "topic",
    )

    def __init__(
        self,
        serving: "SharedBatches",
        options: ReadOptions,
        from_seq: int,
        text: bytes,
        encode: Callable[["SharedBatch", int, int], bytes],
        refresh: Callable[[Topic], None],
        changed: Callable[[Topic], None],
    ) -> None:
        """`text` takes those who join in this serving from `from_seq` to the head; `encode` makes the next ones."""
        self._audience = serving.audience
        self._encode = encode
        self._refresh = refresh
        self._changed = changed
        self._serving: SharedBatches | None = serving
        self._members: dict[Member, Way] = {}
        self._unsent: list[tuple[Member, Way]] = []  # members the text has still to be sent to
        self._removed_count = 0  # records that were gone from the topic when the text was made
        self.topic = serving.topic
        self.options = options
        self.from_seq = from_seq
        self.to_seq = serving.topic.log.head_seq
        self.text = text
        self._left_seq = self._told_seq = self.to_seq  # before the text, and with it
        self.last_sent_ms = serving.began_ms
        self._audience.crowds[options] = self

    def takes(self, cursor: int, serving: "SharedBatches") -> bool:
        """Whether somebody at this place can join: with the text, or because it is where everybody is."""
        if cursor == self.to_seq:
            return bool(self._members) and not self._unsent
        return cursor == self.from_seq and self._serving is serving

    def add(self, member: Member, way: Way) -> None:
        """Adds a watcher at `to_seq` that has sent everything."""
        self._audience.served[self] = None
        self._members[member] = way

    @property
    def left_seq(self) -> int:
        """Where all its members are, at least."""
        return self.from_seq if self._unsent else self.to_seq

    def leave(self, member: Member) -> None:
        """Its connection ends, or the text did not go through."""
        del self._members[member]
        if self._is_behind(member):
            self._unsent = [waiting for waiting in self._unsent if waiting[0] is not member]
            member.parted(self, self.from_seq, self._left_seq, self._left_seq)
        else:
            member.parted(self, self.to_seq, self._told_seq, self._told_seq)
        if not self._members:
            self._end()

    def serve(self, topic: Topic, shared: "SharedBatches") -> int:
        """Sends the text to some of those who have not got it. Hot: the loop is what a delivery costs."""
        if self._unsent:
            if topic.log.head_seq - topic.log.count != self._removed_count:
                self._part_unsent()  # something of the text may have been deleted since
                return 0
        elif not self._advance(shared):
            return 0
        self._serving = shared
        self.last_sent_ms = shared.began_ms
        text, unsent = self.text, self._unsent
        count = min(len(unsent), limits.CROWD_MEMBERS_MAX)
        for _ in range(count):
            member, way = unsent.pop()
            if not way.writable:
                del self._members[member]
                member.parted(self, self.from_seq, self._left_seq, self._left_seq)
                self._changed(topic)
            elif not way.send(text):
                del self._members[member]
                member.parted(self, self.to_seq, self._left_seq, self._told_seq)
        if not self._members:
            self._end()
        shared.goes_on = bool(unsent) or (bool(self._members) and self.to_seq < topic.log.head_seq)
        return count * len(text)

    def pace(self, topics: list[str], retry_after_ms: int) -> None:
        """Each member is told by itself."""

    def end_serving(self) -> None:
        if not self._members:
            self._end()
        if not self._unsent:
            self.text = b""
            self._serving = None

    def _advance(self, shared: "SharedBatches") -> bool:
        """Makes the next text. False if there is none; anything unusual is left to each member alone."""
        topic, log = self.topic, self.topic.log
        if topic.deleted:
            self._dissolve()
            return False
        if not shared.fresh:
            self._refresh(topic)
            shared.fresh = True
        cursor = self.to_seq
        if cursor == log.head_seq:
            return False
        try:
            read = shared.read(cursor, self.options)
        except (Busy, TopicsError, OSError):
            self._dissolve()
            return False
        batch = read.batch
        if batch.gap is not None or batch.next_from_seq != log.head_seq:
            self._dissolve()
            return False
        if not batch.fragments:
            self.from_seq = self.to_seq = batch.next_from_seq
            return False
        text = self._encode(read, cursor, log.head_seq)
        if len(text) > limits.STREAM_JOIN_BYTES_MAX:
            self._dissolve()
            return False
        self.from_seq, self.to_seq = cursor, batch.next_from_seq
        self._left_seq, self._told_seq = self._told_seq, self.to_seq
        self.text = text
        self._removed_count = log.head_seq - log.count
        self._unsent = list(self._members.items())
        self._unsent.reverse()
        return True

    def _is_behind(self, member: Member) -> bool:
        return any(waiting is member for waiting, _ in self._unsent)

    def _part_unsent(self) -> None:
        unsent, self._unsent = self._unsent, []
        for member, _ in unsent:
            del self._members[member]
            member.parted(self, self.from_seq, self._left_seq, self._left_seq)
        if not self._members:
            self._end()
        self._changed(self.topic)

    def _dissolve(self) -> None:
        members, self._members = self._members, {}
        for member in members:
            member.parted(self, self.to_seq, self._told_seq, self._told_seq)
        self._end()
        self._changed(self.topic)

    def _end(self) -> None:
        self._audience.served.pop(self, None)
        if self._audience.crowds.get(self.options) is self:
            del self._audience.crowds[self.options]


class SharedBatches:
    """`began_ms`: when the serving began. `alone`: no other topic is served in this turn of the loop, so what is sent
    need not wait for more. `audience`: for whom. `goes_on`: whoever was served last has more to send. `fresh`: the
    topic has been brought up to date, which is done once for all."""

    __slots__ = ("_last", "_last_key", "_read", "alone", "audience", "began_ms", "fresh", "goes_on", "topic")

    def __init__(
        self, topic: Topic, began_ms: int = 0, *, alone: bool = False, audience: Audience | None = None
    ) -> None:
        self.topic = topic
        self.began_ms = began_ms
        self.alone = alone
        self.audience = audience or Audience()
        self.goes_on = False
        self.fresh = False
        self._read: dict[tuple[int, ReadOptions], SharedBatch] = {}
        self._last_key: tuple[int, ReadOptions] | None = None
        self._last: SharedBatch

    def read(self, from_seq: int, options: ReadOptions, own_nodes: frozenset[str] = NOBODY) -> SharedBatch:
        """The next batch, without records of `own_nodes`; `options` name none."""
        if not own_nodes:
            return self._batch(from_seq, options)
        if self.topic.log.head_seq - from_seq <= limits.OWN_NODES_SHARED_SEQS_MAX:
            of_all = self._batch(from_seq, options)
            if not of_all.batch.joined and of_all.nodes.isdisjoint(own_nodes):
                return of_all
        return self._batch(from_seq, options._replace(own_nodes=own_nodes))

    def _batch(self, from_seq: int, options: ReadOptions) -> SharedBatch:
        key = (from_seq, options)
        if key == self._last_key:  # what most ask for; comparing takes a third of the time of hashing
            return self._last
        shared = self._read.get(key)
        if shared is None:
            shared = self._read[key] = SharedBatch(log_reading.read(self.topic.log, from_seq, options), self)
        self._last_key, self._last = key, shared
        return shared
