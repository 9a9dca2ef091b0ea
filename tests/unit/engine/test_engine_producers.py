"""How far each producer of a topic has written."""

import pytest

from topics import limits
from topics.engine.producers import Mark, Producers
from topics.model.producer import RememberedWrite


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
