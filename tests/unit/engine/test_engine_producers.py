"""How far each producer of a topic has written."""

import pytest

from topics import limits
from topics.engine.producers import Mark, Producers, RememberedWrite


def mark(last_number: int, first_seq: int = 1, count: int = 1) -> Mark:
    return Mark(last_number, f"hash of {last_number}", RememberedWrite(first_seq, count, 1000))


def producers_with(*marks: tuple[str, Mark], resident_from: int | None = None) -> Producers:
    producers = Producers()
    for name, each in marks:
        producers.remember(name, each, resident_from)
    return producers


def test_a_producer_takes_one_place_however_often_it_writes() -> None:
    producers = producers_with(*(("p", mark(number)) for number in range(100)))
    assert list(producers.durable(None)) == [("p", mark(99))]


def test_producers_do_not_know_of_each_other() -> None:
    producers = producers_with(("p", mark(5)))
    assert producers.find("p") == mark(5)
    assert producers.find("q") is None


def test_beyond_the_bound_the_producer_that_wrote_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_PER_TOPIC_MAX", 2)
    producers = producers_with(("a", mark(1)), ("b", mark(1)), ("a", mark(2)), ("c", mark(1)))
    assert list(producers.durable(None)) == [("a", mark(2)), ("c", mark(1))]


def test_of_a_producer_that_went_on_in_memory_the_last_durable_write_outlives_the_process() -> None:
    producers = producers_with(("p", mark(5, first_seq=7)))
    for number in (6, 7):
        producers.remember("p", mark(number, first_seq=number + 10), 15)
    producers.remember("q", mark(1, first_seq=20), 15)
    assert list(producers.durable(15)) == [("p", mark(5, first_seq=7))]
    assert list(producers.durable(None)) == [("p", mark(7, first_seq=17)), ("q", mark(1, first_seq=20))]


def test_failed_writes_are_taken_back_whole_and_those_before_stay_known() -> None:
    producers = producers_with(("p", mark(4, count=5)), ("p", mark(14, count=10)), ("p", mark(16, count=2)))
    producers.take_back("p", 14, 10)
    producers.take_back("p", 16, 2)
    left = producers.find("p")
    assert left is not None
    assert (left.last_number, left.last_hash, left.write.record_count) == (4, "", 0)


def test_a_failed_first_write_leaves_nothing() -> None:
    producers = producers_with(("p", mark(9, count=10)))
    producers.take_back("p", 9, 10)
    assert producers.find("p") is None
    producers.take_back("p", 9, 10)
