"""A block of a topic's log whose records are in a sealed segment: served from its map, no heap per record.

Which positions are live is kept here, in memory, once any is dead; the delete bytes on disk follow at the next
checkpoint. Everything else is read from the segment when it is asked for.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from types import MappingProxyType
from typing import cast

from topics import limits
from topics.errors import TopicsError
from topics.model.image import SegmentImage, TopicImage
from topics.model.read_options import ReadOptions
from topics.model.record import Columns, Joined, fragment_of, with_tag, without_data, without_meta
from topics.model.tag_match import TagMatch
from topics.storage.errors import CorruptFile
from topics.storage.frame import StoredRecord
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_text import SegmentText
from topics.storage.segments import Segments

NO_SIZES = cast(dict[int, int], MappingProxyType({}))
"""Of all blocks nobody is about to remove records of."""


class _StoredBlock:
    """The place of a block in the order of seqs and times: what is left once its records are gone."""

    __slots__ = ("_count", "first_seq", "first_ts", "flushed_bytes", "last_ts", "unflagged")

    def __init__(self, first_seq: int, count: int, first_ts: int, last_ts: int, data_bytes: int = 0) -> None:
        self.first_seq = first_seq
        self.flushed_bytes = data_bytes
        self._count = count
        self.first_ts = first_ts
        self.last_ts = last_ts
        self.unflagged: list[int] = []

    def __len__(self) -> int:
        return self._count

    @property
    def last_seq(self) -> int:
        return self.first_seq + self._count - 1

    @property
    def flushed_count(self) -> int:
        return self._count


class SealedBlock(_StoredBlock):
    __slots__ = (
        "_known_dead",
        "_live",
        "_segments",
        "_sizes",
        "_topic_id",
        "cold",
        "dead_below",
        "live_bytes",
        "live_count",
    )

    def __init__(
        self,
        segments: Segments,
        topic_id: int,
        first_seq: int,
        count: int,
        live_count: int,
        live_bytes: int,
        first_ts: int,
        last_ts: int,
        data_bytes: int,
        *,
        cold: bool = False,
        live: bytearray | None = None,
        dead_below: int = 0,
        unflagged: Iterable[int] = (),
    ) -> None:
        """`live` has a 1 for each live position; without it, `dead_below`, the delete bytes, and `unflagged`, positions
        whose delete byte may not be set yet, say."""
        super().__init__(first_seq, count, first_ts, last_ts, data_bytes)
        self._segments = segments
        self._topic_id = topic_id
        self.live_count = live_count
        self.live_bytes = live_bytes
        self.cold = cold
        self.dead_below = dead_below
        self.unflagged = list(unflagged)
        self._known_dead = tuple(self.unflagged)  # a reader opened before their delete bytes were set does not see them
        self._live = live
        self._sizes = NO_SIZES  # of records somebody is about to remove

    @property
    def ready(self) -> bool:
        return not self.cold or self._segments.is_loaded(self._topic_id, self.first_seq)

    def prepare(self, removing: Sequence[int] = ()) -> None:
        if not self.cold:
            if removing:
                self._bits()
            return
        unknown = [position for position in removing if position not in self._sizes]
        if unknown or not removing:
            self._segments.require_loaded(self._topic_id, self.first_seq)
        if removing:
            self._bits()
            if unknown:
                self._sizes = self._sizes | {position: self._bytes_of((position,)) for position in unknown}

    def is_live(self, position: int) -> bool:
        return bool(self._bits()[position])

    def kill(self, position: int, *, deleted: bool) -> int:
        bits, size = self._bits(), self._bytes_of((position,))
        bits[position] = 0
        if deleted:
            self.unflagged.append(position)
        self.live_count -= 1
        self.live_bytes -= size
        return size

    def kill_all(self, positions: Sequence[int], size: int | None = None, *, deleted: bool = True) -> tuple[int, int]:
        bits = self._bits()
        live = positions
        if isinstance(positions, range) and not bits.count(0, positions.start, positions.stop):
            if size is None:
                size = self._bytes_of(positions)
            bits[positions.start : positions.stop] = bytes(len(positions))
        else:
            live = [position for position in positions if bits[position]]
            if size is None or len(live) != len(positions):
                size = self._bytes_of(live)
            for position in live:
                bits[position] = 0
        if deleted:
            self.unflagged += live
        self.live_count -= len(live)
        self.live_bytes -= size
        return len(live), size

    def _bytes_of(self, live: Sequence[int]) -> int:
        """What these records hold. Where the segment does not say, their share of what all hold: who removes a record
        must not depend on a file that may be damaged, and the sum is right again when the last one goes."""
        if len(live) == self.live_count:
            return self.live_bytes
        sizes = self._sizes
        if sizes and all(position in sizes for position in live):
            return sum(map(sizes.pop, live))
        try:
            return self.size(live)
        except (TopicsError, OSError):
            return self.live_bytes * len(live) // self.live_count

    def ts(self, position: int) -> int:
        return self._reader().ts(position)

    def size(self, positions: Sequence[int]) -> int:
        """Hot: once per ack. Neighbours lie one behind the other: the index says where the first begins and the last
        ends."""
        reader = self._reader()
        if isinstance(positions, range):
            return reader.bytes_between(positions.start, positions.stop)
        return sum(reader.bytes_between(start, stop) for start, stop in _runs(sorted(positions)))

    def first_live(self, start: int) -> int:
        position = self._bits().find(1, start)
        return self._count if position < 0 else position

    def last_live(self) -> int:
        return self._bits().rfind(1)

    def expired_before(self, oldest_ts: int) -> int:
        return self._reader().bisect_ts(max(oldest_ts, 0))

    def matching(self, match: TagMatch) -> list[int]:
        text = match.text.encode()
        reader = self._reader()
        positions = reader.find_tag_prefix(text) if match.is_prefix else reader.find_tag(text)
        live = self._bits()
        return [position for position in positions if live[position]]

    def window(self, start: int, size: int) -> tuple[Sequence[int], int]:
        if self.live_count == self._count:
            stop = min(start + size, self._count)
            return range(start, stop), stop
        if self.live_count == 0:
            return [], self._count
        live = self._bits()
        stop = min(start + size, self._count)
        if not live.count(0, start, stop):
            return range(start, stop), stop
        chosen = list(islice(compress(range(start, self._count), live[start:]), size))
        return chosen, chosen[-1] + 1 if len(chosen) == size else self._count

    def render(self, chosen: Sequence[int], options: ReadOptions) -> list[bytes]:
        """Hot where jobs are claimed: what readers get is kept as text, and neighbours are cut from one slice of it."""
        if not chosen:
            return []
        text = self._reader().text if options.include_tags else None
        if text is not None and _is_as_wanted(text, options):
            if isinstance(chosen, range) and (texts := text.texts(chosen.start, chosen.stop)) is not None:
                return texts
            runs = [text.texts(start, stop) for start, stop in _runs(chosen)]
            if None not in runs:
                return [fragment for run in runs if run is not None for fragment in run]
        fragments: list[bytes] = []
        leaves_out = options.leaves_out
        for seq, ts, node_bytes, tag_bytes, payload in self._records(chosen):
            node = None if node_bytes is None else node_bytes.decode()
            tag = None if tag_bytes is None else tag_bytes.decode()
            if leaves_out and not options.wants(node, tag):
                fragments.append(b"")
                continue
            fragment, meta_at = fragment_of(seq, ts, node, payload)
            if not options.include_data:
                fragment = without_data(fragment)
            elif meta_at and not options.include_meta:
                fragment = without_meta(fragment, meta_at)
            if options.include_tags and tag is not None:
                fragment = with_tag(fragment, tag)
            fragments.append(fragment)
        return fragments

    def joined(self, chosen: Sequence[int], options: ReadOptions, budget: int, *, at_least_one: bool) -> Joined | None:
        """Hot: one copy out of the map for all neighbours."""
        text = self._reader().text
        if text is None or not _is_as_wanted(text, options):
            return None
        texts: list[bytes] = []
        count = size = 0
        for start, stop in _runs(chosen):
            fitting, taken = text.fitting(start, stop, budget - size, tags=options.include_tags)
            if not fitting and at_least_one and not texts:
                fitting, taken = text.fitting(start, start + 1, limits.U64_MAX, tags=options.include_tags)
            if fitting:
                found = text.slice(start, start + fitting, tags=options.include_tags)
                if found is None:
                    return None
                texts.append(found)
            count += fitting
            size += taken
            if start + fitting < stop:
                break
        return Joined(texts, count, size)

    def columns(self, chosen: Sequence[int]) -> Columns:
        records = self._records(chosen)
        nodes = [None if node is None else node.decode() for _, _, node, _, _ in records]
        rendered = [
            fragment_of(seq, ts, node, payload) for (seq, ts, _, _, payload), node in zip(records, nodes, strict=True)
        ]
        return Columns(
            [fragment for fragment, _ in rendered],
            [ts for _, ts, _, _, _ in records],
            [meta_at for _, meta_at in rendered],
            nodes,
            [None if tag is None else tag.decode() for _, _, _, tag, _ in records],
        )

    def _records(self, chosen: Sequence[int]) -> list[StoredRecord]:
        """Those at the positions, which ascend."""
        if not chosen:
            return []
        first = chosen[0]
        records = self._reader().slices(first, chosen[-1] + 1, with_deleted=True)
        if len(records) != len(chosen):
            records = [records[position - first] for position in chosen]
        return records

    def _bits(self) -> bytearray:
        if self._live is None:
            if self.live_count == self._count:
                self._live = bytearray(b"\1") * self._count
            else:
                self._live = self._flags()
        return self._live

    def _flags(self) -> bytearray:
        """What is live by the delete bytes and what is known beyond them: as much as the snapshot says."""
        reader = self._reader()
        live = bytearray(not reader.deleted(position) for position in range(self._count))
        live[: self.dead_below] = bytes(self.dead_below)
        for position in self._known_dead:
            live[position] = 0
        if sum(live) != self.live_count:
            marked = f"{sum(live)} records are not marked deleted where {self.live_count} should be left"
            raise CorruptFile(reader.data.path, 0, marked)
        return live

    def _reader(self) -> SegmentReader:
        return self._segments.reader(self._topic_id, self.first_seq, cold=self.cold)


class ClearedBlock(_StoredBlock):
    """Seqs whose records were all deleted and whose segment is gone: nothing but their place in the order."""

    __slots__ = ()

    cold = False
    ready = True
    live_count = 0
    live_bytes = 0

    def prepare(self, removing: Sequence[int] = ()) -> None:
        """There is nothing to fetch."""

    def is_live(self, position: int) -> bool:
        return False

    def kill(self, position: int, *, deleted: bool) -> int:
        raise AssertionError(f"seq {self.first_seq + position} is dead already")

    def kill_all(self, positions: Sequence[int], size: int | None = None, *, deleted: bool = True) -> tuple[int, int]:
        return 0, 0

    def ts(self, position: int) -> int:
        return self.last_ts

    def size(self, positions: Sequence[int]) -> int:
        return 0

    def first_live(self, start: int) -> int:
        return self._count

    def last_live(self) -> int:
        raise AssertionError("a cleared block has no live record")

    def expired_before(self, oldest_ts: int) -> int:
        return self._count

    def matching(self, match: TagMatch) -> list[int]:
        return []

    def window(self, start: int, size: int) -> tuple[Sequence[int], int]:
        return [], self._count

    def render(self, chosen: Sequence[int], options: ReadOptions) -> list[bytes]:
        return []

    def joined(self, chosen: Sequence[int], options: ReadOptions, budget: int, *, at_least_one: bool) -> None:
        """There is nothing to join."""

    def columns(self, chosen: Sequence[int]) -> Columns:
        return Columns([], [], [], [], [])


def _is_as_wanted(text: SegmentText, options: ReadOptions) -> bool:
    """Whether this reader gets the records exactly as they are kept, and all of them."""
    return (
        options.include_data
        and options.match is None
        and (options.include_meta or not text.has_meta)
        and (not options.own_nodes or (text.nodes is not None and text.nodes.isdisjoint(options.own_nodes)))
    )


def _runs(chosen: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The positions, which ascend, as runs [start, stop) of neighbours."""
    first, end = 0, len(chosen)
    while first < end:
        # Most often the rest is one run; else halve the distance to where this one ends.
        low, high = first, end - 1
        while low < high:
            middle = (low + high + 1) // 2
            if chosen[middle] - chosen[first] == middle - first:
                low = middle
            else:
                high = middle - 1
        yield chosen[first], chosen[low] + 1
        first = low + 1


def stored_block(
    segments: Segments, image: TopicImage, segment: SegmentImage, *, cold: bool
) -> SealedBlock | ClearedBlock:
    """The block of a sealed segment of the topic."""
    if segment.cleared:
        return ClearedBlock(segment.first_seq, segment.count, segment.first_ts, segment.last_ts)
    return SealedBlock(
        segments,
        image.topic_id,
        segment.first_seq,
        segment.count,
        segment.live_count,
        segment.live_bytes,
        segment.first_ts,
        segment.last_ts,
        segment.data_bytes,
        cold=cold,
        dead_below=min(max(image.earliest_seq - segment.first_seq, 0), segment.count),
        unflagged=segment.deleted,
    )
