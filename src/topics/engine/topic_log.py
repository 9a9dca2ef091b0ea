"""The log of one topic: its blocks, its two floors, and what a reader sees.

Two floors, never mixed (evict_floor <= earliest_seq, always):

- `earliest_seq`: the first live record. Cap, TTL and deletes all advance it.
- `evict_floor`: advanced only by involuntary loss of live records, by cap or TTL. Reading below it
  is the one thing that makes a tombstone.

Time comes in as an argument; nothing here knows a clock, a name or a configuration.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from topics import limits
from topics.engine.block import AnyBlock, Batch, Block
from topics.engine.journal import Busy
from topics.model.gap import Gap, GapReason
from topics.model.read_options import ReadOptions
from topics.model.tag_match import TagMatch


class ReadBatch(NamedTuple):
    fragments: list[bytes]
    next_from_seq: int
    gap: Gap | None
    scanned: int
    cold_count: int = 0  # segments of the cold tier that were read


class TopicLog:
    __slots__ = (
        "_block_bytes_max",
        "_block_events_max",
        "_block_starts",
        "blocks",
        "bytes",
        "cap_lost_seq",
        "count",
        "crash_lost_seq",
        "earliest_seq",
        "head_seq",
        "last_ts",
        "lost_ranges",
        "resident_from",
        "ttl_lost_seq",
    )

    def __init__(
        self,
        block_events_max: int = limits.SEGMENT_EVENTS_MAX,
        block_bytes_max: int = limits.SEGMENT_BYTES_MAX,
    ) -> None:
        self._block_events_max = block_events_max
        self._block_bytes_max = block_bytes_max
        self.blocks: list[AnyBlock] = []
        self._block_starts: list[int] = []
        self.head_seq = 0
        self.earliest_seq = 1
        self.count = 0
        self.bytes = 0
        self.last_ts = 0
        self.cap_lost_seq = 0  # highest live seq evicted by a cap
        self.ttl_lost_seq = 0  # highest live seq expired by TTL
        self.crash_lost_seq = 0  # highest seq a crash took below earliest_seq
        # What a crash took above earliest_seq: (first, last), in order. No block spans one.
        self.lost_ranges: list[tuple[int, int]] = []
        # Records from here on are never written to disk; None when all are. No block spans it.
        self.resident_from: int | None = None

    @property
    def evict_floor(self) -> int:
        return max(self.cap_lost_seq, self.ttl_lost_seq, self.crash_lost_seq) + 1

    # Writing

    def next_ts(self, now_ms: int) -> int:
        """The commit time of the next write: never below an earlier one, whatever the clock does."""
        return now_ms if now_ms > self.last_ts else self.last_ts

    def append(self, batch: Batch, timestamps: "array[int]") -> None:
        """Publishes a batch whose fragments carry the seqs from head_seq + 1 on."""
        self.open_block().extend(batch, timestamps)
        count = len(batch.fragments)
        self.head_seq += count
        self.count += count
        self.bytes += batch.total_bytes
        self.last_ts = timestamps[-1]

    def open_block(self) -> Block:
        """The block the next record goes to: the last one, unless it is full, sealed, or before a lost range."""
        if self.blocks:
            block = self.blocks[-1]
            if isinstance(block, Block) and not self.is_full(block) and block.last_seq == self.head_seq:
                return block
        block = Block(self.head_seq + 1)
        self.add_block(block)
        return block

    def is_full(self, block: Block) -> bool:
        return block.closed or len(block) >= self._block_events_max or block.written_bytes >= self._block_bytes_max

    def block_at(self, first_seq: int) -> AnyBlock | None:
        index = bisect_left(self._block_starts, first_seq)
        if index == len(self.blocks) or self._block_starts[index] != first_seq:
            return None
        return self.blocks[index]

    def add_block(self, block: AnyBlock) -> None:
        self.blocks.append(block)
        self._block_starts.append(block.first_seq)

    def replace_block(self, block: AnyBlock) -> None:
        """Puts `block` in the place of the one with the same seqs."""
        self.blocks[bisect_left(self._block_starts, block.first_seq)] = block

    def keep_resident(self, resident_only: bool) -> None:
        """Says whether records from now on stay in memory. What was resident so far is written when it ends."""
        if resident_only == (self.resident_from is not None):
            return
        self.resident_from = self.head_seq + 1 if resident_only else None
        if self.blocks and isinstance(last := self.blocks[-1], Block):
            last.closed = True

    def is_resident(self, block: AnyBlock) -> bool:
        return self.resident_from is not None and block.first_seq >= self.resident_from

    # Losing and removing

    def lose(self, first_seq: int, last_seq: int) -> None:
        """A crash took these seqs, all above the head; they are never given out again."""
        if self.lost_ranges and self.lost_ranges[-1][1] == first_seq - 1:
            # One after the other is one range: a reader who was told of it goes on behind it.
            first_seq = self.lost_ranges.pop()[0]
        self.lost_ranges.append((first_seq, last_seq))
        self.head_seq = last_seq
        self._advance()

    def evict(self, records_max: int, bytes_max: int) -> None:
        """Evicts the oldest live records until both caps hold; 0 is no cap."""
        while self.count and ((records_max and self.count > records_max) or (bytes_max and self.bytes > bytes_max)):
            block = self.blocks[0]
            if not block.ready:
                # Writes never wait for the cold tier: over the cap until the block has been fetched.
                self._fetch(block)
                return
            # The last live record of this block would go too: then all of them, at once.
            if (records_max and self.count - block.live_count >= records_max) or (
                bytes_max and self.bytes - block.live_bytes >= bytes_max
            ):
                self.cap_lost_seq = block.first_seq + block.last_live()
                self._drop_first_block()
            else:
                self.cap_lost_seq = self.earliest_seq
                self._kill(block, self.earliest_seq - block.first_seq)
            self._advance()

    def expire(self, oldest_ts: int, *, wait: bool) -> None:
        """Expires every live record older than `oldest_ts`.

        `wait`: raises `Busy` rather than leave that undone for now in a block that has to be fetched first.
        """
        while self.count:
            block = self.blocks[0]
            if oldest_ts <= block.first_ts:
                return
            if oldest_ts <= block.last_ts and not block.ready:
                if wait:
                    block.prepare()
                self._fetch(block)
                return
            expired = len(block) if oldest_ts > block.last_ts else block.expired_before(oldest_ts)
            start = self.earliest_seq - block.first_seq
            if expired <= start:
                return
            if expired == len(block):
                self.ttl_lost_seq = block.first_seq + block.last_live()
                self._drop_first_block()
            else:
                for position in range(start, expired):
                    if block.is_live(position):
                        self._kill(block, position)
                        self.ttl_lost_seq = block.first_seq + position
            self._advance()

    def expire_through(self, last_seq: int) -> None:
        """Expires every live record up to `last_seq`, which is known to be gone."""
        self.ttl_lost_seq = max(self.ttl_lost_seq, min(last_seq, self.head_seq))
        self._remove_below(last_seq + 1, deleted=False)

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
                for position in range(self.earliest_seq - block.first_seq, before_seq - block.first_seq):
                    if block.is_live(position):
                        self._kill(block, position, deleted=deleted)
            self._advance()

    def delete_matching(self, match: TagMatch, before_seq: int) -> int:
        """Deletes the live records below `before_seq` whose tag matches; returns how many."""
        before = self.count
        for block in self.blocks:
            if block.first_seq >= before_seq:
                break
            end = before_seq - block.first_seq
            for position in block.matching(match):
                if position < end:
                    self._kill(block, position, deleted=True)
        self._advance()
        return before - self.count

    @staticmethod
    def _fetch(block: AnyBlock) -> None:
        with suppress(Busy):
            block.prepare()

    def prepare_delete(self, before_seq: int) -> None:
        """Raises `Busy` while a delete below `before_seq` would have to wait for slow storage."""
        for block in self.blocks:
            if block.first_seq < before_seq:
                block.prepare()

    def _kill(self, block: AnyBlock, position: int, *, deleted: bool = False) -> None:
        self.bytes -= block.kill(position, deleted=deleted)
        self.count -= 1

    def _drop_first_block(self) -> None:
        block = self.blocks[0]
        self.count -= block.live_count
        self.bytes -= block.live_bytes
        del self.blocks[0], self._block_starts[0]

    def _advance(self) -> None:
        """Moves earliest_seq to the first live record and lets go of blocks that hold none."""
        if self.count == 0:
            self.blocks.clear()
            self._block_starts.clear()
            self.earliest_seq = self.head_seq + 1
        else:
            while self.blocks[0].live_count == 0:
                self._drop_first_block()
            block = self.blocks[0]
            start = max(self.earliest_seq - block.first_seq, 0)
            self.earliest_seq = block.first_seq + block.first_live(start)
        while self.lost_ranges and self.lost_ranges[0][1] < self.earliest_seq:
            self.crash_lost_seq = self.lost_ranges.pop(0)[1]

    def recount(self, count: Callable[[AnyBlock, int], None]) -> None:
        """Has every block counted anew, without its positions before earliest_seq, and takes over what comes of it."""
        for block in self.blocks:
            count(block, min(max(self.earliest_seq - block.first_seq, 0), len(block)))
        self.count = sum(block.live_count for block in self.blocks)
        self.bytes = sum(block.live_bytes for block in self.blocks)
        self._advance()

    # Reading

    def gap_at(self, from_seq: int) -> Gap | None:
        """The tombstone a reader at `from_seq` must be shown, if any."""
        if from_seq > self.head_seq:
            return Gap(1, self.head_seq, GapReason.RECREATED)
        if from_seq + 1 < self.evict_floor:
            causes = [
                reason
                for lost_seq, reason in (
                    (self.cap_lost_seq, GapReason.CAP),
                    (self.ttl_lost_seq, GapReason.TTL),
                    (self.crash_lost_seq, GapReason.CRASH),
                )
                if lost_seq > from_seq
            ]
            return Gap(from_seq + 1, self.earliest_seq - 1, causes[0] if len(causes) == 1 else GapReason.MIXED)
        for first, last in self.lost_ranges:
            if first <= from_seq + 1 <= last:
                return Gap(from_seq + 1, last, GapReason.CRASH)
        return None

    def cursor_at(self, ts: int) -> int:
        """The cursor before the first live record of `ts` or later; 0 when all that is left is that late."""
        if self.count == 0 or ts <= self.blocks[0].first_ts:
            return 0
        for block in self.blocks:
            if ts <= block.last_ts:
                block.prepare()
                return block.first_seq + block.expired_before(ts) - 1
        return self.head_seq

    def read(self, from_seq: int, options: ReadOptions) -> ReadBatch:
        """The records after `from_seq`, within the limits. Hot: a slice of fragments where possible.

        The window is the next `limit` live records; a reader's own are dropped from it afterwards, so
        a batch may be short, or empty, while the cursor moves on.
        """
        gap = self.gap_at(from_seq)
        next_seq = max(from_seq + 1, self.earliest_seq)
        if gap is not None:
            next_seq = self.earliest_seq if gap.reason is GapReason.RECREATED else gap.gap_to + 1
        # A batch ends before the next lost range: that one is for the next read to tell.
        end_seq = next((first - 1 for first, _ in self.lost_ranges if first > next_seq), self.head_seq)
        end_seq = min(end_seq, options.to_seq)
        found: list[bytes] = []
        window = options.limit
        budget = options.bytes_max
        scanned = cold_count = 0
        index = bisect_right(self._block_starts, next_seq) - 1
        while 0 <= index < len(self.blocks) and next_seq <= end_seq and window and budget > 0:
            block = self.blocks[index]
            block.prepare()
            cold_count += block.cold
            start = max(next_seq - block.first_seq, 0)
            chosen, stop = block.window(start, window)
            if block.first_seq + stop > end_seq + 1:
                stop = end_seq + 1 - block.first_seq
                chosen = [position for position in chosen if position < stop]
            scanned += stop - start
            window -= len(chosen)
            rendered = block.render(chosen, options)
            cut = _within(rendered, budget, at_least_one=not found)
            if cut < len(rendered):
                # The byte budget ends the batch before the position that did not fit.
                stop = chosen[cut]
                budget = 0
            else:
                budget -= sum(map(len, rendered))
            found += [fragment for fragment in rendered[:cut] if fragment]
            next_seq = block.first_seq + stop
            index += stop == len(block)
        next_from_seq = next_seq - 1
        if next_seq > end_seq or not 0 <= index < len(self.blocks):
            next_from_seq = end_seq
        if gap is None:
            next_from_seq = max(next_from_seq, from_seq)
        return ReadBatch(found, next_from_seq, gap, scanned, cold_count)


def _within(fragments: list[bytes], budget: int, *, at_least_one: bool) -> int:
    """How many of the fragments fit into the budget."""
    if sum(map(len, fragments)) <= budget:
        return len(fragments)
    used = 0
    for index, fragment in enumerate(fragments):
        used += len(fragment)
        if used > budget and not (at_least_one and index == 0):
            return index
    return len(fragments)
