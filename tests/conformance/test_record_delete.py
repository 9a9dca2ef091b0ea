"""POST /v0/topics/:topic/delete removes records for good, by seq and by tag."""

from typing import Any

import pytest

from conformance.client import Topic, assert_error


@pytest.fixture
def tagged(topic: Topic) -> Topic:
    """Six records: 1 a, 2 ab, 3 b, 4 untagged, 5 a, 6 A."""
    tags = ["a", "ab", "b", None, "a", "A"]
    topic.write(*({"data": position, "tag": tag} for position, tag in enumerate(tags)))
    return topic


def test_before_seq_deletes_everything_below_it(topic: Topic) -> None:
    topic.fill(5)
    assert topic.delete_records(before_seq=4)["deleted"] == 3
    assert topic.seqs() == [4, 5]


def test_the_reply_reports_the_state_after_the_delete(topic: Topic) -> None:
    topic.fill(5)
    deleted = topic.delete_records(before_seq=4)
    state = topic.state()
    assert deleted["topic"] == topic.name
    assert (deleted["earliest_seq"], deleted["head_seq"], deleted["count"]) == (4, 5, 2)
    shared = ["earliest_seq", "head_seq", "count", "bytes"]
    assert {field: deleted[field] for field in shared} == {field: state[field] for field in shared}
    assert deleted["performance"]["server_total_ms"] >= 0


@pytest.mark.parametrize("before_seq", [0, 1])
def test_before_seq_at_or_below_the_first_record_deletes_nothing(topic: Topic, before_seq: int) -> None:
    topic.fill(3)
    assert topic.delete_records(before_seq=before_seq)["deleted"] == 0
    assert topic.seqs() == [1, 2, 3]


@pytest.mark.parametrize("before_seq", [4, 5, 2**64 - 1])
def test_before_seq_beyond_the_head_deletes_everything_there_is(topic: Topic, before_seq: int) -> None:
    topic.fill(3)
    deleted = topic.delete_records(before_seq=before_seq)
    assert (deleted["deleted"], deleted["earliest_seq"], deleted["head_seq"]) == (3, 4, 3)
    assert (deleted["count"], deleted["bytes"]) == (0, 0)


def test_before_seq_beyond_the_head_spares_later_records(topic: Topic) -> None:
    topic.fill(3)
    topic.delete_records(before_seq=100)
    topic.fill(2)
    assert topic.seqs() == [4, 5]


@pytest.mark.parametrize(
    ("match", "left"),
    [
        (["tag", "Eq", "a"], [2, 3, 4, 6]),
        ("a", [2, 3, 4, 6]),
        (["tag", "Glob", "a*"], [3, 4, 6]),
        ("a*", [3, 4, 6]),
        (["tag", "Glob", "ab*"], [1, 3, 4, 5, 6]),
        (["tag", "Glob", "*"], [4]),
        (["tag", "Eq", "none"], [1, 2, 3, 4, 5, 6]),
        (["tag", "Eq", "a*"], [1, 2, 3, 4, 5, 6]),
        (["tag", "Glob", "zz*"], [1, 2, 3, 4, 5, 6]),
    ],
)
def test_match_deletes_the_records_with_that_tag(tagged: Topic, match: Any, left: list[int]) -> None:
    assert tagged.delete_records(match=match)["deleted"] == 6 - len(left)
    assert tagged.seqs() == left


def test_eq_takes_an_asterisk_literally(topic: Topic) -> None:
    topic.write({"data": 1, "tag": "a*"}, {"data": 2, "tag": "ab"})
    topic.delete_records(match=["tag", "Eq", "a*"])
    assert topic.seqs() == [2]


def test_tags_beyond_ascii_are_matched(topic: Topic) -> None:
    topic.write({"data": 1, "tag": "é:1"}, {"data": 2, "tag": "é:2"}, {"data": 3, "tag": "e:1"})
    assert topic.delete_records(match=["tag", "Glob", "é:*"])["deleted"] == 2
    assert topic.seqs() == [3]


def test_a_prefix_of_bytes_sorts_apart_from_its_neighbours(topic: Topic) -> None:
    topic.write(*({"data": 1, "tag": tag} for tag in ["a", "a:", "a:\uffff", "a:\U0001f600", "a;", "b"]))
    assert topic.delete_records(match="a:*")["deleted"] == 3
    assert topic.seqs() == [1, 5, 6]


def test_match_and_before_seq_must_both_hold(tagged: Topic) -> None:
    assert tagged.delete_records(match=["tag", "Eq", "a"], before_seq=5)["deleted"] == 1
    assert tagged.seqs() == [2, 3, 4, 5, 6]


def test_a_prefix_match_and_before_seq_must_both_hold(tagged: Topic) -> None:
    assert tagged.delete_records(match="a*", before_seq=3)["deleted"] == 2
    assert tagged.seqs() == [3, 4, 5, 6]


def test_a_null_selector_is_an_absent_one(tagged: Topic) -> None:
    assert tagged.delete_records(match=None, before_seq=2)["deleted"] == 1
    assert tagged.delete_records(match="b", before_seq=None)["deleted"] == 1
    assert tagged.seqs() == [2, 4, 5, 6]


def test_later_records_with_the_tag_are_not_affected(tagged: Topic) -> None:
    tagged.delete_records(match="a*")
    tagged.write({"data": 7, "tag": "a"})
    assert tagged.seqs() == [3, 4, 6, 7]


def test_a_repeated_delete_finds_nothing(tagged: Topic) -> None:
    tagged.delete_records(match="a")
    assert tagged.delete_records(match="a")["deleted"] == 0


def test_only_live_records_count_as_deleted(topic: Topic) -> None:
    topic.write({"data": 1}, {"data": 2, "tag": "t"}, {"data": 3}, {"data": 4})
    topic.delete_records(match="t")
    assert topic.delete_records(before_seq=4)["deleted"] == 2


def test_a_hole_in_the_middle_leaves_the_earliest_seq(tagged: Topic) -> None:
    assert tagged.delete_records(match="b")["earliest_seq"] == 1
    assert tagged.seqs() == [1, 2, 4, 5, 6]


def test_the_earliest_seq_passes_over_holes(topic: Topic) -> None:
    topic.write({"data": 1, "tag": "x"}, {"data": 2, "tag": "y"}, {"data": 3})
    assert topic.delete_records(match="y")["earliest_seq"] == 1
    assert topic.delete_records(match="x")["earliest_seq"] == 3


def test_a_delete_is_silent(tagged: Topic) -> None:
    tagged.delete_records(match="a*")
    assert tagged.diff()["tombstone"] is None


def test_deleting_from_an_empty_topic_deletes_nothing(topic: Topic) -> None:
    topic.configure()
    deleted = topic.delete_records(before_seq=10)
    assert (deleted["deleted"], deleted["earliest_seq"], deleted["head_seq"]) == (0, 1, 0)
    assert topic.fill(1)["seqs"] == [1]
    assert topic.seqs() == [1]


def test_a_deleted_batch_of_many_records_is_gone(topic: Topic) -> None:
    topic.write(*({"data": position, "tag": f"job:{position % 7}"} for position in range(1, 1001)))
    assert topic.delete_records(match="job:3")["deleted"] == 143
    assert topic.state()["count"] == 857
    assert all(seq % 7 != 3 for seq in topic.seqs(limit=1000))


def test_an_absent_topic_is_404(topic: Topic) -> None:
    assert_error(topic.api.post(f"{topic.path}/delete", {"before_seq": 1}), 404, "topic_not_found")
    assert not topic.exists()


@pytest.mark.parametrize("body", [{}, {"match": None}, {"before_seq": None, "match": None}, {"other": 1}])
def test_a_delete_that_selects_nothing_is_refused(tagged: Topic, body: dict[str, Any]) -> None:
    assert_error(tagged.api.post(f"{tagged.path}/delete", body), 400, "invalid_request")
    assert tagged.state()["count"] == 6


def test_a_delete_without_a_body_is_refused(tagged: Topic) -> None:
    assert_error(tagged.api.post(f"{tagged.path}/delete"), 400, "invalid_request")
    assert tagged.state()["count"] == 6
