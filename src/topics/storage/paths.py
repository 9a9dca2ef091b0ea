"""Every name on disk, and its parser. No other module builds or takes apart a file name.

    <root>/LOCK                                    held by the running server
    <root>/meta/snapshot.0007.bin                  a base: every topic but the records in segments, numbered
    <root>/meta/increment.0008.bin                 what changed since the snapshot of the number before
    <root>/meta/id                                 tells this directory from every other
    <root>/meta/heads                              last seqs given out, for after a killed process
    <root>/meta/wal                                how far the shards of the WAL are
    <root>/meta/cold                               the id of its cold tier
    <cold root>/OWNER                              whose cold tier it is; also in each topic's directory there
    <root>/wal/[shard-NN/]wal-<16 digits>.log      named by the first lsn in it; one shard lives flat in wal/
    <root>/wal/[shard-NN/]CURRENT                  the name of the active file, and a newline
    <root>/topics/<8+ hex>/seg-<16 digits>.data    record frames, named by the first seq
    <root>/topics/<8+ hex>/seg-<16 digits>.idx     fixed-stride index of .data
    <root>/topics/<8+ hex>/seg-<16 digits>.tags    tags of a sealed segment
    <root>/topics/<8+ hex>/seg-<16 digits>.text    records of a sealed segment as readers get them
    <any>.tmp                                      being written; worthless after a crash

Numbers are padded so that a listing sorts them; they may outgrow the padding, so readers sort by number.
A parser returns None for a name it did not make.
"""

import re
from collections.abc import Callable
from enum import StrEnum

CURRENT = "CURRENT"
HEADS = "heads"
OWNER = "OWNER"
TEMPORARY_SUFFIX = ".tmp"

_SNAPSHOT = re.compile(r"snapshot\.([0-9]{4,20})\.bin")
_INCREMENT = re.compile(r"increment\.([0-9]{4,20})\.bin")
_SHARD = re.compile(r"shard-([0-9]{2,4})")
_WAL_FILE = re.compile(r"wal-([0-9]{16,20})\.log")
_TOPIC = re.compile(r"[0-9A-F]{8,16}")
_SEGMENT = re.compile(r"seg-([0-9]{16,20})\.(data|idx|tags|text)")


class SegmentPart(StrEnum):
    DATA = "data"
    INDEX = "idx"
    TAGS = "tags"
    TEXT = "text"


def lock_path(root: str) -> str:
    return f"{root}/LOCK"


def meta_dir(root: str) -> str:
    return f"{root}/meta"


def id_path(root: str) -> str:
    return f"{meta_dir(root)}/id"


def positions_path(root: str) -> str:
    return f"{meta_dir(root)}/wal"


def cold_id_path(root: str) -> str:
    return f"{meta_dir(root)}/cold"


def owner_path(directory: str) -> str:
    return f"{directory}/{OWNER}"


def wal_dir(root: str) -> str:
    return f"{root}/wal"


def topics_dir(root: str) -> str:
    return f"{root}/topics"


def temporary(path: str) -> str:
    return path + TEMPORARY_SUFFIX


def is_temporary(name: str) -> bool:
    return name.endswith(TEMPORARY_SUFFIX)


def snapshot_name(number: int) -> str:
    return f"snapshot.{number:04d}.bin"


def parse_snapshot_name(name: str) -> int | None:
    return _number(_SNAPSHOT.fullmatch(name), name, snapshot_name)


def increment_name(number: int) -> str:
    return f"increment.{number:04d}.bin"


def parse_increment_name(name: str) -> int | None:
    return _number(_INCREMENT.fullmatch(name), name, increment_name)


def shard_dir(root: str, shard: int, shard_count: int) -> str:
    """Where a shard's files live: flat in wal/ when it is the only one."""
    return wal_dir(root) if shard_count == 1 else f"{wal_dir(root)}/{shard_name(shard)}"


def shard_path(root: str, name: str) -> str:
    """Where the files of a shard of that name live; the flat layout has an empty name."""
    return f"{wal_dir(root)}/{name}" if name else wal_dir(root)


def shard_name(shard: int) -> str:
    return f"shard-{shard:02d}"


def parse_shard_name(name: str) -> int | None:
    return _number(_SHARD.fullmatch(name), name, shard_name)


def is_exchange_shard(name: str) -> bool:
    """Whether it is the first of its number: topics that exchange records are all in there."""
    return name in ("", shard_name(0))


def wal_file_name(first_lsn: int) -> str:
    return f"wal-{first_lsn:016d}.log"


def parse_wal_file_name(name: str) -> int | None:
    return _number(_WAL_FILE.fullmatch(name), name, wal_file_name)


def topic_dir(root: str, topic_id: int) -> str:
    return f"{topics_dir(root)}/{topic_name(topic_id)}"


def topic_name(topic_id: int) -> str:
    return f"{topic_id:08X}"


def parse_topic_name(name: str) -> int | None:
    if _TOPIC.fullmatch(name) is None or topic_name(int(name, 16)) != name:
        return None
    return int(name, 16)


def segment_name(first_seq: int, part: SegmentPart) -> str:
    return f"seg-{first_seq:016d}.{part.value}"


def segment_path(directory: str, first_seq: int, part: SegmentPart) -> str:
    return f"{directory}/{segment_name(first_seq, part)}"


def parse_segment_name(name: str) -> tuple[int, SegmentPart] | None:
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    first_seq, part = int(match[1]), SegmentPart(match[2])
    return (first_seq, part) if segment_name(first_seq, part) == name else None


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _number(match: re.Match[str] | None, name: str, build: Callable[[int], str]) -> int | None:
    """The number in the name, if building a name from it gives the same name back (no second spelling)."""
    if match is None or build(int(match[1])) != name:
        return None
    return int(match[1])
