"""The last seq given out for each topic, kept where a killed process leaves it but a power cut may not. Little endian.

       0    8   magic       "topicshd"
       8   40   boot id     of the machine, as text, padded with zeros
      48    8   format      u64   1
      56    8   zero
      64   16n  slots       topic_id u64, seq u64; topic_id 0 is a free slot

A write to a `disk` topic is acknowledged before its frame is on disk. The seq of each is stored here first, in a
shared map: one memory store, no system call. After a process was killed the kernel still has it, so what was lost is
known exactly. After a power cut (another boot id) the file says nothing, and the reserved ceilings have to do.
"""

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from topics.storage import paths
from topics.storage.errors import failing_as
from topics.storage.fs import Disk, SharedBytes

MAGIC = b"topicshd"
HEADS_FORMAT = 1
SLOTS_MIN = 1024

_HEADER = Struct("<8s40sQ8x")
_SLOT = Struct("<QQ")
_pack_slot = _SLOT.pack_into


class DecodedHeads(NamedTuple):
    boot_id: bytes
    slots: list[tuple[int, int, int]]
    """(offset, topic_id, seq) of every slot in use."""


def decode_heads(content: bytes) -> DecodedHeads | None:
    """None when it is no heads file of this format."""
    if len(content) < _HEADER.size:
        return None
    magic, boot_id, version = _HEADER.unpack_from(content)
    if magic != MAGIC or version != HEADS_FORMAT:
        return None
    whole = content[_HEADER.size : len(content) - (len(content) - _HEADER.size) % _SLOT.size]
    slots = enumerate(_SLOT.iter_unpack(whole))
    used = [(_HEADER.size + at * _SLOT.size, topic_id, seq) for at, (topic_id, seq) in slots if topic_id]
    return DecodedHeads(boot_id.rstrip(b"\0"), used)


class Heads:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{paths.HEADS}"
        self._directory = directory
        self._map: SharedBytes = bytearray()
        self._offsets: dict[int, int] = {}
        self._used = 0

    def read(self) -> Mapping[int, int] | None:
        """What an earlier process of this boot left; None when there is nothing to rely on."""
        boot_id = self._disk.boot_id().encode()
        if not boot_id or not self._disk.exists(self._path):
            return None
        found = decode_heads(self._disk.read(self._path))
        if found is None or found.boot_id != boot_id:
            return None
        return {topic_id: seq for _, topic_id, seq in found.slots}

    def create(self) -> None:
        """Begins anew, with nothing noted."""
        self._map = bytearray()
        self._offsets = {}
        self._used = 0
        self._grow(SLOTS_MIN)

    def note(self, topic_id: int, seq: int) -> None:
        """Hot: once per write."""
        offset = self._offsets.get(topic_id)
        if offset is None:
            offset = self._new_slot(topic_id)
        _pack_slot(self._map, offset, topic_id, seq)

    def close(self) -> None:
        self._map = bytearray()

    def _new_slot(self, topic_id: int) -> int:
        self._used += 1
        offset = _HEADER.size + (self._used - 1) * _SLOT.size
        if offset >= len(self._map):
            self._grow(2 * self._used)
        self._offsets[topic_id] = offset
        return offset

    def _grow(self, slots: int) -> None:
        """A larger file with the same slots takes the place of this one."""
        content = bytes(self._map) or _HEADER.pack(MAGIC, self._disk.boot_id().encode(), HEADS_FORMAT)
        content = content.ljust(_HEADER.size + slots * _SLOT.size, b"\0")
        with failing_as(self._path, "making room for heads"):
            self._disk.make_dir(self._directory)
            self._disk.remove(paths.temporary(self._path))
            file = self._disk.create(paths.temporary(self._path))
            file.write(content)
            file.close()
            self._disk.rename(paths.temporary(self._path), self._path)
            self._map = self._disk.map_shared(self._path)
