"""Reading the log of a topic: what a reader, a router, a queue, a cap and a TTL find in it. Nothing here changes it.

Whatever needs a block that has to be fetched from the cold tier first raises `Busy`; the caller tries again later.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from topics import limits
from topics.engine.block import AnyBlock
from topics.engine.delete_plan import DeletePlan
from topics.engine.topic_log import UNREADABLE, TopicLog
from topics.model.gap import Gap, GapReason
from topics.model.read_options import ReadOptions
from topics.model.record import Columns
from topics.model.tag_match import TagMatch

_WHOLE = ReadOptions(limit=1, bytes_max=1, include_tags=True)


class ReadBatch(NamedTuple):
    """`fragments`: the texts of the records; one may be that of several, with commas between them, where the reader
    took that (`ReadOptions.joined`)."""

    fragments: list[bytes]
    next_from_seq: int
    gap: Gap | None
    scanned: int
    cold_count: int = 0  # segments of the cold tier that were read
    joined: bool = False  # some fragment is the text of several records


class Run(NamedTuple):
    """The live records of a run of seqs that ends with `through_seq`."""

    through_seq: int
    seqs: Sequence[int]
    columns: Columns


def gap_at(log: TopicLog, from_seq: int) -> Gap | None:
    """The tombstone a reader at `from_seq` must be shown, if any."""
    if from_seq > log.head_seq:
        return Gap(1, log.head_seq, GapReason.RECREATED)
    if from_seq + 1 < log.evict_floor:
        causes = [
            reason
            for lost_seq, reason in (
                (log.cap_lost_seq, GapReason.CAP),
                (log.ttl_lost_seq, GapReason.TTL),
                (log.crash_lost_seq, GapReason.CRASH),
                (log.source_trim_lost_seq, GapReason.SOURCE_TRIM),
            )
            if lost_seq > from_seq
        ]
        return Gap(from_seq + 1, log.earliest_seq - 1, causes[0] if len(causes) == 1 else GapReason.MIXED)
    for first, last, reason in log.lost_ranges:
        if first <= from_seq + 1 <= last:
            return Gap(from_seq + 1, last, reason)
    return None


def read(log: TopicLog, from_seq: int, options: ReadOptions) -> ReadBatch:
    """The records after `from_seq`, within the limits. Hot: a slice of fragments where possible.

    The window is the next `limit` live records; a reader's own are dropped from it afterwards, so
    a batch may be short, or empty, while the cursor moves on.
    """
    gap = gap_at(log, from_seq)
    next_seq = max(from_seq + 1, log.earliest_seq)
    if gap is not None:
        next_seq = log.earliest_seq if gap.reason is GapReason.RECREATED else gap.gap_to + 1
    # A batch ends before the next lost range: that one is for the next read to tell.
    end_seq = next((lost.first - 1 for lost in log.lost_ranges if lost.first >= next_seq), log.head_seq)
    end_seq = min(end_seq, options.to_seq)
    found: list[bytes] = []
    window = options.limit
    budget = options.bytes_max
    scanned = cold_count = 0
    joined = False
    index = bisect_right(log.block_starts, next_seq) - 1
    while 0 <= index < len(log.blocks) and next_seq <= end_seq and window and budget > 0:
        block = log.blocks[index]
        if scanned and not block.ready:
            break  # it is for the next read to fetch: not all of a long way need fit in memory at once
        block.prepare()
        cold_count += block.cold
        start = max(next_seq - block.first_seq, 0)
        chosen, stop = block.window(start, window)
        if block.first_seq + stop > end_seq + 1:
            stop = end_seq + 1 - block.first_seq
            chosen = [position for position in chosen if position < stop]
        scanned += stop - start
        window -= len(chosen)
        run = block.joined(chosen, options, budget, at_least_one=not found) if options.joined else None
        if run is not None and options.line_bytes and _has_line_breaks(run.texts):
            run = None  # record by record: these are larger on the wire
        if run is not None:
            joined = joined or run.record_count > len(run.texts)
            found += run.texts
            cut, size = run.record_count, run.size
        else:
            rendered = block.render(chosen, options)
            sizes = _sizes_as_sent(rendered, options.line_bytes)
            cut = _within(sizes, budget, at_least_one=not found)
            size = sum(sizes)
            found += [fragment for fragment in rendered[:cut] if fragment]
        budget -= size
        if cut < len(chosen):
            # The byte budget ends the batch before the position that did not fit.
            stop = chosen[cut]
            budget = 0
        next_seq = block.first_seq + stop
        index += stop == len(block)
    next_from_seq = next_seq - 1
    if next_seq > end_seq or not 0 <= index < len(log.blocks):
        next_from_seq = end_seq
    if gap is None:
        next_from_seq = max(next_from_seq, from_seq)
    return ReadBatch(found, next_from_seq, gap, scanned, cold_count, joined)


def _has_line_breaks(texts: Iterable[bytes]) -> bool:
    return any(b"\n" in text or b"\r" in text for text in texts)


def _sizes_as_sent(fragments: list[bytes], line_bytes: int) -> list[int]:
    if not line_bytes:
        return [len(fragment) for fragment in fragments]
    return [len(fragment) + line_bytes * (fragment.count(b"\n") + fragment.count(b"\r")) for fragment in fragments]


def _within(sizes: list[int], budget: int, *, at_least_one: bool) -> int:
    """How many of these fit into the budget, taken in order."""
    if sum(sizes) <= budget:
        return len(sizes)
    used = 0
    for index, size in enumerate(sizes):
        used += size
        if used > budget and not (at_least_one and index == 0):
            return index
    return len(sizes)


def run_after(log: TopicLog, from_seq: int, records_max: int, bytes_max: int) -> Run:
    """Records after `from_seq`, all from one block. There must be none lost right behind `from_seq`."""
    next_seq = max(from_seq + 1, log.earliest_seq)
    end_seq = next((lost.first - 1 for lost in log.lost_ranges if lost.first >= next_seq), log.head_seq)
    index = bisect_right(log.block_starts, next_seq) - 1
    if not 0 <= index < len(log.blocks) or next_seq > end_seq:
        return Run(end_seq, (), Columns((), (), (), (), ()))
    block = log.blocks[index]
    block.prepare()
    if block.live_count:
        records_max = min(records_max, max(bytes_max * block.live_count // max(block.live_bytes, 1), 1))
    chosen, stop = block.window(next_seq - block.first_seq, records_max)
    seqs = [block.first_seq + position for position in chosen]
    return Run(block.first_seq + stop - 1, seqs, block.columns(chosen))


def cursor_at(log: TopicLog, ts: int) -> int:
    """The cursor behind the last record that is older than `ts`; 0 when all that is left is that late.

    Lost seqs whose time nobody knows any more count as not older: who reads from there is told of them.
    """
    if log.count == 0:
        return 0 if ts <= log.last_ts else log.head_seq
    older_to = 0
    for block in log.blocks:
        if ts <= block.last_ts:
            if ts <= block.first_ts:
                return older_to
            block.prepare()
            return block.first_seq + block.expired_before(ts) - 1
        older_to = block.last_seq
    return older_to


def live_from(log: TopicLog, seq: int, count: int) -> list[int]:
    """The first live records from `seq` on, all from one block, `count` at most; none when there are no more."""
    seq = max(seq, log.earliest_seq)
    for index in range(max(bisect_right(log.block_starts, seq) - 1, 0), len(log.blocks)):
        block = log.blocks[index]
        start = max(seq - block.first_seq, 0)
        if block.live_count and start < len(block):
            block.prepare()
            positions, _ = block.window(start, count)
            if isinstance(positions, range) and positions:
                return [*range(block.first_seq + positions.start, block.first_seq + positions.stop)]
            if positions:
                return [block.first_seq + position for position in positions]
    return []


def live_below(log: TopicLog, seq: int) -> Iterator[int]:
    """The live records below `seq`."""
    for block in log.blocks:
        if block.first_seq < seq:
            start = max(log.earliest_seq - block.first_seq, 0)
            positions, _ = block.window(start, min(len(block), seq - block.first_seq))
            yield from (block.first_seq + position for position in positions if block.first_seq + position < seq)


def is_live(log: TopicLog, seq: int) -> bool:
    block = log.block_of(seq)
    return block is not None and block.is_live(seq - block.first_seq)


def texts_of(log: TopicLog, seqs: Sequence[int]) -> list[bytes]:
    """The texts, with their tags, of these live records. Hot: neighbours are rendered together."""
    texts: list[bytes] = []
    index = 0
    while index < len(seqs):
        first_seq = seqs[index]
        block = log.block_of(first_seq)
        assert block is not None, first_seq
        block.prepare()
        end = min(len(seqs), index + block.last_seq - first_seq + 1)
        if seqs[index:end] != [*range(first_seq, first_seq + end - index)]:
            through = end
            end = index + 1
            while end < through and seqs[end] == first_seq + end - index:
                end += 1
        position = first_seq - block.first_seq
        texts += block.render(range(position, position + end - index), _WHOLE)
        index = end
    return texts


def oldest_ts(log: TopicLog) -> int:
    """A time that no live record is older than. There has to be a live record."""
    block = log.blocks[0]
    if not block.ready:
        return block.first_ts
    try:
        return block.ts(max(log.earliest_seq - block.first_seq, 0))
    except UNREADABLE:
        return block.last_ts  # it expires as a whole: nobody can have any of its records before


def beyond_cap(log: TopicLog, records_max: int, bytes_max: int, *, cold: bool) -> int:
    """The last record that has to go so that both caps hold; 0 when they do. A cap of 0 is none. Without `cold` it
    stops before the cold tier, at hand or not: what is taken there is an operation of its own. With it, it may
    raise `Busy`."""
    count, size, through_seq = log.count, log.bytes, 0
    last_whole: AnyBlock | None = None  # only where it ends does a block have to be looked into
    for block in log.blocks:
        if not ((records_max and count > records_max) or (bytes_max and size > bytes_max)):
            break
        if block.cold and not cold:
            break
        if not block.live_count:
            continue
        # The last live record of this block would go too: then all of them, at once.
        if (records_max and count - block.live_count >= records_max) or (
            bytes_max and size - block.live_bytes >= bytes_max
        ):
            last_whole = block
            count -= block.live_count
            size -= block.live_bytes
            continue
        last_whole = None
        block.prepare()
        position = max(log.earliest_seq - block.first_seq, 0)
        with suppress(*UNREADABLE):  # it goes as a whole, later
            while (records_max and count > records_max) or (bytes_max and size > bytes_max):
                position = block.first_live(position)
                gone_bytes = block.size((position,))
                through_seq = block.first_seq + position
                count -= 1
                size -= gone_bytes
                position += 1
        break
    if last_whole is not None:
        last_whole.prepare()
        try:
            through_seq = last_whole.first_seq + last_whole.last_live()
        except UNREADABLE:
            through_seq = last_whole.last_seq
    return through_seq


def at_hand(log: TopicLog, seqs: Iterable[int]) -> list[int]:
    """Those of these records that nothing has to be fetched for."""
    return [seq for block, found in log.by_block(seqs) if block.ready for seq in found]


def prepare(log: TopicLog, seqs: Iterable[int]) -> None:
    """Raises `Busy` while looking at these records would have to wait for slow storage."""
    for block, _ in log.by_block(seqs):
        block.prepare()


def prepare_removal(log: TopicLog, seqs: Iterable[int]) -> None:
    """Raises `Busy` while removing these records would have to wait for slow storage, and what is wrong with a segment
    that does not say which are live. Blocks that are asked for again need not be at hand all at once."""
    for block, found in log.by_block(seqs):
        block.prepare([seq - block.first_seq for seq in found])


def prepare_delete(log: TopicLog, before_seq: int) -> None:
    """Raises `Busy` while a delete of all below `before_seq` would have to wait for slow storage, and what is wrong
    with a segment that cannot be read: nothing is decided then. Blocks that go whole are not looked into: only the one
    it ends in, and the first that is left."""
    for block in log.blocks:
        if block.last_seq >= before_seq - 1:
            block.prepare()
            if block.first_seq >= before_seq:
                break
            if block.last_seq >= before_seq:
                block.is_live(0)


def plan_delete(log: TopicLog, match: TagMatch, before_seq: int, records_max: int) -> bool:
    """Searches for what a delete by tag would take, a limited number of records at a time; True when it has found
    everything. May raise `Busy`."""
    plan = log.plans.pop(match, None) or DeletePlan(match)
    if len(log.plans) >= limits.DELETE_PLANS_MAX:
        del log.plans[next(iter(log.plans))]  # whoever asked longest ago has gone, or begins again
    log.plans[match] = plan
    start = max(bisect_right(log.block_starts, plan.next_seq) - 1, 0)
    return plan.proceed(log.blocks, start, before_seq, records_max)
