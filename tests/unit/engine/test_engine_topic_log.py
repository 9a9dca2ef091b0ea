"""The log of one topic: its blocks, its two floors, and what a reader sees."""

import json
from array import array

import pytest
from engine_on_a_fake_clock import record

from topics import limits
from topics.engine import log_reading
from topics.engine.admission import WriteLimits, admit
from topics.engine.log_reading import ReadBatch
from topics.engine.topic_log import TopicLog
from topics.model.gap import Gap, GapReason
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch

EVERYTHING = ReadOptions(limit=100_000, bytes_max=1 << 30)


def append(log: TopicLog, *records: NewRecord, ts: int = 1000) -> None:
    log.append(admit(list(records), None, log.head_seq + 1, ts, WriteLimits()), array("q", [ts]) * len(records))


def log_of(count: int) -> TopicLog:
    log = TopicLog()
    append(log, *[record()] * count)
    return log


def evict(log: TopicLog, records_max: int, bytes_max: int) -> None:
    log.evict_through(log_reading.beyond_cap(log, records_max, bytes_max, cold=False))


def seqs(batch: ReadBatch) -> list[int]:
    return [json.loads(fragment)["$seq"] for fragment in batch.fragments]


def live(log: TopicLog) -> list[int]:
    return seqs(log_reading.read(log, log.earliest_seq - 1, EVERYTHING))


def floors(log: TopicLog) -> tuple[int, int]:
    return log.evict_floor, log.earliest_seq


@pytest.fixture(scope="module")
def three_blocks() -> TopicLog:
    """25 000 records; module-wide because making it takes a moment, so tests only read it."""
    return long_log()


def long_log() -> TopicLog:
    log = TopicLog()
    for ts in (1000, 2000):
        append(log, *(record(tag=f"{position % 10}") for position in range(limits.SEGMENT_EVENTS_MAX)), ts=ts)
    append(log, *(record(tag=f"{position % 10}") for position in range(limits.SEGMENT_EVENTS_MAX // 2)), ts=3000)
    return log


# Floors


def test_a_new_log_is_empty_and_has_lost_nothing() -> None:
    log = TopicLog()
    assert (log.head_seq, log.count, log.bytes) == (0, 0, 0)
    assert floors(log) == (1, 1)
    assert log_reading.read(log, 0, EVERYTHING) == ReadBatch([], 0, None, 0)


def test_a_delete_moves_the_earliest_seq_alone() -> None:
    log = log_of(5)
    assert log.delete_before(3) == 2
    assert floors(log) == (1, 3)


def test_an_eviction_moves_both_floors() -> None:
    log = log_of(5)
    evict(log, 3, 0)
    assert floors(log) == (3, 3)


def test_an_expiry_moves_both_floors() -> None:
    log = log_of(2)
    append(log, record(), ts=2000)
    log.expire(1001, wait=False)
    assert floors(log) == (3, 3)


def test_deleted_records_above_the_lost_ones_are_not_below_the_evict_floor() -> None:
    log = TopicLog()
    append(log, record(), record(tag="x"), record(tag="x"), record())
    log.delete_matching(TagMatch("x", is_prefix=False), 5)
    evict(log, 1, 0)
    assert floors(log) == (2, 4)


def test_expiry_does_not_count_records_deleted_before() -> None:
    log = TopicLog()
    append(log, record(), record(tag="x"))
    append(log, record(), ts=5000)
    log.delete_matching(TagMatch("x", is_prefix=False), 3)
    log.expire(2000, wait=False)
    assert floors(log) == (2, 3)


def test_a_log_that_expires_whole_has_lost_only_what_was_live() -> None:
    log = TopicLog()
    append(log, record(), record(), record(tag="x"))
    log.delete_matching(TagMatch("x", is_prefix=False), 4)
    log.expire(2000, wait=False)
    assert floors(log) == (3, 4)


def test_a_block_that_is_evicted_whole_has_lost_only_what_was_live() -> None:
    log = TopicLog()
    append(log, *[record()] * (limits.SEGMENT_EVENTS_MAX - 1), record(tag="x"))
    append(log, record(tag="x"), record())
    log.delete_matching(TagMatch("x", is_prefix=False), log.head_seq + 1)
    evict(log, 1, 0)
    assert floors(log) == (limits.SEGMENT_EVENTS_MAX, limits.SEGMENT_EVENTS_MAX + 2)


def test_an_emptied_log_begins_after_its_head() -> None:
    log = log_of(3)
    assert log.delete_before(4) == 3
    assert (log.count, log.bytes, log.earliest_seq, log.head_seq) == (0, 0, 4, 3)
    append(log, record())
    assert live(log) == [4]


# Eviction


def test_caps_that_hold_evict_nothing() -> None:
    log = log_of(5)
    evict(log, 5, log.bytes)
    assert log.count == 5


def test_the_cap_by_bytes_keeps_as_many_as_fit() -> None:
    log = log_of(5)
    evict(log, 0, log.bytes * 3 // 5)
    assert live(log) == [3, 4, 5]
    evict(log, 0, log.bytes - 1)
    assert live(log) == [4, 5]


def test_the_tighter_of_two_caps_wins() -> None:
    log = log_of(5)
    evict(log, 4, log.bytes * 2 // 5)
    assert live(log) == [4, 5]
    evict(log, 1, log.bytes)
    assert live(log) == [5]


def test_deleted_records_do_not_count_towards_a_cap() -> None:
    log = TopicLog()
    append(log, record(), record(tag="x"), record(tag="x"), record())
    log.delete_matching(TagMatch("x", is_prefix=False), 5)
    evict(log, 2, 0)
    assert live(log) == [1, 4]


# Time


def test_only_what_is_older_expires() -> None:
    log = TopicLog()
    for ts in (1000, 2000, 2000, 3000):
        append(log, record(), ts=ts)
    log.expire(2000, wait=False)
    assert live(log) == [2, 3, 4]
    log.expire(2001, wait=False)
    assert live(log) == [4]


def test_expiring_with_an_earlier_time_brings_nothing_back() -> None:
    log = log_of(3)
    log.expire(9999, wait=False)
    log.expire(0, wait=False)
    assert (log.count, floors(log)) == (0, (4, 4))


# Deleting


def test_only_live_records_count_as_deleted() -> None:
    log = log_of(5)
    evict(log, 4, 0)
    assert log.delete_before(4) == 2
    assert log.delete_before(4) == 0


def test_a_delete_beyond_the_head_takes_all_there_is() -> None:
    log = log_of(3)
    assert log.delete_before(limits.U64_MAX) == 3


@pytest.mark.parametrize("before_seq", [0, 1])
def test_nothing_is_before_the_first_seq(before_seq: int) -> None:
    log = log_of(3)
    assert log.delete_before(before_seq) == 0
    assert log.delete_matching(TagMatch("", is_prefix=True), before_seq) == 0


def test_a_match_below_a_seq_spares_the_rest() -> None:
    log = TopicLog()
    append(log, *[record(tag="x")] * 5)
    assert log.delete_matching(TagMatch("x", is_prefix=False), 4) == 3
    assert live(log) == [4, 5]


def test_records_without_a_tag_match_nothing() -> None:
    log = TopicLog()
    append(log, record(), record(tag=""), record(tag="x"))
    assert log.delete_matching(TagMatch("", is_prefix=False), 4) == 1
    assert log.delete_matching(TagMatch("", is_prefix=True), 4) == 1
    assert live(log) == [1]


# Tombstones


def test_a_reader_that_missed_nothing_sees_no_gap() -> None:
    assert [log_reading.gap_at(log_of(3), from_seq) for from_seq in range(4)] == [None] * 4


def test_a_gap_reaches_from_the_reader_to_the_first_live_record() -> None:
    log = log_of(10)
    evict(log, 3, 0)
    assert log_reading.gap_at(log, 0) == Gap(1, 7, GapReason.CAP)
    assert log_reading.gap_at(log, 6) == Gap(7, 7, GapReason.CAP)
    assert log_reading.gap_at(log, 7) is None


def test_a_gap_covers_the_deleted_records_behind_it() -> None:
    log = TopicLog()
    append(log, record(), record(tag="x"), record())
    log.delete_matching(TagMatch("x", is_prefix=False), 4)
    evict(log, 1, 0)
    assert log_reading.gap_at(log, 0) == Gap(1, 2, GapReason.CAP)
    assert log_reading.gap_at(log, 1) is None


def test_a_gap_says_cap_and_ttl_only_for_what_the_reader_missed_by_each() -> None:
    log = log_of(4)
    append(log, record(), record(), ts=2000)
    evict(log, 4, 0)  # 1 and 2 go
    log.expire(1500, wait=False)  # 3 and 4 go
    assert log_reading.gap_at(log, 0) == Gap(1, 4, GapReason.MIXED)
    assert log_reading.gap_at(log, 1) == Gap(2, 4, GapReason.MIXED)
    assert log_reading.gap_at(log, 2) == Gap(3, 4, GapReason.TTL)


def test_a_cap_after_an_expiry_is_told_apart_too() -> None:
    log = log_of(2)
    append(log, record(), record(), ts=2000)
    log.expire(1500, wait=False)
    evict(log, 1, 0)
    assert log_reading.gap_at(log, 1) == Gap(2, 3, GapReason.MIXED)
    assert log_reading.gap_at(log, 2) == Gap(3, 3, GapReason.CAP)


@pytest.mark.parametrize("from_seq", [4, 5, limits.U64_MAX])
def test_a_cursor_from_the_future_belongs_to_another_instance(from_seq: int) -> None:
    log = log_of(3)
    evict(log, 2, 0)
    batch = log_reading.read(log, from_seq, EVERYTHING)
    assert batch.gap == Gap(1, 3, GapReason.RECREATED)
    assert seqs(batch) == [2, 3]
    assert batch.next_from_seq == 3


def test_a_cursor_into_an_empty_new_instance_is_told_so() -> None:
    assert log_reading.read(TopicLog(), 9, EVERYTHING) == ReadBatch([], 0, Gap(1, 0, GapReason.RECREATED), 0)


# Reading


@pytest.mark.parametrize("from_seq", range(6))
def test_reading_is_exclusive(from_seq: int) -> None:
    assert seqs(log_reading.read(log_of(5), from_seq, EVERYTHING)) == list(range(from_seq + 1, 6))


def test_a_limit_ends_a_batch_at_its_last_record() -> None:
    batch = log_reading.read(log_of(5), 1, ReadOptions(limit=2, bytes_max=1 << 20))
    assert (seqs(batch), batch.next_from_seq, batch.scanned) == ([2, 3], 3, 2)


def test_dead_records_do_not_use_up_the_limit() -> None:
    log = TopicLog()
    append(log, record(), record(tag="x"), record(tag="x"), record(), record())
    log.delete_matching(TagMatch("x", is_prefix=False), 6)
    batch = log_reading.read(log, 0, ReadOptions(limit=2, bytes_max=1 << 20))
    assert (seqs(batch), batch.next_from_seq) == ([1, 4], 4)


def test_dead_records_at_the_end_are_passed() -> None:
    log = TopicLog()
    append(log, record(), record(tag="x"))
    log.delete_matching(TagMatch("x", is_prefix=False), 3)
    assert log_reading.read(log, 0, EVERYTHING).next_from_seq == 2


def test_a_readers_own_records_use_up_the_limit_and_move_the_cursor() -> None:
    log = TopicLog()
    append(log, record(node="me"), record(node="me"), record(node="you"), record())
    own = ReadOptions(limit=2, bytes_max=1 << 20, own_nodes=frozenset({"me"}))
    assert log_reading.read(log, 0, own)[:2] == ([], 2)
    assert seqs(log_reading.read(log, 2, own)) == [3, 4]


def test_several_identities_can_be_left_out() -> None:
    log = TopicLog()
    append(log, record(node="a"), record(node="b"), record(node="A"), record())
    assert seqs(log_reading.read(log, 0, EVERYTHING._replace(own_nodes=frozenset({"a", "b"})))) == [3, 4]


def test_a_byte_budget_ends_a_batch_before_the_record_that_does_not_fit() -> None:
    log = log_of(3)
    size = len(log_reading.read(log, 0, EVERYTHING).fragments[0])
    batch = log_reading.read(log, 0, ReadOptions(limit=10, bytes_max=2 * size))
    assert (seqs(batch), batch.next_from_seq) == ([1, 2], 2)
    batch = log_reading.read(log, 0, ReadOptions(limit=10, bytes_max=2 * size - 1))
    assert (seqs(batch), batch.next_from_seq) == ([1], 1)


def test_a_record_larger_than_the_budget_comes_alone() -> None:
    log = TopicLog()
    append(log, record(b'"%b"' % (b"x" * 500)), record())
    batch = log_reading.read(log, 0, ReadOptions(limit=10, bytes_max=10))
    assert (seqs(batch), batch.next_from_seq) == ([1], 1)


def test_own_records_before_a_large_one_do_not_hold_the_reader_back() -> None:
    log = TopicLog()
    append(log, record(node="me"), record(b'"%b"' % (b"x" * 500)))
    options = ReadOptions(limit=10, bytes_max=10, own_nodes=frozenset({"me"}))
    cursor, found = 0, []
    while cursor < log.head_seq:
        batch = log_reading.read(log, cursor, options)
        assert batch.next_from_seq > cursor
        cursor = batch.next_from_seq
        found += seqs(batch)
    assert found == [2]


def test_the_budget_counts_what_is_rendered() -> None:
    log = TopicLog()
    append(log, *[record(meta=b'{"k":"%b"}' % (b"x" * 300))] * 4)
    assert len(log_reading.read(log, 0, ReadOptions(10, 500)).fragments) == 1
    assert len(log_reading.read(log, 0, ReadOptions(10, 500, include_meta=False)).fragments) == 4


@pytest.mark.parametrize(
    ("include_tags", "include_meta", "text"),
    [
        (False, True, b'{"$seq":1,"$ts":1000,"$node":"n","data":{"a": 1.0},"meta":{"k": "v"}}'),
        (True, True, b'{"$seq":1,"$ts":1000,"$node":"n","data":{"a": 1.0},"meta":{"k": "v"},"$tag":"x\\"y"}'),
        (False, False, b'{"$seq":1,"$ts":1000,"$node":"n","data":{"a": 1.0}}'),
        (True, False, b'{"$seq":1,"$ts":1000,"$node":"n","data":{"a": 1.0},"$tag":"x\\"y"}'),
    ],
)
def test_a_record_is_rendered_byte_for_byte(include_tags: bool, include_meta: bool, text: bytes) -> None:
    log = TopicLog()
    append(log, record(b'{"a": 1.0}', tag='x"y', node="n", meta=b'{"k": "v"}'), record(b"null"))
    batch = log_reading.read(log, 0, EVERYTHING._replace(include_tags=include_tags, include_meta=include_meta))
    assert batch.fragments == [text, b'{"$seq":2,"$ts":1000,"data":null}']


def test_renderings_stay_right_beside_dead_records() -> None:
    log = TopicLog()
    append(log, record(tag="gone", meta=b"{}"), record(tag="a", meta=b'{"k":"v"}'), record(), record(tag="b"))
    log.delete_matching(TagMatch("gone", is_prefix=False), 5)
    batch = log_reading.read(log, 0, EVERYTHING._replace(include_tags=True, include_meta=False))
    assert batch.fragments == [
        b'{"$seq":2,"$ts":1000,"data":0,"$tag":"a"}',
        b'{"$seq":3,"$ts":1000,"data":0}',
        b'{"$seq":4,"$ts":1000,"data":0,"$tag":"b"}',
    ]


# Many blocks


def test_a_read_goes_on_over_the_end_of_a_block(three_blocks: TopicLog) -> None:
    batch = log_reading.read(three_blocks, 9_998, ReadOptions(limit=5, bytes_max=1 << 20))
    assert (seqs(batch), batch.next_from_seq) == ([9_999, 10_000, 10_001, 10_002, 10_003], 10_003)


@pytest.mark.parametrize("limit", [999, 1000, 10_000, 12_345, 25_000, 30_000])
def test_every_record_of_many_blocks_is_read_once(three_blocks: TopicLog, limit: int) -> None:
    cursor, found = 0, []
    while cursor < three_blocks.head_seq:
        batch = log_reading.read(three_blocks, cursor, ReadOptions(limit, 1 << 30))
        assert batch.next_from_seq > cursor
        found += seqs(batch)
        cursor = batch.next_from_seq
    assert found == list(range(1, 25_001))


def test_a_byte_budget_may_end_exactly_with_a_block(three_blocks: TopicLog) -> None:
    last = log_reading.read(three_blocks, 9_999, ReadOptions(1, 1 << 20)).fragments[0]
    batch = log_reading.read(three_blocks, 9_999, ReadOptions(10, len(last)))
    assert (seqs(batch), batch.next_from_seq) == ([10_000], 10_000)


def test_a_byte_budget_carries_over_into_the_next_block(three_blocks: TopicLog) -> None:
    size = sum(map(len, log_reading.read(three_blocks, 9_998, ReadOptions(3, 1 << 20)).fragments))
    assert seqs(log_reading.read(three_blocks, 9_998, ReadOptions(10, size))) == [9_999, 10_000, 10_001]
    assert seqs(log_reading.read(three_blocks, 9_998, ReadOptions(10, size - 1))) == [9_999, 10_000]


def test_caps_cut_through_blocks_to_the_record() -> None:
    log = long_log()
    size = log.bytes // log.count
    evict(log, 12_345, 0)
    assert (log.count, log.bytes, floors(log)) == (12_345, 12_345 * size, (12_656, 12_656))
    evict(log, 0, 5_001 * size + size - 1)
    assert (log.count, floors(log)) == (5_001, (20_000, 20_000))
    assert len(live(log)) == 5_001


@pytest.mark.parametrize("kept", [25_000, 15_001, 15_000, 14_999, 5_000, 1])
def test_a_cap_at_the_edge_of_a_block_is_exact(kept: int) -> None:
    log = long_log()
    evict(log, kept, 0)
    assert (log.count, log.earliest_seq) == (kept, 25_001 - kept)
    assert log_reading.gap_at(log, 0) == (None if kept == 25_000 else Gap(1, 25_000 - kept, GapReason.CAP))


def test_expiry_drops_whole_blocks() -> None:
    log = long_log()
    log.expire(2001, wait=False)
    assert (log.count, floors(log)) == (5_000, (20_001, 20_001))


def test_blocks_emptied_by_their_tags_are_dropped_from_the_front() -> None:
    log = long_log()
    for first in range(10):
        assert log.delete_matching(TagMatch(str(first), is_prefix=False), 20_001) == 2000
    assert (log.count, floors(log)) == (5_000, (1, 20_001))


def test_dead_blocks_in_the_middle_are_read_across_in_silence() -> None:
    log = TopicLog()
    append(log, record(), *[record(tag="x")] * (limits.SEGMENT_EVENTS_MAX - 1))
    append(log, *[record(tag="x")] * limits.SEGMENT_EVENTS_MAX)
    append(log, *[record(tag="x")] * limits.SEGMENT_EVENTS_MAX)
    append(log, record())
    assert log.delete_matching(TagMatch("x", is_prefix=False), log.head_seq + 1) == 29_999
    batch = log_reading.read(log, 0, ReadOptions(10, 1 << 20))
    assert (seqs(batch), batch.gap, batch.next_from_seq) == ([1, 30_001], None, 30_001)
    batch = log_reading.read(log, 15_000, ReadOptions(10, 1 << 20))
    assert (seqs(batch), batch.gap) == ([30_001], None)
    assert log.delete_before(15_000) == 1
    assert floors(log) == (1, 30_001)
    evict(log, 1, 0)
    assert live(log) == [30_001]


def test_a_delete_below_a_seq_cuts_through_blocks() -> None:
    log = long_log()
    assert log.delete_before(10_001) == 10_000
    assert log.delete_before(20_000) == 9_999
    assert (log.count, floors(log)) == (5_001, (1, 20_000))


def test_a_match_reaches_into_every_block() -> None:
    log = long_log()
    assert log.delete_matching(TagMatch("3", is_prefix=False), 20_005) == 2001
    assert log.count == 25_000 - 2001


# Times


@pytest.mark.parametrize(
    ("ts", "cursor"),
    [(0, 0), (10, 0), (11, 2), (20, 2), (21, 4), (30, 4), (40, 4), (41, 9), (50, 9), (51, 9)],
)
def test_a_cursor_at_a_time_is_behind_the_last_older_record_and_before_what_a_crash_took(ts: int, cursor: int) -> None:
    log = TopicLog()
    append(log, record(), record(), ts=10)
    append(log, record(), record(), ts=20)
    log.lose(5, 8)
    append(log, record(), ts=40)
    log.lose(10, 12)
    assert log_reading.cursor_at(log, ts) == cursor


def test_without_records_only_times_that_may_be_lost_are_before_the_head() -> None:
    log = TopicLog()
    append(log, record(), record(), ts=10)
    evict(log, 1, 0)
    log.delete_before(3)
    assert [log_reading.cursor_at(log, ts) for ts in (5, 10, 11)] == [0, 0, 2]


def test_records_deleted_by_their_seqs_go_once_in_whatever_order_they_are_named() -> None:
    log = log_of(6)
    size = log.bytes // 6
    assert log.delete_seqs([5, 2, 5, 4, 99]) == 3
    assert live(log) == [1, 3, 6]
    assert (log.count, log.bytes) == (3, 3 * size)
    assert log.delete_seqs([4, 2, 1]) == 1
    assert (log.count, log.bytes, log.earliest_seq) == (2, 2 * size, 3)


@pytest.mark.parametrize("wanted", [[1, 2, 3], [5, 9, 7], [3, 4, 6, 7], [7, 8, 9, 10, 11], [9, 2, 3, 1]])
def test_the_texts_of_records_come_in_the_order_they_are_asked_for(wanted: list[int]) -> None:
    log = TopicLog(block_events_max=4)
    append(log, *[record()] * 4)
    append(log, *[record()] * 4)
    append(log, *[record()] * 4)
    assert [json.loads(text)["$seq"] for text in log_reading.texts_of(log, wanted)] == wanted
