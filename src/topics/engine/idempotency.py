"""Idempotency keys of one topic: a key used again within the window gets the seqs of its first use.

Keys are kept in the order they came, so what is past the window is always at the front. Their number
is bounded: beyond `IDEMPOTENCY_KEYS_PER_TOPIC_MAX` the oldest is forgotten early.

The key of a producer is kept as its producer is, without a window.
"""

from collections.abc import Iterator
from itertools import islice

from topics import limits
from topics.engine.producers import Mark, Producers
from topics.model.producer import RememberedWrite, producer_key, split_key

_FORGET_PER_CALL_MAX = 16


class IdempotencyKeys:
    __slots__ = ("_latest_ms", "_writes", "producers")

    def __init__(self) -> None:
        self._writes: dict[str, RememberedWrite] = {}
        self.producers = Producers()
        self._latest_ms = 0

    def __len__(self) -> int:
        return len(self._writes) + len(self.producers)

    def items(self, resident_from: int | None = None) -> Iterator[tuple[str, RememberedWrite]]:
        """A key is as durable as its write: those of writes from `resident_from` on are left out."""
        for key, write in self._writes.items():
            if resident_from is None or write.first_seq < resident_from:
                yield key, write
        for name, mark in self.producers.durable(resident_from):
            yield producer_key(name, mark.last_number, mark.last_hash), mark.write

    def restore(self, key: str, write: RememberedWrite) -> None:
        """Puts a key back, in the order of `items`. The log may repeat what the snapshot already has."""
        if numbered := split_key(key):
            name, last_number, last_hash = numbered
            mark = self.producers.find(name)
            if mark is None or mark.last_number < last_number:
                self.producers.remember(name, Mark(last_number, last_hash, write), None)
            return
        self._writes[key] = write
        self._latest_ms = max(self._latest_ms, write.at_ms)

    def find(self, key: str, now_ms: int, window_ms: int) -> RememberedWrite | None:
        """The write that used this key of a client."""
        now_ms = max(now_ms, self._latest_ms)
        self._forget_past(now_ms, window_ms)
        write = self._writes.get(key)
        if write is not None and now_ms - write.at_ms >= window_ms:
            del self._writes[key]
            return None
        return write

    def remember(self, key: str, first_seq: int, count: int, now_ms: int, resident_from: int | None = None) -> None:
        """The caller has asked `find` first: `key` is not there."""
        write = RememberedWrite(first_seq, count, self._forward(now_ms))
        if numbered := split_key(key):
            name, last_number, last_hash = numbered
            self.producers.remember(name, Mark(last_number, last_hash, write), resident_from)
            return
        if len(self._writes) >= limits.IDEMPOTENCY_KEYS_PER_TOPIC_MAX:
            del self._writes[next(iter(self._writes))]
        self._writes[key] = write

    def _forward(self, now_ms: int) -> int:
        # A wall clock that steps back must not reorder the front of the dictionary.
        self._latest_ms = max(self._latest_ms, now_ms)
        return self._latest_ms

    def _forget_past(self, now_ms: int, window_ms: int) -> None:
        """Forgets a few keys: more than one call can add, and few enough that no call is slow."""
        past = []
        for key, write in islice(self._writes.items(), _FORGET_PER_CALL_MAX):
            if now_ms - write.at_ms < window_ms:
                break
            past.append(key)
        for key in past:
            del self._writes[key]
