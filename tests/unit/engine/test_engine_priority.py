"""Effective priority, as the data model's table has it."""

import pytest

from topics.engine.priority import age_boost, auto_recency, effective_priority
from topics.model.config import TopicConfig


@pytest.mark.parametrize(
    ("idle_ms", "worth"),
    [(0, 500), (15_000, 354), (30_000, 250), (60_000, 125), (120_000, 31), (299_999, 0), (300_000, 0), (10**12, 0)],
)
def test_recency_decays(idle_ms: int, worth: int) -> None:
    assert auto_recency(5_000_000 + idle_ms, 5_000_000) == worth


def test_a_topic_never_read_has_no_recency() -> None:
    assert auto_recency(1000, None) == 0


def test_a_clock_that_steps_back_makes_no_topic_worth_more_than_the_most() -> None:
    assert auto_recency(1000, 1_000_000) == 500


@pytest.mark.parametrize(
    ("waited_ms", "boost"), [(-1, 0), (0, 0), (1000, 100), (9999, 999), (10_000, 1000), (99_999, 1000)]
)
def test_waiting_adds_up_to_a_cap(waited_ms: int, boost: int) -> None:
    assert age_boost(waited_ms) == boost


def test_a_manual_priority_overrides_recency() -> None:
    assert effective_priority(TopicConfig(priority=-3), 1000, 1000) == -3


def test_without_a_manual_priority_recency_counts() -> None:
    assert effective_priority(TopicConfig(), 1000, 1000) == 500


def test_recency_can_be_turned_off() -> None:
    assert effective_priority(TopicConfig(auto_priority=False), 1000, 1000) == 0


def test_waiting_counts_on_top_of_either() -> None:
    assert effective_priority(TopicConfig(priority=10), 1000, None, waited_ms=2000) == 210
