"""Numbered snapshots: an opaque body in a checksummed container. Little endian.

     off  size  field
       0    8   magic       "topicsnp"
       8    4   version     u32   1
      12    8   body_len    u64
      20    8   xxh3        u64   XXH3-64 over [0 .. 20) and the body
      28    N   body

`save` is atomic; its commit point is the sync of the directory, after the rename (`fs.replace_file`). The previous
snapshot is kept and older ones are removed: `load_latest` can fall back when the newest is damaged. Whoever trims the
WAL must therefore keep what the previous snapshot has not absorbed.
"""

from dataclasses import dataclass
from struct import Struct

from xxhash import xxh3_64

from topics.storage import paths
from topics.storage.errors import CorruptFile, UnknownVersion, failing_as
from topics.storage.fs import Disk, replace_file

MAGIC = b"topicsnp"
SNAPSHOT_VERSION = 1
SNAPSHOTS_KEPT = 2

_PREFIX = Struct("<8sIQ")
_HEADER_BYTES = _PREFIX.size + 8


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    number: int
    body: bytes
    damaged: tuple[CorruptFile, ...]
    """Newer snapshots that could not be read: when there are any, this is a fallback, to be reported."""


def encode_snapshot(body: bytes) -> bytes:
    prefix = _PREFIX.pack(MAGIC, SNAPSHOT_VERSION, len(body))
    return prefix + _checksum(prefix, body) + body


def decode_snapshot(content: bytes, path: str) -> bytes:
    """The body, or `CorruptFile`, or `UnknownVersion`."""
    if len(content) < _HEADER_BYTES:
        raise CorruptFile(path, 0, "too short for a snapshot")
    magic, version, body_len = _PREFIX.unpack_from(content)
    if magic != MAGIC:
        raise CorruptFile(path, 0, "no snapshot")
    if version != SNAPSHOT_VERSION:
        raise UnknownVersion(path, f"snapshot format {version}")
    body = content[_HEADER_BYTES:]
    if len(body) != body_len:
        raise CorruptFile(path, 12, f"{len(body)} bytes of body where {body_len} are due")
    if content[_PREFIX.size : _HEADER_BYTES] != _checksum(content[: _PREFIX.size], body):
        raise CorruptFile(path, _PREFIX.size, "the checksum does not match")
    return body


def save(disk: Disk, directory: str, number: int, body: bytes) -> None:
    """Durable when it returns; on `DiskFailed` the earlier snapshots are untouched."""
    path = f"{directory}/{paths.snapshot_name(number)}"
    with failing_as(path, "saving a snapshot"):
        disk.make_dir(directory)
        replace_file(disk, path, encode_snapshot(body))
        for old in numbers(disk, directory)[SNAPSHOTS_KEPT:]:
            disk.remove(f"{directory}/{paths.snapshot_name(old)}")


def numbers(disk: Disk, directory: str) -> list[int]:
    """The snapshots there are, newest first."""
    found = (paths.parse_snapshot_name(name) for name in disk.list_dir(directory))
    return sorted((number for number in found if number is not None), reverse=True)


def load_latest(disk: Disk, directory: str) -> LoadedSnapshot | None:
    """The newest readable snapshot; None when there is no snapshot at all.

    Raises `CorruptFile` when there are some and none can be read, `UnknownVersion` when the newest is of
    another version: an older one would silently undo what that version did.
    """
    damaged: list[CorruptFile] = []
    for number in numbers(disk, directory):
        path = f"{directory}/{paths.snapshot_name(number)}"
        try:
            return LoadedSnapshot(number, decode_snapshot(disk.read(path), path), tuple(damaged))
        except CorruptFile as error:
            damaged.append(error)
    if damaged:
        raise damaged[0]
    return None


def _checksum(prefix: bytes, body: bytes) -> bytes:
    hasher = xxh3_64(prefix)
    hasher.update(body)
    return hasher.digest()[::-1]
