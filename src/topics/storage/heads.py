"""The last seq given out for each topic, kept where a killed process leaves it but a power cut may not. Little endian.

       0    8   magic       "topicshd"
       8   40   boot id     of the machine, as text, padded with zeros
      48    8   format      u64   1
      56    8   zero
      64   24n  slots       topic_id u64, seq u64, check u64 (of both); all zero is a free slot

A write to a `disk` topic is acknowledged before its frame is on disk. The seq of each is stored here first, in a
shared map: one memory store, no system call. After a process was killed the kernel still has it, so what was lost is
known exactly. After a power cut (another boot id) the file says nothing, and the reserved ceilings have to do. So
they have when a slot does not match its check: a store was cut short, or the file is damaged.
"""

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from topics.storage import paths
from topics.storage.errors import failing_as
from topics.storage.fs import Disk, SharedBytes, replace_file

MAGIC = b"topicshd"
HEADS_FORMAT = 1
SLOTS_MIN = 1024

_HEADER = Struct("<8s40sQ8x")
_SLOT = Struct("<QQQ")
_CHECK = 0x5EA1_5EA1_5EA1_5EA1
_pack_slot = _SLOT.pack_into


class DecodedHeads(NamedTuple):
    boot_id: bytes
    slots: list[tuple[int, int, int]]
    """(offset, topic_id, seq) of every slot in use."""
    damaged: bool
    """Some slot does not match its check, or is cut short."""


def decode_heads(content: bytes) -> DecodedHeads | None:
    """None when it is no heads file of this format."""
    if len(content) < _HEADER.size:
        return None
    magic, boot_id, version = _HEADER.unpack_from(content)
    if magic != MAGIC or version != HEADS_FORMAT:
        return None
    left_over = (len(content) - _HEADER.size) % _SLOT.size
    slots: list[tuple[int, int, int]] = []
    damaged = left_over > 0
    for number, (topic_id, seq, check) in enumerate(
        _SLOT.iter_unpack(content[_HEADER.size : len(content) - left_over])
    ):
        if topic_id and check == topic_id ^ seq ^ _CHECK:
            slots.append((_HEADER.size + number * _SLOT.size, topic_id, seq))
        elif topic_id or seq or check:
            damaged = True
    return DecodedHeads(boot_id.rstrip(b"\0"), slots, damaged)


class Heads:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{paths.HEADS}"
        self._directory = directory
        self._map: SharedBytes = bytearray()
        self._offsets: dict[int, int] = {}

    def read(self) -> Mapping[int, int] | None:
        """What an earlier process of this boot left; None when there is nothing to rely on."""
        boot_id = self._disk.boot_id().encode()
        if not boot_id or not self._disk.exists(self._path):
            return None
        found = decode_heads(self._disk.read(self._path))
        if found is None or found.damaged or found.boot_id != boot_id:
            return None
        return {topic_id: seq for _, topic_id, seq in found.slots}

    def create(self, heads: Mapping[int, int]) -> None:
        """Begins anew, with these noted."""
        self._offsets = {topic_id: _HEADER.size + number * _SLOT.size for number, topic_id in enumerate(heads)}
        slots = b"".join(_SLOT.pack(topic_id, seq, topic_id ^ seq ^ _CHECK) for topic_id, seq in heads.items())
        self._replace(_HEADER.pack(MAGIC, self._disk.boot_id().encode(), HEADS_FORMAT) + slots, 2 * len(heads))

    def make_room(self, topic_id: int) -> None:
        """Before the first `note` of a topic. Raises `DiskFailed` and changes nothing when there is none."""
        if topic_id in self._offsets:
            return
        offset = _HEADER.size + len(self._offsets) * _SLOT.size
        if offset >= len(self._map):
            self._replace(bytes(self._map), 2 * len(self._offsets))
        self._offsets[topic_id] = offset

    def note(self, topic_id: int, seq: int) -> bool:
        """False when there is no room for the topic. Hot: once per write."""
        offset = self._offsets.get(topic_id)
        if offset is None:
            return False
        _pack_slot(self._map, offset, topic_id, seq, topic_id ^ seq ^ _CHECK)
        return True

    def close(self) -> None:
        self._map = bytearray()

    def _replace(self, content: bytes, slots: int) -> None:
        """A file with this content, and room for that many slots, takes the place of the one there is."""
        content = content.ljust(_HEADER.size + max(slots, SLOTS_MIN) * _SLOT.size, b"\0")
        with failing_as(self._path, "making room for heads"):
            self._disk.make_dir(self._directory)
            replace_file(self._disk, self._path, content, unsafe_no_sync=True)
            self._map = self._disk.map_shared(self._path)
