"""Loss that nobody asked for is announced in the reply, once, with its exact range."""

from typing import Any

import pytest

from conformance.client import Topic, eventually


def gap(page: dict[str, Any]) -> tuple[str, int, int] | None:
    tombstone = page["tombstone"]
    return None if tombstone is None else (tombstone["reason"], tombstone["gap_from"], tombstone["gap_to"])


def seqs(page: dict[str, Any]) -> list[int]:
    return [record["$seq"] for record in page["records"]]


@pytest.fixture
def capped(topic: Topic) -> Topic:
    """Ten records written, the last three kept."""
    topic.configure(cap_records=3)
    for _ in range(10):
        topic.fill(1)
    return topic


def test_a_cursor_below_the_evicted_records_gets_a_tombstone(capped: Topic) -> None:
    page = capped.diff()
    assert gap(page) == ("cap", 1, 7)
    assert (page["tombstone"]["earliest_seq"], page["tombstone"]["head_seq"]) == (8, 10)
    assert page["tombstone"]["missed_estimate"] > 0


def test_reading_goes_on_from_the_earliest_record(capped: Topic) -> None:
    page = capped.diff()
    assert seqs(page) == [8, 9, 10]
    assert (page["next_from_seq"], page["earliest_seq"], page["caught_up"], page["lag"]) == (10, 8, True, 0)


def test_the_gap_begins_after_the_cursor(capped: Topic) -> None:
    assert gap(capped.diff(from_seq=4)) == ("cap", 5, 7)


def test_one_lost_record_is_a_gap_of_one(capped: Topic) -> None:
    assert gap(capped.diff(from_seq=6)) == ("cap", 7, 7)


def test_a_cursor_that_lost_nothing_gets_no_tombstone(capped: Topic) -> None:
    assert gap(capped.diff(from_seq=7)) is None
    assert gap(capped.diff(from_seq=9)) is None
    assert gap(capped.diff(from_seq=10)) is None


def test_a_gap_is_announced_once(capped: Topic) -> None:
    first = capped.diff(limit=1)
    second = capped.diff(limit=1, from_seq=first["next_from_seq"])
    assert (gap(first), seqs(first)) == (("cap", 1, 7), [8])
    assert (gap(second), seqs(second)) == (None, [9])


def test_a_topic_that_lost_nothing_has_no_tombstone(topic: Topic) -> None:
    topic.fill(10)
    assert gap(topic.diff()) is None


def test_eviction_by_bytes_is_a_cap_gap(topic: Topic) -> None:
    topic.configure(cap_bytes=3000)
    for _ in range(10):
        topic.write({"data": "x" * 900})
    page = topic.diff()
    assert gap(page) == ("cap", 1, page["earliest_seq"] - 1)
    assert seqs(page) == list(range(page["earliest_seq"], 11))


def test_a_deleted_prefix_is_silent(topic: Topic) -> None:
    topic.fill(5)
    topic.delete_records(before_seq=4)
    page = topic.diff()
    assert (gap(page), seqs(page), page["earliest_seq"]) == (None, [4, 5], 4)


def test_a_topic_whose_records_are_all_deleted_reads_silently(topic: Topic) -> None:
    topic.fill(5)
    topic.delete_records(before_seq=6)
    page = topic.diff()
    assert (gap(page), seqs(page)) == (None, [])
    assert (page["next_from_seq"], page["caught_up"]) == (5, True)


def test_a_deleted_prefix_stays_silent_when_a_cap_is_set_later(topic: Topic) -> None:
    topic.fill(5)
    topic.delete_records(before_seq=4)
    topic.configure(cap_records=10)
    topic.fill(1)
    assert gap(topic.diff()) is None


def test_deleting_behind_an_evicted_prefix_widens_the_reported_gap(capped: Topic) -> None:
    capped.delete_records(before_seq=9)
    page = capped.diff()
    assert gap(page) == ("cap", 1, 8)
    assert seqs(page) == [9, 10]


def test_a_cursor_past_the_evicted_records_crosses_deleted_ones_silently(capped: Topic) -> None:
    capped.delete_records(before_seq=9)
    page = capped.diff(from_seq=7)
    assert (gap(page), seqs(page)) == (None, [9, 10])


def test_evicting_only_deleted_records_is_silent(topic: Topic) -> None:
    topic.configure(cap_records=3)
    topic.fill(3)
    topic.delete_records(before_seq=4)
    topic.fill(3)
    page = topic.diff()
    assert (gap(page), seqs(page)) == (None, [4, 5, 6])


def test_expired_records_are_a_ttl_gap(topic: Topic) -> None:
    topic.configure(ttl_ms=40)
    topic.fill(3)
    eventually(lambda: topic.state()["count"] == 0)
    page = topic.diff()
    assert (gap(page), seqs(page)) == (("ttl", 1, 3), [])
    assert (page["tombstone"]["earliest_seq"], page["tombstone"]["head_seq"]) == (4, 3)
    assert (page["next_from_seq"], page["caught_up"]) == (3, True)


def test_a_gap_of_evicted_and_expired_records_is_mixed(topic: Topic) -> None:
    topic.configure(cap_records=2, ttl_ms=300)
    for _ in range(5):
        topic.fill(1)
    eventually(lambda: topic.state()["count"] == 0)
    assert gap(topic.diff()) == ("mixed", 1, 5)


def test_a_caught_up_reader_does_not_miss_what_it_has_read(topic: Topic) -> None:
    topic.configure(ttl_ms=40)
    topic.fill(3)
    eventually(lambda: topic.state()["count"] == 0)
    assert gap(topic.diff(from_seq=3)) is None


def test_a_cursor_beyond_the_head_means_the_topic_was_recreated(topic: Topic) -> None:
    topic.fill(10)
    topic.remove()
    topic.fill(2)
    page = topic.diff(from_seq=10)
    assert gap(page) == ("recreated", 1, 2)
    assert seqs(page) == [1, 2]
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (2, True, 0)


def test_a_recreated_topic_that_is_still_empty_reports_an_empty_gap(topic: Topic) -> None:
    topic.configure()
    page = topic.diff(from_seq=10)
    assert gap(page) == ("recreated", 1, 0)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([], 0, True)


def test_reading_a_recreated_topic_goes_on_page_by_page(topic: Topic) -> None:
    topic.fill(3)
    first = topic.diff(from_seq=50, limit=2)
    second = topic.diff(from_seq=first["next_from_seq"], limit=2)
    assert (gap(first), seqs(first)) == (("recreated", 1, 3), [1, 2])
    assert (gap(second), seqs(second)) == (None, [3])


def test_the_largest_cursor_is_beyond_the_head(topic: Topic) -> None:
    topic.fill(1)
    assert gap(topic.diff(from_seq=2**64 - 1)) == ("recreated", 1, 1)


def test_reading_a_recreated_topic_starts_at_its_earliest_record(topic: Topic) -> None:
    topic.fill(4)
    topic.delete_records(before_seq=3)
    page = topic.diff(from_seq=9)
    assert (gap(page), seqs(page)) == (("recreated", 1, 4), [3, 4])
