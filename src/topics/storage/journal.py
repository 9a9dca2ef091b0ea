"""The journal: turns operations into frames and hands them to the shard of their topic.

A topic's operations all go to one shard, chosen by its id, so they are durable in the order they happened.
Nothing here waits: whoever asked for a gated operation gets a ticket that is resolved when the shard has synced
it, on the thread that `deliver` leads to.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw
from xxhash import xxh3_64_intdigest

from topics.errors import StorageFailed, Throttled, TopicsError
from topics.model.config import TopicConfig
from topics.model.lease_event import Delayed, NumberedEvent
from topics.model.operation import (
    ConfigUpdated,
    CursorSet,
    HeadReserved,
    RecordsDeleted,
    RecordsExpired,
    RouterChanged,
    RouterDeleted,
    TopicCreated,
    TopicDeleted,
)
from topics.model.record import payload_of
from topics.model.tag_match import TagMatch
from topics.storage.errors import DiskFailed
from topics.storage.frame import BATCH_CONTINUES, FrameKind, Record, append_frames, control_frame
from topics.storage.group_commit import CommitThread
from topics.storage.heads import Heads

_encode = msgspec.json.encode
_QUEUE_FULL_RETRY_AFTER_S = 1


class Ticket(Protocol):
    def resolve(self, error: TopicsError | None, sync_ns: int) -> None: ...


T = TypeVar("T", bound=Ticket)
Deliver = Callable[[Callable[[], None]], object]


class DiskJournal(Generic[T]):
    """`new_ticket` makes what a caller waits for; `deliver` runs a call on the caller's thread; `at_turn_end` runs one
    when the caller is done with what is at hand."""

    def __init__(self, new_ticket: Callable[[], T], deliver: Deliver, at_turn_end: Deliver) -> None:
        self._new_ticket = new_ticket
        self._deliver = deliver
        self._at_turn_end = at_turn_end
        self._deferring = False
        self._shards: list[CommitThread[T]] = []
        self._shard_by_topic: dict[int, CommitThread[T]] = {}
        self._heads: Heads
        self._forwarded: dict[int, int] = {}  # the last seq routers gave out in a topic
        self.submit_full_total = 0

    def open(self, shards: list[CommitThread[T]], heads: Heads) -> None:
        """From now on operations are taken. The shards report to `on_durable` and `on_failed`."""
        self._shards = shards
        self._shard_by_topic = {}
        self._forwarded = {}
        self._heads = heads

    @property
    def shards(self) -> list[CommitThread[T]]:
        return self._shards

    @property
    def failure(self) -> DiskFailed | None:
        """What made a shard read-only, if any is."""
        return next((shard.failure for shard in self._shards if shard.failure is not None), None)

    def on_durable(self, tickets: list[T], sync_ns: int) -> None:
        """Called on a shard's thread."""
        self._deliver(lambda: _resolve(tickets, None, sync_ns))

    def on_failed(self, tickets: list[T], failure: DiskFailed) -> None:
        """Called on a shard's thread."""
        error = _storage_failed(failure)
        self._deliver(lambda: _resolve(tickets, error, 0))

    def barrier(self) -> list[T]:
        """A ticket for each shard, resolved when all handed over so far is durable."""
        return [self._submit(shard, b"", 0, gated=True) for shard in self._shards]  # type: ignore[misc]

    def barrier_of(self, topic_id: int) -> T | None:
        shard = self._shard(topic_id)
        if shard.failure is not None:
            return self._new_ticket()  # never done: nothing becomes durable any more
        return self._submit(shard, b"", 0, gated=True)

    def admit(self, topic_id: int) -> None:
        shard = self._shard(topic_id)
        if shard.failure is not None:
            raise _storage_failed(shard.failure)
        if not shard.has_room:
            self.submit_full_total += 1
            raise Throttled(
                f"the disk does not keep up: {shard.queue_depth} writes wait for it",
                retry_after_s=_QUEUE_FULL_RETRY_AFTER_S,
                retry_after_ms=_QUEUE_FULL_RETRY_AFTER_S * 1000,
            )
        try:
            self._heads.make_room(topic_id)
        except DiskFailed as failure:
            raise _storage_failed(failure) from failure

    def create_topic(
        self, topic_id: int, ts: int, name: str, config: TopicConfig, ceiling: int, *, gated: bool
    ) -> T | None:
        body = TopicCreated(name, config, ceiling)
        return self._control(FrameKind.TOPIC_CREATE, topic_id, ts, body, gated=gated)

    def update_config(self, topic_id: int, ts: int, config: TopicConfig, version: int) -> T | None:
        return self._control(FrameKind.CONFIG_UPDATE, topic_id, ts, ConfigUpdated(config, version), gated=True)

    def set_cursor(self, topic_id: int, ts: int, cursor: str, seq: int | None) -> T | None:
        body = ConfigUpdated(cursor=CursorSet(cursor, seq))
        return self._control(FrameKind.CONFIG_UPDATE, topic_id, ts, body, gated=True)

    def delete_topic(self, topic_id: int, ts: int, dest_ids: Sequence[int] = ()) -> T | None:
        body = TopicDeleted({dest_id: self._forwarded.get(dest_id, 0) for dest_id in dest_ids})
        ticket = self._control(FrameKind.TOPIC_DELETE, topic_id, ts, body, gated=True)
        del self._shard_by_topic[topic_id]
        self._forwarded.pop(topic_id, None)
        return ticket

    def change_router(self, topic_id: int, ts: int, change: RouterChanged, *, gated: bool) -> T | None:
        return self._control(FrameKind.ROUTER_CREATE, topic_id, ts, change, gated=gated)

    def delete_router(self, topic_id: int, ts: int, router_id: int) -> T | None:
        return self._control(FrameKind.ROUTER_DELETE, topic_id, ts, RouterDeleted(router_id), gated=True)

    def note_forwarded(self, topic_id: int, seq: int) -> None:
        """Hot: once per topic and batch of copies."""
        self._forwarded[topic_id] = seq
        noted = self._heads.note(topic_id, seq)
        assert noted, topic_id

    def append(
        self,
        topic_id: int,
        first_seq: int,
        ts: int,
        fragments: list[bytes],
        meta_at: list[int],
        nodes: list[str | None],
        tags: list[str | None],
        key: str | None,
        *,
        gated: bool,
        delays: Sequence[Delayed] = (),
    ) -> T | None:
        """Hot: once per write."""
        count = len(fragments)
        noted = self._heads.note(topic_id, first_seq + count - 1)
        assert noted, topic_id
        if count == 1 and not gated and not delays:
            payload = payload_of(fragments[0], meta_at[0], None if key is None else key.encode())
            self._shard(topic_id).deferred.append((topic_id, first_seq, ts, nodes[0], tags[0], payload))
            if not self._deferring:
                self._defer()
            return None
        records: list[Record] = [
            (
                None if node is None else node.encode(),
                None if tag is None else tag.encode(),
                payload_of(fragment, at),
            )
            for fragment, at, node, tag in zip(fragments, meta_at, nodes, tags, strict=True)
        ]
        if key is not None:
            # The last record of a write carries its key.
            records[-1] = (*records[-1][:2], payload_of(fragments[-1], meta_at[-1], key.encode()))
        frames = append_frames(topic_id, first_seq, ts, records, durable=gated)
        if delays:
            # They open the batch, so that a crash takes them with it: its seqs may be given out again.
            frames = [
                control_frame(FrameKind.LEASE, topic_id, 0, ts, _encode(delayed), flags=BATCH_CONTINUES)
                for delayed in delays
            ] + frames
        return self._submit(self._shard(topic_id), b"".join(frames), len(frames), gated=gated)

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        """Hot: most writes are such."""
        shard = self._shard_by_topic.get(topic_id)
        if shard is None:
            return False
        if shard.failure is not None or not (shard.deferred or shard.has_room):
            return False  # of room there is enough for all that is deferred in one turn: it is queued as one piece
        if not self._heads.note(topic_id, seq):
            return False
        shard.deferred.append((topic_id, seq, ts, node, tag, data))
        if not self._deferring:
            self._defer()
        return True

    def _defer(self) -> None:
        self._deferring = True
        self._at_turn_end(self._submit_deferred)

    def _submit_deferred(self) -> None:
        self._deferring = False
        for shard in self._shards:
            shard.submit_deferred()

    def delete_records(
        self, topic_id: int, ts: int, before_seq: int, match: TagMatch | None, *, gated: bool
    ) -> T | None:
        return self._control(FrameKind.DELETE, topic_id, ts, RecordsDeleted(before_seq, match), gated=gated)

    def delete_jobs(
        self, topic_id: int, ts: int, seqs: list[int], *, node: str | None, move: str | None, gated: bool
    ) -> T | None:
        body = RecordsDeleted(seqs=seqs, node=node, move=move)
        return self._control(FrameKind.DELETE, topic_id, ts, body, gated=gated)

    def lease(self, topic_id: int, ts: int, event: NumberedEvent, *, gated: bool) -> T | None:
        return self._control(FrameKind.LEASE, topic_id, ts, event, gated=gated)

    def reserve(self, topic_id: int, ts: int, ceiling: int) -> T | None:
        return self._control(FrameKind.HEAD_WATERMARK, topic_id, ts, HeadReserved(ceiling), gated=True)

    def watermark(self, topic_id: int, ts: int, ttl_lost_seq: int) -> None:
        shard = self._shard(topic_id)
        if shard.failure is None and shard.has_room:
            # Left out when the shard cannot take it: the snapshot or the next one says the same.
            self._control(FrameKind.EVICT_WATERMARK, topic_id, ts, RecordsExpired(ttl_lost_seq), gated=False)

    def _control(self, kind: FrameKind, topic_id: int, ts: int, body: object, *, gated: bool) -> T | None:
        # An operation on a topic routers copy to says how far they were.
        frame = control_frame(kind, topic_id, self._forwarded.get(topic_id, 0), ts, _encode(body))
        return self._submit(self._shard(topic_id), frame, 1, gated=gated)

    def _submit(self, shard: CommitThread[T], frames: bytes, count: int, *, gated: bool) -> T | None:
        ticket = self._new_ticket() if gated else None
        shard.submit(frames, count, gated, ticket)
        return ticket

    def _shard(self, topic_id: int) -> CommitThread[T]:
        shard = self._shard_by_topic.get(topic_id)
        if shard is None:
            shard = self._shard_by_topic[topic_id] = self._shards[shard_of(topic_id, len(self._shards))]
        return shard


def shard_of(topic_id: int, shard_count: int) -> int:
    return int(xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % shard_count)


def _resolve(tickets: list[T], error: TopicsError | None, sync_ns: int) -> None:
    for ticket in tickets:
        ticket.resolve(error, sync_ns)


def _storage_failed(failure: DiskFailed) -> StorageFailed:
    return StorageFailed(
        f"nothing can be written: {failure.message}. Free space or replace the disk, then restart the server",
        **failure.detail,
    )
