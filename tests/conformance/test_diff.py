"""POST /v0/topics/:topic/diff reads what comes after a cursor."""

from typing import Any

import pytest

from conformance.client import Topic, assert_error, success


def read_all(topic: Topic, **body: Any) -> list[int]:
    """Follows `next_from_seq` until the reply says that there is no more."""
    seqs: list[int] = []
    cursor = 0
    while True:
        page = topic.diff(from_seq=cursor, **body)
        seqs += [record["$seq"] for record in page["records"]]
        if page["caught_up"]:
            return seqs
        assert page["next_from_seq"] > cursor, "no progress"
        cursor = page["next_from_seq"]


def test_an_empty_topic_is_caught_up(topic: Topic) -> None:
    topic.configure()
    page = topic.diff()
    assert page["topic"] == topic.name
    assert page["records"] == []
    assert (page["next_from_seq"], page["head_seq"], page["earliest_seq"]) == (0, 0, 1)
    assert page["caught_up"] is True
    assert page["tombstone"] is None
    assert page["lag"] == 0


def test_the_default_reads_from_the_beginning(topic: Topic) -> None:
    topic.fill(3)
    page = topic.diff()
    assert [record["$seq"] for record in page["records"]] == [1, 2, 3]
    assert (page["next_from_seq"], page["head_seq"], page["earliest_seq"]) == (3, 3, 1)
    assert (page["caught_up"], page["tombstone"], page["lag"]) == (True, None, 0)


def test_a_diff_without_a_body_reads_from_the_beginning(topic: Topic) -> None:
    topic.fill(2)
    page = success(topic.api.post(f"{topic.path}/diff"))
    assert [record["data"] for record in page["records"]] == [0, 1]


def test_from_seq_is_an_exclusive_lower_bound(topic: Topic) -> None:
    topic.fill(5)
    assert topic.seqs(from_seq=2) == [3, 4, 5]


def test_a_cursor_at_the_head_is_caught_up(topic: Topic) -> None:
    topic.fill(5)
    page = topic.diff(from_seq=5)
    assert page["records"] == []
    assert (page["next_from_seq"], page["caught_up"], page["lag"], page["tombstone"]) == (5, True, 0, None)


def test_limit_bounds_the_records(topic: Topic) -> None:
    topic.fill(5)
    page = topic.diff(limit=2)
    assert [record["$seq"] for record in page["records"]] == [1, 2]
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (2, False, 3)


def test_a_limit_of_exactly_the_rest_is_caught_up(topic: Topic) -> None:
    topic.fill(3)
    page = topic.diff(limit=3)
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (3, True, 0)


@pytest.mark.parametrize("limit", [{}, {"limit": 0}])
def test_the_default_limit_is_256(topic: Topic, limit: dict[str, int]) -> None:
    topic.fill(300)
    page = topic.diff(**limit)
    assert len(page["records"]) == 256
    assert (page["next_from_seq"], page["lag"]) == (256, 44)


@pytest.mark.parametrize("limit", [1000, 1001, 2**32 - 1, 2**32, 2**64 - 1])
def test_a_limit_beyond_1000_is_clamped(topic: Topic, limit: int) -> None:
    topic.fill(1001)
    page = topic.diff(limit=limit)
    assert len(page["records"]) == 1000
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (1000, False, 1)


@pytest.mark.parametrize("limit", [1, 3, 10, 11])
def test_following_the_cursor_reads_every_record_once(topic: Topic, limit: int) -> None:
    topic.fill(10)
    assert read_all(topic, limit=limit) == list(range(1, 11))


def test_a_read_can_be_repeated(topic: Topic) -> None:
    topic.fill(3)
    assert topic.diff(from_seq=1)["records"] == topic.diff(from_seq=1)["records"]


def test_tags_are_left_out_unless_asked_for(topic: Topic) -> None:
    topic.write({"data": 1, "tag": "t"})
    assert "$tag" not in topic.diff()["records"][0]
    assert "$tag" not in topic.diff(include_tags=False)["records"][0]
    assert topic.diff(include_tags=True)["records"][0]["$tag"] == "t"


def test_meta_is_included_unless_declined(topic: Topic) -> None:
    topic.write({"data": 1, "meta": {"k": "v"}})
    assert topic.diff()["records"][0]["meta"] == {"k": "v"}
    assert topic.diff(include_meta=True)["records"][0]["meta"] == {"k": "v"}
    assert "meta" not in topic.diff(include_meta=False)["records"][0]


def test_the_node_is_always_included(topic: Topic) -> None:
    topic.write({"data": 1, "node": "n"})
    assert topic.diff(include_tags=False, include_meta=False)["records"][0]["$node"] == "n"


def test_a_reply_is_bounded_in_bytes_and_still_makes_progress(topic: Topic) -> None:
    for _ in range(4):
        topic.write({"data": "x" * 600_000})
    page = topic.diff()
    assert 1 <= len(page["records"]) < 4
    assert page["caught_up"] is False
    assert page["next_from_seq"] == page["records"][-1]["$seq"]
    assert read_all(topic) == [1, 2, 3, 4]


def test_a_record_of_the_largest_size_is_delivered(topic: Topic) -> None:
    data = "x" * (1024 * 1024 - 2)
    topic.write({"data": data})
    assert topic.diff()["records"][0]["data"] == data


def test_deleted_records_are_passed_over(topic: Topic) -> None:
    topic.write(*({"data": 1, "tag": "odd" if position % 2 else "even"} for position in range(1, 7)))
    topic.delete_records(match="odd")
    page = topic.diff()
    assert [record["$seq"] for record in page["records"]] == [2, 4, 6]
    assert page["tombstone"] is None


def test_the_cursor_advances_past_deleted_records_at_the_end(topic: Topic) -> None:
    topic.write({"data": 1}, {"data": 2, "tag": "t"}, {"data": 3, "tag": "t"})
    topic.delete_records(match="t")
    page = topic.diff()
    assert [record["$seq"] for record in page["records"]] == [1]
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (3, True, 0)


def test_deleted_records_do_not_stop_a_reader_with_a_small_limit(topic: Topic) -> None:
    topic.write(*({"data": 1, "tag": "gone"} for _ in range(20)), {"data": 2})
    topic.delete_records(match="gone")
    assert read_all(topic, limit=3) == [21]


def test_records_written_after_a_read_are_found_from_its_cursor(topic: Topic) -> None:
    topic.fill(2)
    cursor = topic.diff()["next_from_seq"]
    topic.fill(2)
    assert topic.seqs(from_seq=cursor) == [3, 4]


def test_an_absent_topic_is_404(topic: Topic) -> None:
    detail = assert_error(topic.api.post(f"{topic.path}/diff", {}), 404, "topic_not_found")
    assert detail["topic"] == topic.name


def test_reading_never_creates_the_topic(topic: Topic) -> None:
    topic.api.post(f"{topic.path}/diff", {})
    assert not topic.exists()


def test_unknown_fields_are_ignored(topic: Topic) -> None:
    topic.fill(1)
    assert topic.seqs(no_such_field=[1]) == [1]


def test_the_reply_reports_its_time(topic: Topic) -> None:
    topic.fill(1)
    assert topic.diff()["performance"]["server_total_ms"] >= 0
