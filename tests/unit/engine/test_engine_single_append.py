"""A write of one record does the same whether it goes the short way or the whole one."""

from typing import Any

import pytest
from engine_on_a_fake_clock import TOPIC, record
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from doubles.manual_journal import ManualJournal
from topics.clock import Clock
from topics.engine import log_reading
from topics.engine.admission import WriteLimits
from topics.engine.block import Block
from topics.engine.engine import Engine, Write
from topics.engine.flow import EngineLimits
from topics.engine.forwarding import Forwarding
from topics.engine.journal import Busy, Journal
from topics.engine.records import Records
from topics.engine.topics import Topics
from topics.errors import TopicsError
from topics.model.config import Discard, Durability, TopicConfigPatch, TopicType
from topics.model.operation import Appended, Operation, WriteEnd
from topics.model.read_options import ReadOptions
from topics.model.record import Batch, NewRecord
from topics.model.router import RouterSettings
from topics.testing.fake_clock import FakeClock

BOUNDS = EngineLimits(
    write=WriteLimits(record_bytes_max=20, tag_bytes_max=4, node_bytes_max=4, meta_bytes_max=20),
    block_events_max=5,
)


class TheWholeWay(Engine):
    def __init__(self, clock: Clock, bounds: EngineLimits, journal: Journal) -> None:
        super().__init__(clock, bounds, journal)
        forwarding = Forwarding(self.flow, bounds)
        topics = Topics(self.flow, bounds, forwarding)
        self.append = WholeRecords(self.flow, bounds, topics, forwarding).append


class WholeRecords(Records):
    """Never goes the short way."""

    def append_single(self, name: str, record: NewRecord, default_node: str | None) -> int:
        return 0


class NotingJournal(ManualJournal):
    """Has single records among the batches, as the log has them."""

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        taken = super().append_single(topic_id, seq, ts, node, tag, data)
        if taken:
            batch = Batch([b""], [0], [node], [tag], [0], 0, [data])
            self.batches.append(((Appended(topic_id, seq, batch, (ts,), (WriteEnd(seq),)),), False))
        return taken

    def noted(self) -> list[object]:
        return [([_shown(each) for each in batch], gated) for batch, gated in self.batches]


def _shown(each: Operation) -> object:
    if not isinstance(each, Appended):
        return each
    batch = each.batch
    assert batch.payloads is not None
    data = [bytes(payload) for payload in batch.payloads]
    return (each.topic_id, each.first_seq, list(each.timestamps), list(each.writes), batch.nodes, batch.tags, data)


class Driven:
    """An engine, its journal, and all that a write can leave behind in them."""

    def __init__(self, kind: type[Engine], bounds: EngineLimits = BOUNDS) -> None:
        self.clock = FakeClock()
        self.journal = NotingJournal()
        self.engine = kind(self.clock, bounds, self.journal)
        self.told: list[str] = []
        self.engine.state.on_change = lambda topic: self.told.append(topic.name)

    def configure(self, **patch: Any) -> None:
        self.engine.put_topic(TOPIC, TopicConfigPatch(**patch))
        self.journal.commit()

    def write(self, new: NewRecord, node: str | None = None) -> tuple[object, ...]:
        try:
            appended = self.engine.append(TOPIC, Write([new], node))
        except Busy:
            return ("busy",)
        except TopicsError as error:
            return (type(error), error.message, error.detail)
        return (appended.first_seq, appended.record_count, appended.created, appended.deduped, bool(appended.commit))

    def left(self) -> list[object]:
        engine = self.engine
        topic = engine.find_topic(TOPIC)
        if topic is None:
            return [self.journal.noted()]
        log = topic.log
        options = ReadOptions(limit=1000, bytes_max=1 << 20, include_tags=True)
        read = log_reading.read(log, 0, options)
        return [
            self.journal.noted(),
            topic.config.durability is Durability.EPHEMERAL or self.journal.heads,
            self.told,
            engine.state.bytes_live,
            engine.state.records_live,
            (list(engine.state.begun), len(engine.state.full)),
            [changed.name for changed in engine.state.changed],
            (topic.assigned_seq, topic.assigned_ts, topic.last_write_ts, topic.ceiling, topic.ceiling_margin),
            (log.head_seq, log.count, log.bytes, log.last_ts, log.earliest_seq, log.evict_floor),
            (read.fragments, read.gap, read.next_from_seq),
            [_columns(block) for block in log.blocks if isinstance(block, Block)],
        ]


def _columns(block: Block) -> list[object]:
    whole = block.columns(range(len(block)))
    counts = (block.first_seq, block.live_count, block.live_bytes, block.written_bytes, block.has_meta, block.has_tags)
    return [*map(list, whole), list(block.sizes), counts]


texts = st.none() | st.sampled_from(["", "a", "abcd", "abcde", "żółw", "é"])
short_records = st.builds(record, tag=st.sampled_from([None, "a"]), node=st.sampled_from([None, "b"]))
records = short_records | st.builds(
    record,
    st.sampled_from([b"0", b'"12345678901234567"', b'"123456789012345678"', b'{"a": 1.0}']),
    tag=texts,
    node=texts,
    meta=st.sampled_from([None, None, None, b"null", b'{"k":"v"}']),
)
steps = st.one_of(
    st.tuples(st.just("write"), records, texts),
    st.tuples(st.just("write"), short_records, st.sampled_from([None, "node"])),
    st.tuples(st.just("advance"), st.sampled_from([-50, 1, 2000])),
    st.tuples(st.just("sync")),
    st.tuples(st.just("refuse"), st.booleans()),
)
plain = st.fixed_dictionaries({"durability": st.sampled_from([Durability.DISK, Durability.EPHEMERAL])})
configs = plain | st.fixed_dictionaries(
    {"durability": st.sampled_from(list(Durability))},
    optional={
        "cap_records": st.just(3),
        "cap_bytes": st.just(200),
        "ttl_ms": st.just(1000),
        "discard": st.sampled_from(list(Discard)),
        "type": st.just(TopicType.QUEUE),
    },
)


@given(configs, st.lists(steps, max_size=40))
def test_both_ways_lead_to_the_same(config: dict[str, Any], story: list[tuple[Any, ...]]) -> None:
    short, whole = Driven(Engine), Driven(TheWholeWay)
    for step in [("configure",), *story]:
        outcomes = []
        for driven in (short, whole):
            outcome: object = None
            match step:
                case ("configure",):
                    driven.configure(**config)
                case ("write", new, node):
                    outcome = driven.write(new, node)
                case ("advance", duration_ms):
                    driven.clock.set_wall(driven.clock.now_ms() + duration_ms)
                case ("sync",):
                    driven.journal.commit()
                case ("refuse", refuses):
                    driven.journal.refusal = TopicsError("no") if refuses else None
            outcomes.append((outcome, driven.left()))
        assert outcomes[0] == outcomes[1], step


@pytest.fixture
def at() -> Driven:
    driven = Driven(Engine)
    driven.configure(durability=Durability.DISK)
    return driven


def single(at: Driven, new: NewRecord | None = None) -> int:
    return at.engine.append_single(TOPIC, new or record(), None)


def test_a_plain_record_goes_the_short_way(at: Driven) -> None:
    assert [single(at) for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    assert [topic.name for topic in at.engine.state.full] == [TOPIC]
    assert single(at, record(tag="abcd", node="abcd")) == 8


@pytest.mark.parametrize(
    "new",
    [
        record(meta=b"{}"),
        record(tag="abcde"),
        record(tag="é"),
        record(node="abcde"),
        record(node="é"),
        record(b'"1234567890123456789"'),
    ],
)
def test_what_has_to_be_looked_at_goes_the_whole_way(at: Driven, new: NewRecord) -> None:
    before = at.left()
    assert single(at, new) == 0
    assert at.left() == before


def test_a_record_with_a_node_of_its_own_leaves_the_other_one_to_be_looked_at(at: Driven) -> None:
    assert at.engine.append_single(TOPIC, record(node="a"), "b") == 0
    assert at.engine.append_single(TOPIC, record(), "b") == 1


def test_a_delayed_job_goes_the_whole_way() -> None:
    at = Driven(Engine)
    at.configure(durability=Durability.DISK, type=TopicType.QUEUE)
    assert single(at) == 1
    assert single(at, NewRecord(Raw(b"0"), delay_ms=5)) == 0


def test_a_clock_that_is_set_back_does_not_take_commit_times_with_it(at: Driven) -> None:
    assert single(at) == 1
    at.clock.set_wall(at.clock.now_ms() - 1)
    assert single(at) == 2
    [block] = at.engine.topic(TOPIC).log.blocks
    assert block.first_ts == block.last_ts


def test_a_topic_that_routers_copy_to_goes_the_whole_way(at: Driven) -> None:
    at.engine.put_topic("source", TopicConfigPatch())
    at.journal.commit()
    at.engine.put_router("r", "source", TOPIC, RouterSettings(), create_dest=False)
    at.journal.commit()
    assert single(at) == 0
    forwardable: list[str] = []
    at.engine.state.on_forwardable = lambda topic: forwardable.append(topic.name)
    assert at.engine.append_single("source", record(), None) == 1
    assert forwardable == ["source"]


@pytest.mark.parametrize(
    "patch", [{"cap_records": 9}, {"cap_bytes": 999}, {"ttl_ms": 1000}, {"durability": Durability.FSYNC}]
)
def test_a_topic_that_asks_for_a_decision_goes_the_whole_way(at: Driven, patch: dict[str, Any]) -> None:
    assert single(at) == 1
    at.configure(**patch)
    assert single(at) == 0


def test_a_topic_that_does_not_any_more_goes_the_short_way(at: Driven) -> None:
    at.configure(cap_records=9)
    at.configure(cap_records=0)
    assert single(at) == 1


def test_nobody_goes_past_what_waits_for_a_sync(at: Driven) -> None:
    topic = at.engine.topic(TOPIC)
    count = topic.ceiling + 1
    assert at.engine.append(TOPIC, Write([record()] * count)).commit is not None, "its seqs are not reserved"
    assert single(at) == 0
    at.journal.commit()
    assert single(at) == count + 1


def test_a_strong_reader_is_not_passed_by(at: Driven) -> None:
    topic = at.engine.topic(TOPIC)
    at.engine.add_strong_reader(topic)
    assert single(at) == 0


def test_while_all_wait_for_a_pause_nothing_goes_the_short_way(at: Driven) -> None:
    at.engine.put_cursor(TOPIC, "c", 0)
    at.engine.flow.when_quiet(lambda: None)
    assert (single(at), at.write(record())) == (0, ("busy",))
    at.journal.commit()
    assert single(at) == 1


def test_while_a_name_is_closed_nothing_goes_the_short_way(at: Driven) -> None:
    at.engine.put_topic("other", TopicConfigPatch())
    assert single(at) == 0
    at.journal.commit()
    assert single(at) == 1


def test_a_bounded_server_counts_every_byte() -> None:
    at = Driven(Engine, BOUNDS._replace(total_bytes_max=1000))
    at.configure(durability=Durability.DISK)
    assert single(at) == 0


def test_seqs_that_are_not_reserved_yet_are_asked_for(at: Driven) -> None:
    topic = at.engine.topic(TOPIC)
    count = 0
    while single(at):
        count += 1
    assert count == topic.ceiling - topic.ceiling_margin
    assert at.write(record())[0] == count + 1
    assert topic.requested_ceiling > topic.ceiling
    at.journal.commit()
    assert single(at) == count + 2
