"""The `.tags` sidecar of a sealed segment: which records carry which tag. Little endian.

     off  size  field
       0    8   magic         "topictag"
       8    4   version       u32   1
      12    4   tag_count     u32
      16    8   first_seq     u64   of the segment
      24    4   record_count  u32   of the segment
      28    4   positions_at  u32   offset of the positions below
      32   16×  table               one row a tag, sorted by the tag's bytes:
                                    tag_at u32, tag_len u32, first u32, count u32
       .    .   tags                the tags' bytes, one after another
       .    4×  positions     u32   row's positions are [first .. first + count), ascending;
                                    position i is the record with seq first_seq + i
       .    8   xxh3          u64   XXH3-64 over everything before

Tags are found by binary search in the mapped table, a prefix as a range of rows. The checksum is read once,
when the table is opened. It is derived from `.data` and rebuilt from it whenever it is missing or bad.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from struct import Struct
from sys import byteorder

from xxhash import xxh3_64_digest

from topics.storage.errors import CorruptFile, UnknownVersion
from topics.storage.fs import MappedBytes

MAGIC = b"topictag"
TAGS_VERSION = 1
HEADER = Struct("<8sIIQII")
ROW = Struct("<IIII")
CHECKSUM_BYTES = 8


def encode_tags(first_seq: int, tags: Sequence[bytes | None]) -> bytes:
    """The sidecar for records with these tags, None for one without. Column by column."""
    positions = [position for position, tag in enumerate(tags) if tag is not None]
    # Those of one tag stay in order; none of them is None.
    positions.sort(key=tags.__getitem__)  # type: ignore[arg-type]
    counts = Counter(map(tags.__getitem__, positions))
    texts: list[bytes] = list(counts)  # type: ignore[arg-type]
    lengths = list(map(len, texts))
    texts_at = HEADER.size + ROW.size * len(texts)
    ends = list(accumulate(lengths, initial=texts_at))
    positions_at = ends.pop()
    rows = map(ROW.pack, ends, lengths, accumulate(counts.values(), initial=0), counts.values())
    header = HEADER.pack(MAGIC, TAGS_VERSION, len(texts), first_seq, len(tags), positions_at)
    numbers = array("I", positions)
    if byteorder == "big":
        numbers.byteswap()
    body = b"".join([header, *rows, *texts, numbers.tobytes()])
    return body + xxh3_64_digest(body)[::-1]


class TagTable:
    """Searches a sidecar. Opening it raises `CorruptFile` when it is damaged or of another segment."""

    __slots__ = ("_buffer", "_count", "_positions_at")

    def __init__(self, buffer: MappedBytes, path: str, first_seq: int, record_count: int) -> None:
        size = len(buffer)
        if size < HEADER.size + CHECKSUM_BYTES:
            raise CorruptFile(path, 0, "too short for a tag table")
        magic, version, count, of_seq, of_records, positions_at = HEADER.unpack_from(buffer)
        if magic != MAGIC:
            raise CorruptFile(path, 0, "no tag table")
        if version != TAGS_VERSION:
            raise UnknownVersion(path, f"tag table format {version}")
        with memoryview(buffer) as view, view[: size - CHECKSUM_BYTES] as covered:
            checksum = xxh3_64_digest(covered)[::-1]
        if checksum != buffer[size - CHECKSUM_BYTES :]:
            raise CorruptFile(path, 0, "the checksum does not match")
        if (of_seq, of_records) != (first_seq, record_count):
            raise CorruptFile(path, 16, "the tag table of another segment")
        self._buffer = buffer
        self._count = count
        self._positions_at = positions_at

    def find(self, tag: bytes) -> list[int]:
        """Positions of the records with exactly this tag, ascending."""
        row = self._first_row_from(tag)
        return self._positions(row, row + 1) if row < self._count and self._tag(row) == tag else []

    def find_prefix(self, prefix: bytes) -> list[int]:
        """Positions of the records whose tag begins with the prefix, ascending."""
        start = stop = self._first_row_from(prefix)
        while stop < self._count and self._tag(stop).startswith(prefix):
            stop += 1
        return sorted(self._positions(start, stop))

    def rows(self) -> Iterator[tuple[bytes, list[int]]]:
        """Every tag with its positions, in the order of the tags."""
        for row in range(self._count):
            yield self._tag(row), self._positions(row, row + 1)

    def _first_row_from(self, tag: bytes) -> int:
        return bisect_left(range(self._count), tag, key=self._tag)

    def _tag(self, row: int) -> bytes:
        tag_at, tag_len, _, _ = self._row(row)
        return self._buffer[tag_at : tag_at + tag_len]

    def _row(self, row: int) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = ROW.unpack_from(self._buffer, HEADER.size + ROW.size * row)
        return found

    def _positions(self, start: int, stop: int) -> list[int]:
        """All positions of a range of rows: they lie one after another."""
        if start >= stop:
            return []
        first = self._row(start)[2]
        _, _, last_first, last_count = self._row(stop - 1)
        numbers = array("I")
        at = self._positions_at
        numbers.frombytes(self._buffer[at + 4 * first : at + 4 * (last_first + last_count)])
        if byteorder == "big":
            numbers.byteswap()
        return numbers.tolist()
