"""The tombstone: a range of seqs a reader asked for and can no longer have, and why."""

from enum import StrEnum
from typing import NamedTuple


class GapReason(StrEnum):
    CAP = "cap"
    TTL = "ttl"
    MIXED = "mixed"
    CRASH = "crash"
    RECREATED = "recreated"


class Gap(NamedTuple):
    """Both ends are inclusive. A topic recreated and still empty has `gap_to` 0."""

    gap_from: int
    gap_to: int
    reason: GapReason

    @property
    def missed_estimate(self) -> int:
        return self.gap_to - self.gap_from + 1
