"""One topic: its TTL, its priority, what is in flight and how far ahead it reserves seqs."""

import pytest

from topics import limits
from topics.engine.journal import Commit
from topics.engine.topic import InFlight, Topic
from topics.engine.topic_log import TopicLog
from topics.model.config import DEFAULT_CONFIG, TopicConfig
from topics.model.operation import JobsDeleted, RecordsDeleted
from topics.model.tag_match import TagMatch


def topic(config: TopicConfig = DEFAULT_CONFIG) -> Topic:
    return Topic("t", 1, config, TopicLog())


def test_a_read_makes_a_topic_hot() -> None:
    read = topic()
    assert read.effective_priority(1000) == 0
    read.last_read_ts = 1000
    assert read.effective_priority(1000) == 500


def test_a_manual_priority_is_the_topics_priority() -> None:
    assert topic(TopicConfig(priority=12)).effective_priority(1000) == 12


def test_what_is_in_flight_says_which_records_it_will_delete() -> None:
    deleting = topic()
    operations = (
        RecordsDeleted(topic_id=1, ts=0, before_seq=3),
        RecordsDeleted(topic_id=1, ts=0, before_seq=9, match=TagMatch("x", is_prefix=False)),
        JobsDeleted(topic_id=1, ts=0, seqs=[7]),
        RecordsDeleted(topic_id=2, ts=0, before_seq=100),
    )
    deleting.in_flight = [InFlight(operations, (deleting,), Commit())]
    assert [seq for seq in range(1, 12) if deleting.will_delete(seq, None)] == [1, 2, 7]
    assert [seq for seq in range(1, 12) if deleting.will_delete(seq, "x")] == [1, 2, 3, 4, 5, 6, 7, 8]


def reserve(reserving: Topic, last_seq: int, now_ms: int) -> int | None:
    ceiling = reserving.next_ceiling(last_seq, now_ms)
    if ceiling is not None:
        reserving.requested_ceiling = ceiling
    return ceiling


def test_seqs_are_reserved_anew_when_half_of_them_are_given_out() -> None:
    slow = topic()
    size, pause_ms = limits.SEQ_RESERVATION_MIN, limits.SEQ_RESERVATION_PACE_MS
    assert reserve(slow, 0, pause_ms) == size
    assert reserve(slow, size // 2, 2 * pause_ms) is None
    assert reserve(slow, size // 2 + 1, 2 * pause_ms) == size // 2 + 1 + size


@pytest.mark.parametrize(("pause_ms", "growing"), [(limits.SEQ_RESERVATION_PACE_MS - 1, True), (60_000, False)])
def test_reservations_grow_with_the_pace_of_writing_up_to_a_bound(pause_ms: int, growing: bool) -> None:
    written = topic()
    now_ms = last_seq = 0
    sizes = []
    for _ in range(20):
        now_ms += pause_ms
        last_seq = written.requested_ceiling
        ceiling = reserve(written, last_seq, now_ms)
        assert ceiling is not None
        sizes.append(ceiling - last_seq)
    assert sizes[0] == (2 if growing else 1) * limits.SEQ_RESERVATION_MIN
    assert sizes[-1] == (limits.SEQ_RESERVATION_MAX if growing else limits.SEQ_RESERVATION_MIN)


def test_a_reservation_that_lasts_a_while_is_followed_by_one_of_the_same_size() -> None:
    written = topic()
    now_ms = last_seq = 0
    for _ in range(4):
        now_ms += limits.SEQ_RESERVATION_PACE_MS - 1
        last_seq = written.requested_ceiling
        reserve(written, last_seq, now_ms)
    size = written.requested_ceiling - last_seq
    assert size > limits.SEQ_RESERVATION_MIN
    for pause_ms in (limits.SEQ_RESERVATION_PACE_MS, limits.SEQ_RESERVATION_SLOW_MS):
        now_ms += pause_ms
        last_seq = written.requested_ceiling
        assert reserve(written, last_seq, now_ms) == last_seq + size
