"""The log of one topic: its blocks, its two floors, and everything that changes them.

Reading is in `log_reading`: it only looks at what this class keeps.

Two floors, never mixed (evict_floor <= earliest_seq, always):

- `earliest_seq`: the first live record. Cap, TTL and deletes all advance it.
- `evict_floor`: advanced only by involuntary loss of live records, by cap or TTL. Reading below it,
  or into a lost range, is what makes a tombstone.

Time comes in as an argument; nothing here knows a clock, a name or a configuration.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress

from topics import limits
from topics.engine.block import AnyBlock, Block
from topics.engine.delete_plan import DeletePlan, doomed_in
from topics.engine.journal import Busy
from topics.errors import TopicsError
from topics.model.gap import GapReason, LostRange
from topics.model.record import Batch
from topics.model.tag_match import TagMatch

UNREADABLE = (TopicsError, OSError)
"""What a block raises whose records are on a disk that does not give them back as they were."""

_TOLD_BYTES = limits.SMALL_TAIL_BYTES // 64
"""A single record of this size is always told; of smaller ones, 64 are as much as a block that does not count."""


class TopicLog:
    __slots__ = (
        "_block_bytes_max",
        "_block_events_max",
        "block_starts",
        "blocks",
        "bytes",
        "cap_lost_seq",
        "count",
        "crash_lost_seq",
        "earliest_seq",
        "head_seq",
        "last_ts",
        "lost_ranges",
        "plans",
        "resident_from",
        "source_trim_lost_seq",
        "ttl_lost_seq",
    )

    def __init__(
        self,
        block_events_max: int = limits.SEGMENT_EVENTS_MAX,
        block_bytes_max: int = limits.SEGMENT_BYTES_MAX,
    ) -> None:
        self._block_events_max = block_events_max
        self._block_bytes_max = block_bytes_max
        self.plans: dict[TagMatch, DeletePlan] = {}  # deletes by tag that are being looked for
        self.blocks: list[AnyBlock] = []
        self.block_starts: list[int] = []
        self.head_seq = 0
        self.earliest_seq = 1
        self.count = 0
        self.bytes = 0
        self.last_ts = 0
        self.cap_lost_seq = 0  # highest live seq evicted by a cap
        self.ttl_lost_seq = 0  # highest live seq expired by TTL
        self.crash_lost_seq = 0  # highest seq a crash took below earliest_seq
        self.source_trim_lost_seq = 0  # highest seq below earliest_seq that a router could not fill
        # What a crash took, or a router could not fill, above earliest_seq; in order. No block spans one.
        self.lost_ranges: list[LostRange] = []
        # Records from here on are never written to disk; None when all are. No block spans it.
        self.resident_from: int | None = None

    @property
    def evict_floor(self) -> int:
        return max(self.cap_lost_seq, self.ttl_lost_seq, self.crash_lost_seq, self.source_trim_lost_seq) + 1

    # Writing

    def append(self, batch: Batch, timestamps: Sequence[int]) -> bool:
        """Publishes a batch whose fragments carry the seqs from head_seq + 1 on. True when the block it went into is
        new, large or full: whoever seals blocks wants to know. Once per write."""
        block = self._block_for_next()
        block.extend(batch, timestamps)
        count = len(batch.fragments)
        self.head_seq += count
        self.count += count
        self.bytes += batch.total_bytes
        self.last_ts = timestamps[-1]
        held = self.head_seq - block.first_seq + 1
        return held == count or held >= self._block_events_max or block.written_bytes >= limits.SMALL_TAIL_BYTES

    def append_single(self, fragment: bytes, size: int, node: str | None, tag: str | None, timestamp: int) -> bool:
        """`append` for one record without meta. Hot: of small records in a large block only every 64th is told."""
        block = self._block_for_next()
        held = block.add(fragment, size, node, tag, timestamp)
        self.head_seq += 1
        self.count += 1
        self.bytes += size
        self.last_ts = timestamp
        return (
            held == 1
            or held >= self._block_events_max
            or ((not held & 63 or size >= _TOLD_BYTES) and block.written_bytes >= limits.SMALL_TAIL_BYTES)
        )

    def _block_for_next(self) -> Block:
        """The block that takes the record after the head. Hot: asks what `is_full` asks without calling it."""
        blocks = self.blocks
        block = blocks[-1] if blocks else None
        if isinstance(block, Block) and not block.closed and block.written_bytes < self._block_bytes_max:
            count = len(block) if block.unread else len(block.fragments)
            if count < self._block_events_max and block.first_seq + count > self.head_seq:
                return block
        # Sealed, full, or before a lost range.
        block = Block(self.head_seq + 1)
        self.add_block(block)
        return block

    def is_full(self, block: Block) -> bool:
        return block.closed or len(block) >= self._block_events_max or block.written_bytes >= self._block_bytes_max

    def block_at(self, first_seq: int) -> AnyBlock | None:
        index = bisect_left(self.block_starts, first_seq)
        if index == len(self.blocks) or self.block_starts[index] != first_seq:
            return None
        return self.blocks[index]

    def add_block(self, block: AnyBlock) -> None:
        self.blocks.append(block)
        self.block_starts.append(block.first_seq)

    def replace_block(self, block: AnyBlock) -> None:
        """Replaces the block that has the same seqs."""
        self.blocks[bisect_left(self.block_starts, block.first_seq)] = block

    def keep_resident(self, resident_only: bool) -> None:
        """Sets whether records stay in memory from now on. When that ends, what was resident is written."""
        if resident_only == (self.resident_from is not None):
            return
        self.resident_from = self.head_seq + 1 if resident_only else None
        if self.blocks and isinstance(last := self.blocks[-1], Block):
            last.closed = True

    @property
    def outlives_process(self) -> bool:
        """Whether any record it holds, or takes next, is written to disk."""
        return self.resident_from is None or self.earliest_seq < self.resident_from

    def is_resident(self, block: AnyBlock) -> bool:
        return self.resident_from is not None and block.first_seq >= self.resident_from

    def drop_resident(self) -> None:
        """Records that were never written are lost with their process."""
        if self.resident_from is not None and self.head_seq >= self.resident_from:
            head_seq = self.head_seq
            while self.blocks and self.blocks[-1].first_seq >= self.resident_from:
                block = self.blocks.pop()
                self.block_starts.pop()
                self.count -= block.live_count
                self.bytes -= block.live_bytes
            self.head_seq = self.resident_from - 1
            self.lost_ranges = [lost for lost in self.lost_ranges if lost.last <= self.head_seq]
            self.lose(self.resident_from, head_seq)

    # Losing and removing

    def lose(self, first_seq: int, last_seq: int, reason: GapReason = GapReason.CRASH) -> None:
        """These seqs, all above the head, are lost; they are never given out again."""
        if self.lost_ranges and self.lost_ranges[-1][1:] == (first_seq - 1, reason):
            # One after the other is one range: a reader who was told of it goes on behind it.
            first_seq = self.lost_ranges.pop().first
        self.lost_ranges.append(LostRange(first_seq, last_seq, reason))
        self.head_seq = last_seq
        self._advance()

    def evict_through(self, last_seq: int) -> None:
        """A cap takes every live record up to `last_seq`."""
        block = self.block_of(last_seq)
        if block is not None and last_seq < block.last_seq:
            try:
                block.is_live(last_seq - block.first_seq)
            except UNREADABLE:
                last_seq = block.first_seq - 1  # it goes as a whole, later
        if last_seq >= self.earliest_seq:
            self.cap_lost_seq = last_seq
            self._remove_below(last_seq + 1, deleted=False)

    def expire(self, oldest_ts: int, *, wait: bool) -> None:
        """Expires every live record older than `oldest_ts`. If a block has to be fetched for that, raises `Busy` with
        `wait`, and otherwise leaves it for later.
        A block that cannot be read goes as a whole, once the last of it is too old: whoever reads it is told what is
        wrong, and nobody else.
        """
        while self.count:
            block = self.blocks[0]
            if oldest_ts <= block.first_ts:
                return
            if oldest_ts <= block.last_ts and not block.ready:
                if wait:
                    block.prepare()
                _fetch(block)
                return
            start = self.earliest_seq - block.first_seq
            if oldest_ts > block.last_ts:
                try:
                    last_live = block.last_live()
                except UNREADABLE:
                    last_live = len(block) - 1
                self.ttl_lost_seq = block.first_seq + last_live
                self._drop_first_block()
            else:
                try:
                    expired = block.expired_before(oldest_ts)
                    doomed = [position for position in range(start, expired) if block.is_live(position)]
                except UNREADABLE:
                    return
                if expired <= start:
                    return
                if doomed:
                    self._kill(block, doomed, deleted=False)
                    self.ttl_lost_seq = block.first_seq + doomed[-1]
            self._advance()

    def delete_before(self, before_seq: int) -> int:
        """Deletes every live record below `before_seq`; returns how many there were."""
        before = self.count
        self._remove_below(before_seq, deleted=True)
        return before - self.count

    def _remove_below(self, before_seq: int, *, deleted: bool) -> None:
        while self.count and self.earliest_seq < before_seq:
            block = self.blocks[0]
            if block.last_seq < before_seq:
                self._drop_first_block()
            else:
                start = max(self.earliest_seq - block.first_seq, 0)
                self._kill(block, range(start, before_seq - block.first_seq), deleted=deleted)
            self._advance()

    def delete_matching(self, match: TagMatch, before_seq: int) -> int:
        """Deletes the live records below `before_seq` whose tag matches; returns how many."""
        before = self.count
        plan = self.plans.get(match)
        for block in self.blocks:
            if block.first_seq >= before_seq:
                break
            doomed = plan.take(block) if plan is not None and block.last_seq < before_seq else None
            if doomed is None:
                doomed = doomed_in(block, match, before_seq - block.first_seq)
            if doomed.positions:
                self._kill(block, *doomed)
        self._advance()
        return before - self.count

    def delete_seqs(self, seqs: Iterable[int]) -> int:
        """Deletes those of these records that are live; returns how many."""
        before = self.count
        for block, found in self.by_block(seqs):
            self._kill(block, _positions(block.first_seq, found))
        self._advance()
        return before - self.count

    def _kill(
        self, block: AnyBlock, positions: Sequence[int], size: int | None = None, *, deleted: bool = True
    ) -> None:
        count, size = block.kill_all(positions, size, deleted=deleted)
        self.count -= count
        self.bytes -= size

    def _drop_first_block(self) -> None:
        block = self.blocks[0]
        self.count -= block.live_count
        self.bytes -= block.live_bytes
        del self.blocks[0], self.block_starts[0]

    def _advance(self) -> None:
        """Moves earliest_seq to the first live record and lets go of blocks that hold none."""
        if self.count == 0:
            self.blocks.clear()
            self.block_starts.clear()
            self.earliest_seq = self.head_seq + 1
        else:
            while self.blocks[0].live_count == 0:
                self._drop_first_block()
            block = self.blocks[0]
            start = max(self.earliest_seq - block.first_seq, 0)
            with suppress(*UNREADABLE):  # whoever reads it is told
                start = block.first_live(start)
            self.earliest_seq = block.first_seq + start
        while self.lost_ranges and self.lost_ranges[0].last < self.earliest_seq:
            passed = self.lost_ranges.pop(0)
            if passed.reason is GapReason.CRASH:
                self.crash_lost_seq = passed.last
            else:
                self.source_trim_lost_seq = passed.last

    # Looking up single records

    def block_of(self, seq: int) -> AnyBlock | None:
        index = bisect_right(self.block_starts, seq) - 1
        if index < 0 or seq < self.earliest_seq or seq > self.blocks[index].last_seq:
            return None
        return self.blocks[index]

    def by_block(self, seqs: Iterable[int]) -> list[tuple[AnyBlock, list[int]]]:
        """The seqs with the blocks that hold them, those nobody holds left out. Hot: neighbours are looked up once."""
        found: list[tuple[AnyBlock, list[int]]] = []
        first, last = 1, 0
        for seq in seqs:
            if first <= seq <= last:
                found[-1][1].append(seq)
            elif (block := self.block_of(seq)) is not None:
                first, last = max(block.first_seq, self.earliest_seq), block.last_seq
                found.append((block, [seq]))
        return found


def _positions(first_seq: int, seqs: list[int]) -> Sequence[int]:
    """Where these seqs are in the block that begins with `first_seq`, ascending, each once. Once per ack: most often
    they are neighbours."""
    first, last = seqs[0], seqs[-1]
    if last - first == len(seqs) - 1 and seqs == [*range(first, last + 1)]:
        return range(first - first_seq, last - first_seq + 1)
    return [seq - first_seq for seq in sorted(set(seqs))]


def _fetch(block: AnyBlock) -> None:
    with suppress(Busy, TopicsError):  # those who read it are told that it cannot be read
        block.prepare()
