"""Random histories of live delivery, against the contract every watcher is given.

For each topic a watcher's seqs strictly increase, and every seq up to its cursor was delivered, lies in a tombstone,
was deleted, or is the watcher's own. Nothing comes twice, except after the client itself asked to go back.

A client reads its frames some time after they were written. When it loses them it comes back with the id of the last
one it has read, also from before a topic was recreated.
"""

import json
import re
from collections import defaultdict
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Raw

from doubles.fake_channel import FakeChannel
from doubles.live_stage import LiveStage
from doubles.manual_journal import ManualJournal
from topics.delivery.cursor_ids import decode_id
from topics.delivery.watch_session import Position, WatchOptions, WatchSession, WatchSessions
from topics.delivery.watch_stream import WatchStream
from topics.engine.engine import Write
from topics.engine.topic import Topic
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord

NAMES = ("a", "b")
CONFIGS: list[dict[str, Any]] = [
    {},
    {"durability": "fsync"},
    {"durability": "ephemeral", "cap_records": 3},
    {"cap_records": 5},
    {"ttl_ms": 1000},
    {"ttl_ms": 1000, "cap_records": 4, "durability": "fsync"},
]
KINDS = [  # own nodes, limit of a frame, strong
    ((), 100, False),
    (("me",), 2, False),
    (("me", "you"), 100, False),
    ((), 1, True),
    (("me",), 3, True),
]

names = st.sampled_from(NAMES)
numbers = st.integers(0, len(KINDS) - 1)


class Frame(NamedTuple):
    event: str
    data: dict[str, Any]
    cursors: dict[str, int] | None


def parse(text: str) -> list[Frame]:
    frames = []
    for part in text.split("\n\n"):
        if not part or part.startswith(("retry: ", ": hb ")):
            continue
        found = re.fullmatch(r"(?:id: (?P<id>\S+)\n)?event: (?P<event>\S+)\ndata: (?P<data>.*)", part)
        assert found is not None, part
        frames.append(Frame(found["event"], json.loads(found["data"]), decode_id(found["id"]) if found["id"] else None))
    return frames


class History:
    """What happened to the seqs of every topic there ever was, by its id."""

    def __init__(self) -> None:
        self.nodes: dict[int, dict[int, str | None]] = defaultdict(dict)
        self.deleted: dict[int, set[int]] = defaultdict(set)


class Watcher:
    """A session, its stream, and a client that checks every frame it reads."""

    def __init__(
        self, stage: "Stage", own: tuple[str, ...], limit: int, *, strong: bool, names: tuple[str, ...] = NAMES
    ) -> None:
        self._stage = stage
        self._own = own
        self._names = names
        read = ReadOptions(limit=limit, bytes_max=1_000_000, own_nodes=frozenset(own))
        topics = [stage.topic(name) for name in names]
        positions = {topic.name: Position(topic.topic_id, 0) for topic in topics}
        self.session: WatchSession = stage.sessions.create(b"", WatchOptions(read, 15_000, strong), positions)
        self._instances = {topic.name: topic.topic_id for topic in topics}  # that the client's cursors are of
        self._cursors = dict.fromkeys(names, 0)
        self._unread: list[Frame] = []
        self._last_id: dict[str, int] | None = None
        self._ended: set[str] = set()  # topics whose end this connection was told
        self._connect()

    # The connection

    def _connect(self, resume_from: dict[str, int] | None = None) -> None:
        self.channel = FakeChannel()
        self._streamed = {
            name: topic.topic_id for name in self._names if (topic := self._stage.engine.find_topic(name))
        }
        self._ended = set()
        self.stream = WatchStream(
            self._stage.engine,
            self._stage.hub,
            self._stage.clock,
            self._stage.sessions,
            self.session,
            self._stage.loop.call_later,
            lambda: None,
            resume_from,
        )
        self.stream.opened(self.channel)

    def reconnect(self, *, losing: bool, taking_over: bool) -> None:
        if not taking_over:
            self.stream.closed()
        self._receive()
        losing = losing and self._last_id is not None
        self._read(0 if losing else len(self._unread))
        self._unread.clear()
        old = self.stream
        self._connect(self._last_id if losing else None)  # its Last-Event-ID
        old.closed()  # the transport reports the loss of the old one, at the latest now

    def stall(self) -> None:
        self.channel.writable = False

    def go_on(self) -> None:
        self.channel.writable = True
        self.stream.drained()

    # The client

    def read(self, count: int) -> None:
        self._receive()
        self._read(min(count, len(self._unread)))

    def read_all(self) -> None:
        self._receive()
        self._read(len(self._unread))
        if self.channel.closed:  # it was too slow
            self.reconnect(losing=False, taking_over=False)

    def check_complete(self) -> None:
        """After everything there was to send has been read."""
        for name in self._names:
            topic = self._stage.engine.find_topic(name)
            if topic is not None and self._streamed.get(name) == topic.topic_id:
                assert self._instances[name] == topic.topic_id
                self._require_reasons(name, topic.log.head_seq + 1)

    def _receive(self) -> None:
        self._unread += parse(self.channel.take().decode())

    def _read(self, count: int) -> None:
        for frame in self._unread[:count]:
            self._check(frame)
        del self._unread[:count]

    def _check(self, frame: Frame) -> None:
        data = frame.data
        if frame.event == "error":
            assert frame.cursors is None
            return
        name = data["topic"]
        assert name not in self._ended, "a topic that has ended goes on"
        match frame.event:
            case "record":
                self._pass_over(name, data["from_seq"] + 1)
                self._take_records(name, [record["$seq"] for record in data["records"]], data["to_seq"])
            case "tombstone" if data["reason"] == "recreated":
                assert self._instances[name] != self._streamed[name], "it was not recreated"
                self._instances[name] = self._streamed[name]
                assert data["gap_from"] == 1
                self._cursors[name] = data["earliest_seq"] - 1
            case "tombstone":
                self._pass_over(name, data["gap_from"])
                assert data["gap_from"] <= data["gap_to"] < data["earliest_seq"]
                lost = set(range(data["gap_from"], data["gap_to"] + 1))
                assert lost - self._deleted(name), "nothing was lost"
                self._cursors[name] = data["gap_to"]
            case "caught-up":
                self._pass_over(name, data["head_seq"] + 1)
            case "topic-deleted":
                self._ended.add(name)
            case _:
                raise AssertionError(frame)
        assert frame.cursors is not None
        assert {name: frame.cursors[name] for name in self._names} == self._cursors
        epochs = {name.removeprefix("$"): epoch for name, epoch in frame.cursors.items() if name.startswith("$")}
        for name, epoch in epochs.items():
            # 0: an earlier topic, when the id the client came back with did not say which.
            assert epoch == self._instances[name] or (epoch == 0 and self._instances[name] != self._streamed.get(name))
        self._last_id = frame.cursors

    def _take_records(self, name: str, seqs: list[int], to_seq: int) -> None:
        assert seqs
        for seq in seqs:
            assert seq > self._cursors[name], "twice, or out of order"
            assert self._nodes(name)[seq] not in self._own
            self._pass_over(name, seq)
            self._cursors[name] = seq
        self._pass_over(name, to_seq + 1)

    def _pass_over(self, name: str, seq: int) -> None:
        """Goes on to just before `seq`."""
        assert seq > self._cursors[name], "it goes back"
        self._require_reasons(name, seq)
        self._cursors[name] = seq - 1

    def _require_reasons(self, name: str, seq: int) -> None:
        """Everything before `seq` that has not come was deleted, or is the watcher's own."""
        for missing in range(self._cursors[name] + 1, seq):
            own = self._nodes(name)[missing] in self._own
            assert own or missing in self._deleted(name), f"{name} {missing} is missing"

    def _deleted(self, name: str) -> set[int]:
        return self._stage.history.deleted[self._instances[name]]

    def _nodes(self, name: str) -> dict[int, str | None]:
        return self._stage.history.nodes[self._instances[name]]


class Stage(LiveStage):
    def __init__(self) -> None:
        self.journal = ManualJournal()
        super().__init__(self.journal)
        self.sessions = WatchSessions(self.clock, 0)
        self.history = History()

    def topic(self, name: str) -> Topic:
        topic = self.engine.find_topic(name)
        assert topic is not None
        return topic

    def create(self, name: str, config: dict[str, Any]) -> None:
        self.configure(name, **config)
        self.journal.sync()

    def append(self, name: str, count: int, node: str | None) -> None:
        appended = self.engine.append(name, Write([NewRecord(Raw(b"0"), node=node)] * count))
        seqs = range(appended.first_seq, appended.first_seq + count)
        self.history.nodes[appended.topic.topic_id].update(dict.fromkeys(seqs, node))

    def delete_records(self, name: str, before_seq: int) -> None:
        self.journal.sync()
        topic = self.engine.topic(name)
        before = _live(topic)
        self.engine.delete_records(name, before_seq, None)
        self.journal.sync()
        self.history.deleted[topic.topic_id] |= before - _live(topic)


def _live(topic: Topic) -> set[int]:
    return {
        block.first_seq + position
        for block in topic.log.blocks
        for position in range(len(block))
        if block.is_live(position)
    }


class Deliveries(RuleBasedStateMachine):
    @initialize(configs=st.lists(st.sampled_from(CONFIGS), min_size=len(NAMES), max_size=len(NAMES)))
    def begin(self, configs: list[dict[str, Any]]) -> None:
        self.stage = Stage()
        for name, config in zip(NAMES, configs, strict=True):
            self.stage.create(name, config)
        self.watchers = [Watcher(self.stage, own, limit, strong=strong) for own, limit, strong in KINDS]

    # The topics

    @rule(name=names, count=st.integers(1, 6), node=st.sampled_from([None, None, "me", "you"]))
    def write(self, name: str, count: int, node: str | None) -> None:
        if self.stage.engine.find_topic(name) is not None:
            self.stage.append(name, count, node)

    @rule(name=names, back=st.integers(-1, 8))
    def delete_records(self, name: str, back: int) -> None:
        topic = self.stage.engine.find_topic(name)
        if topic is not None:
            self.stage.delete_records(name, max(topic.log.head_seq - back, 0))

    @rule(name=names)
    def delete_topic(self, name: str) -> None:
        self.stage.engine.delete_topic(name)
        self.stage.journal.sync()

    @rule(name=names, config=st.sampled_from(CONFIGS))
    def create_topic(self, name: str, config: dict[str, Any]) -> None:
        if self.stage.engine.find_topic(name) is None:
            self.stage.create(name, config)

    @rule()
    def sync(self) -> None:
        self.stage.journal.sync()

    # Time

    @rule()
    def turn(self) -> None:
        self.stage.loop.turn()

    @rule(ms=st.sampled_from([1, 600, 1001, 20_000]))
    def pass_time(self, ms: int) -> None:
        self.stage.loop.pass_time(ms)

    @rule()
    def expire(self) -> None:
        self.stage.engine.expire_due()

    # The watchers

    @rule(number=numbers, count=st.integers(1, 5))
    def read(self, number: int, count: int) -> None:
        self.watchers[number].read(count)

    @rule(number=numbers)
    def stall(self, number: int) -> None:
        self.watchers[number].stall()

    @rule(number=numbers)
    def go_on(self, number: int) -> None:
        self.watchers[number].go_on()

    @rule(number=numbers, losing=st.booleans(), taking_over=st.booleans())
    def reconnect(self, number: int, losing: bool, taking_over: bool) -> None:
        self.watchers[number].reconnect(losing=losing, taking_over=taking_over)

    @rule()
    def catch_up(self) -> None:
        """Everybody reads on to the end; then nothing may be missing."""
        for watcher in self.watchers:
            watcher.read_all()
            watcher.go_on()
        self.stage.journal.sync()
        self.stage.settle()
        for watcher in self.watchers:
            watcher.read_all()
            watcher.check_complete()

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        """The hub forgets nobody: what is ready has a turn coming."""
        if hasattr(self, "stage"):
            assert not self.stage.hub.ready_depth or self.stage.loop.is_due

    def teardown(self) -> None:
        if hasattr(self, "stage"):
            self.catch_up()


Deliveries.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestDeliveries = Deliveries.TestCase
