"""A block: a run of consecutive seqs of one topic. The unit a log is sealed and reclaimed by.

`AnyBlock` is what a log needs of one. `Block` is the kind that is still written to, held in memory; storage
has the kind that lives in a sealed segment.

Columns instead of record objects: position i of every column is seq `first_seq + i`. A dead position
(deleted, evicted or expired) has no fragment any more; its slot stays until the whole block goes, so
that seq to position remains plain arithmetic.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from topics import limits
from topics.model.read_options import ReadOptions
from topics.model.record import Batch, Columns, Joined, with_tag, without_data, without_meta
from topics.model.tag_match import TagMatch


class AnyBlock(Protocol):
    """Positions count from 0; position i is seq `first_seq + i`."""

    @property
    def first_seq(self) -> int: ...

    @property
    def last_seq(self) -> int: ...

    @property
    def live_count(self) -> int: ...

    @property
    def live_bytes(self) -> int: ...

    @property
    def first_ts(self) -> int: ...

    @property
    def last_ts(self) -> int: ...

    @property
    def cold(self) -> bool:
        """It lives on the cold tier."""
        ...

    @property
    def ready(self) -> bool:
        """False if its records have to be fetched first: call `prepare`, unless you can wait for slow storage."""
        ...

    def prepare(self, removing: Sequence[int] = ()) -> None:
        """If the records have to be fetched first, has that done and raises `Busy`. `removing`: positions that somebody
        is about to `kill`, and nothing else: what that takes is kept, so that many blocks can be asked one after the
        other."""
        ...

    @property
    def flushed_count(self) -> int:
        """How many of its positions, from the first, are in a snapshot or a segment file."""
        ...

    @property
    def flushed_bytes(self) -> int:
        """What those take there."""
        ...

    @property
    def unflagged(self) -> list[int]:
        """Flushed positions that were deleted later, and whose delete byte is not set yet."""
        ...

    def __len__(self) -> int: ...

    def is_live(self, position: int) -> bool: ...

    def kill(self, position: int, *, deleted: bool) -> int:
        """Frees a live position, `deleted` on purpose or lost; returns the bytes it held."""
        ...

    def kill_all(self, positions: Sequence[int], size: int | None = None, *, deleted: bool = True) -> tuple[int, int]:
        """Frees these positions where they are live, `deleted` on purpose or lost; `size` is what all of them hold
        together, if that is known. Returns how many were live and the bytes they held."""
        ...

    def ts(self, position: int) -> int: ...

    def size(self, positions: Sequence[int]) -> int:
        """The bytes these positions hold together, as long as they are live."""
        ...

    def first_live(self, start: int) -> int:
        """The first live position from `start` on, or len(self)."""
        ...

    def last_live(self) -> int:
        """The last live position. There must be one."""
        ...

    def expired_before(self, oldest_ts: int) -> int:
        """How many positions have a timestamp below `oldest_ts`: they are a prefix."""
        ...

    def matching(self, match: TagMatch) -> list[int]:
        """The live positions whose tag matches. Looks into the tag index, never along the block."""
        ...

    def window(self, start: int, size: int) -> tuple[Sequence[int], int]:
        """The next `size` live positions from `start`, and the position to go on from."""
        ...

    def render(self, chosen: Sequence[int], options: ReadOptions) -> list[bytes]:
        """The text of the chosen live positions. A record left out for this reader becomes an empty text."""
        ...

    def joined(self, chosen: Sequence[int], options: ReadOptions, budget: int, *, at_least_one: bool) -> Joined | None:
        """The text of as many of the chosen live positions as the budget allows, neighbours as one text. None if there
        is no such text for this reader: use `render`."""
        ...

    def columns(self, chosen: Sequence[int]) -> Columns:
        """Every column of the chosen live positions."""
        ...


_NO_INDEX: dict[str, int | list[int]] = {}
"""Of all blocks that nobody has asked for a tag: a dictionary for each would be 64 bytes a topic. Stays empty."""

_COLUMNS = ("fragments", "has_meta", "has_tags", "meta_at", "nodes", "sizes", "tags", "timestamps")


class Unread:
    """Records that a start brings back and nobody has looked at: how many, when the first and the last were written,
    and where they come from. `added`: those that came since."""

    __slots__ = ("added", "count", "first_ts", "last_ts", "read")

    def __init__(self, count: int, first_ts: int, last_ts: int, read: "Callable[[], Block]") -> None:
        self.count = count
        self.first_ts = first_ts
        self.last_ts = last_ts
        self.read = read
        self.added: Block | None = None

    def together(self) -> "Block":
        """All of them as a block of their own. Reads only what does not change as long as the block takes no more, so
        another thread may call it then."""
        block = self.read()
        if (added := self.added) is not None:
            block.fragments += added.fragments
            block.nodes += added.nodes
            block.tags += added.tags
            block.sizes.extend(added.sizes)
            block.meta_at.extend(added.meta_at)
            block.timestamps.extend(added.timestamps)
            block.has_meta = block.has_meta or added.has_meta
            block.has_tags = block.has_tags or added.has_tags
        return block

    def taking(self, first_seq: int) -> "Block":
        """The block that records go into which are added to these; these begin with `first_seq`."""
        if self.added is None:
            self.added = Block(first_seq + self.count)
        return self.added


class Block:
    """One that a start brings back may be *unread*: it knows how many records it has and what they take, and reads them
    when somebody first looks at a column. Most topics are not looked at for a long time, and reading its records is
    half of what it costs to bring one back. It takes more records without being read."""

    __slots__ = (
        "_indexed_count",
        "_positions_by_tag",
        "_sorted_tags",
        "closed",
        "counted_bytes",
        "first_seq",
        "flushed_bytes",
        "flushed_count",
        "fragments",
        "has_meta",
        "has_tags",
        "live_bytes",
        "live_count",
        "meta_at",
        "nodes",
        "sealing",
        "sizes",
        "tags",
        "timestamps",
        "unflagged",
        "unread",
        "written_bytes",
    )

    cold = False
    ready = True

    fragments: list[bytes | None]
    timestamps: "array[int]"
    sizes: "array[int]"
    nodes: list[str | None]
    tags: list[str | None]
    meta_at: "array[int]"  # where `,"meta":` begins in the fragment; 0 = no meta
    has_meta: bool
    has_tags: bool

    def __init__(self, first_seq: int, unread: Unread | None = None) -> None:
        """`unread`: what there is to read; who makes such a block also sets its counts."""
        self.first_seq = first_seq
        self.unread = unread
        if unread is None:
            self.fragments = []
            self.timestamps = array("q")
            self.sizes = array("I")
            self.nodes = []
            self.tags = []
            self.meta_at = array("I")
            self.has_meta = False
            self.has_tags = False
        self.live_count = 0
        self.live_bytes = 0
        self.written_bytes = 0  # of all positions, dead ones too: what its segment will hold
        self.closed = False  # takes no more records
        self.sealing = False  # it is being written to a segment
        self.counted_bytes = -1  # of it in the budget of what is unsealed; below 0 until it is noted
        self.flushed_count = 0
        self.flushed_bytes = 0
        self.unflagged: list[int] = []
        # The tag index, of the first positions. A tag seen once, as most are, costs no list.
        self._indexed_count = 0
        self._positions_by_tag = _NO_INDEX
        self._sorted_tags: list[str] | None = None

    if not TYPE_CHECKING:  # else every misspelt name of a block would pass

        def __getattr__(self, name: str) -> Any:
            """Python asks for what is not there: a column, if the block is unread. Once it is read, nothing of this is
            in anybody's way."""
            if name not in _COLUMNS or self.unread is None:
                raise AttributeError(name)
            self.take_columns(self.unread.together())
            return getattr(self, name)

    def take_columns(self, block: "Block") -> None:
        """Its records were read: `block` has them all, and is nobody else's."""
        for column in _COLUMNS:
            setattr(self, column, getattr(block, column))
        self.unread = None

    def __len__(self) -> int:
        unread = self.unread
        if unread is None:
            return len(self.fragments)
        return unread.count if unread.added is None else unread.count + len(unread.added.fragments)

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self) - 1

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return self.written_bytes + len(self) * limits.RECORD_MEMORY_BYTES

    @property
    def first_ts(self) -> int:
        if self.unread is not None:
            return self.unread.first_ts
        return self.timestamps[0] if self.timestamps else 0

    @property
    def last_ts(self) -> int:
        if (unread := self.unread) is not None:
            return unread.last_ts if unread.added is None else unread.added.last_ts
        return self.timestamps[-1] if self.timestamps else 0

    def prepare(self, removing: Sequence[int] = ()) -> None:
        """Always at hand."""

    def extend(self, batch: Batch, timestamps: Sequence[int]) -> None:
        """Adds the records of one write to the columns. Once per write."""
        self.live_count += len(batch.fragments)
        self.live_bytes += batch.total_bytes
        self.written_bytes += batch.total_bytes
        if self.unread is not None:
            self.unread.taking(self.first_seq).extend(batch, timestamps)
            return
        self.fragments += batch.fragments
        self.nodes += batch.nodes
        self.tags += batch.tags
        self.sizes.extend(batch.sizes)
        self.meta_at.extend(batch.meta_at)
        self.timestamps.extend(timestamps)
        if not self.has_meta:
            self.has_meta = any(batch.meta_at)
        if not self.has_tags:
            self.has_tags = batch.tags.count(None) < len(batch.tags)

    def add(self, fragment: bytes, size: int, node: str | None, tag: str | None, timestamp: int) -> int:
        """One record without meta. Returns how many there are now. Hot: most writes are one."""
        self.live_count += 1
        self.live_bytes += size
        self.written_bytes += size
        unread = self.unread
        if unread is not None:
            return unread.count + unread.taking(self.first_seq).add(fragment, size, node, tag, timestamp)
        fragments = self.fragments
        fragments.append(fragment)
        if tag is not None:
            self.has_tags = True
        self.timestamps.append(timestamp)
        self.sizes.append(size)
        self.nodes.append(node)
        self.tags.append(tag)
        self.meta_at.append(0)
        return len(fragments)

    def kill(self, position: int, *, deleted: bool) -> int:
        if deleted and position < self.flushed_count:
            self.unflagged.append(position)
        self.fragments[position] = None
        self.nodes[position] = None
        self.tags[position] = None
        size = self.sizes[position]
        self.live_count -= 1
        self.live_bytes -= size
        return size

    def kill_all(self, positions: Sequence[int], size: int | None = None, *, deleted: bool = True) -> tuple[int, int]:
        """Hot: once per ack and per delete by seq. A range of live positions goes in one step."""
        fragments, nodes, tags, sizes = self.fragments, self.nodes, self.tags, self.sizes
        live = positions
        if isinstance(positions, range) and None not in fragments[positions.start : positions.stop]:
            run = slice(positions.start, positions.stop)
            if size is None:
                size = sum(sizes[run])
            fragments[run] = [None] * len(positions)
            nodes[run] = tags[run] = [None] * len(positions)
        else:
            live = [position for position in positions if fragments[position] is not None]
            if size is None or len(live) != len(positions):
                size = sum(sizes[position] for position in live)
            for position in live:
                fragments[position] = nodes[position] = tags[position] = None
        if self.flushed_count and deleted:
            self.unflagged += [position for position in live if position < self.flushed_count]
        self.live_count -= len(live)
        self.live_bytes -= size
        return len(live), size

    def is_live(self, position: int) -> bool:
        return self.fragments[position] is not None

    def ts(self, position: int) -> int:
        return self.timestamps[position]

    def size(self, positions: Sequence[int]) -> int:
        return sum(map(self.sizes.__getitem__, positions))

    def first_live(self, start: int) -> int:
        fragments = self.fragments
        end = len(fragments)
        while start < end and fragments[start] is None:
            start += 1
        return start

    def last_live(self) -> int:
        position = len(self.fragments) - 1
        while self.fragments[position] is None:
            position -= 1
        return position

    def expired_before(self, oldest_ts: int) -> int:
        return bisect_left(self.timestamps, oldest_ts)

    def matching(self, match: TagMatch) -> list[int]:
        if self._indexed_count < len(self.tags):
            self._index_tags()
        if not match.is_prefix:
            tags = [match.text] if match.text in self._positions_by_tag else []
        else:
            tags = self._tags_with_prefix(match.text)
        found: list[int] = []
        for tag in tags:
            positions = self._positions_by_tag[tag]
            if isinstance(positions, int):
                found.append(positions)
            else:
                found += positions
        fragments = self.fragments
        return [position for position in found if fragments[position] is not None]

    def _index_tags(self) -> None:
        """Adds what came since somebody last asked for a tag. Most blocks are sealed before anybody does, and a place
        in the index costs as much time and memory as all columns of a record."""
        if self._positions_by_tag is _NO_INDEX:
            self._positions_by_tag = {}
        positions_by_tag = self._positions_by_tag
        start, self._indexed_count = self._indexed_count, len(self.tags)
        for position, tag in enumerate(self.tags[start:], start):
            if tag is not None:
                known = positions_by_tag.setdefault(tag, position)
                if known == position:
                    self._sorted_tags = None
                elif isinstance(known, int):
                    positions_by_tag[tag] = [known, position]
                else:
                    known.append(position)

    def _tags_with_prefix(self, prefix: str) -> list[str]:
        ordered = self._sorted_tags
        if ordered is None:
            ordered = self._sorted_tags = sorted(self._positions_by_tag)
        start = end = bisect_left(ordered, prefix)
        while end < len(ordered) and ordered[end].startswith(prefix):
            end += 1
        return ordered[start:end]

    def window(self, start: int, size: int) -> tuple[Sequence[int], int]:
        end = len(self.fragments)
        if self.live_count == end:
            stop = min(start + size, end)
            return range(start, stop), stop
        chosen: list[int] = []
        if self.live_count == 0:
            return chosen, end
        fragments = self.fragments
        for position in range(start, end):
            if fragments[position] is not None:
                chosen.append(position)
                if len(chosen) == size:
                    return chosen, position + 1
        return chosen, end

    def joined(self, chosen: Sequence[int], options: ReadOptions, budget: int, *, at_least_one: bool) -> None:
        """Each record has its text: joining them costs no more here than later."""

    def columns(self, chosen: Sequence[int]) -> Columns:
        if isinstance(chosen, range):
            part = slice(chosen.start, chosen.stop)
            return Columns(
                self.fragments[part], self.timestamps[part], self.meta_at[part], self.nodes[part], self.tags[part]
            )
        return Columns(
            [self.fragments[position] for position in chosen],
            [self.timestamps[position] for position in chosen],
            [self.meta_at[position] for position in chosen],
            [self.nodes[position] for position in chosen],
            [self.tags[position] for position in chosen],
        )

    def render(self, chosen: Sequence[int], options: ReadOptions) -> list[bytes]:
        fragments: list[bytes]
        if isinstance(chosen, range):
            fragments = self.fragments[chosen.start : chosen.stop]  # type: ignore[assignment]  # all live
        else:
            fragments = [self.fragments[position] for position in chosen]  # type: ignore[misc]
        if not options.include_data:
            fragments = [without_data(fragment) for fragment in fragments]
        elif not options.include_meta and self.has_meta:
            fragments = [
                without_meta(fragment, self.meta_at[position]) if self.meta_at[position] else fragment
                for fragment, position in zip(fragments, chosen, strict=True)
            ]
        if options.include_tags and self.has_tags:
            fragments = [
                fragment if tag is None else with_tag(fragment, tag)
                for fragment, tag in zip(fragments, map(self.tags.__getitem__, chosen), strict=True)
            ]
        if options.leaves_out:
            wants, nodes, tags = options.wants, self.nodes, self.tags
            fragments = [
                fragment if wants(nodes[position], tags[position]) else b""
                for fragment, position in zip(fragments, chosen, strict=True)
            ]
        return fragments
