"""The journal: turns operations into frames and hands them to the shard of their topic.

A topic's operations all go to one shard, so they are durable in the order they happened: the one its id hashes to,
or, for topics that exchange records, the first. Nothing here waits: whoever asked for a gated operation gets a ticket
that is resolved when the shard has synced it, on the thread that `deliver` leads to.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Raw
from xxhash import xxh3_64_intdigest

from topics import limits
from topics.errors import StorageFailed, StorageFull, Throttled, TopicsError
from topics.model.operation import Appended, ClockReached, Moved, Operation, TopicCreated, TopicDeleted
from topics.storage.errors import DiskFailed
from topics.storage.frame import DURABLE, single_frames
from topics.storage.group_commit import CommitThread, LargeFrames
from topics.storage.heads import Heads
from topics.storage.operation_codec import encode

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
        self._turn = 0  # number of the shard in which topics are made that are made at the same time
        self._turn_ends = 0  # at this id
        self._heads: Heads
        self.submit_full_total = 0
        self.spare_bytes = limits.U64_MAX
        """What may still be taken until somebody has looked at the disk again; below 0, nothing is."""
        self.full: StorageFull | None = None
        """Set while there is too little room on the disk: why."""

    def open(self, shards: list[CommitThread[T]], heads: Heads, exchange: Iterable[int]) -> None:
        """From now on operations are taken. The shards report to `on_durable` and `on_failed`. `exchange`: the topics
        that exchange records."""
        self._shards = shards
        self._shard_by_topic = dict.fromkeys(exchange, shards[0])
        self._heads = heads

    @property
    def shards(self) -> list[CommitThread[T]]:
        return self._shards

    @property
    def failure(self) -> DiskFailed | None:
        """What made a shard read-only, if any is."""
        return next((shard.failure for shard in self._shards if shard.failure is not None), None)

    def trouble(self) -> TopicsError | None:
        """What a write is refused with, or has to wait for, if the disk takes none."""
        if self.failure is not None:
            return _storage_failed(self.failure)
        no_room = next((shard.no_room for shard in self._shards if shard.no_room is not None), None)
        if no_room is not None:
            return StorageFull(f"writes wait for room: {no_room.message}. They go on by themselves", **no_room.detail)
        if self.full is None and self.spare_bytes < 0:
            return StorageFull(
                "what was just taken needs the room that is left: the disk is looked at before more is taken"
            )
        return self.full

    def on_durable(self, tickets: list[T], sync_ns: int) -> None:
        """Called on a shard's thread."""
        self._deliver(lambda: _resolve(tickets, None, sync_ns))

    def on_failed(self, tickets: list[T], failure: DiskFailed) -> None:
        """Called on a shard's thread."""
        error = _storage_failed(failure)
        self._deliver(lambda: _resolve(tickets, error, 0))

    def stop_waiting_for_room(self) -> None:
        """What there is no room for, now or later, is lost, and its shard has failed."""
        for shard in self._shards:
            shard.waits_for_room = False

    def barrier(self) -> list[T]:
        """A ticket for each shard, resolved when all handed over so far is durable."""
        return [self._submit(shard, b"", 0, gated=True) for shard in self._shards]  # type: ignore[misc]

    def barrier_of(self, topic_id: int) -> T | None:
        shard = self._shard(topic_id)
        if shard.failure is not None:
            return self._new_ticket()  # never done: nothing becomes durable any more
        return self._submit(shard, b"", 0, gated=True)

    def lane(self, topic_id: int) -> int:
        return self._shards.index(self._shard(topic_id))

    def id_among(self, first_id: int) -> int:
        """Skips the ids that hash to another shard than the one whose turn it is. If that is at work, it is the turn of
        one that is not, so that nobody waits for two syncs."""
        shards, count = self._shards, len(self._shards)
        if self._turn_ends <= first_id:
            self._turn_ends = first_id + limits.TOPIC_IDS_TOGETHER
            self._turn = (self._turn + 1) % count
        free = [shard.idle and shard.failure is None for shard in shards]
        if not free[self._turn] and True in free:
            self._turn = next(each % count for each in range(self._turn, self._turn + count) if free[each % count])
        while shard_of(first_id, count) != self._turn:
            first_id += 1
        return first_id

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

    def require_room(self, size: int) -> None:
        self.spare_bytes -= size * limits.ROOM_PER_BYTE_TAKEN
        short = self.spare_bytes < 0
        for shard in self._shards:
            short = short or shard.no_room is not None
        if short:
            trouble = self.trouble()
            if trouble is not None:
                raise trouble.with_traceback(None)

    def seen(self, topic_id: int, seq: int) -> None:
        self._heads.note(topic_id, seq)

    def submit(self, operations: Sequence[Operation], *, gated: bool) -> T | None:
        """Hot: once per write, but for the single records."""
        last = operations[-1]
        if len(operations) == 1 and type(last) is Appended:
            shard = self._shard(last.topic_id)
            if len(last.timestamps) == 1 and last.writes[0].key is None:
                # Most writes have one record: half of the cost of the general way.
                batch = last.batch
                record = (last.topic_id, last.first_seq, last.ts, batch.nodes[0], batch.tags[0], batch.payloads[0])
                if gated:
                    return self._submit(shard, single_frames([record], base_flags=DURABLE), 1, gated=True)
                shard.deferred.append(record)
                if not self._deferring:
                    self._defer()
                return None
        else:
            shard = self._shard_of(operations)
        count = len(operations)
        if isinstance(last, Appended):
            count += len(last.timestamps) - 1  # a frame for each record
            if last.batch.total_bytes > limits.ENCODED_BY_LOOP_BYTES_MAX:
                return self._submit(shard, _LargeBatch(operations, last.batch.total_bytes, gated), count, gated=gated)
        return self._submit(shard, b"".join(encode(operations, durable=gated)), count, gated=gated)

    def _shard_of(self, operations: Sequence[Operation]) -> CommitThread[T]:
        for each in operations:
            kind = type(each)
            if kind is Moved or (kind is TopicCreated and each.exchange):  # type: ignore[union-attr]
                self._shard_by_topic[each.topic_id] = self._shards[0]
        last = operations[-1]
        topic_id = last.topic_ids[0] if isinstance(last, ClockReached) else last.topic_id
        shard = self._shard(topic_id) if topic_id else self._shards[0]
        if isinstance(last, TopicDeleted):
            self._shard_by_topic.pop(topic_id, None)
        return shard

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        """Hot: most writes are such."""
        shard = self._shard_by_topic.get(topic_id)
        if shard is None:
            return False
        if self.spare_bytes < 0 or shard.failure is not None or not (shard.deferred or shard.has_room):
            return False  # of room there is enough for all that is deferred in one turn: it is queued as one piece
        if not self._heads.note(topic_id, seq):
            return False
        self.spare_bytes -= len(data) * limits.ROOM_PER_BYTE_TAKEN
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
            shard.wake()

    def _submit(self, shard: CommitThread[T], frames: bytes | LargeFrames, count: int, *, gated: bool) -> T | None:
        ticket = self._new_ticket() if gated else None
        try:
            shard.submit(frames, count, gated, ticket, wakes_later=True)
        except DiskFailed as failure:
            # It failed since `admit`: as if it had failed with this in its queue.
            if ticket is not None:
                self.on_failed([ticket], failure)
        if gated and not self._deferring:
            self._defer()
        return ticket

    def _shard(self, topic_id: int) -> CommitThread[T]:
        shard = self._shard_by_topic.get(topic_id)
        if shard is None:
            shard = self._shard_by_topic[topic_id] = self._shards[shard_of(topic_id, len(self._shards))]
        return shard


class _LargeBatch:
    """Encoding 54 MiB takes 110 to 150 ms, all of it the loop's if done there; on the thread the loop gets in between.
    Operations never change once they are submitted."""

    __slots__ = ("_durable", "_operations", "_size")

    def __init__(self, operations: Sequence[Operation], size: int, durable: bool) -> None:
        self._operations = operations
        self._size = size
        self._durable = durable

    def __len__(self) -> int:
        return self._size

    def encoded(self) -> bytes:
        return b"".join(encode(self._operations, durable=self._durable))


def shard_of(topic_id: int, shard_count: int) -> int:
    return int(xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % shard_count)


def _resolve(tickets: list[T], error: TopicsError | None, sync_ns: int) -> None:
    for ticket in tickets:
        ticket.resolve(error, sync_ns)


def _storage_failed(failure: DiskFailed) -> StorageFailed:
    return StorageFailed(
        f"nothing can be written: {failure.message}. Repair or replace the disk, then restart the server",
        **failure.detail,
    )
