"""The data directory while the server runs: opened, recovered, written to, checkpointed, closed.

One server a directory: the lock is taken first and let go last.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from topics import limits
from topics.clock import Clock
from topics.delivery.commits import committed
from topics.engine.apply import apply
from topics.engine.block import AnyBlock, Block
from topics.engine.engine import Engine
from topics.engine.image import load_tail, unread_tail
from topics.engine.journal import Commit
from topics.engine.replay import derive_copies, end_of_log, load_images, restarts
from topics.errors import ConfigurationError, StorageFailed, TopicsError
from topics.model.image import SegmentImage, TopicImage
from topics.model.operation import Operation, Restarted
from topics.server.checkpointer import Checkpointer
from topics.server.cold_fetches import ColdFetches
from topics.server.room import Room
from topics.server.sealer import Sealer
from topics.server.segment_encoder import SegmentEncoder
from topics.server.settings import Settings
from topics.storage import identity, paths
from topics.storage.checkpoint import Checkpoints
from topics.storage.errors import DiskFailed, NoRoom, StorageError
from topics.storage.fs import Disk, Lock
from topics.storage.group_commit import CommitThread
from topics.storage.heads import Heads
from topics.storage.journal import DiskJournal
from topics.storage.recovery import Recovered, Recovery, StoredTail, find_tail
from topics.storage.sealed_block import stored_block
from topics.storage.segments import Segments
from topics.storage.snapshot_chain import Tails
from topics.storage.tiers import Tiers
from topics.storage.wal_positions import TO_ITS_END, WalPositions, shard_names
from topics.storage.wal_writer import ShardWriter, wal_files

if TYPE_CHECKING:
    from topics.server.metrics import WalMetrics

log = logging.getLogger("topics.store")


class Replayed(NamedTuple):
    """`restarts`: what has to be in the log before anybody is served."""

    recovered: Recovered
    restarts: list[Operation]


class RecoveryReport(NamedTuple):
    """What a start has found. `lost_ranges` and their seqs are what it reports as lost for the first time."""

    topics: int
    records: int
    lost_ranges: int
    lost: int
    clean: bool
    duration_ms: int


class Store:
    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        clock: Clock,
        engine: Engine,
        journal: DiskJournal[Commit],
        *,
        wal_file_bytes: int = limits.WAL_FILE_BYTES,
        segments_open_max: int = limits.SEGMENTS_OPEN_MAX,
        new_id: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._engine = engine
        self._journal = journal
        self._wal_file_bytes = wal_file_bytes
        self._new_id = new_id
        self.server_id = ""
        """Of the directory; known once it is open."""
        self._root = settings.data_dir
        self._tiers = Tiers(
            disk, self._root, settings.cold_dir, settings.hot_retain_segments, settings.hot_retain_bytes
        )
        self._segments = Segments(disk, self._root, settings.cold_dir, segments_open_max, limits.COLD_LOADED_BYTES_MAX)
        self._heads = Heads(disk, paths.meta_dir(self._root))
        self._positions = WalPositions(disk, self._root)
        self.recovery: RecoveryReport | None = None
        """Known once it is over."""
        self._locks: list[Lock] = []
        self._tails: Tails = {}
        self._settling: asyncio.Task[bool] | None = None
        self.room = Room(disk, self._root, settings.free_bytes_min, lambda: self.owed_bytes)
        self._sealing: asyncio.Task[None] | None = None
        self._encoder = SegmentEncoder(elsewhere=settings.seal_process)
        self.sealer = Sealer(
            engine.state,
            clock,
            disk,
            self._tiers,
            self._segments,
            self._encoder.encode,
            keep_text=lambda: settings.sealed_text and journal.full is None,
            unsealed_bytes_max=settings.unsealed_bytes_max,
            block_age_ms_max=settings.segment_age_ms_max,
        )
        self.checkpointer = Checkpointer(engine, clock, journal, self._segments, self.sealer)

    def acquire(self) -> None:
        """Makes the directories if they are not there, and takes them for this process. Raises `ColdTierNotOurs` or
        `DirectoryInUse`, having taken nothing."""
        try:
            self._acquire()
        except BaseException:
            self.release()
            raise

    def _acquire(self) -> None:
        with _usable("TOPICS_DATA_DIR", self._root):
            self._disk.make_dir(self._root)
            self._locks.append(self._disk.lock(paths.lock_path(self._root)))
        if self._settings.cold_dir:
            with _usable("TOPICS_COLD_DIR", self._settings.cold_dir):
                self._disk.make_dir(self._settings.cold_dir)
                self._tiers.cold.check_start(None)  # first: another's directory is left as it is
                self._locks.append(self._disk.lock(paths.lock_path(self._settings.cold_dir)))

    async def recover(self, progress: Callable[[float], None]) -> None:
        """Brings back everything that was promised, and leaves the directory ready for writing."""
        loop = asyncio.get_running_loop()
        began_ns = self._clock.monotonic_ns()
        with _startable(self._root):
            replayed = await loop.run_in_executor(None, self.replay, progress)
            checkpoints = self.open(replayed)
        for number, shard in enumerate(self._journal.shards):
            shard.start(f"wal-{number}")
        self._segments.on_miss = ColdFetches(self._segments, loop).fetch
        lost = self._found_lost(replayed)
        self.restart(replayed)
        for commit in self._journal.barrier():
            await committed(commit)
        duration_ms = (self._clock.monotonic_ns() - began_ns) // 1_000_000
        topics, records = len(self._engine.topics), self._engine.state.records_live
        self.recovery = RecoveryReport(topics, records, len(lost), sum(lost), replayed.recovered.clean, duration_ms)
        _report_recovery(self.recovery, replayed.recovered)
        settling = loop.create_task(self._settle_in(checkpoints))
        if self.checkpointer.first_checkpoints == 1:
            # What was replayed is in the WAL still: the first checkpoint can be made while the server serves already.
            self._settling = settling
        elif not await settling:
            assert self.checkpointer.last_failure is not None
            raise self.checkpointer.last_failure

    async def _settle_in(self, checkpoints: Checkpoints) -> bool:
        """The first checkpoints of this process; after them, what an earlier one left behind can go."""
        loop = asyncio.get_running_loop()
        settled = True
        for _ in range(self.checkpointer.first_checkpoints):
            settled = settled and await self.checkpointer.checkpoint(clean=False)
        if settled:
            try:
                await loop.run_in_executor(None, checkpoints.remove_orphans)
            except StorageError as error:
                log.error("what an earlier start left behind stays until the next one: %s", error.message)
        # Not before: what it writes is in no snapshot yet.
        self._sealing = loop.create_task(self.sealer.run())
        return settled

    async def close(self) -> None:
        """Everything is durable when it returns, and another process may have the directory. But a full disk is not
        waited for longer than a moment: then `trouble` says what is lost."""
        loop = asyncio.get_running_loop()
        giving_up = loop.call_later(limits.ROOM_WAIT_AT_STOP_S, self._journal.stop_waiting_for_room)
        if self._settling is not None:
            await self._settling
        if self._sealing is not None:
            self.sealer.stop()
            await self._sealing
        if self._journal.shards:
            if self.recovery is not None:  # else it never got so far, and there is nothing new
                # Before the checkpoint: what it has to journal would be behind it.
                self._engine.forward_pending()
                if await self.checkpointer.checkpoint(clean=True) and self.checkpointer.has_listed:
                    # Whoever reads segments by themselves finds deleted what is deleted.
                    await self.checkpointer.checkpoint(clean=True)
            self.sealer.close()
            self.checkpointer.close()
            self._encoder.close()
            for shard in self._journal.shards:
                await loop.run_in_executor(None, shard.close)
        giving_up.cancel()
        self.release()

    # The steps of a recovery

    def load(self, images: list[TopicImage], tails: Tails) -> None:
        self._tails = tails
        load_images(self._engine.state, images, self._load_block)
        self._tails = {}

    def apply(self, operation: Operation) -> None:
        apply(self._engine.state, operation)

    def replay(self, progress: Callable[[float], None]) -> Replayed:
        """Reads snapshot, segments and WAL into the engine; may run on any one thread. Cuts torn tails off."""
        state = self._engine.state
        recovery = Recovery(self._disk, self._root, self._tiers, self, progress)
        recovered = recovery.run()
        self._tiers.cold.check_start(recovered.start)
        end_of_log(state)
        state.next_id = max(state.next_id, recovered.next_id)
        operations: list[Operation] = []
        if not recovered.clean:
            heads = self._heads.read()
            derive_copies(state, heads)
            operations = restarts(state, heads, self._clock.now_ms())
        state.lost_total.clear()  # what an earlier process has counted
        _report_damage(recovered)
        recovery.repair()
        return Replayed(recovered, operations)

    def open(self, replayed: Replayed) -> Checkpoints:
        """Opens the WAL for writing. `restart` has to follow before anything else."""
        recovered = replayed.recovered
        self.server_id = identity.read_id(self._disk, self._root) or self._make_id()
        seen = {topic.topic_id: topic.log.head_seq for topic in self._engine.topics}
        for each in replayed.restarts:
            if isinstance(each, Restarted):
                # Until that is durable, only this remembers what was lost.
                seen[each.topic_id] = max(seen[each.topic_id], each.head_seq)
        self._heads.create(seen)
        names = shard_names(self._settings.wal_shards)
        self._journal.open(
            [self._open_shard(number, name, recovered) for number, name in enumerate(names)],
            self._heads,
            [topic.topic_id for topic in self._engine.topics if topic.exchange],
        )
        self._positions.create(recovered.start + 1, [shard.writer.synced_lsn for shard in self._journal.shards])
        # Behind the log, which says by now that there was this start: the cold tier is never ahead of it.
        self._tiers.cold.claim(recovered.start + 1, self._new_id)
        checkpoints = Checkpoints(
            self._disk,
            self._root,
            self._tiers,
            recovered.snapshot_number,
            recovered.images,
            recovered.start + 1,
            self._encoder.encode,
        )
        stale_lsns = {name: shard.next_lsn for name, shard in recovered.shards.items() if name not in names}
        stale_shards = [name for name in stale_lsns if wal_files(self._disk, paths.shard_path(self._root, name))]
        new_shards = bool(recovered.absorbed) and not set(names) <= recovered.absorbed.keys()
        self.checkpointer.open(checkpoints, names, stale_shards, stale_lsns, new_shards=new_shards)
        return checkpoints

    def restart(self, replayed: Replayed) -> None:
        """Logs that there was a start, and what it found. That is durable before anybody is served."""
        self._engine.restart(replayed.restarts)

    def _found_lost(self, replayed: Replayed) -> list[int]:
        """How many seqs are in each range that the restart is about to tell as lost; there is at most one a topic."""
        sizes: list[int] = []
        for each in replayed.restarts:
            topic = self._engine.topics.by_id(each.topic_id)
            if isinstance(each, Restarted) and topic is not None:
                kept_seq = topic.log.head_seq
                if topic.log.resident_from is not None:
                    kept_seq = min(kept_seq, topic.log.resident_from - 1)
                sizes.append(max(each.head_seq, topic.log.head_seq) - kept_seq)
        return [size for size in sizes if size]

    def release(self) -> None:
        """Releases the directory for another process."""
        self._heads.close()
        self._positions.close()
        while self._locks:
            self._locks.pop().release()

    def note_cut(self) -> None:
        """For a backup: how far each shard of the log is at this instant."""
        self._positions.note_cut(
            [shard.submitted_lsn if shard.failure is None else TO_ITS_END for shard in self._journal.shards]
        )

    async def watch_room(self) -> None:
        """Refuses writes while the disk has too little room, until cancelled."""

        await self.room.run(self.looked_at_room)

    def looked_at_room(self) -> None:
        self._journal.full, self._journal.spare_bytes = self.room.full, self.room.spare_bytes

    def trouble(self) -> TopicsError | None:
        """What writes are refused with, if the disk takes none."""
        return self._journal.trouble()

    @property
    def owed_bytes(self) -> int:
        """What is taken and will still need room: in the log, in increments and in segments."""
        state = self._engine.state
        queued_bytes = sum(shard.queued_bytes for shard in self._journal.shards)
        unsealed_bytes = state.unsealed_bytes if self._journal.full is None else state.count_unsealed()
        return (
            limits.ROOM_PER_BYTE_TAKEN * queued_bytes
            + limits.ROOM_PER_BYTE_UNSEALED * unsealed_bytes
            + self.checkpointer.unabsorbed_bytes
        )

    @property
    def wal_backlog_share(self) -> float:
        """How full the fullest queue of the WAL is, 0 to 1."""
        return max((shard.backlog_share for shard in self._journal.shards), default=0.0)

    def widen_commits(self, window_ms: float) -> None:
        """Makes each group commit wait this long for more."""
        for shard in self._journal.shards:
            shard.commit_window_ns = int(window_ms * 1e6)

    @property
    def read_only_shards(self) -> list[tuple[str, DiskFailed]]:
        """The shards that a failed disk has stopped, and its error."""
        shards = zip(shard_names(self._settings.wal_shards), self._journal.shards, strict=False)
        return [(name, shard.failure) for name, shard in shards if shard.failure is not None]

    def wal_metrics(self) -> "WalMetrics":
        from topics.server.metrics import WalMetrics  # noqa: PLC0415 - there already: who asks has loaded it

        shards = self._journal.shards
        counters = [shard.writer.counters for shard in shards]
        return WalMetrics(
            frames_total=sum(each.frames for each in counters),
            batches_total=sum(each.batches for each in counters),
            fsyncs_total=sum(each.fsyncs for each in counters),
            bytes_written_total=sum(each.written_bytes for each in counters),
            rotations_total=sum(each.rotations for each in counters),
            queue_depth=sum(shard.queue_depth for shard in shards),
            queue_depth_peak=max((shard.queue_depth_peak for shard in shards), default=0),
            submit_full_total=self._journal.submit_full_total,
            read_only=int(any(shard.failure is not None for shard in shards)),
            unsealed_bytes=self._engine.state.unsealed_bytes,
            unsealed_bytes_max=self._settings.unsealed_bytes_max,
            fsync_latency_us_counts=tuple(
                map(sum, zip(*(shard.sync_histogram.counts for shard in shards), strict=True))
            ),
            fsync_latency_us_sum=sum(shard.sync_histogram.total_us for shard in shards),
        )

    def _make_id(self) -> str:
        server_id = self._new_id()
        identity.write_id(self._disk, self._root, server_id)
        return server_id

    def _open_shard(self, number: int, name: str, recovered: Recovered) -> CommitThread[Commit]:
        first_lsn = recovered.shards[name].next_lsn if name in recovered.shards else 0
        directory = paths.shard_path(self._root, name)
        writer = ShardWriter(self._disk, directory, number, self._wal_file_bytes, first_lsn, recovered.start + 1)
        return CommitThread(
            writer,
            self._clock,
            on_durable=self._journal.on_durable,
            on_failed=self._journal.on_failed,
            sync_interval_ms=limits.WAL_SYNC_INTERVAL_MS,
            write_gap_ms=limits.WAL_WRITE_GAP_MS,
            queue_writes_max=limits.WAL_QUEUE_WRITES_MAX,
            queue_bytes_max=limits.WAL_QUEUE_BYTES_MAX,
            note_synced=self._positions.noting_synced(number),
            on_trouble=_log_trouble,
            on_untrimmed=_log_untrimmed,
        )

    def _load_block(self, image: TopicImage, segment: SegmentImage) -> AnyBlock:
        if segment.sealed:
            return stored_block(self._segments, image, segment, cold=segment.cold)
        tail = find_tail(image, segment, self._tails.get((image.topic_id, segment.first_seq), []))
        return unread_tail(segment, partial(_read_block, tail))


def _read_block(found: StoredTail) -> Block:
    tail = found.read()
    return load_tail(found.earliest_seq, found.segment, tail.batch, tail.timestamps, tail.deleted)


def _log_trouble(trouble: DiskFailed | NoRoom) -> None:
    """Once for each shard."""
    if isinstance(trouble, NoRoom):
        log.error("%s. It is tried again until there is room; nothing is lost, and writes wait", trouble.message)
    else:
        log.critical(
            "%s. This part of the log takes nothing more: writes to its topics are refused, reads go on. "
            "Repair or replace the disk, then restart the server",
            trouble.message,
        )


def _log_untrimmed(failure: DiskFailed) -> None:
    """Once a checkpoint at most."""
    log.error("%s. The log keeps files that nobody needs; they are removed after a later checkpoint", failure.message)


@contextmanager
def _usable(variable: str, path: str) -> Iterator[None]:
    """Turns an `OSError` inside it into one that names the setting whose directory cannot be used."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{variable}={path} cannot be used: {error.strerror or error}. Name a directory this process may write to"
        ) from None


@contextmanager
def _startable(root: str) -> Iterator[None]:
    """Turns an `OSError` inside it into one that says why the server cannot start."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"the server cannot start: {error.filename or root}: {error.strerror or error}. "
            "Repair or replace the disk, then start it again: what is stored is as it was"
        ) from error


def _report_damage(recovered: Recovered) -> None:
    for error in recovered.damaged_snapshots:
        log.error("a damaged snapshot was passed over for an older one: %s", error.message)
    for name, shard in recovered.shards.items():
        if shard.torn is not None:
            log.warning(
                "the WAL %s ended in an unfinished write; cut at byte %d of %s (%s)",
                name or "shard",
                shard.torn.offset,
                shard.torn.path,
                shard.torn.reason,
            )


def _report_recovery(report: RecoveryReport, recovered: Recovered) -> None:
    if not (recovered.snapshot_number or recovered.frames):
        log.info("the data directory is new: nothing to recover")
        return
    if report.lost_ranges:
        lost = f"the crash took {report.lost} seqs in {report.lost_ranges} ranges, which readers see as tombstones"
    elif report.clean:
        lost = "the last stop was clean"
    else:
        lost = "the last stop was not clean, and nothing is lost"
    log.info(
        "recovered %d topics with %d records in %.2f s; %s (snapshot %d and %d WAL frames)",
        report.topics,
        report.records,
        report.duration_ms / 1000,
        lost,
        recovered.snapshot_number,
        recovered.frames,
    )
