"""Batches of one topic, read once for all watchers that are at the same place and ask for the same.

Each watcher may have nodes of its own, whose records it does not get. Near the head, where most are, they still share
one batch, except those who wrote something in it.

Lives for one serving of the topic, in which nothing changes.
"""

from typing import Protocol

from topics import limits
from topics.engine import log_reading
from topics.engine.log_reading import ReadBatch
from topics.engine.topic import Topic
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


class Member(Protocol):
    def follow(self, crowd: "Crowd") -> None:
        """Sends the text of the crowd and takes its place."""
        ...


class Crowd:
    """Those at the same place who get the same text, which takes them to the head. Choosing many, then sending to all
    of them, takes less time than doing both for one after the other."""

    __slots__ = ("_members", "began_ms", "from_seq", "options", "text", "to_seq", "topic_id")

    def __init__(self, serving: "SharedBatches", from_seq: int, options: ReadOptions, text: bytes) -> None:
        self.began_ms = serving.began_ms
        self.topic_id = serving.topic.topic_id
        self.from_seq = from_seq
        self.to_seq = serving.topic.log.head_seq
        self.options = options
        self.text = text
        self._members: list[Member] = []

    def join(self, member: Member) -> None:
        self._members.append(member)
        if len(self._members) >= limits.CROWD_MEMBERS_MAX:
            self.send()

    def send(self) -> None:
        members, self._members = self._members, []
        for member in members:
            member.follow(self)


class SharedBatches:
    """`began_ms`: when the serving began. `alone`: no other topic is served in this turn of the loop, so what is sent
    need not wait for more. `crowd`: most watchers are in it, if there is one. `fresh`: the topic has been brought up to
    date, which is done once for all."""

    __slots__ = ("_last", "_last_key", "_read", "alone", "began_ms", "crowd", "fresh", "topic")

    def __init__(self, topic: Topic, began_ms: int = 0, *, alone: bool = False) -> None:
        self.topic = topic
        self.began_ms = began_ms
        self.alone = alone
        self.crowd: Crowd | None = None
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
