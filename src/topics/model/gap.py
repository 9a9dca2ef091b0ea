"""The tombstone: a range of seqs a reader asked for and can no longer have, and why."""

from enum import StrEnum
from typing import NamedTuple

from topics.model.members import at_hand


@at_hand
class GapReason(StrEnum):
    CAP = "cap"
    TTL = "ttl"
    MIXED = "mixed"
    CRASH = "crash"
    SOURCE_TRIM = "source_trim"
    RECREATED = "recreated"


class LostRange(NamedTuple):
    """Seqs in the middle of a log that have no record: lost in a crash, or lost in the source of a router before they
    were forwarded. Both ends are inclusive."""

    first: int
    last: int
    reason: GapReason


class Gap(NamedTuple):
    """Both ends are inclusive. A topic recreated and still empty has `gap_to` 0."""

    gap_from: int
    gap_to: int
    reason: GapReason

    @property
    def missed_estimate(self) -> int:
        return self.gap_to - self.gap_from + 1


class Loss(NamedTuple):
    """Seqs that were lost, why, and when the range last grew."""

    gap_from: int
    gap_to: int
    reason: GapReason
    ts: int
