"""Names on disk: one spelling each, and a parser that takes only that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.storage import paths
from topics.storage.paths import SegmentPart

u64 = st.integers(0, 2**64 - 1)


def test_names_are_spelled_as_documented() -> None:
    assert paths.lock_path("d") == "d/LOCK"
    assert paths.meta_dir("d") + "/" + paths.snapshot_name(7) == "d/meta/snapshot.0007.bin"
    assert paths.shard_dir("d", 3, 8) + "/" + paths.wal_file_name(1024) == "d/wal/shard-03/wal-0000000000001024.log"
    assert paths.topic_dir("d", 10) == "d/topics/0000000A"
    assert paths.segment_path("t", 10001, SegmentPart.DATA) == "t/seg-0000000000010001.data"
    assert paths.segment_name(1, SegmentPart.INDEX) == "seg-0000000000000001.idx"
    assert paths.segment_name(1, SegmentPart.TAGS) == "seg-0000000000000001.tags"


def test_a_single_shard_lives_flat_in_the_wal_directory() -> None:
    assert paths.shard_dir("d", 0, 1) == "d/wal"


@given(u64)
def test_every_number_is_parsed_back(number: int) -> None:
    assert paths.parse_snapshot_name(paths.snapshot_name(number)) == number
    assert paths.parse_wal_file_name(paths.wal_file_name(number)) == number
    assert paths.parse_topic_name(paths.topic_name(number)) == number
    for part in SegmentPart:
        assert paths.parse_segment_name(paths.segment_name(number, part)) == (number, part)


@given(st.integers(0, 9999))
def test_every_shard_number_is_parsed_back(shard: int) -> None:
    assert paths.parse_shard_name(paths.shard_name(shard)) == shard


@pytest.mark.parametrize(
    "name",
    [
        "",
        "CURRENT",
        "wal-1.log",
        "wal-0000000000000001.log.tmp",
        "wal-00000000000000001.log",
        "wal-000000000000000١.log",
        "snapshot.7.bin",
        "snapshot.00007.bin",
        "snapshot.0007.bin.tmp",
        "seg-0000000000000001.dat",
        "seg-0000000000000001.data.tmp",
        "shard-1",
        "shard-001",
        "0000000a",
        "0000000000A",
        "A",
    ],
)
def test_a_foreign_name_is_not_parsed(name: str) -> None:
    assert paths.parse_wal_file_name(name) is None
    assert paths.parse_snapshot_name(name) is None
    assert paths.parse_segment_name(name) is None
    assert paths.parse_shard_name(name) is None
    assert paths.parse_topic_name(name) is None


def test_a_temporary_name_is_known_as_such() -> None:
    assert paths.is_temporary(paths.temporary("x/CURRENT"))
    assert not paths.is_temporary("x/CURRENT")
