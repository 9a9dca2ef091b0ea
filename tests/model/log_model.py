"""A topic as a plain dictionary: what the engine must do, written for being obvious and not for speed.

Nothing here is shared with the engine but configuration values: retention, tombstones, deletes,
idempotency and the text of records are written a second time.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

OVERHEAD_BYTES = 38


@dataclass(frozen=True)
class ModelRecord:
    seq: int
    ts: int
    data: bytes
    tag: str | None
    node: str | None
    meta: bytes | None

    @cached_property
    def size(self) -> int:
        texts = (self.tag or "", self.node or "")
        meta_bytes = 0 if self.meta is None else len(self.meta) + 1  # a byte stands before it
        return OVERHEAD_BYTES + len(self.data) + meta_bytes + sum(len(text.encode()) for text in texts)

    @cached_property
    def shown(self) -> bytes:
        """The text a reader gets who asks for nothing special."""
        return self.text(tags=False, meta=True)

    def text(self, *, tags: bool, meta: bool) -> bytes:
        parts = [b'"$seq":%d' % self.seq, b'"$ts":%d' % self.ts]
        if self.node is not None:
            parts.append(b'"$node":' + json.dumps(self.node, ensure_ascii=False).encode())
        parts.append(b'"data":' + self.data)
        if meta and self.meta is not None:
            parts.append(b'"meta":' + self.meta)
        if tags and self.tag is not None:
            parts.append(b'"$tag":' + json.dumps(self.tag, ensure_ascii=False).encode())
        return b"{" + b",".join(parts) + b"}"


class Sent(NamedTuple):
    """A record as a client sends it."""

    data: bytes
    tag: str | None = None
    node: str | None = None
    meta: bytes | None = None


@dataclass
class ModelTopic:
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    reject: bool = False
    window_ms: int = 120_000
    head: int = 0
    last_ts: int = 0
    live: dict[int, ModelRecord] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    lost_by_cap: set[int] = field(default_factory=set)
    lost_by_ttl: set[int] = field(default_factory=set)
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    keys_latest_ms: int = 0

    @property
    def bytes(self) -> int:
        return sum(record.size for record in self.live.values())

    @property
    def earliest(self) -> int:
        return min(self.live, default=self.head + 1)

    @property
    def evict_floor(self) -> int:
        return max(self.lost_by_cap | self.lost_by_ttl, default=0) + 1

    def expire(self, now_ms: int) -> None:
        if self.ttl_ms:
            for seq in [seq for seq, record in self.live.items() if now_ms - record.ts > self.ttl_ms]:
                del self.live[seq]
                self.lost_by_ttl.add(seq)

    def evict(self) -> None:
        count, total = len(self.live), self.bytes
        for seq in sorted(self.live):
            if not ((self.cap_records and count > self.cap_records) or (self.cap_bytes and total > self.cap_bytes)):
                return
            count -= 1
            total -= self.live.pop(seq).size
            self.lost_by_cap.add(seq)

    def stamped(self, records: list[Sent], now_ms: int) -> list[ModelRecord]:
        """The records as they would be kept, without keeping them."""
        ts = max(now_ms, self.last_ts)
        return [ModelRecord(seq, ts, *sent) for seq, sent in enumerate(records, self.head + 1)]

    def never_fits(self, records: list[ModelRecord]) -> bool:
        if self.cap_bytes and max(record.size for record in records) > self.cap_bytes:
            return True
        too_many = self.cap_records and len(records) > self.cap_records
        too_large = self.cap_bytes and sum(record.size for record in records) > self.cap_bytes
        return self.reject and bool(too_many or too_large)

    def is_full_for(self, records: list[ModelRecord]) -> bool:
        too_many = self.cap_records and len(self.live) + len(records) > self.cap_records
        too_large = self.cap_bytes and self.bytes + sum(record.size for record in records) > self.cap_bytes
        return self.reject and bool(too_many or too_large)

    def append(self, records: list[ModelRecord]) -> None:
        self.expire(records[0].ts)  # its time is the time of the log, also where the clock was set back
        self.live.update((record.seq, record) for record in records)
        self.head += len(records)
        self.last_ts = records[0].ts
        self.evict()

    def remembered(self, key: str, now_ms: int) -> tuple[int, int] | None:
        """The first seq and count of the write this key stands for. Never earlier than the last write with a key."""
        now_ms = max(self.keys_latest_ms, now_ms)
        self.keys = {key: write for key, write in self.keys.items() if now_ms - write[2] < self.window_ms}
        return self.keys[key][:2] if key in self.keys else None

    def remember(self, key: str, first_seq: int, count: int, ts: int) -> None:
        """A key is as old as its write."""
        self.keys_latest_ms = max(self.keys_latest_ms, ts)
        self.keys[key] = (first_seq, count, self.keys_latest_ms)

    def delete(self, before_seq: int | None, eq: str | None, prefix: str | None) -> int:
        """Deletes what satisfies all that is given; returns how many records that were."""
        chosen = [
            seq
            for seq, record in self.live.items()
            if (before_seq is None or seq < before_seq)
            and (eq is None or record.tag == eq)
            and (prefix is None or (record.tag is not None and record.tag.startswith(prefix)))
        ]
        for seq in chosen:
            del self.live[seq]
            self.deleted.add(seq)
        return len(chosen)

    def gap(self, from_seq: int) -> tuple[int, int, str] | None:
        """The tombstone for a reader at `from_seq`: range and reason."""
        if from_seq > self.head:
            return 1, self.head, "recreated"
        if from_seq + 1 >= self.evict_floor:
            return None
        by_cap = any(seq > from_seq for seq in self.lost_by_cap)
        by_ttl = any(seq > from_seq for seq in self.lost_by_ttl)
        return from_seq + 1, self.earliest - 1, "mixed" if by_cap and by_ttl else "cap" if by_cap else "ttl"
