"""The tombstone's arithmetic."""

from topics.model.gap import Gap, GapReason


def test_both_ends_of_a_gap_count() -> None:
    assert Gap(5, 9, GapReason.CAP).missed_estimate == 5


def test_a_recreated_and_empty_topic_has_missed_nothing() -> None:
    assert Gap(1, 0, GapReason.RECREATED).missed_estimate == 0
