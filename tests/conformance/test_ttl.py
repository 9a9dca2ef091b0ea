"""Records older than ttl_ms are gone for every reader. The only tests here that wait for real time to pass."""

import pytest

from conformance.client import Topic, eventually


@pytest.fixture
def expired(topic: Topic) -> Topic:
    """Three tagged records that have expired, in a topic whose new records live for an hour."""
    topic.configure(ttl_ms=40)
    topic.write(*({"data": position, "tag": "old"} for position in range(3)))
    eventually(lambda: topic.state()["count"] == 0)
    topic.configure(ttl_ms=3_600_000)
    return topic


def test_expired_records_leave_an_empty_topic(topic: Topic) -> None:
    topic.configure(ttl_ms=40)
    topic.fill(3)
    eventually(lambda: topic.state()["count"] == 0)
    state = topic.state()
    assert (state["bytes"], state["head_seq"], state["earliest_seq"], state["next_seq"]) == (0, 3, 4, 4)


def test_expired_records_are_not_delivered(topic: Topic) -> None:
    topic.configure(ttl_ms=40)
    topic.fill(3)
    eventually(lambda: topic.seqs() == [])


@pytest.mark.parametrize("ttl_ms", [0, 3_600_000, 2**64 - 1])
def test_records_within_their_ttl_are_delivered(topic: Topic, ttl_ms: int) -> None:
    topic.configure(ttl_ms=ttl_ms)
    topic.fill(3)
    assert topic.seqs() == [1, 2, 3]
    assert topic.diff()["tombstone"] is None


def test_new_records_follow_the_expired_ones(expired: Topic) -> None:
    assert expired.fill(1)["seqs"] == [4]
    page = expired.diff()
    assert [record["$seq"] for record in page["records"]] == [4]
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 3)


def test_a_longer_ttl_brings_nothing_back(expired: Topic) -> None:
    assert expired.state()["count"] == 0
    assert expired.state()["earliest_seq"] == 4
    assert expired.seqs() == []


def test_a_tightened_ttl_applies_to_the_records_already_there(topic: Topic) -> None:
    topic.fill(3)
    topic.configure(ttl_ms=40)
    eventually(lambda: topic.state()["count"] == 0)
    assert topic.diff()["tombstone"]["reason"] == "ttl"


def test_expired_records_cannot_be_deleted(expired: Topic) -> None:
    assert expired.delete_records(match="old")["deleted"] == 0
    assert expired.delete_records(before_seq=4)["deleted"] == 0


def test_expired_records_leave_room_in_a_rejecting_topic(topic: Topic) -> None:
    topic.configure(ttl_ms=40, cap_records=2, discard="reject")
    topic.fill(2)
    eventually(lambda: topic.state()["count"] == 0)
    assert topic.fill(2)["seqs"] == [3, 4]


def test_a_topic_whose_records_have_expired_is_empty_for_if_empty(expired: Topic) -> None:
    assert expired.api.delete(f"{expired.path}?if_empty=true").status == 200
    assert not expired.exists()


def test_expired_jobs_are_no_longer_ready(topic: Topic) -> None:
    topic.configure(type="queue", ttl_ms=40)
    topic.fill(3)
    eventually(lambda: topic.state()["queue"]["ready"] == 0)
