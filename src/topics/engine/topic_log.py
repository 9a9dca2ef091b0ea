"""The log of one topic: its blocks, its two floors, and what a reader sees.

Two floors, never mixed (evict_floor <= earliest_seq, always):

- `earliest_seq`: the first live record. Cap, TTL and deletes all advance it.
- `evict_floor`: advanced only by involuntary loss of live records, by cap or TTL. Reading below it,
  or into a lost range, is what makes a tombstone.

Time comes in as an argument; nothing here knows a clock, a name or a configuration.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from topics import limits
from topics.engine.block import AnyBlock, Block
from topics.engine.journal import Busy
from topics.model.gap import Gap, GapReason, LostRange
from topics.model.read_options import ReadOptions
from topics.model.record import Batch, Columns
from topics.model.tag_match import TagMatch

_WHOLE = ReadOptions(limit=1, bytes_max=1, include_tags=True)


class ReadBatch(NamedTuple):
    fragments: list[bytes]
    next_from_seq: int
    gap: Gap | None
    scanned: int
    cold_count: int = 0  # segments of the cold tier that were read


class Run(NamedTuple):
    """The live records of a run of seqs that ends with `through_seq`."""

    through_seq: int
    seqs: Sequence[int]
    columns: Columns


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
        self.source_trim_lost_seq = 0  # highest seq below earliest_seq that a router could not fill
        # What a crash took, or a router could not fill, above earliest_seq; in order. No block spans one.
        self.lost_ranges: list[LostRange] = []
        # Records from here on are never written to disk; None when all are. No block spans it.
        self.resident_from: int | None = None

    @property
    def evict_floor(self) -> int:
        return max(self.cap_lost_seq, self.ttl_lost_seq, self.crash_lost_seq, self.source_trim_lost_seq) + 1

    @property
    def oldest_ts(self) -> int:
        """A time that no live record is older than. There has to be one."""
        block = self.blocks[0]
        return block.ts(max(self.earliest_seq - block.first_seq, 0)) if block.ready else block.first_ts

    # Writing

    def append(self, batch: Batch, timestamps: Sequence[int]) -> bool:
        """Publishes a batch whose fragments carry the seqs from head_seq + 1 on. True when that filled a block, so
        that another one was begun. Hot."""
        blocks_before = len(self.blocks)
        self._block_for_next().extend(batch, timestamps)
        count = len(batch.fragments)
        self.head_seq += count
        self.count += count
        self.bytes += batch.total_bytes
        self.last_ts = timestamps[-1]
        return 0 < blocks_before < len(self.blocks)

    def append_single(self, fragment: bytes, size: int, node: str | None, tag: str | None, timestamp: int) -> bool:
        """`append` for one record without meta. Hot."""
        blocks_before = len(self.blocks)
        self._block_for_next().add(fragment, size, node, tag, timestamp)
        self.head_seq += 1
        self.count += 1
        self.bytes += size
        self.last_ts = timestamp
        return 0 < blocks_before < len(self.blocks)

    def _block_for_next(self) -> Block:
        """The block that takes the record after the head. Hot: asks what `is_full` asks without calling it."""
        blocks = self.blocks
        block = blocks[-1] if blocks else None
        if isinstance(block, Block) and not block.closed and block.written_bytes < self._block_bytes_max:
            count = len(block.fragments)
            if count < self._block_events_max and block.first_seq + count > self.head_seq:
                return block
        # Sealed, full, or before a lost range.
        block = Block(self.head_seq + 1)
        self.add_block(block)
        return block

    def is_full(self, block: Block) -> bool:
        return (
            block.closed
            or len(block.fragments) >= self._block_events_max
            or block.written_bytes >= self._block_bytes_max
        )

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
                self._block_starts.pop()
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

    def beyond_cap(self, records_max: int, bytes_max: int, *, cold: bool) -> int:
        """The last record that has to go so that both caps hold; 0 when they do. A cap of 0 is none. Without `cold` it
        stops before the cold tier, at hand or not: what is taken there is an operation of its own. With it, it may
        raise `Busy`."""
        count, size, through_seq = self.count, self.bytes, 0
        for block in self.blocks:
            if not ((records_max and count > records_max) or (bytes_max and size > bytes_max)):
                break
            if block.cold:
                if not cold:
                    break
                block.prepare()
            if not block.live_count:
                continue
            # The last live record of this block would go too: then all of them, at once.
            if (records_max and count - block.live_count >= records_max) or (
                bytes_max and size - block.live_bytes >= bytes_max
            ):
                through_seq = block.first_seq + block.last_live()
                count -= block.live_count
                size -= block.live_bytes
                continue
            position = max(self.earliest_seq - block.first_seq, 0)
            while (records_max and count > records_max) or (bytes_max and size > bytes_max):
                position = block.first_live(position)
                through_seq = block.first_seq + position
                count -= 1
                size -= block.size(position)
                position += 1
            break
        return through_seq

    def evict_through(self, last_seq: int) -> None:
        """A cap takes every live record up to `last_seq`."""
        if last_seq >= self.earliest_seq:
            self.cap_lost_seq = last_seq
            self._remove_below(last_seq + 1, deleted=False)

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
                _fetch(block)
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

    def delete_seqs(self, seqs: Iterable[int]) -> int:
        """Deletes those of these records that are live; returns how many."""
        before = self.count
        for block, found in self._by_block(seqs):
            first_seq = block.first_seq
            for seq in found:
                if block.is_live(seq - first_seq):
                    self._kill(block, seq - first_seq, deleted=True)
        self._advance()
        return before - self.count

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
        while self.lost_ranges and self.lost_ranges[0].last < self.earliest_seq:
            passed = self.lost_ranges.pop(0)
            if passed.reason is GapReason.CRASH:
                self.crash_lost_seq = passed.last
            else:
                self.source_trim_lost_seq = passed.last

    # Looking up single records

    def _block_of(self, seq: int) -> AnyBlock | None:
        index = bisect_right(self._block_starts, seq) - 1
        if index < 0 or seq < self.earliest_seq or seq > self.blocks[index].last_seq:
            return None
        return self.blocks[index]

    def _by_block(self, seqs: Iterable[int]) -> list[tuple[AnyBlock, list[int]]]:
        """The seqs with the blocks that hold them, those nobody holds left out. Hot: neighbours are looked up once."""
        found: list[tuple[AnyBlock, list[int]]] = []
        first, last = 1, 0
        for seq in seqs:
            if first <= seq <= last:
                found[-1][1].append(seq)
            elif (block := self._block_of(seq)) is not None:
                first, last = max(block.first_seq, self.earliest_seq), block.last_seq
                found.append((block, [seq]))
        return found

    def is_live(self, seq: int) -> bool:
        block = self._block_of(seq)
        return block is not None and block.is_live(seq - block.first_seq)

    def prepare(self, seqs: Iterable[int]) -> None:
        """Raises `Busy` while looking at these records would have to wait for slow storage."""
        for block, _ in self._by_block(seqs):
            block.prepare()

    def live_from(self, seq: int, count: int) -> list[int]:
        """The first `count` live records from `seq` on, fewer where there are no more."""
        seq = max(seq, self.earliest_seq)
        found: list[int] = []
        for index in range(max(bisect_right(self._block_starts, seq) - 1, 0), len(self.blocks)):
            block = self.blocks[index]
            start = max(seq - block.first_seq, 0)
            if block.live_count and start < len(block):
                block.prepare()
                positions, _ = block.window(start, count - len(found))
                found += [block.first_seq + position for position in positions]
                if len(found) == count:
                    break
        return found

    def live_below(self, seq: int) -> Iterator[int]:
        """The live records below `seq`."""
        for block in self.blocks:
            if block.first_seq < seq:
                start = max(self.earliest_seq - block.first_seq, 0)
                positions, _ = block.window(start, min(len(block), seq - block.first_seq))
                yield from (block.first_seq + position for position in positions if block.first_seq + position < seq)

    def texts_of(self, seqs: Sequence[int]) -> list[bytes]:
        """The texts, with their tags, of these live records. Hot: neighbours are rendered together."""
        texts: list[bytes] = []
        index = 0
        while index < len(seqs):
            first_seq = seqs[index]
            block = self._block_of(first_seq)
            assert block is not None, first_seq
            block.prepare()
            end = index + 1
            while end < len(seqs) and seqs[end] == first_seq + end - index and seqs[end] <= block.last_seq:
                end += 1
            position = first_seq - block.first_seq
            texts += block.render(range(position, position + end - index), _WHOLE)
            index = end
        return texts

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
                    (self.source_trim_lost_seq, GapReason.SOURCE_TRIM),
                )
                if lost_seq > from_seq
            ]
            return Gap(from_seq + 1, self.earliest_seq - 1, causes[0] if len(causes) == 1 else GapReason.MIXED)
        for first, last, reason in self.lost_ranges:
            if first <= from_seq + 1 <= last:
                return Gap(from_seq + 1, last, reason)
        return None

    def cursor_at(self, ts: int) -> int:
        """The cursor behind the last record that is older than `ts`; 0 when all that is left is that late.

        Lost seqs whose time nobody knows any more count as not older: who reads from there is told of them.
        """
        if self.count == 0:
            return 0 if ts <= self.last_ts else self.head_seq
        older_to = 0
        for block in self.blocks:
            if ts <= block.last_ts:
                if ts <= block.first_ts:
                    return older_to
                block.prepare()
                return block.first_seq + block.expired_before(ts) - 1
            older_to = block.last_seq
        return older_to

    def run_after(self, from_seq: int, records_max: int, bytes_max: int) -> Run:
        """Records after `from_seq`, all from one block. There must be none lost right behind `from_seq`."""
        next_seq = max(from_seq + 1, self.earliest_seq)
        end_seq = next((lost.first - 1 for lost in self.lost_ranges if lost.first >= next_seq), self.head_seq)
        index = bisect_right(self._block_starts, next_seq) - 1
        if not 0 <= index < len(self.blocks) or next_seq > end_seq:
            return Run(end_seq, (), Columns((), (), (), (), ()))
        block = self.blocks[index]
        block.prepare()
        if block.live_count:
            records_max = min(records_max, max(bytes_max * block.live_count // max(block.live_bytes, 1), 1))
        chosen, stop = block.window(next_seq - block.first_seq, records_max)
        seqs = [block.first_seq + position for position in chosen]
        return Run(block.first_seq + stop - 1, seqs, block.columns(chosen))

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
        end_seq = next((lost.first - 1 for lost in self.lost_ranges if lost.first >= next_seq), self.head_seq)
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


def _fetch(block: AnyBlock) -> None:
    with suppress(Busy):
        block.prepare()


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
