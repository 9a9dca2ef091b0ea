"""Producers of one topic: of each its last write, whose number says that everything up to it has been written.

Kept without a window. Beyond `PRODUCERS_PER_TOPIC_MAX` the one that wrote longest ago is forgotten.
"""

from collections.abc import Iterator
from typing import NamedTuple

from topics import limits


class RememberedWrite(NamedTuple):
    first_seq: int
    record_count: int
    at_ms: int


class _Mark(NamedTuple):
    last_number: int
    write: RememberedWrite


_LONG_AGO = RememberedWrite(1, 0, 0)


class Producers:
    __slots__ = ("_durable", "_marks")

    def __init__(self) -> None:
        self._marks: dict[str, _Mark] = {}
        self._durable: dict[str, _Mark] = {}  # the mark before, of those whose last write is in memory only

    def __len__(self) -> int:
        return len(self._marks)

    def next_number(self, name: str) -> int:
        """What this producer has not written yet begins here."""
        mark = self._marks.get(name)
        return 0 if mark is None else mark.last_number + 1

    def find(self, name: str, number: int) -> RememberedWrite | None:
        """The write that ends with this number. Without records: one before the last, whose seqs are not known."""
        mark = self._marks.get(name)
        if mark is None or number > mark.last_number:
            return None
        return mark.write if number == mark.last_number else mark.write._replace(record_count=0)

    def remember(self, name: str, number: int, write: RememberedWrite, resident_from: int | None) -> None:
        before = self._marks.pop(name, None)  # to the end: it wrote last
        if resident_from is None:
            self._durable.pop(name, None)
        elif before is not None and before.write.first_seq < resident_from:
            self._durable[name] = before
        if len(self._marks) >= limits.PRODUCERS_PER_TOPIC_MAX:
            oldest = next(iter(self._marks))
            del self._marks[oldest]
            self._durable.pop(oldest, None)
        self._marks[name] = _Mark(number, write)

    def take_back(self, name: str, number: int) -> None:
        """The write that ended with this number failed, and so did those after it."""
        mark = self._marks.get(name)
        if mark is None or mark.last_number < number:
            return
        if number == 0:
            del self._marks[name]
        else:
            self._marks[name] = _Mark(number - 1, _LONG_AGO)

    def durable(self, resident_from: int | None) -> Iterator[tuple[str, int, RememberedWrite]]:
        """What outlives the process: writes from `resident_from` on do not."""
        for name, mark in self._marks.items():
            in_memory = resident_from is not None and mark.write.first_seq >= resident_from
            durable = self._durable.get(name) if in_memory else mark
            if durable is not None:
                yield name, *durable
