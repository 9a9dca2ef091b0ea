"""Idempotency keys of one topic: a key used again within the window gets the seqs of its first use.

Keys are kept in the order they came, so what is past the window is always at the front. Their number
is bounded: beyond `IDEMPOTENCY_KEYS_PER_TOPIC_MAX` the oldest is forgotten early.
"""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from topics import limits

_FORGET_PER_CALL_MAX = 16


class RememberedWrite(NamedTuple):
    first_seq: int
    record_count: int
    at_ms: int


class IdempotencyKeys:
    __slots__ = ("_latest_ms", "_writes")

    def __init__(self) -> None:
        self._writes: dict[str, RememberedWrite] = {}
        self._latest_ms = 0

    def __len__(self) -> int:
        return len(self._writes)

    def items(self) -> Iterable[tuple[str, RememberedWrite]]:
        return self._writes.items()

    def restore(self, key: str, write: RememberedWrite) -> None:
        """Puts a key back, in the order of `items`."""
        self._writes[key] = write
        self._latest_ms = max(self._latest_ms, write.at_ms)

    def find(self, key: str, now_ms: int, window_ms: int) -> RememberedWrite | None:
        now_ms = self._forward(now_ms)
        self._forget_past(now_ms, window_ms)
        write = self._writes.get(key)
        if write is not None and now_ms - write.at_ms >= window_ms:
            del self._writes[key]
            return None
        return write

    def remember(self, key: str, first_seq: int, count: int, now_ms: int) -> None:
        """The caller has asked `find` first: `key` is not there."""
        if len(self._writes) >= limits.IDEMPOTENCY_KEYS_PER_TOPIC_MAX:
            del self._writes[next(iter(self._writes))]
        self._writes[key] = RememberedWrite(first_seq, count, self._forward(now_ms))

    def forget(self, key: str) -> None:
        self._writes.pop(key, None)

    def _forward(self, now_ms: int) -> int:
        # A wall clock that steps back must not reorder the front of the dictionary.
        self._latest_ms = max(self._latest_ms, now_ms)
        return self._latest_ms

    def _forget_past(self, now_ms: int, window_ms: int) -> None:
        """Forgets a few: more than one call can add, few enough that no call is slow."""
        past = []
        for key, write in islice(self._writes.items(), _FORGET_PER_CALL_MAX):
            if now_ms - write.at_ms < window_ms:
                break
            past.append(key)
        for key in past:
            del self._writes[key]
