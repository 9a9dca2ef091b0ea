"""The ledger of involuntary loss of one topic: which seqs, why, and when the range last grew.

Caps and TTLs take seqs from the front, in order; a crash, or a source trimmed before it was forwarded, anywhere.
Bounded: beyond `LOSSES_PER_TOPIC_MAX` entries the two oldest of a kind become one, so the ranges stay complete.
"""

from collections.abc import Iterator

from topics import limits
from topics.model.gap import GapReason, Loss


class LossLedger:
    __slots__ = ("_crashes", "_evicted", "_seqs_by_reason")

    def __init__(self) -> None:
        self._crashes: list[Loss] = []
        self._evicted: list[Loss] = []
        self._seqs_by_reason: dict[GapReason, int] | None = None  # counted when somebody asks

    def __iter__(self) -> Iterator[Loss]:
        return iter(sorted(self._crashes + self._evicted))

    def __len__(self) -> int:
        return len(self._crashes) + len(self._evicted)

    def seqs_by_reason(self) -> dict[GapReason, int]:
        """How many seqs the ranges hold, by reason. As in tombstones, seqs deleted before the loss are included."""
        counted = self._seqs_by_reason
        if counted is None:
            counted = self._seqs_by_reason = {}
            for loss in (*self._crashes, *self._evicted):
                counted[loss.reason] = counted.get(loss.reason, 0) + loss.gap_to - loss.gap_from + 1
        return counted

    def note(self, gap_from: int, gap_to: int, reason: GapReason, ts: int) -> None:
        """Skips what is already noted, so that a restart may report a loss again."""
        self._seqs_by_reason = None
        if reason in (GapReason.CRASH, GapReason.SOURCE_TRIM):
            _extend(self._crashes, gap_from, gap_to, reason, ts)
            return
        for crash in self._crashes:
            if gap_from <= crash.gap_to and crash.gap_from <= gap_to:
                _extend(self._evicted, gap_from, crash.gap_from - 1, reason, ts)
                gap_from = crash.gap_to + 1
        _extend(self._evicted, gap_from, gap_to, reason, ts)


def _extend(entries: list[Loss], gap_from: int, gap_to: int, reason: GapReason, ts: int) -> None:
    """Adds a range above all there are; one that goes on where the last one of its reason ended makes it longer."""
    if entries:
        gap_from = max(gap_from, entries[-1].gap_to + 1)
    if gap_from > gap_to:
        return
    if entries and entries[-1].reason is reason and entries[-1].gap_to + 1 == gap_from:
        entries[-1] = Loss(entries[-1].gap_from, gap_to, reason, ts)
        return
    entries.append(Loss(gap_from, gap_to, reason, ts))
    if len(entries) > limits.LOSSES_PER_TOPIC_MAX:
        first, second = entries[:2]
        merged = first.reason if first.reason is second.reason else GapReason.MIXED
        entries[:2] = [Loss(first.gap_from, second.gap_to, merged, second.ts)]
