"""The engine's operations on records: append, caps, TTL, deletes, idempotency keys, reads."""

import json

import pytest
from engine_on_a_fake_clock import TOPIC, EngineOnAFakeClock, record, seqs

from topics.errors import InvalidRequest, RecordTooLarge, TopicFull
from topics.model.config import Discard, TopicConfigPatch
from topics.model.gap import Gap, GapReason
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import COLD_DIR, SimulatedServer

SIZE = 39  # bytes of a record whose data is one digit


@pytest.fixture
def at() -> EngineOnAFakeClock:
    return EngineOnAFakeClock()


def floors(at: EngineOnAFakeClock) -> tuple[int, int]:
    log = at.topic.log
    assert log.evict_floor <= log.earliest_seq
    return log.evict_floor, log.earliest_seq


# Appending


def test_seqs_begin_at_one_and_are_contiguous(at: EngineOnAFakeClock) -> None:
    first = at.write(record(), record(), record())
    second = at.write(record())
    assert (first.first_seq, first.record_count, second.first_seq) == (1, 3, 4)
    assert at.topic.log.head_seq == 4


def test_one_bad_record_refuses_the_whole_write(at: EngineOnAFakeClock) -> None:
    at.write(record())
    with pytest.raises(InvalidRequest):
        at.write(record(), record(node="n" * 129))
    assert at.topic.log.head_seq == at.topic.log.count == 1
    at.check_totals()


def test_records_carry_the_time_of_their_write(at: EngineOnAFakeClock) -> None:
    at.write(record())
    at.clock.advance(5)
    at.write(record(), record())
    times = [json.loads(fragment)["$ts"] for fragment in at.read().fragments]
    assert times == [at.clock.now_ms() - 5, at.clock.now_ms(), at.clock.now_ms()]


def test_a_clock_that_steps_back_leaves_timestamps_in_order(at: EngineOnAFakeClock) -> None:
    at.write(record())
    written_ms = at.clock.now_ms()
    at.clock.set_wall(written_ms - 60_000)
    at.write(record())
    assert [json.loads(fragment)["$ts"] for fragment in at.read().fragments] == [written_ms, written_ms]


# Caps, discarding the old


def test_the_oldest_records_make_room(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_records=3))
    at.fill(5)
    assert at.seqs(2) == [3, 4, 5]
    assert floors(at) == (3, 3)


def test_the_cap_by_bytes_is_exact(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_bytes=3 * SIZE))
    at.fill(3)
    assert at.topic.log.count == 3
    at.fill(1)
    assert (at.topic.log.count, at.topic.log.bytes) == (3, 3 * SIZE)


def test_a_batch_larger_than_the_cap_keeps_its_end(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_records=2))
    assert at.write(*[record()] * 5).record_count == 5
    assert at.seqs(3) == [4, 5]
    assert at.read(0).gap == Gap(1, 3, GapReason.CAP)


def test_a_batch_larger_than_the_cap_by_bytes_keeps_its_end(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_bytes=2 * SIZE + 1))
    at.write(*[record()] * 5)
    assert at.seqs(3) == [4, 5]


def test_a_record_larger_than_the_cap_can_never_fit(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_bytes=SIZE))
    at.write(record(b"1"))
    with pytest.raises(RecordTooLarge) as refused:
        at.write(record(b"12"))
    assert refused.value.detail == {"topic": TOPIC, "cap_records": 0, "cap_bytes": SIZE}
    assert at.topic.log.head_seq == 1


def test_a_tighter_cap_evicts_at_once(at: EngineOnAFakeClock) -> None:
    at.fill(5)
    at.configure(TopicConfigPatch(cap_records=2))
    assert at.read(0).gap == Gap(1, 3, GapReason.CAP)
    assert at.engine.state.records_live == 2


def test_a_wider_cap_brings_nothing_back(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_records=2))
    at.fill(5)
    at.configure(TopicConfigPatch(cap_records=0))
    assert at.seqs(3) == [4, 5]


def test_a_cap_counts_live_records_only(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_records=3))
    at.fill(3)
    at.engine.delete_records(TOPIC, 3, None)
    at.fill(2)
    assert at.seqs(0) == [3, 4, 5]
    assert floors(at) == (1, 3)


# Caps, rejecting the new


def test_a_full_topic_refuses_and_tells_where_it_stands(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_records=3, discard=Discard.REJECT))
    at.fill(3)
    with pytest.raises(TopicFull) as refused:
        at.write(record())
    assert refused.value.detail == {
        "topic": TOPIC,
        "cap_records": 3,
        "cap_bytes": 0,
        "head_seq": 3,
        "earliest_seq": 1,
    }
    assert at.seqs() == [1, 2, 3]


def test_a_full_topic_refuses_by_bytes(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_bytes=3 * SIZE - 1, discard=Discard.REJECT))
    at.fill(2)
    with pytest.raises(TopicFull):
        at.write(record())
    assert at.topic.log.head_seq == 2


def test_a_batch_fits_whole_or_not_at_all(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_records=3, discard=Discard.REJECT))
    at.fill(2)
    with pytest.raises(TopicFull):
        at.write(record(), record())
    assert at.write(record()).first_seq == 3


@pytest.mark.parametrize("caps", [TopicConfigPatch(cap_records=3), TopicConfigPatch(cap_bytes=3 * SIZE)])
def test_a_batch_larger_than_a_rejecting_topic_can_never_fit(at: EngineOnAFakeClock, caps: TopicConfigPatch) -> None:
    at.configure(caps)
    at.configure(TopicConfigPatch(discard=Discard.REJECT))
    with pytest.raises(RecordTooLarge):
        at.write(*[record()] * 4)
    assert at.write(*[record()] * 3).first_seq == 1


@pytest.mark.parametrize("make_room", ["delete", "expire", "discard"])
def test_a_full_topic_takes_records_again_when_there_is_room(at: EngineOnAFakeClock, make_room: str) -> None:
    at.configure(TopicConfigPatch(cap_records=2, discard=Discard.REJECT, ttl_ms=100))
    at.fill(2)
    match make_room:
        case "delete":
            at.engine.delete_records(TOPIC, 2, None)
        case "expire":
            at.clock.advance(101)
        case _:
            at.configure(TopicConfigPatch(discard=Discard.OLD))
    assert at.write(record()).first_seq == 3


def test_a_rejecting_topic_never_evicts_what_it_has(at: EngineOnAFakeClock) -> None:
    at.fill(5)
    at.configure(TopicConfigPatch(cap_records=2, discard=Discard.REJECT))
    assert at.seqs() == [1, 2, 3, 4, 5]
    with pytest.raises(TopicFull):
        at.write(record())
    assert at.seqs() == [1, 2, 3, 4, 5]


# TTL


def test_a_record_lives_through_the_last_millisecond_of_its_ttl(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=100))
    at.fill(1)
    at.clock.advance(100)
    assert at.seqs() == [1]
    at.clock.advance(1)
    batch = at.read()
    assert (seqs(batch), batch.gap, batch.next_from_seq) == ([], Gap(1, 1, GapReason.TTL), 1)


def test_an_expired_record_is_gone_from_the_state_without_a_read(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=100))
    at.fill(2)
    at.clock.advance(101)
    log = at.topic.log
    assert (log.count, log.bytes, log.earliest_seq) == (0, 0, 3)
    assert at.engine.state.bytes_live == 0


def test_a_shorter_ttl_expires_at_once_and_a_longer_brings_nothing_back(at: EngineOnAFakeClock) -> None:
    at.fill(1)
    at.clock.advance(50)
    at.fill(1)
    at.configure(TopicConfigPatch(ttl_ms=49))
    assert at.engine.state.records_live == 1
    at.configure(TopicConfigPatch(ttl_ms=0))
    assert at.read(0).gap == Gap(1, 1, GapReason.TTL)


def test_what_the_old_ttl_took_stays_taken(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=10))
    at.fill(1)
    at.clock.advance(11)
    at.configure(TopicConfigPatch(ttl_ms=0))
    assert at.read(0).gap == Gap(1, 1, GapReason.TTL)


def test_the_largest_ttl_expires_nothing(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=2**64 - 1))
    at.fill(1)
    at.clock.advance(10**9)
    assert at.seqs() == [1]


def test_a_clock_that_steps_back_expires_nothing_early_and_revives_nothing(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=100))
    start = at.clock.now_ms()
    at.fill(1)
    at.clock.set_wall(start + 101)
    at.fill(1)
    assert at.seqs(1) == [2]
    at.clock.set_wall(start)
    at.fill(1)  # stamped like the one before it
    assert at.read(0).gap == Gap(1, 1, GapReason.TTL)
    at.clock.set_wall(start + 201)
    assert at.seqs(1) == [2, 3]
    at.clock.set_wall(start + 202)
    assert at.seqs(1) == []


def test_topics_nobody_reads_give_their_memory_back(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=100))
    at.fill(3)
    at.fill(1, topic="kept")
    at.clock.advance(101)
    at.engine.expire_due()
    at.check_totals()
    assert at.engine.state.records_live == 1


def test_topics_that_are_deleted_expire_no_more(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=100))
    at.fill(3)
    at.engine.delete_topic(TOPIC)
    at.clock.advance(101)
    at.engine.expire_due()
    at.check_totals()


def test_topics_without_a_ttl_any_more_keep_their_records(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=100))
    at.fill(3)
    at.configure(TopicConfigPatch(ttl_ms=0))
    at.clock.advance(101)
    at.engine.expire_due()
    assert at.engine.state.records_live == 3


def test_expiry_and_eviction_together_are_mixed(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=100, cap_records=3))
    at.fill(4)
    at.clock.advance(101)
    at.fill(1)
    assert at.read(0).gap == Gap(1, 4, GapReason.MIXED)
    assert at.read(1).gap == Gap(2, 4, GapReason.TTL)


# Deleting records


def test_deletes_are_silent(at: EngineOnAFakeClock) -> None:
    at.fill(5)
    deleted = at.engine.delete_records(TOPIC, 4, None).count
    at.check_totals()
    assert deleted == 3
    batch = at.read(0)
    assert (seqs(batch), batch.gap, floors(at)) == ([4, 5], None, (1, 4))


def test_a_delete_by_tag_is_bounded_by_the_head_of_its_moment(at: EngineOnAFakeClock) -> None:
    at.write(record(tag="x"), record())
    deleted = at.engine.delete_records(TOPIC, None, TagMatch("x", is_prefix=False)).count
    at.write(record(tag="x"))
    assert deleted == 1
    assert at.seqs() == [2, 3]


def test_a_delete_by_tag_and_seq_takes_what_satisfies_both(at: EngineOnAFakeClock) -> None:
    at.write(record(tag="m:1"), record(tag="m:2"), record(tag="n"), record(tag="m:1"))
    deleted = at.engine.delete_records(TOPIC, 4, TagMatch("m:", is_prefix=True)).count
    at.check_totals()
    assert deleted == 2
    assert at.seqs() == [3, 4]


def test_a_bound_beyond_the_head_deletes_nothing_of_the_future(at: EngineOnAFakeClock) -> None:
    at.fill(2)
    deleted = at.engine.delete_records(TOPIC, 1000, None).count
    at.fill(1)
    assert deleted == 2
    assert at.seqs() == [3]


def test_expired_records_are_not_counted_as_deleted(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=100))
    at.fill(2)
    at.clock.advance(101)
    at.fill(1)
    deleted = at.engine.delete_records(TOPIC, 4, None).count
    assert deleted == 1
    assert at.read(0).gap == Gap(1, 3, GapReason.TTL)


# Idempotency keys


def test_a_key_used_again_gets_its_first_seqs(at: EngineOnAFakeClock) -> None:
    at.write(record())
    at.write(record(), record(), key="k")
    at.write(record())
    again = at.write(record(b"9"), key="k")
    assert (again.first_seq, again.record_count, again.deduped, again.created) == (2, 2, True, False)
    assert at.topic.log.head_seq == 4


@pytest.mark.parametrize(("passed_ms", "deduped"), [(99, True), (100, False)])
def test_a_key_counts_within_its_window(at: EngineOnAFakeClock, passed_ms: int, deduped: bool) -> None:
    at.configure(TopicConfigPatch(idempotency_window_ms=100))
    at.write(record(), key="k")
    at.clock.advance(passed_ms)
    assert at.write(record(), key="k").deduped is deduped


def test_a_key_belongs_to_its_topic(at: EngineOnAFakeClock) -> None:
    at.write(record(), key="k")
    assert not at.write(record(), key="k", topic="other").deduped


def test_a_refused_write_leaves_its_key_unused(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_records=1, discard=Discard.REJECT))
    at.fill(1)
    with pytest.raises(TopicFull):
        at.write(record(), key="k")
    at.engine.delete_records(TOPIC, 2, None)
    appended = at.write(record(), key="k")
    assert (appended.deduped, appended.first_seq) == (False, 2)


def test_a_repeated_write_to_a_full_topic_gets_its_seqs(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_records=1, discard=Discard.REJECT))
    at.write(record(), key="k")
    assert at.write(record(), key="k").deduped


@pytest.mark.parametrize("key", ["", "k" * 257])
def test_a_key_has_1_to_256_characters(at: EngineOnAFakeClock, key: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        at.write(record(), key=key)
    assert refused.value.detail == {"field": "idempotency_key"}
    assert at.write(record(), key="ä" * 256).first_seq == 1


# Reading


def test_own_records_are_left_out_unless_the_topic_says_otherwise(at: EngineOnAFakeClock) -> None:
    at.write(record(node="me"), record(node="you"))
    assert at.seqs(own_nodes=frozenset({"me"})) == [2]
    at.configure(TopicConfigPatch(dedupe_node=False))
    assert at.seqs(own_nodes=frozenset({"me"})) == [1, 2]


def test_a_reader_of_a_recreated_topic_is_told_so(at: EngineOnAFakeClock) -> None:
    at.fill(5)
    at.engine.delete_topic(TOPIC)
    at.fill(2)
    batch = at.read(5)
    assert (batch.gap, seqs(batch)) == (Gap(1, 2, GapReason.RECREATED), [1, 2])


def test_a_reader_at_the_head_finds_nothing(at: EngineOnAFakeClock) -> None:
    at.fill(2)
    batch = at.read(2)
    assert (batch.fragments, batch.next_from_seq, batch.gap) == ([], 2, None)


# The cold tier


def test_a_cap_that_is_lowered_reaches_into_the_cold_tier() -> None:
    """Without a write to say so; and what it has taken there stays taken."""
    disk, clock = FakeDisk(), FakeClock()
    server = SimulatedServer(disk, clock, segment_events_max=4, cold_dir=COLD_DIR, hot_retain_segments=1)
    server.start()
    server.put(TOPIC, {"durability": "fsync"})
    for _ in range(2):
        server.write(TOPIC, 4)
    assert server.checkpoint()
    assert server.engine.topic(TOPIC).log.blocks[0].cold
    server.put(TOPIC, {"cap_records": 2})
    server.put(TOPIC, {"cap_records": 0})
    assert sorted(server.read_all(TOPIC).records) == [7, 8]
    server.sync()
    again = SimulatedServer(disk.crash_drop_all(), clock, segment_events_max=4, cold_dir=COLD_DIR)
    again.start()
    assert sorted(again.read_all(TOPIC).records) == [7, 8]
    assert again.read_all(TOPIC).gaps == [Gap(1, 6, GapReason.CAP)]
