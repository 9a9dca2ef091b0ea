"""Operations on a few topics and the routers between them, as values: drawn by Hypothesis or by a seed.

`Routed` makes them on a simulated server, notes what its readers have seen, and says after a crash whether what they
see now may follow from that.
"""

import json
import random
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import UNSET, Raw

from topics.engine import log_reading
from topics.errors import TopicsError
from topics.model.gap import GapReason
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.router import Guarantee, RouterSettings
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import COLD_DIR, Reading, SimulatedServer

TOPICS = ("a", "b", "c", "d")
ROUTERS = ("r1", "r2", "r3", "r4")
TAGS = ("x:1", "x:2", "y", None)
FILTERS = (None, None, TagMatch("x", is_prefix=True), TagMatch("y", is_prefix=False))
CLASSES = ("disk", "fsync")
CONFIGS: tuple[dict[str, object], ...] = (
    {"cap_records": 3, "discard": "old"},
    {"cap_records": 6, "discard": "reject"},
    {"cap_records": 0, "discard": "old"},
    {"ttl_ms": 400},
    {"ttl_ms": 0},
    {"durability": "disk"},
    {"durability": "fsync"},
)


class Step(NamedTuple):
    """What to do, to which topic, and three numbers that say how."""

    kind: str
    topic: str
    first: int
    second: int
    third: int


KINDS = (
    ["write"] * 10
    + ["route"] * 3
    + ["unroute", "delete", "delete", "configure", "configure", "remove", "wait", "read", "read", "forward"]
    + ["checkpoint", "checkpoint", "restart", "sync", "lazy"]
)


def seeded(seed: int, count: int) -> list[Step]:
    choice = random.Random(seed)
    return [
        Step(choice.choice(KINDS), choice.choice(TOPICS), *(choice.randrange(60) for _ in range(3)))
        for _ in range(count)
    ]


def server_on(disk: FakeDisk, now_ms: int | FakeClock, shards: int) -> SimulatedServer:
    server = SimulatedServer(
        disk,
        now_ms if isinstance(now_ms, FakeClock) else FakeClock(now_ms),
        wal_file_bytes=1500,
        wal_shards=shards,
        segment_events_max=4,
        segment_age_ms_max=2000,
        cold_dir=COLD_DIR,
        hot_retain_segments=1,
    )
    server.start()
    return server


class Routed:
    def __init__(self, disk: FakeDisk, shards: int) -> None:
        self.disk = disk
        self.clock = FakeClock()
        self.server = server_on(disk, self.clock, shards)
        self._records = 0
        self._before_restart: dict[int, Reading] | None = None
        self.deleting = ""  # the topic records of which are being deleted

    def run(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.deleting = step.topic if step.kind == "delete" else ""
            try:
                self._make(step)
            except TopicsError:
                continue  # refused: full, a cycle, a second source, not there
        self.deleting = ""

    def seen(self) -> dict[int, Reading]:
        """What readers have seen. From a server that was stopped nobody can read: its successor moves the files."""
        return seen_by_readers(self.server) if self._before_restart is None else self._before_restart

    def _make(self, step: Step) -> None:
        server, topic = self.server, step.topic
        match step.kind:
            case "write":
                records = [self._record(step.second + number) for number in range(1 + step.first % 5)]
                server.write(topic, records, config={"durability": CLASSES[step.third % 2]})
            case "route":
                dest = TOPICS[step.first % len(TOPICS)]
                settings = RouterSettings(
                    preserve_node=step.second % 5 != 0,
                    preserve_tag=step.second % 3 != 0,
                    filter=FILTERS[step.third % len(FILTERS)],
                    guarantee=list(Guarantee)[step.third % 2],
                )
                server.put_router(ROUTERS[step.second % len(ROUTERS)], topic, dest, settings)
            case "unroute":
                server.delete_router(ROUTERS[step.first % len(ROUTERS)])
            case "delete":
                before_seq = None if step.first % 2 else server.engine.topic(topic).log.earliest_seq + step.second % 7
                server.delete_records(topic, before_seq=before_seq, match=(None, "y", "x:*")[step.third % 3])
            case "configure":
                server.put(topic, CONFIGS[step.first % len(CONFIGS)])
            case "remove":
                server.delete_topic(topic)
            case "wait":
                self.clock.advance((5, 200, 500, 1500)[step.first % 4])
                server.engine.expire_due()
                server.step()
            case "read":
                server.read_all(topic)
            case "forward":
                server.engine.forward_pending()
            case "checkpoint":
                assert server.checkpoint()
            case "restart":
                self._before_restart = seen_by_readers(server)
                assert server.stop()
                self.server = server_on(self.disk, self.clock, 1 + step.first % 3)
                self._before_restart = None
            case "sync":
                server.sync()
            case "lazy":
                server.lazy = not server.lazy

    def _record(self, number: int) -> NewRecord:
        self._records += 1
        return NewRecord(
            Raw(b'{"n":%d}' % self._records),
            tag=TAGS[number % len(TAGS)],
            node="eu" if number % 3 else None,
            meta=Raw(b'{"k":"v"}') if number % 5 == 0 else UNSET,
        )


def settled(server: SimulatedServer) -> dict[str, object]:
    """Everything a client could find out, once routers have done what they can."""
    for _ in TOPICS:
        server.engine.forward_pending()
        server.sync()
    states: dict[str, object] = {}
    for topic in sorted(server.engine.topics, key=lambda each: each.name):
        log = server.engine.topic(topic.name).log
        states[topic.name] = (
            topic.topic_id,
            topic.config,
            server.read_all(topic.name),
            (log.earliest_seq, log.count, log.bytes),
        )
    for router in server.engine.routers:
        states[f"router {router.name}"] = (
            router.router_id,
            router.source.name,
            router.dest.name,
            router.settings,
            router.cursor,
            router.forwarded_total,
        )
    return states


def source_trims(server: SimulatedServer) -> int:
    """How many seqs stand for records that a router could not have."""
    losses = [loss for topic in server.engine.topics for loss in topic.losses]
    return sum(loss.gap_to - loss.gap_from + 1 for loss in losses if loss.reason is GapReason.SOURCE_TRIM)


def seen_by_readers(server: SimulatedServer) -> dict[int, Reading]:
    """What every topic, by its id, shows."""
    return {topic.topic_id: server.read_all(topic.name) for topic in server.engine.topics}


def shown_already(server: SimulatedServer) -> dict[int, Reading]:
    """The same, without routers going on because somebody reads."""
    options = ReadOptions(limit=10_000, bytes_max=1 << 30, include_tags=True)
    shown: dict[int, Reading] = {}
    for topic in server.engine.topics:
        reading = shown[topic.topic_id] = Reading({}, [], topic.log.head_seq)
        from_seq = 0
        while from_seq < reading.head_seq:
            batch = log_reading.read(topic.log, from_seq, options)
            reading.records.update((json.loads(text)["$seq"], text) for text in batch.fragments)
            reading.gaps.extend([] if batch.gap is None else [batch.gap])
            from_seq = batch.next_from_seq
    return shown


def check_after_crash(server: SimulatedServer, seen: dict[int, Reading], deleting: str = "") -> None:
    """No seq that a reader has seen has another record now, is given out again, or is gone without a word, but for
    those of a delete that was under way."""
    for topic in server.engine.topics:
        before, now = seen.get(topic.topic_id), server.read_all(topic.name)
        if before is None:
            continue
        assert now.head_seq >= before.head_seq, f"{topic.name}: the head went back"
        for seq, text in now.records.items():
            assert before.records.get(seq, text) == text, f"{topic.name}: seq {seq} is another record"
        silent = [seq for seq in now.missing() if seq in before.records and topic.name != deleting]
        assert not silent, f"{topic.name}: seqs {silent} are gone without a word"
