"""The ledger of losses: exact ranges, bounded, and nothing noted twice."""

import pytest

from topics import limits
from topics.engine.losses import LossLedger
from topics.model.gap import GapReason

CAP, TTL, CRASH, MIXED = GapReason.CAP, GapReason.TTL, GapReason.CRASH, GapReason.MIXED


def ledger(*losses: tuple[int, int, GapReason, int]) -> LossLedger:
    noted = LossLedger()
    for loss in losses:
        noted.note(*loss)
    return noted


def test_a_loss_that_goes_on_is_one_entry_with_its_last_time() -> None:
    assert list(ledger((1, 5, CAP, 10), (6, 9, CAP, 20))) == [(1, 9, CAP, 20)]


def test_another_reason_is_another_entry() -> None:
    assert list(ledger((1, 5, CAP, 10), (6, 9, TTL, 20))) == [(1, 5, CAP, 10), (6, 9, TTL, 20)]


def test_what_lies_between_two_losses_is_in_neither() -> None:
    assert list(ledger((1, 5, CAP, 10), (8, 9, CAP, 20))) == [(1, 5, CAP, 10), (8, 9, CAP, 20)]


def test_what_is_told_again_is_noted_once() -> None:
    assert list(ledger((1, 5, CAP, 10), (1, 5, CAP, 30), (3, 7, CAP, 40))) == [(1, 7, CAP, 40)]
    assert list(ledger((4, 6, CRASH, 10), (4, 6, CRASH, 30))) == [(4, 6, CRASH, 10)]


def test_what_a_crash_took_is_not_evicted_as_well() -> None:
    noted = ledger((4, 6, CRASH, 10), (1, 9, CAP, 20))
    assert list(noted) == [(1, 3, CAP, 20), (4, 6, CRASH, 10), (7, 9, CAP, 20)]


def test_beyond_the_bound_the_oldest_entries_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOSSES_PER_TOPIC_MAX", 3)
    noted = ledger(*((10 * number, 10 * number + 1, CRASH, number) for number in range(1, 6)))
    assert list(noted) == [(10, 31, CRASH, 3), (40, 41, CRASH, 4), (50, 51, CRASH, 5)]
    mixed = ledger(*((number, number, CAP if number % 2 else TTL, number) for number in range(1, 5)))
    assert list(mixed) == [(1, 2, MIXED, 2), (3, 3, CAP, 3), (4, 4, TTL, 4)]
