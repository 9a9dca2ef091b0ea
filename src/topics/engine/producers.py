"""The producers of one topic, each with its last write: everything up to its number has been written.

Kept without a window. Beyond `PRODUCERS_PER_TOPIC_MAX` the one that wrote longest ago is forgotten.
"""

from collections.abc import Iterator
from typing import NamedTuple

from topics import limits
from topics.model.producer import RememberedWrite


class Mark(NamedTuple):
    last_number: int
    last_hash: str  # of that record; empty when not known
    write: RememberedWrite


class Producers:
    __slots__ = ("_durable", "_marks")

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}
        self._durable: dict[str, Mark] = {}  # the mark before, of those whose last write is in memory only

    def __len__(self) -> int:
        return len(self._marks)

    def find(self, name: str) -> Mark | None:
        return self._marks.get(name)

    def remember(self, name: str, mark: Mark, resident_from: int | None) -> None:
        before = self._marks.pop(name, None)  # to the end: it wrote last
        if resident_from is None:
            self._durable.pop(name, None)
        elif before is not None and before.write.first_seq < resident_from:
            self._durable[name] = before
        if len(self._marks) >= limits.PRODUCERS_PER_TOPIC_MAX:
            oldest = next(iter(self._marks))
            del self._marks[oldest]
            self._durable.pop(oldest, None)
        self._marks[name] = mark

    def durable(self, resident_from: int | None) -> Iterator[tuple[str, Mark]]:
        """What survives the process: writes from `resident_from` on do not."""
        for name, mark in self._marks.items():
            in_memory = resident_from is not None and mark.write.first_seq >= resident_from
            durable = self._durable.get(name) if in_memory else mark
            if durable is not None:
                yield name, durable
