"""Segments: exact bytes, reading, tags, deletes, crashes, and every byte flipped once."""

import errno
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from topics.storage.errors import CorruptFile, DiskFailed, UnknownVersion
from topics.storage.frame import StoredRecord
from topics.storage.fs import Disk, RealDisk
from topics.storage.segment_format import SegmentInput
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_tags import TagTable, encode_tags
from topics.storage.segment_writer import encode_files, remove_segment, rewrite_sidecars, write_segment
from topics.storage.verify_segment import segment_problems
from topics.testing.fake_disk import FakeDisk, SimulatedCrash

DIRECTORY = "/topics/0000000A"
DATA = f"{DIRECTORY}/seg-0000000000000005.data"
INDEX = f"{DIRECTORY}/seg-0000000000000005.idx"
TAGS = f"{DIRECTORY}/seg-0000000000000005.tags"

RECORDS: list[SegmentInput] = [
    (100, b"n7", b"a:1", b'{"x":1}'),
    (100, None, b"a:2", b"2"),
    (107, None, None, b"null"),
    (110, b"", b"b", b'"four"'),
    (110, None, b"a:1", b"5"),
]


def expected(records: list[SegmentInput], first_seq: int = 5) -> list[StoredRecord]:
    return [(first_seq + position, *record) for position, record in enumerate(records)]


def sealed(disk: Disk | None = None, directory: str = DIRECTORY, records: list[SegmentInput] = RECORDS) -> Disk:
    disk = disk or FakeDisk()
    write_segment(disk, directory, 5, encode_files(5, records))
    return disk


def overwrite(disk: Disk, path: str, at: int, data: bytes) -> None:
    file = disk.open_append(path)
    file.write_at(at, data)
    file.close()


def frame_by_hand(seq: int, ts: int, node: bytes | None, tag: bytes | None, data: bytes) -> bytes:
    flags = (tag is not None) | (node is not None) << 1
    node, tag = node or b"", tag or b""
    body = struct.pack("<BQQ", flags, seq, ts) + struct.pack("<HHI", len(node), len(tag), len(data))
    body += node + tag + data
    checksum = struct.pack("<Q", xxhash.xxh3_64(body).intdigest())
    return struct.pack("<I", len(body) + 9) + body + checksum + b"\x00"


def test_data_and_index_have_the_documented_bytes() -> None:
    disk = sealed()
    frames = [frame_by_hand(5 + position, *record) for position, record in enumerate(RECORDS)]
    assert disk.read(DATA) == b"".join(frames)
    index, offset = b"", 0
    for frame, (ts, node, tag, _) in zip(frames, RECORDS, strict=True):
        flags = (tag is not None) | (node is not None) << 1
        index += struct.pack("<I", offset) + struct.pack("<I", len(frame)) + struct.pack("<Q", ts)
        index += bytes([flags, 0, 0, 0])
        offset += len(frame)
    assert disk.read(INDEX) == index
    assert len(index) == 20 * len(RECORDS)


def test_the_tag_table_has_the_documented_bytes() -> None:
    body = b"topictag" + struct.pack("<IIQII", 1, 3, 5, 5, 32 + 3 * 16 + 7)
    body += struct.pack("<IIII", 80, 3, 0, 2) + struct.pack("<IIII", 83, 3, 2, 1) + struct.pack("<IIII", 86, 1, 3, 1)
    body += b"a:1" + b"a:2" + b"b" + struct.pack("<IIII", 0, 4, 1, 3)
    assert sealed().read(TAGS) == body + struct.pack("<Q", xxhash.xxh3_64(body).intdigest())


def test_records_read_back() -> None:
    disk = sealed()
    reader = SegmentReader(disk, DIRECTORY, 5)
    assert (reader.first_seq, reader.last_seq, reader.count) == (5, 9, 5)
    assert reader.slices(0, 5) == expected(RECORDS)
    assert reader.slices(1, 3) == expected(RECORDS)[1:3]
    assert reader.slices(3, 99) == expected(RECORDS)[3:]
    assert reader.slices(3, 3) == []
    assert [reader.record(position) for position in range(5)] == expected(RECORDS)
    assert not reader.index.rebuilt
    assert list(segment_problems(disk, reader)) == []


def test_the_same_bytes_are_read_from_a_real_disk(tmp_path: Path) -> None:
    real = RealDisk()
    directory = str(tmp_path / "t")
    sealed(real, directory)
    reader = SegmentReader(real, directory, 5)
    assert reader.slices(0, 5) == expected(RECORDS)
    assert real.read(reader.data.path) == sealed().read(DATA)
    reader.flag_deleted([1])
    assert reader.slices(0, 5) == [record for record in expected(RECORDS) if record[0] != 6]
    assert {path.stat().st_mode & 0o777 for path in Path(directory).iterdir()} == {0o600}


def test_times_are_found_by_bisection() -> None:
    reader = SegmentReader(sealed(), DIRECTORY, 5)
    assert [reader.ts(position) for position in range(5)] == [100, 100, 107, 110, 110]
    assert [reader.bisect_ts(ts) for ts in (0, 100, 101, 107, 110, 111)] == [0, 0, 2, 2, 3, 5]


def test_tags_are_found_exactly_and_by_prefix() -> None:
    reader = SegmentReader(sealed(), DIRECTORY, 5)
    assert reader.find_tag(b"a:1") == [0, 4]
    assert reader.find_tag(b"a:2") == [1]
    assert reader.find_tag(b"a:") == []
    assert reader.find_tag(b"zzz") == []
    assert reader.find_tag_prefix(b"a:") == [0, 1, 4]
    assert reader.find_tag_prefix(b"") == [0, 1, 3, 4]
    assert reader.find_tag_prefix(b"c") == []
    assert not reader.tags_rebuilt


@given(
    st.lists(st.none() | st.text("ab*", max_size=3).map(str.encode)),
    st.text("ab*", max_size=2).map(str.encode),
)
def test_the_tag_table_agrees_with_a_plain_search(tags: list[bytes | None], wanted: bytes) -> None:
    table = TagTable(encode_tags(1, tags), "x", 1, len(tags))
    assert table.find(wanted) == [at for at, tag in enumerate(tags) if tag == wanted]
    assert table.find_prefix(wanted) == [
        at for at, tag in enumerate(tags) if tag is not None and tag.startswith(wanted)
    ]


@given(
    st.integers(0, 2**63),
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1),
            st.none() | st.binary(max_size=128),
            st.none() | st.binary(max_size=256),
            st.binary(max_size=1000),
        )
    ),
)
def test_whatever_was_written_reads_back(first_seq: int, records: list[SegmentInput]) -> None:
    disk = FakeDisk()
    write_segment(disk, DIRECTORY, first_seq, encode_files(first_seq, records))
    reader = SegmentReader(disk, DIRECTORY, first_seq)
    assert reader.slices(0, len(records)) == expected(records, first_seq)
    assert list(segment_problems(disk, reader)) == []


# Deletes


def test_a_flagged_record_is_skipped_and_stays_flagged_after_a_power_cut() -> None:
    disk = FakeDisk()
    sealed(disk)
    reader = SegmentReader(disk, DIRECTORY, 5)
    before = disk.read(DATA)
    reader.flag_deleted([0, 3])
    reader.flag_deleted([3])
    after = disk.crash_drop_all()
    for found_on, found in ((disk, reader), (after, SegmentReader(after, DIRECTORY, 5))):
        assert [found.deleted(position) for position in range(5)] == [True, False, False, True, False]
        assert found.deleted_bitmap == bytearray([0b1001])
        assert [record[0] for record in found.slices(0, 5)] == [6, 7, 9]
        assert found.slices(0, 5, with_deleted=True) == expected(RECORDS)
        assert found.record(3) == expected(RECORDS)[3]
        assert list(segment_problems(found_on, found)) == []
    changed = [at for at, byte in enumerate(disk.read(DATA)) if byte != before[at]]
    assert len(changed) == 2
    assert {disk.read(DATA)[at] for at in changed} == {0xD5}


def test_any_other_delete_byte_is_live_and_reported() -> None:
    disk = sealed()
    end = len(frame_by_hand(5, *RECORDS[0])) - 1
    overwrite(disk, DATA, end, b"\xd4")
    reader = SegmentReader(disk, DIRECTORY, 5)
    assert not reader.deleted(0)
    assert reader.slices(0, 1) == expected(RECORDS)[:1]
    assert [(problem.path, problem.offset) for problem in segment_problems(disk, reader)] == [(DATA, end)]


def test_a_failed_flag_is_a_failed_disk() -> None:
    disk = FakeDisk()
    sealed(disk)
    reader = SegmentReader(disk, DIRECTORY, 5)
    disk.fail_at(disk.mutating_calls + 2, errno.EIO)
    with pytest.raises(DiskFailed):
        reader.flag_deleted([0])
    assert not reader.deleted(0)


# Sidecars are never evidence


def test_a_missing_or_wrong_index_is_rebuilt_from_the_data() -> None:
    good = sealed().read(INDEX)
    for wrong in (b"", good[:-20], good[:-1], good + good[:20], bytes(100), good[20:] + good[:20]):
        disk = sealed()
        disk.remove(INDEX)
        disk.create(INDEX).write(wrong)
        reader = SegmentReader(disk, DIRECTORY, 5)
        assert reader.index.rebuilt
        assert reader.slices(0, 5) == expected(RECORDS)
        assert next(problem.path for problem in segment_problems(disk, reader)) == INDEX
    disk.remove(INDEX)
    assert SegmentReader(disk, DIRECTORY, 5).slices(2, 4) == expected(RECORDS)[2:4]


def test_a_missing_or_damaged_tag_table_is_rebuilt_from_the_data() -> None:
    good = sealed().read(TAGS)
    other_version = good[:8] + b"\x02" + good[9:]
    other_segment = encode_tags(6, [None, None, b"a:1", None, None])
    for wrong in (None, b"", good[:-1], other_version, other_segment, bytes(100)):
        disk = sealed()
        disk.remove(TAGS)
        if wrong is not None:
            disk.create(TAGS).write(wrong)
        reader = SegmentReader(disk, DIRECTORY, 5)
        assert reader.find_tag(b"a:1") == [0, 4]
        assert reader.tags_rebuilt
        assert [problem.path for problem in segment_problems(disk, reader)] == [TAGS]


def test_sidecars_are_written_anew_from_the_data() -> None:
    disk = FakeDisk()
    sealed(disk)
    before = disk.dump()
    disk.remove(TAGS)
    overwrite(disk, INDEX, 3, b"?")
    rewrite_sidecars(disk, DIRECTORY, 5)
    assert disk.dump() == disk.crash_drop_all().dump() == before


def test_another_version_of_a_tag_table_is_told_apart() -> None:
    good = sealed().read(TAGS)
    with pytest.raises(UnknownVersion):
        TagTable(good[:8] + b"\x02" + good[9:], TAGS, 5, 5)


# Damage


def flip_every_bit(path: str, check: Callable[[Disk, int], None]) -> None:
    content = sealed().read(path)
    for at in range(len(content)):
        for bit in range(8):
            disk = sealed()
            overwrite(disk, path, at, bytes([content[at] ^ 1 << bit]))
            check(disk, at)


def read_each(disk: Disk) -> list[StoredRecord | CorruptFile]:
    """Each record by itself; the error instead where there is one."""
    found: list[StoredRecord | CorruptFile] = []
    reader = SegmentReader(disk, DIRECTORY, 5)
    for position in range(reader.count):
        try:
            found.append(reader.record(position))
        except CorruptFile as error:
            found.append(error)
    return found


def test_no_flipped_bit_of_the_data_gives_a_wrong_record() -> None:
    delete_bytes = [reader_end - 1 for reader_end in frame_ends()]

    def check(disk: Disk, at: int) -> None:
        try:
            found = read_each(disk)
        except CorruptFile as error:
            found = [error]
        right = [record for record in found if not isinstance(record, CorruptFile)]
        errors = [error for error in found if isinstance(error, CorruptFile)]
        assert set(right) <= set(expected(RECORDS))
        if at in delete_bytes:
            assert right == expected(RECORDS)
        else:
            assert errors
            assert all(error.path == DATA and error.offset <= at for error in errors)

    flip_every_bit(DATA, check)


def frame_ends() -> list[int]:
    ends, end = [], 0
    for position, record in enumerate(RECORDS):
        end += len(frame_by_hand(5 + position, *record))
        ends.append(end)
    return ends


def test_no_flipped_bit_of_the_index_changes_what_is_read() -> None:
    def check(disk: Disk, at: int) -> None:
        reader = SegmentReader(disk, DIRECTORY, 5)
        assert reader.slices(0, 5) == expected(RECORDS)
        assert read_each(disk) == expected(RECORDS)
        assert [reader.ts(position) for position in range(5)] == [100, 100, 107, 110, 110]
        assert [(problem.path, problem.offset) for problem in segment_problems(disk, reader)] == [
            (INDEX, at // 20 * 20)
        ]

    flip_every_bit(INDEX, check)


def test_no_flipped_bit_of_the_tag_table_changes_what_is_found() -> None:
    def check(disk: Disk, at: int) -> None:
        reader = SegmentReader(disk, DIRECTORY, 5)
        assert reader.find_tag(b"a:1") == [0, 4]
        assert reader.find_tag_prefix(b"a") == [0, 1, 4]
        assert [problem.path for problem in segment_problems(disk, reader)] == [TAGS]

    flip_every_bit(TAGS, check)


def test_verify_goes_on_after_a_damaged_record() -> None:
    disk = sealed()
    ends = frame_ends()
    for position in (1, 3):
        overwrite(disk, DATA, ends[position] - 10, b"\xff")
    problems = list(segment_problems(disk, SegmentReader(disk, DIRECTORY, 5)))
    assert [(problem.path, problem.offset) for problem in problems] == [(DATA, ends[0]), (DATA, ends[2])]


def test_a_truncated_sealed_segment_is_corruption() -> None:
    disk = sealed()
    file = disk.open_append(DATA)
    file.truncate(disk.size(DATA) - 1)
    with pytest.raises(CorruptFile) as caught:
        SegmentReader(disk, DIRECTORY, 5)
    assert caught.value.offset == frame_ends()[3]


# Writing


def sealed_dump() -> dict[str, bytes]:
    disk = FakeDisk()
    sealed(disk)
    return disk.dump()


def test_a_segment_is_durable_when_it_is_written() -> None:
    disk = FakeDisk()
    files = encode_files(5, RECORDS)
    assert len(files.data) == frame_ends()[-1]
    write_segment(disk, DIRECTORY, 5, files)
    assert disk.crash_drop_all().dump() == sealed_dump()


def test_dead_records_are_marked_deleted_from_the_start() -> None:
    disk = FakeDisk()
    write_segment(disk, DIRECTORY, 5, encode_files(5, RECORDS, dead=[1, 3]))
    marked = FakeDisk()
    sealed(marked)
    SegmentReader(marked, DIRECTORY, 5).flag_deleted([1, 3])
    assert disk.dump() == marked.dump()


def test_a_segment_shorter_than_its_known_length_is_corruption() -> None:
    disk = sealed()
    with pytest.raises(CorruptFile):
        SegmentReader(disk, DIRECTORY, 5, disk.size(DATA) + 1)


def test_an_empty_segment_reads_as_empty() -> None:
    disk = FakeDisk()
    write_segment(disk, DIRECTORY, 5, encode_files(5, []))
    reader = SegmentReader(disk, DIRECTORY, 5)
    assert (reader.count, reader.last_seq) == (0, 4)
    assert reader.slices(0, 1) == []
    assert reader.find_tag(b"x") == []
    assert reader.bisect_ts(0) == 0
    assert list(segment_problems(disk, reader)) == []


def test_a_dropped_segment_is_gone_for_good() -> None:
    disk = FakeDisk()
    sealed(disk)
    remove_segment(disk, DIRECTORY, 5)
    remove_segment(disk, DIRECTORY, 5)
    assert disk.crash_drop_all().dump() == {}


def test_after_a_crash_at_any_call_the_segment_can_be_written_again() -> None:
    counting = FakeDisk()
    sealed(counting)
    for call in range(1, counting.mutating_calls + 1):
        for applied, torn_bytes in ((False, 0), (False, 40), (True, 0)):
            disk = FakeDisk()
            disk.stop_at(call, applied=applied, torn_bytes=torn_bytes)
            with pytest.raises(SimulatedCrash):
                sealed(disk)
            for after in (
                disk.crash_keep_all(),
                disk.crash_drop_all(),
                *(disk.crash(call * 8 + seed) for seed in range(8)),
            ):
                sealed(after)
                assert after.crash_drop_all().dump() == sealed_dump()
