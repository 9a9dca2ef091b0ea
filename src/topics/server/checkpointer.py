"""When checkpoints happen, and their two halves: what the loop captures and what a thread writes.

The order, and why:

    quiet         everything handed to the WAL so far is applied; what comes next waits for the next step, one sync long
    capture       in that instant: the changed topics as they are, and the lsns up to which the snapshot absorbs the WAL
    barrier       what was captured is in the WAL, so that an older snapshot and the WAL give the same
    write         on a thread: segments, cold tier, snapshot, then delete bytes that two snapshots list
    settle        logs learn which of their blocks are on disk; WAL files the previous snapshot absorbed go
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from topics import limits
from topics.clock import Clock
from topics.delivery.commits import committed
from topics.engine.block import AnyBlock, Block
from topics.engine.engine import Engine
from topics.engine.image import capture, settle
from topics.engine.journal import Commit
from topics.engine.topic import Topic
from topics.errors import StorageFailed
from topics.model.image import TopicCapture
from topics.server.checkpoint_pace import CheckpointPace
from topics.storage.checkpoint import CheckpointResult, Checkpoints
from topics.storage.errors import DiskFailed, StorageError
from topics.storage.journal import DiskJournal
from topics.storage.sealed_block import ClearedBlock, SealedBlock
from topics.storage.segments import Segments

log = logging.getLogger("topics.checkpoint")


class Progress:
    """A checkpoint under way. `captured` is done when everything below is taken, all in one instant."""

    __slots__ = ("captured", "captures", "changed", "lsns", "next_id", "removed", "wal_bytes")

    def __init__(self) -> None:
        self.captured = Commit()
        self.lsns: dict[str, int] = {}
        self.wal_bytes = 0
        self.changed: list[Topic] = []
        self.removed: list[int] = []
        self.captures: list[TopicCapture] = []
        self.next_id = 1


class CheckpointTimes(NamedTuple):
    """Of the checkpoints this process has finished."""

    finished: int = 0
    total_ms: int = 0
    last_ts: int | None = None
    last_ms: int | None = None


class Checkpointer:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        journal: DiskJournal[Commit],
        segments: Segments,
        *,
        block_age_ms_max: int,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._journal = journal
        self._segments = segments
        self._block_age_ms_max = block_age_ms_max
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._checkpoints: Checkpoints | None = None
        self._shard_names: list[str] = []
        self._stale_shards: list[str] = []
        self._new_shards = False
        self._stale_lsns: dict[str, int] = {}
        self._absorbed: dict[str, int] | None = None
        self._under_way: asyncio.Task[bool] | None = None
        self._wal_bytes_absorbed = 0
        self.times = CheckpointTimes()
        self.failures_total = 0
        self.last_failure: StorageError | StorageFailed | None = None

    def open(
        self,
        checkpoints: Checkpoints,
        shard_names: list[str],
        stale_shards: list[str],
        stale_lsns: dict[str, int],
        *,
        new_shards: bool,
    ) -> None:
        """`stale_shards`: those of a shard count that is no more that have files; they go at the second checkpoint.
        `stale_lsns`: how far those were replayed, which every snapshot has to say as long as they may be found.
        `new_shards`: there are some that the last snapshot does not know."""
        self._new_shards = new_shards
        self._checkpoints = checkpoints
        self._shard_names = shard_names
        self._stale_shards = stale_shards
        self._stale_lsns = stale_lsns

    @property
    def first_checkpoints(self) -> int:
        """How many are due before anything is served: one, and after a change of the shard count another one, so
        that no snapshot is left whose frames are spread over old and new shards."""
        return 2 if self._stale_shards or self._new_shards else 1

    @property
    def has_listed(self) -> bool:
        """Whether records are listed as deleted that the next checkpoint marks so in their files."""
        return self._checkpoints is not None and self._checkpoints.has_listed

    async def run(self) -> None:
        """Checkpoints whenever enough has gathered, until cancelled."""
        pace = CheckpointPace(self._engine.state.blocks_filled)
        while True:
            await asyncio.sleep(limits.CHECKPOINT_POLL_S)
            if pace.due(self._wal_bytes() - self._wal_bytes_absorbed, self._engine.state.blocks_filled):
                pace.done(succeeded=await self.checkpoint(clean=False))

    async def checkpoint(self, *, clean: bool) -> bool:
        """One checkpoint; False (and it is logged) when the disk refused it. What was durable stays durable.

        It goes on to its end when the caller is cancelled: what it has captured must be written or given back.
        """
        if self._under_way is not None:
            await asyncio.wait({self._under_way})
        self._under_way = asyncio.create_task(self._checkpoint(clean=clean))
        return await asyncio.shield(self._under_way)

    async def _checkpoint(self, *, clean: bool) -> bool:
        if (failure := self._journal.failure) is not None:
            self.last_failure = failure
            return False
        began_ns = self._clock.monotonic_ns()
        progress = self.begin()
        loop = asyncio.get_running_loop()
        try:
            await committed(progress.captured)
            await self._barrier()
            result = await loop.run_in_executor(self._worker, lambda: self.write(progress, clean=clean))
        except (StorageError, StorageFailed) as error:
            self.give_up(progress, error)
            log.error("checkpoint failed, the log is kept until one succeeds: %s", error.message)
            return False
        self.settle(progress, result)
        last_ms = (self._clock.monotonic_ns() - began_ns) // 1_000_000
        finished, total_ms, _, _ = self.times
        self.times = CheckpointTimes(finished + 1, total_ms + last_ms, self._clock.now_ms(), last_ms)
        return True

    # The steps of a checkpoint

    def begin(self) -> Progress:
        """Has everything captured as soon as nothing is in flight."""
        progress = Progress()
        self._engine.forward_pending()
        self._engine.flow.when_quiet(lambda: self._capture(progress))
        return progress

    def _capture(self, progress: Progress) -> None:
        """Takes the changed topics as they are: one instant of the log."""
        shards = zip(self._shard_names, self._journal.shards, strict=True)
        progress.lsns = self._stale_lsns | {name: shard.submitted_lsn for name, shard in shards}
        progress.wal_bytes = self._wal_bytes()
        state = self._engine.state
        progress.changed, progress.removed = state.take_changes()
        now_ms = self._clock.now_ms()
        progress.captures = [capture(topic, now_ms, self._block_age_ms_max) for topic in progress.changed]
        progress.next_id = state.next_id
        progress.captured.resolve(None, 0)

    def write(self, progress: Progress, *, clean: bool) -> CheckpointResult:
        """Runs on the worker's thread: segments and snapshot, then what the snapshot before needed goes."""
        assert self._checkpoints is not None, "open first"
        result = self._checkpoints.write(
            progress.captures, progress.removed, progress.next_id, progress.lsns, clean=clean
        )
        if self._absorbed is not None and self._stale_shards:
            try:
                self._checkpoints.remove_shards(self._stale_shards)
            except DiskFailed as failure:
                return result._replace(failure=failure)
            self._stale_shards = []
        return result

    def settle(self, progress: Progress, result: CheckpointResult) -> None:
        """Logs learn what is on disk now; WAL files go, one checkpoint late: the previous snapshot needs them."""
        if result.failure is not None:
            log.error("what is deleted could not be marked or removed: %s", result.failure.message)
        for topic, captured in zip(progress.changed, progress.captures, strict=True):
            for block in captured.blocks:
                settle(topic, block, self._seal)
        for (topic_id, first_seq), positions in result.flagged.items():
            self._flagged(topic_id, first_seq, positions)
        for topic_id, first_seq in result.moved:
            self._move(topic_id, first_seq)
        if self._absorbed is not None:
            for name, shard in zip(self._shard_names, self._journal.shards, strict=True):
                shard.trim_below(self._absorbed[name])
        self._absorbed = progress.lsns
        self._wal_bytes_absorbed = progress.wal_bytes

    def give_up(self, progress: Progress, error: StorageError | StorageFailed) -> None:
        """The disk refused: everything captured is still to be written."""
        self.failures_total += 1
        self.last_failure = error
        self._engine.state.return_changes(progress.changed, progress.removed)

    def close(self) -> None:
        self._worker.shutdown()
        if self._checkpoints is not None:
            self._checkpoints.close()

    async def _barrier(self) -> None:
        for commit in self._journal.barrier():
            await committed(commit)

    def _seal(self, topic: Topic, block: Block) -> AnyBlock:
        """The block as a sealed segment; what was deleted while it was written is carried over."""
        if block.live_count == 0:
            return ClearedBlock(block.first_seq, len(block), block.first_ts, block.last_ts)
        sealed = SealedBlock(
            self._segments,
            topic.topic_id,
            block.first_seq,
            len(block),
            block.live_count,
            block.live_bytes,
            block.first_ts,
            block.last_ts,
            live=None
            if block.live_count == len(block)
            else bytearray(fragment is not None for fragment in block.fragments),
        )
        sealed.unflagged = block.unflagged
        return sealed

    def _flagged(self, topic_id: int, first_seq: int, positions: list[int]) -> None:
        """Delete bytes are set: the next snapshot need not list them."""
        topic = self._engine.topics.by_id(topic_id)
        block = None if topic is None else topic.log.block_at(first_seq)
        if topic is not None and block is not None:
            set_now = set(positions)
            block.unflagged[:] = [position for position in block.unflagged if position not in set_now]
            self._engine.state.changed.add(topic)

    def _move(self, topic_id: int, first_seq: int) -> None:
        """A segment is on the cold tier now: its next reader looks there."""
        self._segments.forget(topic_id, first_seq)
        topic = self._engine.topics.by_id(topic_id)
        block = topic and topic.log.block_at(first_seq)
        if isinstance(block, SealedBlock):
            block.cold = True

    def _wal_bytes(self) -> int:
        return sum(shard.writer.counters.written_bytes for shard in self._journal.shards)
