"""How many requests a route has answered, with which status, and how long that took. Hot: once per request.

A histogram of powers of two: the place of a duration in it is one shift and one `bit_length`, 0.1 µs.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

SHIFT = 13  # the first bucket ends at 2**13 ns
_BUCKETS = 52  # the last one is beyond every duration a clock can tell
SUM = _BUCKETS
_SHOWN = range(3, 23, 2)  # 65.5 µs, 262 µs, … 17 s; each four times the one before

BOUNDS_US = tuple((1 << (SHIFT + index)) / 1000 for index in _SHOWN)


class Timings(NamedTuple):
    """`counts[i]` took up to `BOUNDS_US[i]`, the last one anything longer."""

    status: int
    counts: tuple[int, ...]
    sum_us: int

    @property
    def requests(self) -> int:
        return sum(self.counts)


class RouteTimings:
    """`ok`: those of status 200, which most have. Whoever adds to it does what `add` does, without the call."""

    __slots__ = ("_by_status", "ok")

    def __init__(self) -> None:
        self.ok = [0] * (_BUCKETS + 1)
        self._by_status: dict[int, list[int]] = {200: self.ok}

    def add(self, status: int, duration_ns: int) -> None:
        entry = self._by_status.setdefault(status, [0] * (_BUCKETS + 1))
        entry[(duration_ns >> SHIFT).bit_length()] += 1
        entry[SUM] += duration_ns

    def __iter__(self) -> Iterator[Timings]:
        """One for each status there was."""
        for status, entry in sorted(self._by_status.items()):
            if any(entry):
                ends = [0, *(index + 1 for index in _SHOWN), _BUCKETS]
                counts = tuple(sum(entry[start:end]) for start, end in pairwise(ends))
                yield Timings(status, counts, entry[SUM] // 1000)
