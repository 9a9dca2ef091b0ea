"""How far the shards of the WAL are, for who cannot ask the server. `meta/wal`, a shared map. Little endian.

       0    8   magic       "topicswp"
       8    8   format      u64   1
      16    8   shards      u64   how many; one shard lives flat in wal/, more in shard-00 and so on
      24    8   start       u64   which process this is, of all that have written to the directory
      32    8   cut         u64   number of the cut, counted up
      40    8   xxh3        u64   over start, cut and the cut's lsns
      48   24n  a row a shard:
                 cut        u64   the lsn the cut is at; all ones: wherever the shard ends
                 synced     u64   every frame below this lsn is durable
                 check      u64   of synced

**A cut** is the lsns of all shards in one turn of the loop: whatever was handed over before is below it, nothing that
came later is. So the frames below it, in all shards together, are a state the server was in or is about to be in. A new
one is noted several times a second; a backup takes the first that is noted after it began.

**Synced** is noted after each sync has returned. It may lag behind, above all after a power cut, and is never ahead: a
log that ends below it has lost frames that were durable, however its end looks.

Neither is needed to start; a file that is missing or damaged says nothing.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from topics.limits import U64_MAX
from topics.storage import paths
from topics.storage.errors import failing_as
from topics.storage.fs import Disk, SharedBytes, replace_file

MAGIC = b"topicswp"
POSITIONS_FORMAT = 1
TO_ITS_END = U64_MAX
"""The lsn of a shard in a cut that has failed: it takes no more."""

_HEADER = Struct("<8sQQ")
_CUT = Struct("<QQQ")
_ROW = Struct("<QQQ")
_LSN = Struct("<Q")
_SYNCED = Struct("<QQ")
_ROWS_AT = _HEADER.size + _CUT.size
_CHECK = 0x5EA1_5EA1_5EA1_5EA1


class Cut(NamedTuple):
    """`lsns` by the shard's directory; a shard that is not named is taken to its end."""

    start: int
    number: int
    lsns: dict[str, int]


class DecodedPositions(NamedTuple):
    cut: Cut | None
    """None while it is being changed, or damaged."""
    synced: dict[str, int]
    """By the shard's directory, those that can be believed."""


def shard_names(count: int) -> list[str]:
    """The directories of so many shards, relative to the WAL's."""
    return [""] if count == 1 else [paths.shard_name(number) for number in range(count)]


def read_positions(disk: Disk, root: str) -> DecodedPositions | None:
    path = paths.positions_path(root)
    return decode_positions(disk.read(path)) if disk.exists(path) else None


def decode_positions(content: bytes) -> DecodedPositions | None:
    """None when it is no file of this format."""
    if len(content) < _ROWS_AT:
        return None
    magic, version, count = _HEADER.unpack_from(content)
    if magic != MAGIC or version != POSITIONS_FORMAT or len(content) != _ROWS_AT + count * _ROW.size or not count:
        return None
    start, number, check = _CUT.unpack_from(content, _HEADER.size)
    rows = list(_ROW.iter_unpack(content[_ROWS_AT:]))
    lsns = [row[0] for row in rows]
    names = shard_names(count)
    cut = None
    if check == _cut_check(start, number, lsns):
        known = zip(names, lsns, strict=True)
        cut = Cut(start, number, {name: lsn for name, lsn in known if lsn != TO_ITS_END})
    synced = {name: row[1] for name, row in zip(names, rows, strict=True) if row[2] == row[1] ^ _CHECK}
    return DecodedPositions(cut, synced)


def _cut_check(start: int, number: int, lsns: Sequence[int]) -> int:
    return int(xxh3_64_intdigest(Struct(f"<{2 + len(lsns)}Q").pack(start, number, *lsns)))


class WalPositions:
    """The server's side."""

    __slots__ = ("_count", "_disk", "_map", "_number", "_root", "_start")

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._map: SharedBytes = bytearray()
        self._start = self._number = self._count = 0

    def create(self, start: int, synced: Sequence[int]) -> None:
        """Begins anew, with these lsns of the shards known to be durable. There is no cut yet."""
        path = paths.positions_path(self._root)
        self._start, self._number, self._count = start, 0, len(synced)
        rows = b"".join(_ROW.pack(0, lsn, lsn ^ _CHECK) for lsn in synced)
        content = _HEADER.pack(MAGIC, POSITIONS_FORMAT, self._count) + _CUT.pack(start, 0, 0) + rows
        with failing_as(path, "noting how far the log is"):
            self._disk.make_dir(paths.meta_dir(self._root))
            replace_file(self._disk, path, content, unsafe_no_sync=True)
            self._map = self._disk.map_shared(path)

    def note_cut(self, lsns: Sequence[int]) -> None:
        """In one turn of the loop: the lsns handed over so far, shard by shard."""
        if not self._map:
            return
        self._number += 1
        check = _cut_check(self._start, self._number, lsns)
        for shard, lsn in enumerate(lsns):
            _LSN.pack_into(self._map, _ROWS_AT + shard * _ROW.size, lsn)
        _CUT.pack_into(self._map, _HEADER.size, self._start, self._number, check)

    def noting_synced(self, shard: int) -> Callable[[int], None]:
        """What the thread of this shard calls after each sync: one memory store."""
        offset = _ROWS_AT + shard * _ROW.size + _LSN.size

        def note(lsn: int) -> None:
            if self._map:
                _SYNCED.pack_into(self._map, offset, lsn, lsn ^ _CHECK)

        return note

    def close(self) -> None:
        self._map = bytearray()
