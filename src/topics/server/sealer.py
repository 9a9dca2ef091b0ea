"""Seals blocks: one that takes no more records becomes a segment and leaves memory, as soon as a thread has written it.

Waits for no checkpoint and for no other topic. Until a snapshot points to the segment, its records are in the log or in
an earlier snapshot as well, so a crash at any point costs nothing but a file that the next start removes.

What is chosen, in this order:

    full blocks                                        at once
    the largest open blocks                            when what is unsealed has used up half of its budget
    blocks that have waited too long for more          a few at a time: each becomes three files
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from heapq import nlargest
from typing import NamedTuple

from topics import limits
from topics.clock import Clock
from topics.engine.block import AnyBlock, Block, Unread
from topics.engine.image import columns_from
from topics.engine.state import State, holds
from topics.engine.topic import Topic
from topics.model.record import Columns
from topics.server.allocator import give_back_memory
from topics.storage.errors import DiskFailed
from topics.storage.fs import Disk
from topics.storage.sealed_block import ClearedBlock, SealedBlock
from topics.storage.segment_writer import EncodeSegment, write_segment
from topics.storage.segments import Segments
from topics.storage.tiers import Tiers

log = logging.getLogger("topics.seal")


class Job(NamedTuple):
    """A block as it was when it was chosen. `columns` are copies, or what the thread has to read first: a start brings
    back blocks of 10 000 records unread, and the loop would stand still for 30 ms."""

    topic: Topic
    block: Block
    columns: Columns | Unread


class Written(NamedTuple):
    """The sizes of the first segments, and why the others were not written. `read`: what was unread, by the place of
    its job."""

    sizes: list[int]
    failure: DiskFailed | None
    read: dict[int, Block]


class Sealer:
    def __init__(
        self,
        state: State,
        clock: Clock,
        disk: Disk,
        tiers: Tiers,
        segments: Segments,
        encode: EncodeSegment,
        *,
        keep_text: Callable[[], bool],
        unsealed_bytes_max: int,
        block_age_ms_max: int,
    ) -> None:
        self._state = state
        self._clock = clock
        self._disk = disk
        self._tiers = tiers
        self._segments = segments
        self._encode = encode
        self._keep_text = keep_text
        self._unsealed_bytes_max = unsealed_bytes_max
        self._block_age_ms_max = block_age_ms_max
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="seal")
        self._wake = asyncio.Event()
        self._stopping = False
        self._failing = False
        self._sealed: list[tuple[int, int]] = []  # as (topic_id, first_seq), since the last checkpoint began
        self.sealed_bytes = 0  # of these
        self._freed_bytes = 0  # by what was sealed since memory was last given back
        self.failures_total = 0

    async def run(self) -> None:
        """Seals whatever is due, until `stop`; then what is full, as much of it as a stop can wait for: the next start
        maps a segment, and reads the rest record by record."""
        loop = asyncio.get_running_loop()
        self._state.on_full = self._wake.set
        while not self._stopping:
            jobs = self.begin()
            if not jobs:
                if self._freed_bytes >= limits.FREED_BEFORE_GIVEN_BACK_BYTES:
                    self._freed_bytes = 0
                    await loop.run_in_executor(self._worker, give_back_memory)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), limits.SEAL_POLL_S)
                self._wake.clear()
            elif not await self._seal(jobs):
                await asyncio.sleep(limits.SEAL_RETRY_S)
        left_bytes = limits.SEAL_AT_STOP_BYTES
        while left_bytes > 0 and (jobs := self._chosen(self._full())):
            left_bytes -= sum(job.block.written_bytes for job in jobs)
            if not await self._seal(jobs):
                break

    async def _seal(self, jobs: list[Job]) -> bool:
        """Whether the disk took them."""
        loop = asyncio.get_running_loop()
        written = await loop.run_in_executor(self._worker, self.write, jobs)
        left_over = self.settle(jobs, written)
        if left_over:
            await loop.run_in_executor(self._worker, self.remove, left_over)
        return written.failure is None

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def close(self) -> None:
        self._worker.shutdown()

    # The steps

    def begin(self) -> list[Job]:
        """Chooses what is due, as much as is worth a turn of the thread."""
        return self._chosen(self._due())

    @staticmethod
    def _chosen(due: Iterator[tuple[Topic, Block]]) -> list[Job]:
        jobs: list[Job] = []
        chosen_bytes = 0
        for topic, block in due:
            block.closed = block.sealing = True
            jobs.append(Job(topic, block, block.unread or columns_from(block, 0)))
            chosen_bytes += block.written_bytes
            if chosen_bytes >= limits.SEAL_BATCH_BYTES:
                break
        return jobs

    def write(self, jobs: list[Job]) -> Written:
        """Runs on the thread: the segments, durable when it returns, up to one the disk refuses. Nothing is left of
        that one: its block may be deleted before it is tried again, and nobody would remove the files."""
        sizes: list[int] = []
        read: dict[int, Block] = {}
        for number, (topic, block, source) in enumerate(jobs):
            if isinstance(source, Unread):
                read[number] = together = source.together()
                columns = columns_from(together, 0)
            else:
                columns = source
            directory = self._tiers.directory(topic.topic_id, cold=False)
            if columns.fragments.count(None) == len(columns.fragments):
                sizes.append(0)  # all of it was deleted: the place stays, and there is nothing to write
                continue
            files = self._encode(block.first_seq, columns, with_text=self._keep_text())
            try:
                write_segment(self._disk, directory, block.first_seq, files)
                sizes.append(len(files.data))
            except DiskFailed as failure:
                self.remove([(topic.topic_id, block.first_seq)])
                return Written(sizes, failure, read)
        return Written(sizes, None, read)

    def settle(self, jobs: list[Job], written: Written) -> list[tuple[int, int]]:
        """The segments take the place of their blocks; what was not written is still to be sealed. Returns those that
        nobody needs any more."""
        left_over: list[tuple[int, int]] = []
        sizes, failure, read = written
        if failure is not None:
            self._give_up(jobs[len(sizes) :])
        self._tell(failure)
        for number, ((topic, block, source), size) in enumerate(zip(jobs, sizes, strict=False)):
            columns = columns_from(read[number], 0) if isinstance(source, Unread) else source
            if block.unread is not None and block.live_count < len(block):
                block.take_columns(read[number])  # rather than reading it once more to see what is dead
            key = (topic.topic_id, block.first_seq)
            if not holds(topic, block):
                left_over.append(key)
                continue
            if size:
                self._sealed.append(key)
                self.sealed_bytes += size
            self._freed_bytes += block.memory_bytes
            topic.log.replace_block(self._sealed_block(topic, block, columns, size))
            self._state.changed[topic] = None
        self._state.count_unsealed()
        return left_over

    def _tell(self, failure: DiskFailed | None) -> None:
        """Once, and when it is over: it is tried every second."""
        if failure is not None and not self._failing:
            log.error("blocks could not be sealed and stay in memory, until the disk takes them: %s", failure.message)
        elif failure is None and self._failing:
            log.info("the disk takes segments again")
        self._failing = failure is not None

    def _give_up(self, jobs: list[Job]) -> None:
        self.failures_total += 1
        for topic, block, _ in jobs:
            block.sealing = False
            if not topic.deleted:
                self._state.full[topic] = None

    def remove(self, segments: list[tuple[int, int]]) -> None:
        """Runs on the thread: no snapshot has ever pointed to these."""
        for topic_id, first_seq in segments:
            try:
                self._tiers.remove_segment(topic_id, first_seq, cold=False)
            except DiskFailed as error:
                log.error("a segment nobody needs stays until the next start: %s", error.message)

    # For checkpoints

    def take_sealed(self) -> list[tuple[int, int]]:
        """What was sealed since this was last called: the next snapshot points to it, or nobody ever will."""
        sealed, self._sealed, self.sealed_bytes = self._sealed, [], 0
        return sealed

    def return_sealed(self, sealed: list[tuple[int, int]]) -> None:
        self._sealed = sealed + self._sealed

    # Choosing

    def _due(self) -> Iterator[tuple[Topic, Block]]:
        yield from self._full()
        if self._state.unsealed_bytes > self._unsealed_bytes_max // 2:
            yield from self._largest()
        yield from self._aged()

    def _full(self) -> Iterator[tuple[Topic, Block]]:
        state = self._state
        while state.full:
            topic = next(iter(state.full))
            log = topic.log
            for block in _unsealed(log.blocks):
                takes_more = block is log.blocks[-1] and not log.is_full(block)
                if not (takes_more or block.sealing or log.is_resident(block)):
                    yield topic, block
            del state.full[topic]

    def _largest(self) -> Iterator[tuple[Topic, Block]]:
        """The largest blocks that count for the budget. Sealing them lets waiting writers in again."""
        waiting = [(block, topic) for block, topic in self._state.large.items() if not block.sealing]
        for block, topic in nlargest(limits.SEAL_EARLY_MAX, waiting, key=lambda each: each[0].counted_bytes):
            if holds(topic, block) and not topic.log.is_resident(block):
                yield topic, block

    def _aged(self) -> Iterator[tuple[Topic, Block]]:
        begun, age_ms_max = self._state.begun, self._block_age_ms_max
        oldest_ms = self._clock.now_ms() - age_ms_max
        left = limits.SEAL_AGED_PER_POLL_MAX
        while begun and left and age_ms_max:
            topic = self._state.topics.by_id(begun[0])
            block = None if topic is None or not topic.log.blocks else topic.log.blocks[-1]
            if topic is not None and isinstance(block, Block) and not topic.log.is_resident(block):
                if block.first_ts > oldest_ms:
                    return
                if not block.sealing:
                    left -= 1
                    yield topic, block
            begun.popleft()

    def _sealed_block(self, topic: Topic, block: Block, columns: Columns, size: int) -> AnyBlock:
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
            size,
            live=None
            if block.live_count == len(block)
            else bytearray(fragment is not None for fragment in block.fragments),
        )
        if block.live_count < len(block):
            written, now = columns.fragments, block.fragments
            sealed.unflagged = [
                position for position in range(len(now)) if now[position] is None and written[position] is not None
            ]
        return sealed


def _unsealed(blocks: list[AnyBlock]) -> list[Block]:
    """The blocks at the end that are in memory, oldest first."""
    found: list[Block] = []
    for block in reversed(blocks):
        if not isinstance(block, Block):
            break
        found.append(block)
    return found[::-1]
