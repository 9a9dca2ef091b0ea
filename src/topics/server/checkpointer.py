"""When checkpoints happen, and their two halves: what the loop captures and what a thread writes.

The order, and why:

    quiet         everything handed to the WAL so far is applied; later operations wait for the next step, one sync long
    instant       the loop notes the lsns up to which the snapshot absorbs the WAL, and which topics have changed
    capture       the changed topics as they were in that instant, some at a time; one that is about to change is first
    write         on a thread, meanwhile: what is captured goes to a file nobody knows yet
    barrier       what was captured is in the WAL, so that an older snapshot and the WAL give the same
    commit        on the thread: the file gets its name, then delete bytes that two snapshots list are set
    settle        logs learn what has moved; WAL files that the previous snapshot absorbed are removed

Another thread folds many files into one, and nobody waits for it (`folds.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from topics import limits
from topics.clock import Clock
from topics.delivery.commits import committed
from topics.engine.block import Block
from topics.engine.engine import Engine
from topics.engine.image import Flushed, capture, give_back
from topics.engine.journal import Commit
from topics.engine.topic import Topic
from topics.errors import StorageFailed
from topics.model.image import TopicCapture
from topics.server.checkpoint_pace import CheckpointPace
from topics.server.folds import Folds
from topics.server.sealer import Sealer
from topics.storage.checkpoint import CheckpointResult, Checkpoints
from topics.storage.errors import DiskFailed, StorageError
from topics.storage.journal import DiskJournal
from topics.storage.sealed_block import SealedBlock
from topics.storage.segments import Segments

log = logging.getLogger("topics.checkpoint")

Result = TypeVar("Result")


class Progress:
    """A checkpoint under way. Its instant completes `captured`. `captures` are then taken one after the other;
    everything else in here is fixed in that instant."""

    __slots__ = (
        "captured",
        "captures",
        "changed",
        "clean",
        "flushed",
        "held",
        "lsns",
        "next_id",
        "removed",
        "sealed",
        "wal_bytes",
    )

    def __init__(self, *, clean: bool) -> None:
        self.clean = clean
        self.captured = Commit()
        self.lsns: dict[str, int] = {}
        self.wal_bytes = 0
        self.next_id = 1
        self.removed: list[int] = []
        self.sealed: list[tuple[int, int]] = []
        self.changed: list[Topic] = []  # captured so far
        self.captures: list[TopicCapture] = []  # captured and not written yet
        self.held: list[Block] = []  # large blocks that captures refer to
        self.flushed: list[Flushed] = []


class CheckpointTimes(NamedTuple):
    """Times of the checkpoints that this process has finished."""

    finished: int = 0
    total_ms: int = 0
    last_ts: int | None = None
    last_ms: int | None = None


class Checkpointer:
    def __init__(
        self, engine: Engine, clock: Clock, journal: DiskJournal[Commit], segments: Segments, sealer: Sealer
    ) -> None:
        self._engine = engine
        self._state = engine.state
        self._clock = clock
        self._journal = journal
        self._segments = segments
        self._sealer = sealer
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.folds = Folds()
        self._checkpoints: Checkpoints | None = None
        self._shard_names: list[str] = []
        self._stale_shards: list[str] = []
        self._new_shards = False
        self._stale_lsns: dict[str, int] = {}
        self._absorbed: dict[str, int] | None = None
        self._trimmed: dict[str, int] | None = None
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
        """`stale_shards`: shards of an earlier shard count that still have files; the second checkpoint removes those.
        `stale_lsns`: how far these shards were replayed, which every snapshot must say as long as they may be found.
        `new_shards`: whether there are shards that the last snapshot does not know."""
        self._new_shards = new_shards
        self._checkpoints = self.folds.checkpoints = checkpoints
        self._shard_names = shard_names
        self._stale_shards = stale_shards
        self._stale_lsns = stale_lsns

    @property
    def first_checkpoints(self) -> int:
        """How many checkpoints a start makes: one, or two after a change of the shard count, so that no snapshot is
        left that needs frames of both old and new shards."""
        return 2 if self._stale_shards or self._new_shards else 1

    @property
    def has_listed(self) -> bool:
        """Whether the next checkpoint has to set delete bytes of records that are listed as deleted."""
        return self._checkpoints is not None and self._checkpoints.has_listed

    @property
    def has_work(self) -> bool:
        """Whether a checkpoint would change anything. An idle server does no checkpoints."""
        return (
            self._state.has_changes
            or self._absorbed != self._lsns()
            or self._trimmed != self._absorbed
            or (self._checkpoints is not None and self._checkpoints.has_doomed)
        )

    @property
    def unabsorbed_bytes(self) -> int:
        """What the log has written since the last checkpoint."""
        return _wal_bytes(self._journal) - self._wal_bytes_absorbed

    async def run(self) -> None:
        """Checkpoints whenever enough has gathered, until cancelled."""
        pace = CheckpointPace()
        while True:
            await asyncio.sleep(limits.CHECKPOINT_POLL_S)
            room_is_low = self._journal.full is not None
            if not pace.due(self.unabsorbed_bytes, sealed_bytes=self._sealer.sealed_bytes, room_is_low=room_is_low):
                continue
            if self.has_work:
                pace.done(succeeded=await self.checkpoint(clean=False))
            elif room_is_low:
                self.folds.fold_if_due(room_is_low=True)

    async def checkpoint(self, *, clean: bool) -> bool:
        """Makes one checkpoint. If the disk refuses it, logs that and returns False; what was durable stays durable.

        Even if the caller is cancelled, it runs to its end: what it has captured must be written or given back.
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
        progress = self.begin(clean=clean)
        try:
            await committed(progress.captured)
            await self._on_worker(lambda: self.write_head(progress))
            while self.capture_some(progress):
                await asyncio.sleep(0)
                if len(progress.captures) >= limits.CAPTURED_TOPICS_MAX:
                    await self._write_some(progress)
            await self._write_some(progress)
            await self._barrier()
            result = await self._on_worker(lambda: self.commit(progress))
        except (StorageError, StorageFailed) as error:
            self.give_up(progress, error)
            log.error("checkpoint failed, the log is kept until one succeeds: %s", error.message)
            return False
        self.settle(progress, result)
        last_ms = (self._clock.monotonic_ns() - began_ns) // 1_000_000
        finished, total_ms, _, _ = self.times
        self.times = CheckpointTimes(finished + 1, total_ms + last_ms, self._clock.now_ms(), last_ms)
        self.folds.fold_if_due(room_is_low=self._journal.full is not None)
        return True

    async def _write_some(self, progress: Progress) -> None:
        captures, progress.captures = progress.captures, []
        held, progress.held = progress.held, []
        if captures:
            try:
                await self._on_worker(lambda: self.write(captures))
            finally:
                self._state.captured.difference_update(held)

    async def _on_worker(self, call: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)

    # The steps of a checkpoint

    def begin(self, *, clean: bool) -> Progress:
        """Takes the instant as soon as nothing is in flight."""
        progress = Progress(clean=clean)
        self._engine.forward_pending()
        self._engine.flow.when_quiet(lambda: self._begin(progress))
        return progress

    def _begin(self, progress: Progress) -> None:
        """The instant: from now on no topic changes before it is captured."""
        progress.lsns = self._lsns()
        progress.wal_bytes = _wal_bytes(self._journal)
        progress.next_id = self._state.next_id
        progress.sealed = self._sealer.take_sealed()
        progress.removed = self._state.begin_capture(lambda topic: self._capture(progress, topic))
        progress.captured.resolve(None, 0)

    def _capture(self, progress: Progress, topic: Topic) -> None:
        progress.changed.append(topic)
        known = len(progress.flushed)
        progress.captures.append(capture(topic, progress.flushed))
        held = [block for block, _, _ in progress.flushed[known:] if block in self._state.large]
        progress.held += held
        self._state.captured.update(held)

    def capture_some(self, progress: Progress, topics_max: int = limits.CAPTURED_TOPICS_MAX) -> bool:
        """Captures topics for a moment. Returns False when all are captured."""
        until_ns = self._clock.monotonic_ns() + limits.CAPTURE_SLICE_NS
        for _ in range(topics_max):
            if not self._state.capture_next():
                return False
            if self._clock.monotonic_ns() >= until_ns:
                break
        return True

    def write_head(self, progress: Progress) -> None:
        """Runs on the worker's thread."""
        assert self._checkpoints is not None, "open first"
        self._checkpoints.begin(progress.next_id, progress.lsns, clean=progress.clean)

    def write(self, captures: list[TopicCapture]) -> None:
        """Runs on the worker's thread."""
        assert self._checkpoints is not None, "open first"
        self._checkpoints.add(captures)

    def commit(self, progress: Progress) -> CheckpointResult:
        """Runs on the worker's thread once everything is written, and removes what only the previous snapshot
        needed."""
        assert self._checkpoints is not None, "open first"
        result = self._checkpoints.commit(progress.removed, progress.sealed)
        if self._absorbed is not None and self._stale_shards:
            try:
                self._checkpoints.remove_shards(self._stale_shards)
            except DiskFailed as failure:
                return result._replace(failure=failure)
            self._stale_shards = []
        return result

    def settle(self, progress: Progress, result: CheckpointResult) -> None:
        """Tells logs what is on disk now. Removes WAL files one checkpoint late: the previous snapshot needs them."""
        self._state.captured.clear()
        if result.failure is not None:
            log.error("deleted records could not be marked or removed on disk: %s", result.failure.message)
        for (topic_id, first_seq), positions in result.flagged.items():
            self._flagged(topic_id, first_seq, positions)
        for topic_id, first_seq in result.moved:
            self._move(topic_id, first_seq)
        self._segments.close(result.removed, result.removed_topics)
        if self._absorbed is not None:
            for name, shard in zip(self._shard_names, self._journal.shards, strict=True):
                shard.trim_below(self._absorbed[name])
        self._trimmed, self._absorbed = self._absorbed, progress.lsns
        self._wal_bytes_absorbed = progress.wal_bytes

    def give_up(self, progress: Progress, error: StorageError | StorageFailed) -> None:
        """The disk refused: everything captured still has to be written."""
        self.failures_total += 1
        self.last_failure = error
        self._state.captured.clear()
        give_back(progress.flushed)
        self._sealer.return_sealed(progress.sealed)
        self._state.end_capture(progress.changed, progress.removed)
        if self._checkpoints is not None:
            self._checkpoints.abandon()

    def close(self) -> None:
        self.folds.close()
        self._worker.shutdown()

    async def _barrier(self) -> None:
        for commit in self._journal.barrier():
            await committed(commit)

    def _flagged(self, topic_id: int, first_seq: int, positions: list[int]) -> None:
        """Delete bytes are set: the next snapshot need not list them."""
        topic = self._engine.topics.by_id(topic_id)
        block = None if topic is None else topic.log.block_at(first_seq)
        if topic is not None and block is not None:
            set_now = set(positions)
            block.unflagged[:] = [position for position in block.unflagged if position not in set_now]
            self._state.changed[topic] = None

    def _move(self, topic_id: int, first_seq: int) -> None:
        """Sends the next reader of a segment to the cold tier, where it is now."""
        self._segments.forget(topic_id, first_seq)
        topic = self._engine.topics.by_id(topic_id)
        block = topic and topic.log.block_at(first_seq)
        if isinstance(block, SealedBlock):
            block.cold = True

    def _lsns(self) -> dict[str, int]:
        shards = zip(self._shard_names, self._journal.shards, strict=True)
        return self._stale_lsns | {name: shard.submitted_lsn for name, shard in shards}


def _wal_bytes(journal: DiskJournal[Commit]) -> int:
    """Written since the start."""
    return sum(shard.writer.counters.written_bytes for shard in journal.shards)
