"""The `.text` sidecar of a sealed segment: its records as readers get them, joined by commas. Little endian.

     off  size  field
       0    8   magic         "topictxt"
       8    4   version       u32   1
      12    4   record_count  u32   of the segment
      16    8   first_seq     u64   of the segment
      24    4   flags         u32   bit0 some record has a tag  bit1 some record has meta
      28    4   nodes_len     u32
      32    N   nodes               JSON: the distinct nodes of the records, or null where they are too many to list
       .    4×  ends          u32   where the text of record i ends, counted from the first text
       .    4×  tag_ends      u32   the bytes that `,"$tag":…` takes in the texts up to record i; only with bit0
       .    8×  sums          u64   XXH3-64 of the text of each run of 256 records, the comma before it left out
       .    8   xxh3          u64   XXH3-64 over everything before
       .    .   text                the texts with their tags, which come last in a text; a record that was dead when
                                    the segment was sealed has an empty one

The texts of live neighbours are one slice, so a thousand records cost one copy; leaving out the tags costs a slice a
record. Derived from the records and never evidence: it is not synced, and whoever finds it missing or damaged renders
the records from `.data` instead.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import sub
from struct import Struct
from sys import byteorder

import msgspec
from xxhash import xxh3_64_intdigest

from topics import limits
from topics.model.record import with_tag
from topics.storage.fs import MappedBytes

MAGIC = b"topictxt"
TEXT_VERSION = 1
HEADER = Struct("<8sIIQII")
CHECKSUM = Struct("<Q")
HAS_TAGS = 1
HAS_META = 2
RUN_RECORDS = 256
_TEXT_BYTES_MAX = 2**32 - 1


def encode_text(
    first_seq: int,
    fragments: Sequence[bytes | None],
    nodes: Iterable[str | None],
    tags: Sequence[str | None],
    *,
    has_meta: bool,
) -> bytes | None:
    """The sidecar for these texts, None for a dead record. None when they are too long for one."""
    has_tags = any(tag is not None for tag in tags)
    texts = [b"" if fragment is None else fragment for fragment in fragments]
    tag_ends = array("I")
    if has_tags:
        plain_bytes = [*map(len, texts)]
        texts = [
            text if tag is None or not text else with_tag(text, tag) for text, tag in zip(texts, tags, strict=True)
        ]
        tag_ends = array("I", accumulate(map(sub, map(len, texts), plain_bytes)))
    ends = array("Q", accumulate(len(text) + 1 for text in texts))
    if ends and ends[-1] > _TEXT_BYTES_MAX:
        return None
    ends = array("I", (end - 1 for end in ends))
    text = b",".join(texts)
    with memoryview(text) as view:
        sums = array("Q", (xxh3_64_intdigest(view[start:stop]) for start, stop in _runs(ends)))
    if byteorder == "big":
        for numbers in (ends, tag_ends, sums):
            numbers.byteswap()
    distinct: list[str] | None = sorted({node for node in nodes if node is not None})
    if len(distinct or ()) > limits.SEALED_TEXT_NODES_MAX:
        distinct = None
    listed = msgspec.json.encode(distinct)
    flags = HAS_TAGS * has_tags | HAS_META * has_meta
    header = HEADER.pack(MAGIC, TEXT_VERSION, len(texts), first_seq, flags, len(listed))
    head = b"".join((header, listed, ends.tobytes(), tag_ends.tobytes(), sums.tobytes()))
    return b"".join((head, CHECKSUM.pack(xxh3_64_intdigest(head)), text))


def _runs(ends: "array[int]") -> list[tuple[int, int]]:
    """Where the text of each run begins and ends."""
    stops = [*ends[RUN_RECORDS - 1 :: RUN_RECORDS]]
    if len(ends) % RUN_RECORDS:
        stops.append(ends[-1])
    return list(zip([0, *(stop + 1 for stop in stops)], stops, strict=False))


class SegmentText:
    """A sidecar that fits its segment; see `open_text`. `nodes` is None where they are too many to list."""

    __slots__ = ("_buffer", "_checked", "_ends", "_sums", "_tag_ends", "_text_at", "has_meta", "nodes")

    def __init__(
        self,
        buffer: MappedBytes,
        flags: int,
        nodes: frozenset[str] | None,
        ends: "array[int]",
        tag_ends: "array[int]",
        sums: "array[int]",
    ) -> None:
        self._buffer = buffer
        self._ends = ends
        self._tag_ends = tag_ends
        self._sums = sums
        self._text_at = len(buffer) - (ends[-1] if ends else 0)
        self._checked = bytearray(len(sums))
        self.has_meta = bool(flags & HAS_META)
        self.nodes = nodes

    def fitting(self, start: int, stop: int, budget: int, *, tags: bool) -> tuple[int, int]:
        """How many of the records at positions [start, stop) fit into the budget, with their tags or without, and the
        bytes they take, commas not counted."""
        ends, tag_ends = self._ends, self._tag_ends
        # Each record brings the comma before it; the first of all has none.
        before = (ends[start - 1] if start else -1) - start

        def taken(last: int) -> int:
            return ends[last] - last - 1 - before

        if not tags and tag_ends:
            tags_before = tag_ends[start - 1] if start else 0

            def taken(last: int) -> int:
                return ends[last] - last - 1 - before - (tag_ends[last] - tags_before)

        if taken(stop - 1) > budget:
            stop = start + bisect_right(range(start, stop), budget, key=taken)
        return stop - start, taken(stop - 1) if stop > start else 0

    def ends(self, start: int, stop: int) -> "array[int]":
        """Where the texts of the records at positions [start, stop) end; that of a dead one is just its comma."""
        return self._ends[start:stop]

    def slice(self, start: int, stop: int, *, tags: bool) -> bytes | None:
        """The texts of the records at positions [start, stop), all of them live, with their tags or without. None when
        they are damaged."""
        if not self._is_right(start, stop):
            return None
        first = self._ends[start - 1] + 1 if start else 0
        text = self._buffer[self._text_at + first : self._text_at + self._ends[stop - 1]]
        return text if tags or not self._tag_ends else self._without_tags(text, start, stop)

    def view(self, start: int, stop: int) -> memoryview | None:
        """`slice`, with tags, where it lies: for a reader in bulk, to whom a copy is much."""
        if not self._is_right(start, stop):
            return None
        first = self._ends[start - 1] + 1 if start else 0
        return memoryview(self._buffer)[self._text_at + first : self._text_at + self._ends[stop - 1]]

    def texts(self, start: int, stop: int) -> list[bytes] | None:
        """`slice`, cut into its records, with their tags."""
        text = self.slice(start, stop, tags=True)
        if text is None:
            return None
        at = base = self._ends[start - 1] + 1 if start else 0
        texts: list[bytes] = []
        for end in self._ends[start:stop]:
            texts.append(text[at - base : end - base])
            at = end + 1
        return texts

    def _without_tags(self, text: bytes, start: int, stop: int) -> bytes:
        """Hot, 0.1 µs a record: a tag ends one byte before its text does."""
        at = tags_end = 0
        if start:
            at, tags_end = self._ends[start - 1] + 1, self._tag_ends[start - 1]
        base = at
        texts: list[bytes] = []
        add = texts.append
        for end, through in zip(self._ends[start:stop], self._tag_ends[start:stop], strict=True):
            add(text[at - base : end - 1 - base - through + tags_end])
            at, tags_end = end + 1, through
        return b"},".join(texts) + b"}"

    def _is_right(self, start: int, stop: int) -> bool:
        for run in range(start // RUN_RECORDS, (stop - 1) // RUN_RECORDS + 1):
            if not self._checked[run] and not self._check(run):
                return False
        return True

    def _check(self, run: int) -> bool:
        first = run * RUN_RECORDS
        last = min(first + RUN_RECORDS, len(self._ends)) - 1
        start = self._ends[first - 1] + 1 if first else 0
        covered = self._buffer[self._text_at + start : self._text_at + self._ends[last]]
        self._checked[run] = xxh3_64_intdigest(covered) == self._sums[run]
        return bool(self._checked[run])


def open_text(buffer: MappedBytes, first_seq: int, record_count: int) -> SegmentText | None:
    """None when it is damaged, of another version or of another segment."""
    if len(buffer) < HEADER.size:
        return None
    magic, version, count, of_seq, flags, nodes_len = HEADER.unpack_from(buffer)
    if (magic, version, count, of_seq) != (MAGIC, TEXT_VERSION, record_count, first_seq):
        return None
    ends_at = HEADER.size + nodes_len
    tag_ends_at = ends_at + 4 * count
    sums_at = tag_ends_at + (4 * count if flags & HAS_TAGS else 0)
    checksum_at = sums_at + 8 * (-(-count // RUN_RECORDS))
    if len(buffer) < checksum_at + CHECKSUM.size:
        return None
    head = buffer[:checksum_at]
    if CHECKSUM.unpack_from(buffer, checksum_at)[0] != xxh3_64_intdigest(head):
        return None
    ends, tag_ends = array("I", head[ends_at:tag_ends_at]), array("I", head[tag_ends_at:sums_at])
    sums = array("Q", head[sums_at:])
    if byteorder == "big":
        for numbers in (ends, tag_ends, sums):
            numbers.byteswap()
    if len(buffer) != checksum_at + CHECKSUM.size + (ends[-1] if ends else 0):
        return None
    nodes = msgspec.json.decode(head[HEADER.size : ends_at], type=list[str] | None)
    return SegmentText(buffer, flags, None if nodes is None else frozenset(nodes), ends, tag_ends, sums)
