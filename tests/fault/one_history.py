"""Random histories over topics that exchange records, and the two things that have to hold in each of them.

*Replay equals live*: the operations handed to the log that have been applied, decoded from their frames and folded
into a fresh state, give the live state, but for what only the clock decides (TTLs, deadlines, windows of keys).
Without a cold tier: what a cap takes there, it takes late.

*Nothing shown changes*: after a crash at any moment, every seq a reader has seen has the same record or is told as
lost.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EIO
from functools import partial
from json import loads
from typing import NamedTuple

from msgspec import Raw, convert

from topics.engine import log_reading
from topics.engine.apply import apply
from topics.engine.image import image_of
from topics.engine.journal import Busy, Commit
from topics.engine.queues import Claimer
from topics.engine.records import Write
from topics.engine.router_graph import upstream
from topics.engine.state import State
from topics.engine.topic import Topic
from topics.errors import TopicsError
from topics.model.config import TopicConfigPatch
from topics.model.operation import (
    Claimed,
    Extended,
    Forwarded,
    JobsDeleted,
    Operation,
    RecordsDeleted,
    Released,
    TopicDeleted,
)
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.router import Guarantee, RouterSettings
from topics.model.tag_match import TagMatch
from topics.storage.frame import FrameDecoder, single_frames
from topics.storage.operation_codec import encode, operations_of
from topics.storage.wal_reader import Frame
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import SimulatedServer

LOGS = ("a", "b", "c")
QUEUES = ("q", "p")
TOPICS = (*LOGS, *QUEUES)
TAGS = (None, "x", "y")
FILTERS = (None, None, TagMatch("x", is_prefix=False))
PATCHES: tuple[dict[str, object], ...] = (
    {"cap_records": 3},
    {"cap_records": 2, "discard": "reject"},
    {"cap_records": 0, "discard": "old"},
    {"cap_bytes": 200},
    {"cap_bytes": 0},
    {"ttl_ms": 300},
    {"ttl_ms": 0},
    {"durability": "disk"},
    {"durability": "fsync"},
    {"durability": "memory"},
)
KINDS = (
    ["write"] * 10
    + ["delete"] * 4
    + ["route"] * 4
    + ["claim", "claim", "claim", "ack", "ack", "nack", "redrive", "unroute", "configure", "configure", "configure"]
    + ["read", "read", "forward", "clock", "clock", "step", "step", "step", "checkpoint", "remove", "fail"]
)
_WHOLE = ReadOptions(limit=10_000, bytes_max=1 << 30, include_tags=True)


class Step(NamedTuple):
    """What to do, to which topic, and three numbers that say how."""

    kind: str
    topic: str
    first: int
    second: int
    third: int


def seeded(seed: int, count: int) -> list[Step]:
    choice = random.Random(seed)
    return [
        Step(choice.choice(KINDS), choice.choice(TOPICS), *(choice.randrange(60) for _ in range(3)))
        for _ in range(count)
    ]


class Handed(NamedTuple):
    """`at_once`: applied whether it is durable or not, and taken back if that fails: a lease. `cursor`: how far routers
    had been decided to go, logged late."""

    lane: int
    frames: bytes
    commit: Commit | None
    at_once: bool = False
    cursor: Forwarded | None = None

    def is_applied(self, live: State) -> bool:
        if self.cursor is not None:
            routers = [live.routers.by_id(router_id) for router_id in self.cursor.routers]
            return all(router is None or router.cursor >= self.cursor.through_seq for router in routers)
        if self.commit is None or (self.at_once and not self.commit.done):
            return True
        return self.commit.done and self.commit.error is None


class Recorder:
    """Stands between the engine and its journal and keeps what goes through."""

    def __init__(self, server: SimulatedServer) -> None:
        self.handed: list[Handed] = []
        self._journal = journal = server.journal
        self._submit, self._single = journal.submit, journal.append_single
        journal.submit = self.submit  # type: ignore[method-assign]
        journal.append_single = self.append_single  # type: ignore[method-assign]

    def submit(self, operations: Sequence[Operation], *, gated: bool) -> Commit | None:
        last = operations[-1]
        topic_id = getattr(last, "topic_ids", [last.topic_id])[0]
        lane = self._journal.lane(topic_id) if topic_id else 0
        commit = self._submit(operations, gated=gated)
        if not isinstance(last, TopicDeleted):
            lane = self._journal.lane(topic_id) if topic_id else 0  # it may have entered another one
        # Cursors that are logged late come before what they are logged for, and are applied already.
        cursors = [each for each in operations[:-1] if isinstance(each, Forwarded)]
        for cursor in cursors:
            self.handed.append(Handed(lane, b"".join(encode([cursor], durable=False)), None, cursor=cursor))
        frames = b"".join(encode([each for each in operations if each not in cursors], durable=gated))
        self.handed.append(Handed(lane, frames, commit, isinstance(last, Claimed | Released | Extended)))
        return commit

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        taken = self._single(topic_id, seq, ts, node, tag, data)
        if taken:
            frames = single_frames([(topic_id, seq, ts, node, tag, data)])
            self.handed.append(Handed(self._journal.lane(topic_id), frames, None))
        return taken

    def operations(self, live: State) -> list[Operation]:
        """Of what has been applied: each log in order, the one of topics that exchange records last."""
        found: list[Operation] = []
        lanes = sorted({handed.lane for handed in self.handed}, reverse=True)
        for lane in lanes:
            frames = b"".join(
                handed.frames for handed in self.handed if handed.lane == lane and handed.is_applied(live)
            )
            found += operations_of(_frames(frames))
        return found

    def in_doubt(self, topic: Topic) -> list[RecordsDeleted | JobsDeleted]:
        """Deletes whose disk failed: they may be in the log nevertheless."""
        failed = [handed for handed in self.handed if handed.commit is not None and handed.commit.error is not None]
        operations = [operation for handed in failed for operation in operations_of(_frames(handed.frames))]
        deletes = [each for each in operations if isinstance(each, RecordsDeleted | JobsDeleted)]
        return [each for each in deletes if each.topic_id == topic.topic_id]


def _frames(data: bytes) -> list[Frame]:
    return list(FrameDecoder(data))


class Story:
    """One server, and what was done to it."""

    def __init__(self, disk: FakeDisk, shards: int) -> None:
        self.disk = disk
        self.clock = FakeClock()
        self.shards = shards
        self.server = server_on(disk, self.clock, shards)
        self.recorder = Recorder(self.server)
        self._records = 0
        self._claimed: dict[str, list[int]] = {}
        self._with_ttl: set[int] = set()  # topics that had one

    def make(self, step: Step) -> None:
        """Whatever it is asked, without waiting for the disk: what is not done at once is in flight."""
        with suppress(TopicsError, Busy):  # refused, or it would have had to wait
            self._make(step)

    def _make(self, step: Step) -> None:
        engine, topic = self.server.engine, step.topic
        match step.kind:
            case "write":
                records = [self._record(step.second + number) for number in range(1 + step.first % 4)]
                config = {"durability": ("disk", "fsync")[step.third % 2]}
                if topic in QUEUES:
                    config |= {"type": "queue", "max_deliveries": 1, "dead_letter": "p" if topic == "q" else "c"}  # type: ignore[dict-item]
                key = f"k{step.third}" if step.third % 5 == 0 else None
                engine.append(topic, Write(records, idempotency_key=key, config=convert(config, TopicConfigPatch)))
            case "delete":
                before_seq = None if step.first % 2 else engine.topic(topic).log.earliest_seq + step.second % 5
                match = (None, TagMatch("x", is_prefix=False), TagMatch("y", is_prefix=False))[step.third % 3]
                engine.delete_records(topic, before_seq, match)
            case "route":
                settings = RouterSettings(
                    filter=FILTERS[step.third % len(FILTERS)],
                    allow_cycle=step.second % 2 == 0,
                    guarantee=list(Guarantee)[step.third % 2],
                )
                dest = TOPICS[step.first % len(TOPICS)]
                engine.put_router(f"r{step.second % 4}", topic, dest, settings, create_dest=True)
            case "unroute":
                engine.delete_router(f"r{step.first % 4}")
            case "configure":
                patch = PATCHES[step.first % len(PATCHES)]
                engine.put_topic(topic, convert(patch, TopicConfigPatch))
            case "claim":
                claims = engine.queues.claim(engine.topic(topic), [Claimer("w", 1 + step.first % 3, 200)])
                self._claimed[topic] = [job.seq for job in claims[0].jobs]
            case "ack":
                engine.queues.ack(topic, "w", self._claimed.get(topic) or [1], None)
            case "nack":
                engine.queues.nack(topic, "w", self._claimed.get(topic) or [1], None, 0)
            case "redrive":
                queue = engine.topic(topic)
                engine.queues.redrive(queue, 0, engine.queues.dead_letter_head(queue), 5, None)
            case "remove":
                if step.first % 3 == 0:
                    engine.delete_topic(topic)
            case "read":
                engine.read(topic, step.first % 5, _WHOLE)
            case "forward":
                engine.forward_pending()
            case "clock":
                if step.second % 8 == 0:
                    self.clock.set_wall(self.clock.now_ms() - 700)
                self.clock.advance((5, 150, 400, 1500)[step.first % 4])
                engine.expire_due()
            case "fail":
                if step.first % 4 == 0:
                    self.disk.fail_at(self.disk.mutating_calls + 1 + step.second % 3, EIO, and_after=True)
            case "step":
                self.server.step()
            case "checkpoint":
                self.server.checkpoint()

    def _record(self, number: int) -> NewRecord:
        self._records += 1
        return NewRecord(Raw(b'{"n":%d}' % self._records), tag=TAGS[number % len(TAGS)])

    # Replay equals live

    def check_replay(self) -> None:
        live = self.server.engine.state
        folded = State(4, 1 << 20)
        for operation in self.recorder.operations(live):
            apply(folded, operation)
        _copy_on(live, folded)
        self._with_ttl.update(topic.topic_id for topic in live.topics if topic.config.ttl_ms)
        now_ms = self.clock.now_ms()
        names = {topic.topic_id: topic.name for topic in live.topics}
        assert {topic.topic_id: topic.name for topic in folded.topics} == names
        for topic in live.topics:
            twin = folded.topics.by_id(topic.topic_id)
            assert twin is not None
            live.expire(topic, now_ms)
            folded.expire(twin, now_ms)
            mine, theirs = _shown(topic), _shown(twin)
            # A TTL may take what a delete in flight takes as well: told here, silent in the log.
            told = topic.topic_id not in self._with_ttl
            assert (mine[0], mine[2:], told and mine[1]) == (theirs[0], theirs[2:], told and theirs[1]), topic.name
            if self.server.journal.failure is not None:
                continue  # leases whose ack or claim a failed disk refused have ended, until the next start
            leaving = set() if topic.queue is None else topic.queue.leaving
            assert _remembered(topic, leaving) == _remembered(twin, leaving), topic.name
            known, windowless = dict(topic.keys.items()), dict(twin.keys.items())
            assert {key: windowless.get(key) for key in known} == known, topic.name
        assert sorted(router.name for router in live.routers) == sorted(router.name for router in folded.routers)

    # Nothing shown changes

    def check_crashes(self, number: int) -> None:
        shown = {topic.topic_id: _shown(topic)[0] for topic in self.server.engine.topics}
        heads = {topic.topic_id: topic.log.head_seq for topic in self.server.engine.topics}
        promised = {
            topic.topic_id: topic.config.durability in ("disk", "fsync") and not upstream_of_memory(topic)
            for topic in self.server.engine.topics
        }
        # What a delete takes that is under way, or that a failed disk left in doubt, may be gone or not.
        for topic in self.server.engine.topics:
            tags = {seq: loads(text).get("$tag") for seq, text in shown[topic.topic_id].items()}
            excused = {
                seq
                for seq, tag in tags.items()
                if topic.will_delete(seq, tag) or any(each.takes(seq, tag) for each in self.recorder.in_doubt(topic))
            }
            shown[topic.topic_id] = {seq: text for seq, text in shown[topic.topic_id].items() if seq not in excused}
        for survivor in (self.disk.crash_keep_all(), self.disk.crash_drop_all(), self.disk.crash(number)):
            after = server_on(survivor, FakeClock(self.clock.now_ms()), 1 + number % 3)
            check_shown(after, shown, heads, promised)
            _settle(after)
            again = server_on(survivor.crash_keep_all(), FakeClock(self.clock.now_ms()), 1 + number % 3)
            _settle(again)
            for topic in after.engine.topics:
                twin = again.engine.topics.by_id(topic.topic_id)
                assert twin is not None
                assert _shown(topic) == _shown(twin), f"{topic.name}: another start, another log"


def upstream_of_memory(topic: Topic) -> bool:
    return any(each.config.durability == "memory" for each in upstream(topic))


def check_shown(
    server: SimulatedServer, shown: dict[int, dict[int, bytes]], heads: dict[int, int], promised: dict[int, bool]
) -> None:
    for topic in server.engine.topics:
        if not promised.get(topic.topic_id, False):
            continue
        before = shown[topic.topic_id]
        now, lost, head_seq = _reading(topic)
        assert head_seq >= heads[topic.topic_id], f"{topic.name}: the head went back"
        for seq, text in now.items():
            assert before.get(seq, text) == text, f"{topic.name}: seq {seq} is another record"
        silent = before.keys() - now.keys() - lost
        assert not silent, f"{topic.name}: seqs {silent} are gone without a word"


def server_on(disk: FakeDisk, clock: FakeClock, shards: int) -> SimulatedServer:
    server = SimulatedServer(
        disk,
        clock,
        wal_file_bytes=4000,
        wal_shards=shards,
        segment_events_max=4,
        segment_age_ms_max=2000,
        lazy=True,
    )
    server.start()
    return server


def _settle(server: SimulatedServer) -> None:
    """Routers have done all they can."""
    for _ in TOPICS:
        server.engine.forward_pending()
        server.sync()


def _copy_on(live: State, folded: State) -> None:
    """What routers have made beyond what the log says."""
    done: set[int] = set()
    for router in live.routers:
        for dest in reversed(upstream(router.dest)):
            if dest.topic_id in done:
                continue
            done.add(dest.topic_id)
            places = sorted({each.cursor for each in dest.inbound.values()})
            for place in places:
                ids = [each.router_id for each in dest.inbound.values() if each.cursor >= place]
                if ids:
                    source = next(iter(dest.inbound.values())).source
                    apply(folded, Forwarded(topic_id=source.topic_id, ts=0, routers=ids, through_seq=place))


def _reading(topic: Topic) -> tuple[dict[int, bytes], set[int], int]:
    records: dict[int, bytes] = {}
    lost: set[int] = set()
    from_seq, log = 0, topic.log
    while from_seq < log.head_seq:
        batch = log_reading.read(log, from_seq, _WHOLE)
        for text in batch.fragments:
            records[int(text[8 : text.index(b",")])] = text
        if batch.gap is not None:
            lost.update(range(batch.gap.gap_from, batch.gap.gap_to + 1))
        from_seq = batch.next_from_seq
    return records, lost, log.head_seq


def _shown(topic: Topic) -> tuple[dict[int, bytes], set[int], int, int, int]:
    """All a reader finds out, and the figures."""
    return (*_reading(topic), topic.log.count, topic.log.bytes)


def _remembered(topic: Topic, leaving: set[int]) -> tuple[object, ...]:
    """`leaving`: jobs an ack is under way for are nobody's any more. What a queue knows of jobs that are gone counts
    for nothing: a claim may be logged behind a delete that it came before."""
    image = image_of(topic)
    queue, is_live = image.queue, partial(log_reading.is_live, topic.log)
    leases = [] if queue is None else sorted((lease.seq, lease.node, lease.lease_id) for lease in queue.leases)
    deliveries = {} if queue is None else {seq: count for seq, count in queue.deliveries.items() if is_live(seq)}
    return (
        image.config,
        image.exchange,
        image.ceiling,
        image.last_write_ts,
        image.cursors,
        None if queue is None else queue.dead_lettered,
        deliveries,
        [lease for lease in leases if lease[0] not in leaving and is_live(lease[0])],
        [(router.router_id, router.settings, router.cursor, router.forwarded_total) for router in image.routers],
        image.hops,
    )


def run(steps: Sequence[Step], shards: int, crash: int, check: Callable[[int], bool] = lambda number: True) -> None:
    """`check`: after which steps replay has to equal live."""
    story = Story(FakeDisk(), shards)
    for number, step in enumerate(steps):
        story.make(step)
        if check(number):
            story.check_replay()
    story.check_crashes(crash)
