"""cap_records and cap_bytes bound a topic; discard says what happens when it is full."""

from typing import Any

import pytest

from conformance.client import Topic, assert_error


def refuse(topic: Topic, status: int, code: str, *records: dict[str, Any]) -> dict[str, Any]:
    """Writes records that must be refused, and checks that the topic is as before."""
    before = topic.state()
    detail = assert_error(topic.api.post(topic.path, {"records": list(records)}), status, code)
    after = topic.state()
    watermarks = ["head_seq", "earliest_seq", "count", "bytes", "last_write_ts"]
    assert [after[field] for field in watermarks] == [before[field] for field in watermarks]
    return detail


def test_old_records_make_room_for_new_ones(topic: Topic) -> None:
    topic.configure(cap_records=5)
    for _ in range(8):
        topic.fill(1)
    state = topic.state()
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (5, 4, 8)
    assert topic.seqs(from_seq=3) == [4, 5, 6, 7, 8]


def test_exactly_the_cap_is_kept(topic: Topic) -> None:
    topic.configure(cap_records=5)
    topic.fill(5)
    state = topic.state()
    assert (state["count"], state["earliest_seq"]) == (5, 1)


def test_a_cap_of_zero_keeps_everything(topic: Topic) -> None:
    topic.configure(cap_records=0, cap_bytes=0)
    topic.fill(500)
    assert topic.state()["count"] == 500


def test_a_batch_larger_than_the_cap_keeps_its_last_records(topic: Topic) -> None:
    topic.configure(cap_records=3)
    assert topic.fill(10)["seqs"] == list(range(1, 11))
    assert topic.seqs(from_seq=7) == [8, 9, 10]
    assert topic.state()["count"] == 3


def test_the_bytes_kept_stay_within_cap_bytes(topic: Topic) -> None:
    topic.configure(cap_bytes=3000)
    for _ in range(10):
        topic.write({"data": "x" * 900})
    state = topic.state()
    assert 1 <= state["count"] <= 3
    assert state["bytes"] <= 3000
    assert state["earliest_seq"] == 11 - state["count"]


@pytest.mark.parametrize(
    ("config", "count"), [({"cap_records": 2, "cap_bytes": 100_000}, 2), ({"cap_records": 50, "cap_bytes": 3000}, 3)]
)
def test_whichever_cap_is_reached_first_evicts(topic: Topic, config: dict[str, int], count: int) -> None:
    topic.configure(**config)
    for _ in range(10):
        topic.write({"data": "x" * 900})
    assert 1 <= topic.state()["count"] <= count


@pytest.mark.parametrize("discard", ["old", "reject"])
def test_a_record_larger_than_cap_bytes_never_fits(topic: Topic, discard: str) -> None:
    topic.configure(cap_bytes=1000, discard=discard)
    topic.write({"data": "x" * 100})
    refuse(topic, 400, "record_too_large", {"data": "x" * 1001})


def test_a_full_topic_that_rejects_says_so(topic: Topic) -> None:
    topic.configure(cap_records=3, cap_bytes=100_000, discard="reject")
    topic.fill(3)
    detail = refuse(topic, 422, "topic_full", {"data": 1})
    expected = {"cap_records": 3, "cap_bytes": 100_000, "head_seq": 3, "earliest_seq": 1}
    assert {field: detail[field] for field in expected} == expected


def test_a_rejecting_topic_can_be_filled_exactly(topic: Topic) -> None:
    topic.configure(cap_records=3, discard="reject")
    topic.fill(2)
    topic.fill(1)
    assert topic.seqs() == [1, 2, 3]


def test_a_batch_that_fits_only_in_part_is_rejected_whole(topic: Topic) -> None:
    topic.configure(cap_records=5, discard="reject")
    topic.fill(3)
    refuse(topic, 422, "topic_full", {"data": 1}, {"data": 2}, {"data": 3})


def test_a_batch_larger_than_the_whole_cap_never_fits(topic: Topic) -> None:
    topic.configure(cap_records=3, discard="reject")
    refuse(topic, 400, "record_too_large", *({"data": position} for position in range(4)))


def test_a_rejecting_topic_full_by_bytes_says_so(topic: Topic) -> None:
    topic.configure(cap_bytes=3000, discard="reject")
    topic.write({"data": "x" * 2000})
    refuse(topic, 422, "topic_full", {"data": "x" * 2000})


def test_a_batch_with_more_bytes_than_the_whole_cap_never_fits(topic: Topic) -> None:
    topic.configure(cap_bytes=3000, discard="reject")
    refuse(topic, 400, "record_too_large", *({"data": "x" * 1100} for _ in range(3)))


def test_a_rejected_write_takes_no_seqs(topic: Topic) -> None:
    topic.configure(cap_records=3, discard="reject")
    topic.fill(3)
    refuse(topic, 422, "topic_full", {"data": 1})
    topic.delete_records(before_seq=2)
    assert topic.fill(1)["seqs"] == [4]


def test_a_refused_write_creates_no_topic(topic: Topic) -> None:
    body = {"records": [{"data": 1}] * 3, "config": {"cap_records": 2, "discard": "reject"}}
    assert_error(topic.api.post(topic.path, body), 400, "record_too_large")
    assert not topic.exists()


def test_deleted_records_leave_room_in_a_rejecting_topic(topic: Topic) -> None:
    topic.configure(cap_records=3, discard="reject")
    topic.write({"data": 1}, {"data": 2, "tag": "middle"}, {"data": 3})
    topic.delete_records(match="middle")
    topic.fill(1)
    assert topic.seqs() == [1, 3, 4]


def test_deleted_records_do_not_count_towards_the_cap(topic: Topic) -> None:
    topic.configure(cap_records=3)
    topic.write({"data": 1}, {"data": 2, "tag": "middle"}, {"data": 3})
    topic.delete_records(match="middle")
    topic.fill(1)
    assert topic.seqs() == [1, 3, 4]
    assert topic.diff()["tombstone"] is None


def test_a_tightened_cap_applies_to_the_records_already_there(topic: Topic) -> None:
    topic.fill(10)
    topic.configure(cap_records=3)
    topic.fill(1)
    state = topic.state()
    assert (state["count"], state["earliest_seq"]) == (3, 9)


def test_a_loosened_cap_brings_nothing_back(topic: Topic) -> None:
    topic.configure(cap_records=3)
    topic.fill(10)
    topic.configure(cap_records=0)
    topic.fill(1)
    state = topic.state()
    assert (state["count"], state["earliest_seq"]) == (4, 8)


def test_evicted_records_are_no_longer_found_by_their_tag(topic: Topic) -> None:
    topic.configure(cap_records=2)
    topic.write(*({"data": position, "tag": "t"} for position in range(5)))
    assert topic.delete_records(match="t")["deleted"] == 2


def test_a_rejecting_queue_refuses_new_jobs(topic: Topic) -> None:
    topic.configure(type="queue", cap_records=2, discard="reject")
    topic.fill(2)
    refuse(topic, 422, "topic_full", {"data": 1})
