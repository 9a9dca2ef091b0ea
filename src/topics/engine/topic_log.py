"""The log of one topic: its blocks, its two floors, and what a reader sees.

Two floors, never mixed (evict_floor <= earliest_seq, always):

- `earliest_seq`: the first live record. Cap, TTL and deletes all advance it.
- `evict_floor`: advanced only by involuntary loss of live records, by cap or TTL. Reading below it
  is the one thing that makes a tombstone.

Time comes in as an argument; nothing here knows a clock, a name or a configuration.
"""

from bisect import bisect_right
from typing import NamedTuple

from topics import limits
from topics.engine.block import Batch, Block
from topics.model.gap import Gap, GapReason
from topics.model.record import with_tag, without_meta
from topics.model.tag_match import TagMatch


class ReadOptions(NamedTuple):
    limit: int
    bytes_max: int
    include_tags: bool = False
    include_meta: bool = True
    own_nodes: frozenset[str] = frozenset()


class ReadBatch(NamedTuple):
    fragments: list[bytes]
    next_from_seq: int
    gap: Gap | None
    scanned: int


class TopicLog:
    __slots__ = (
        "_block_starts",
        "_blocks",
        "bytes",
        "cap_lost_seq",
        "count",
        "earliest_seq",
        "head_seq",
        "last_ts",
        "ttl_lost_seq",
    )

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._block_starts: list[int] = []
        self.head_seq = 0
        self.earliest_seq = 1
        self.count = 0
        self.bytes = 0
        self.last_ts = 0
        self.cap_lost_seq = 0  # highest live seq evicted by a cap
        self.ttl_lost_seq = 0  # highest live seq expired by TTL

    @property
    def evict_floor(self) -> int:
        return max(self.cap_lost_seq, self.ttl_lost_seq) + 1

    # Writing

    def next_ts(self, now_ms: int) -> int:
        """The commit time of the next write: never below an earlier one, whatever the clock does."""
        return now_ms if now_ms > self.last_ts else self.last_ts

    def append(self, batch: Batch, ts: int) -> None:
        """Publishes a batch whose fragments carry the seqs from head_seq + 1 on."""
        blocks = self._blocks
        if (
            not blocks
            or len(blocks[-1]) >= limits.SEGMENT_EVENTS_MAX
            or blocks[-1].live_bytes >= limits.SEGMENT_BYTES_MAX
        ):
            blocks.append(Block(self.head_seq + 1))
            self._block_starts.append(self.head_seq + 1)
        blocks[-1].extend(batch, ts)
        count = len(batch.fragments)
        self.head_seq += count
        self.count += count
        self.bytes += batch.total_bytes
        self.last_ts = ts

    # Losing and removing

    def evict(self, records_max: int, bytes_max: int) -> None:
        """Evicts the oldest live records until both caps hold; 0 is no cap."""
        while self.count and ((records_max and self.count > records_max) or (bytes_max and self.bytes > bytes_max)):
            block = self._blocks[0]
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

    def expire(self, oldest_ts: int) -> None:
        """Expires every live record older than `oldest_ts`."""
        while self.count:
            block = self._blocks[0]
            expired = block.expired_before(oldest_ts)
            start = self.earliest_seq - block.first_seq
            if expired <= start:
                return
            if expired == len(block):
                self.ttl_lost_seq = block.first_seq + block.last_live()
                self._drop_first_block()
            else:
                for position in range(start, expired):
                    if block.fragments[position] is not None:
                        self._kill(block, position)
                        self.ttl_lost_seq = block.first_seq + position
            self._advance()

    def delete_before(self, before_seq: int) -> int:
        """Deletes every live record below `before_seq`; returns how many there were."""
        before = self.count
        while self.count and self.earliest_seq < before_seq:
            block = self._blocks[0]
            if block.last_seq < before_seq:
                self._drop_first_block()
            else:
                for position in range(self.earliest_seq - block.first_seq, before_seq - block.first_seq):
                    if block.fragments[position] is not None:
                        self._kill(block, position)
            self._advance()
        return before - self.count

    def delete_matching(self, match: TagMatch, before_seq: int) -> int:
        """Deletes the live records below `before_seq` whose tag matches; returns how many."""
        before = self.count
        for block in self._blocks:
            if block.first_seq >= before_seq:
                break
            end = before_seq - block.first_seq
            for position in block.matching(match):
                if position < end:
                    self._kill(block, position)
        self._advance()
        return before - self.count

    def _kill(self, block: Block, position: int) -> None:
        self.bytes -= block.kill(position)
        self.count -= 1

    def _drop_first_block(self) -> None:
        block = self._blocks[0]
        self.count -= block.live_count
        self.bytes -= block.live_bytes
        del self._blocks[0], self._block_starts[0]

    def _advance(self) -> None:
        """Moves earliest_seq to the first live record and lets go of blocks that hold none."""
        if self.count == 0:
            self._blocks.clear()
            self._block_starts.clear()
            self.earliest_seq = self.head_seq + 1
            return
        while self._blocks[0].live_count == 0:
            self._drop_first_block()
        block = self._blocks[0]
        start = max(self.earliest_seq - block.first_seq, 0)
        self.earliest_seq = block.first_seq + block.first_live(start)

    # Reading

    def gap_at(self, from_seq: int) -> Gap | None:
        """The tombstone a reader at `from_seq` must be shown, if any."""
        if from_seq > self.head_seq:
            return Gap(1, self.head_seq, GapReason.RECREATED)
        if from_seq + 1 >= self.evict_floor:
            return None
        by_cap = self.cap_lost_seq > from_seq
        by_ttl = self.ttl_lost_seq > from_seq
        reason = GapReason.MIXED if by_cap and by_ttl else GapReason.CAP if by_cap else GapReason.TTL
        return Gap(from_seq + 1, self.earliest_seq - 1, reason)

    def read(self, from_seq: int, options: ReadOptions) -> ReadBatch:
        """The records after `from_seq`, within the limits. Hot: a slice of fragments where possible.

        The window is the next `limit` live records; a reader's own are dropped from it afterwards, so
        a batch may be short, or empty, while the cursor moves on.
        """
        gap = self.gap_at(from_seq)
        next_seq = self.earliest_seq if gap is not None else max(from_seq + 1, self.earliest_seq)
        found: list[bytes] = []
        window = options.limit
        budget = options.bytes_max
        scanned = 0
        index = bisect_right(self._block_starts, next_seq) - 1
        while 0 <= index < len(self._blocks) and window and budget > 0:
            block = self._blocks[index]
            start = max(next_seq - block.first_seq, 0)
            chosen, stop = _window(block, start, window)
            scanned += stop - start
            window -= len(chosen)
            rendered = _render(block, chosen, options)
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
        next_from_seq = next_seq - 1 if 0 <= index < len(self._blocks) else self.head_seq
        return ReadBatch(found, next_from_seq, gap, scanned)


def _window(block: Block, start: int, size: int) -> tuple[range | list[int], int]:
    """The next `size` live positions from `start`, and the position to go on from."""
    end = len(block)
    if block.live_count == end:
        stop = min(start + size, end)
        return range(start, stop), stop
    chosen: list[int] = []
    if block.live_count == 0:
        return chosen, end
    fragments = block.fragments
    for position in range(start, end):
        if fragments[position] is not None:
            chosen.append(position)
            if len(chosen) == size:
                return chosen, position + 1
    return chosen, end


def _render(block: Block, chosen: range | list[int], options: ReadOptions) -> list[bytes]:
    """The text of the chosen positions. A reader's own record becomes an empty text."""
    fragments: list[bytes]
    if isinstance(chosen, range):
        fragments = block.fragments[chosen.start : chosen.stop]  # type: ignore[assignment]  # all live
    else:
        fragments = [block.fragments[position] for position in chosen]  # type: ignore[misc]
    if not options.include_meta and block.has_meta:
        fragments = [
            without_meta(fragment, block.meta_at[position]) if block.meta_at[position] else fragment
            for fragment, position in zip(fragments, chosen, strict=True)
        ]
    if options.include_tags and block.has_tags:
        fragments = [
            fragment if tag is None else with_tag(fragment, tag)
            for fragment, tag in zip(fragments, map(block.tags.__getitem__, chosen), strict=True)
        ]
    if options.own_nodes:
        fragments = [
            b"" if block.nodes[position] in options.own_nodes else fragment
            for fragment, position in zip(fragments, chosen, strict=True)
        ]
    return fragments


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
