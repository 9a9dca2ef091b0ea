"""The engine and a plain-dictionary model, driven together through random histories.

After every step, for every cursor: what a reader is delivered, what a tombstone tells it is lost, what
was deleted and what is its own cover all seqs up to the head, and nothing delivered is in the rest.

A failing history is printed as the calls that lead to it, and as a line `@reproduce_failure(...)`: put
that line above the test case's class to run exactly this history again. Hypothesis also keeps failures in
`.hypothesis/` and tries them first in the next run. `--hypothesis-seed=N` repeats a whole run.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from log_model import ModelTopic, Sent
from msgspec import UNSET, Raw

from topics import limits
from topics.engine.engine import Appended, Engine, Write
from topics.engine.journal import Busy
from topics.engine.log_reading import ReadBatch
from topics.errors import RecordTooLarge, TopicFull
from topics.model.config import Discard, TopicConfigPatch
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock

TOPICS = ("a", "b")
CURSORS_CHECKED_MAX = 30
LONG_LIFE_SEQS = 20

topics = st.sampled_from(TOPICS)
tags = st.sampled_from([None, "x", "x:1", "y", "", 'é"\n'])
nodes = st.sampled_from([None, "me", "you", 'ü"'])
own_nodes = st.sampled_from([frozenset(), frozenset({"me"}), frozenset({"me", "you"})])
payloads = st.sampled_from([b"0", b"1.0", b'{"a": [1, 2]}', b'"' + b"x" * 60 + b'"', b"null"])
metas = st.sampled_from([None, b"{}", b'{"k" : "v"}', b'{"k":"' + b"v" * 40 + b'"}'])
sent_records = st.builds(Sent, payloads, tags, nodes, metas)
durations_ms = st.integers(0, 80)
caps_records = st.sampled_from([0, 1, 3, 8])
caps_bytes = st.sampled_from([0, 45, 100, 400])
ttls_ms = st.sampled_from([0, 1, 20, 50])


class EngineAgainstModel(RuleBasedStateMachine):
    """Everything that can be done to two topics, with small batches."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(now_ms=1_000_000)
        self.engine = Engine(self.clock)
        self.models: dict[str, ModelTopic] = {}
        self.cursors = dict.fromkeys(TOPICS, 0)

    # What can happen

    @rule(topic=topics, ttl_ms=ttls_ms, cap_records=caps_records, cap_bytes=caps_bytes, reject=st.booleans())
    def configure(self, topic: str, ttl_ms: int, cap_records: int, cap_bytes: int, reject: bool) -> None:
        patch = TopicConfigPatch(
            ttl_ms=ttl_ms,
            cap_records=cap_records,
            cap_bytes=cap_bytes,
            discard=Discard.REJECT if reject else Discard.OLD,
            idempotency_window_ms=30,
        )
        assert self.engine.put_topic(topic, patch).created is (topic not in self.models)
        model = self.models.setdefault(topic, ModelTopic())
        model.expire(self.clock.now_ms())  # by the TTL it had
        model.ttl_ms, model.cap_records, model.cap_bytes, model.reject = ttl_ms, cap_records, cap_bytes, reject
        model.window_ms = 30
        model.expire(self.clock.now_ms())
        if not reject:
            model.evict()

    @precondition(lambda self: any(topic.ttl_ms or topic.cap_records for topic in self.models.values()))
    @rule(topic=topics)
    def lift_limits(self, topic: str) -> None:
        self.configure(topic, ttl_ms=0, cap_records=0, cap_bytes=0, reject=False)

    @rule(topic=topics, records=st.lists(sent_records, min_size=1, max_size=6))
    def write(self, topic: str, records: list[Sent]) -> None:
        self.write_with_key(topic, records, None)

    @rule(topic=topics, records=st.lists(sent_records, min_size=1, max_size=3), key=st.sampled_from(["k1", "k2"]))
    def write_with_key(self, topic: str, records: list[Sent], key: str | None) -> None:
        now_ms = self.clock.now_ms()
        created = topic not in self.models
        model = self.models.get(topic, ModelTopic())
        if key is not None and (earlier := model.remembered(key, now_ms)) is not None:
            appended = self.append(topic, records, key)
            assert (appended.first_seq, appended.record_count) == earlier
            assert (appended.deduped, appended.created) == (True, False)
            return
        stamped = model.stamped(records, now_ms)
        model.expire(now_ms)
        if model.never_fits(stamped):
            self.is_refused(topic, records, key, RecordTooLarge)
            return
        if model.is_full_for(stamped):
            self.is_refused(topic, records, key, TopicFull)
            return
        appended = self.append(topic, records, key)
        assert (appended.first_seq, appended.record_count) == (model.head + 1, len(records))
        assert (appended.deduped, appended.created) == (False, created)
        if key is not None:
            model.remember(key, model.head + 1, len(records), stamped[0].ts)
        model.append(stamped)
        self.models[topic] = model

    @rule(ms=durations_ms)
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(ms=durations_ms)
    def the_clock_steps_back(self, ms: int) -> None:
        self.clock.set_wall(self.clock.now_ms() - ms)

    @rule()
    def expired_records_are_swept(self) -> None:
        self.engine.expire_due()

    @precondition(lambda self: self.models)
    @rule(data=st.data(), eq=st.sampled_from([None, "x", "y", ""]), prefix=st.sampled_from([None, "x", "x:", "z"]))
    def delete_records(self, data: st.DataObject, eq: str | None, prefix: str | None) -> None:
        topic = data.draw(st.sampled_from(sorted(self.models)))
        model = self.models[topic]
        before_seq = data.draw(st.none() | st.integers(0, model.head + 3))
        if eq is not None:
            match, prefix = TagMatch(eq, is_prefix=False), None
        elif prefix is not None:
            match = TagMatch(prefix, is_prefix=True)
        else:
            match = None
        model.expire(self.clock.now_ms())
        expected = model.delete(before_seq, eq, prefix)
        assert self.deleted(topic, before_seq, match) == expected

    @precondition(lambda self: self.models)
    @rule(topic=topics)
    def delete_the_last_record(self, topic: str) -> None:
        """By a tag only it has: what was lost and what was deleted then lie side by side."""
        if topic in self.models:
            self.write(topic, [Sent(b"0", tag="last")])
            model = self.models[topic]
            expected = model.delete(None, "last", None)
            assert self.deleted(topic, None, TagMatch("last", is_prefix=False)) == expected

    def deleted(self, topic: str, before_seq: int | None, match: TagMatch | None) -> int:
        """How many a delete took. It looks at a bounded number of records a turn, and is asked until it is through."""
        turns_max = 2 + self.head(topic) // limits.DELETE_SLICE_RECORDS
        for _ in range(turns_max):
            try:
                return self.engine.delete_records(topic, before_seq, match).count
            except Busy:
                pass
        raise AssertionError(f"a delete in {topic} is not through after {turns_max} turns")

    @precondition(lambda self: any(model.head >= LONG_LIFE_SEQS for model in self.models.values()))
    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        """Rarely, or no topic would live to have a history."""
        topic = data.draw(st.sampled_from([name for name in TOPICS if self.head(name) >= LONG_LIFE_SEQS]))
        assert self.engine.delete_topic(topic).deleted
        del self.models[topic]

    @precondition(lambda self: self.models)
    @rule(
        data=st.data(),
        limit=st.integers(1, 5),
        bytes_max=st.sampled_from([1, 60, 150, 1 << 20]),
        include_tags=st.booleans(),
        include_meta=st.booleans(),
        own=own_nodes,
    )
    def a_consumer_goes_on(
        self,
        data: st.DataObject,
        limit: int,
        bytes_max: int,
        include_tags: bool,
        include_meta: bool,
        own: frozenset[str],
    ) -> None:
        """One batch from where this topic's consumer stopped, however long ago and in whichever instance."""
        topic = data.draw(st.sampled_from(sorted(self.models)))
        model = self.models[topic]
        model.expire(self.clock.now_ms())
        from_seq = self.cursors[topic]
        options = ReadOptions(limit, bytes_max, include_tags, include_meta, own_nodes=own)
        batch = self.read(topic, from_seq, options)
        self.cursors[topic] = batch.next_from_seq
        start = 0 if from_seq > model.head else from_seq
        passed = range(start + 1, batch.next_from_seq + 1)
        expected = [model.live[seq] for seq in passed if seq in model.live and model.live[seq].node not in own]
        assert batch.fragments == [record.text(tags=include_tags, meta=include_meta) for record in expected]
        assert tuple(batch.gap or ()) == (model.gap(from_seq) or ())
        assert len(batch.fragments) <= limit
        size = sum(map(len, batch.fragments))
        assert size <= bytes_max or len(batch.fragments) == 1
        assert batch.next_from_seq > start or batch.next_from_seq == model.head

    # What must hold

    @invariant()
    def engine_and_model_agree(self) -> None:
        for model in self.models.values():
            model.expire(self.clock.now_ms())
        self.engine.expire_due()
        self.check_totals()
        for name, model in self.models.items():
            self.check_state(name, model)
            for cursor in self.cursors_of(model):
                # Every other cursor is that of a reader which has written some of the records itself.
                self.walk(name, model, cursor, frozenset({"me"}) if cursor % 2 else frozenset())

    # How it is checked

    def head(self, name: str) -> int:
        return self.models[name].head if name in self.models else 0

    def check_totals(self) -> None:
        assert self.engine.state.records_live == sum(len(model.live) for model in self.models.values())
        assert self.engine.state.bytes_live == sum(model.bytes for model in self.models.values())
        assert {topic.name for topic in self.engine.topics} == set(self.models)

    def check_state(self, name: str, model: ModelTopic) -> None:
        log = self.engine.topic(name).log
        assert (log.head_seq, log.earliest_seq, log.count) == (model.head, model.earliest, len(model.live))
        assert (log.bytes, log.evict_floor) == (model.bytes, model.evict_floor)
        assert log.evict_floor <= log.earliest_seq

    def walk(self, name: str, model: ModelTopic, cursor: int, own: frozenset[str]) -> None:
        """Reads from `cursor` to the head."""
        delivered: list[bytes] = []
        lost: set[int] = set()
        options = self.walking_options(own)
        position = cursor
        while True:
            batch = self.read(name, position, options)
            delivered += batch.fragments
            expected_gap = model.gap(position)
            assert tuple(batch.gap or ()) == (expected_gap or ())
            if batch.gap is not None:
                assert position == cursor, "only the first batch can meet a gap: nothing happens meanwhile"
                assert position > model.head or position + 1 < model.evict_floor
                # A recreated topic's range is what there is to read; nothing of it is lost for that.
                lost = set() if position > model.head else set(range(batch.gap.gap_from, batch.gap.gap_to + 1))
            assert (
                batch.next_from_seq > (position if position <= model.head else 0) or batch.next_from_seq == model.head
            )
            position = batch.next_from_seq
            if position == model.head:
                break
        start = 0 if cursor > model.head else cursor
        wanted = [model.live[seq] for seq in range(start + 1, model.head + 1) if seq in model.live]
        shown = [record for record in wanted if record.node not in own]
        assert delivered == [record.shown for record in shown]
        delivered_seqs = {record.seq for record in shown}
        own_seqs = {record.seq for record in wanted if record.node in own}
        lost_before = set(range(1, model.evict_floor)) if cursor > model.head else set()
        rest = lost | lost_before | {seq for seq in model.deleted if seq > start} | own_seqs
        assert delivered_seqs | rest == set(range(start + 1, model.head + 1))
        assert not delivered_seqs & rest

    def walking_options(self, own: frozenset[str]) -> ReadOptions:
        return ReadOptions(limit=7, bytes_max=400, own_nodes=own)

    def cursors_of(self, model: ModelTopic) -> list[int]:
        """All of them, or those where something changes and some between."""
        head = model.head
        if head < CURSORS_CHECKED_MAX:
            return list(range(head + 2))
        edges = {0, 1, head - 1, head, head + 1, head + 100, model.earliest - 1, model.evict_floor - 1}
        around = {cursor + step for cursor in (model.earliest - 1, model.evict_floor - 1) for step in (-1, 1)}
        between = range(0, head, max(1, head // 10))
        return sorted({*edges, *around, *between} - {-1, -2})

    def read(self, topic: str, from_seq: int, options: ReadOptions) -> ReadBatch:
        return self.engine.read(topic, from_seq, options)[1]

    def append(self, topic: str, records: list[Sent], key: str | None) -> Appended:
        new = [
            NewRecord(Raw(sent.data), sent.tag, sent.node, UNSET if sent.meta is None else Raw(sent.meta))
            for sent in records
        ]
        config = TopicConfigPatch(idempotency_window_ms=120_000)
        return self.engine.append(topic, Write(new, idempotency_key=key, config=config))

    def is_refused(self, topic: str, records: list[Sent], key: str | None, error: type[Exception]) -> None:
        try:
            self.append(topic, records, key)
        except error:
            return
        raise AssertionError(f"expected {error.__name__}")


class ManyBlocksAgainstModel(EngineAgainstModel):
    """The same with batches as large as a block of the log, so that histories span several blocks."""

    @precondition(lambda self: sum(model.head for model in self.models.values()) < 60_000)
    @rule(
        topic=topics,
        count=st.sampled_from([limits.SEGMENT_EVENTS_MAX - 1, limits.SEGMENT_EVENTS_MAX, 4000]),
        records=st.lists(sent_records, min_size=1, max_size=6),
    )
    def write_a_block(self, topic: str, count: int, records: list[Sent]) -> None:
        self.write(topic, (records * count)[:count])

    @rule(topic=topics, cap_records=st.sampled_from([9_999, 10_000, 10_001, 15_000, 20_001]))
    def cap_at_a_block(self, topic: str, cap_records: int) -> None:
        self.configure(topic, ttl_ms=0, cap_records=cap_records, cap_bytes=0, reject=False)

    def walking_options(self, own: frozenset[str]) -> ReadOptions:
        return ReadOptions(limit=7_000, bytes_max=1 << 30, own_nodes=own)

    def cursors_of(self, model: ModelTopic) -> list[int]:
        head = model.head
        if head < CURSORS_CHECKED_MAX:
            return [0, head // 2, head, head + 1]
        return sorted({0, model.earliest - 1, max(0, model.evict_floor - 2), 9_999, 10_000, head - 1, head + 1})


TestEngineAgainstModel = EngineAgainstModel.TestCase
TestEngineAgainstModel.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)

TestManyBlocksAgainstModel = ManyBlocksAgainstModel.TestCase
TestManyBlocksAgainstModel.settings = settings(
    max_examples=10,
    stateful_step_count=15,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
