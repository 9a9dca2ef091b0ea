"""Torn tail, corruption, unknown version: each fault of a WAL file gets its own outcome."""

import mmap
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wal_frames import append_frame, write_frames

from topics.storage.errors import CorruptFile, UnknownVersion
from topics.storage.frame import (
    BATCH_CONTINUES,
    HAS_NODE,
    HAS_TAG,
    Frame,
    FrameKind,
    control_frame,
)
from topics.storage.fs import MappedBytes
from topics.storage.wal_mark import WAL_FORMAT, FileMark, file_mark, sync_mark
from topics.storage.wal_reader import End, EndReason, behind, scan

PATH = "wal/wal-0000000000000000.log"


def record(seq: int, payload: bytes = b"payload", flags: int = 0) -> bytes:
    return append_frame(1, seq, 1000 + seq, flags, b"", b"", payload)


def file_of(*groups: list[bytes], zeros: int = 0) -> bytes:
    """A file as the writer leaves it: each group was written and synced before the next."""
    content = file_mark(0, 0, 1)
    for number, group in enumerate(groups):
        if number:
            content += sync_mark(len(content))
        content += b"".join(group)
    return content + bytes(zeros)


def read(buffer: MappedBytes, *, followed: bool = False) -> tuple[list[int], End]:
    """The seqs of the records in whole batches, and the end."""
    frames = scan(buffer, PATH, followed=followed)
    seqs = [frame[3] for frame in frames if frame[0] == FrameKind.APPEND]
    assert frames.end is not None
    return seqs, frames.end


def flip(content: bytes, at: int, bit: int = 0) -> bytes:
    return content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]


def test_frames_come_back_as_they_were_written() -> None:
    content = file_mark(3, 7, 1) + append_frame(9, 5, 77, HAS_TAG | HAS_NODE, b"node", b"tag", b"data")
    content += control_frame(FrameKind.DELETE, 9, 0, 78, b"body")
    frames = scan(content, PATH)
    mark, record_frame, delete = list(frames)
    assert mark[0] == FrameKind.CHECKPOINT_MARK
    assert record_frame[:8] == (FrameKind.APPEND, 3, 9, 5, 77, b"node", b"tag", b"data")
    assert delete == (FrameKind.DELETE, 0, 9, 0, 78, b"", b"", b"body", len(content))
    assert record_frame[8] == len(content) - len(control_frame(FrameKind.DELETE, 9, 0, 78, b"body"))
    assert frames.mark == FileMark(3, 7, 1)
    assert frames.end == End(EndReason.CLEAN, len(content))


def test_a_scan_can_begin_at_any_frame() -> None:
    content = file_of([record(1), record(2)])
    (first, *_) = [frame[8] for frame in scan(content, PATH) if frame[0] == FrameKind.APPEND]
    assert [frame[3] for frame in scan(content, PATH, first)] == [2]


GROUPS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=4)


@given(GROUPS, st.booleans())
def test_frames_that_are_skipped_are_not_there_and_all_others_are(groups: list[list[int]], zeros: bool) -> None:
    """A group is what was synced together, a number in it a batch of so many more frames than one."""
    seq = 0
    content = file_mark(0, 0, 1)
    for number, group in enumerate(groups):
        content += sync_mark(len(content)) if number else b""
        for more in group:
            count = more + 1
            content += write_frames(1, seq, 1000, [(None, "tag", b"data")] * count, durable=False)
            seq += count
    content += bytes(100 * zeros)
    everything = [frame for frame in scan(content, PATH) if frame[0] != FrameKind.CHECKPOINT_MARK]
    ends_of_batches = [0, *(number for number, frame in enumerate(everything, 1) if not frame[1] & BATCH_CONTINUES)]
    for count in range(seq + 1):
        offset = behind(content, count)
        if count not in ends_of_batches:
            assert offset is None, "a batch is read whole"
            continue
        assert offset is not None
        rest = scan(content, PATH, offset)
        assert [frame for frame in rest if frame[0] != FrameKind.CHECKPOINT_MARK] == everything[count:]
        assert rest.end == End(EndReason.CLEAN, len(content) - 100 * zeros)
    assert behind(content, seq + 1) is None


def test_what_is_damaged_is_not_skipped_into_the_middle_of_something() -> None:
    """Whichever bit is wrong: as many frames are passed over as are to be, or none."""
    content = file_of([record(1), record(2)], [record(3, b"p" * 30)], [record(4)])
    whole = behind(content, 3)
    for at in range(len(content)):
        for bit in range(8):
            assert behind(flip(content, at, bit), 3) in (None, whole)
    for at in range(whole or 0):
        assert behind(content[:at], 3) is None


def test_a_map_is_read_like_bytes() -> None:
    content = file_of([record(1)], [record(2)], zeros=5000)
    mapped = mmap.mmap(-1, len(content))
    mapped.write(content)
    assert read(mapped) == read(content)


def test_zeros_after_the_last_frame_are_a_clean_end() -> None:
    content = file_of([record(1), record(2)])
    for zeros in (0, 1, 3, 4, 100, 3_000_000):
        assert read(content + bytes(zeros)) == ([1, 2], End(EndReason.CLEAN, len(content)))


def test_a_truncated_trailing_frame_is_a_torn_tail() -> None:
    start = len(file_of([record(1)]))
    content = file_of([record(1), record(2)])
    for cut in range(start + 1, len(content)):
        for zeros in (0, 600):
            seqs, end = read(content[:cut] + bytes(zeros))
            assert seqs == [1]
            assert (end.reason, end.offset) == (EndReason.TORN, start)


def test_a_frame_whose_length_was_not_written_is_a_torn_tail() -> None:
    start = len(file_of([record(1)]))
    content = file_of([record(1)]) + bytes(4) + record(2)[4:]
    assert read(content)[1].offset == start


def test_a_flipped_byte_after_the_last_sync_mark_is_a_torn_tail() -> None:
    synced = file_of([record(1)], [])
    content = synced + record(2)
    for at in range(len(synced), len(content)):
        seqs, end = read(flip(content, at))
        assert seqs == [1]
        assert (end.reason, end.offset) == (EndReason.TORN, len(synced))


def test_a_flipped_byte_before_a_sync_mark_is_corruption() -> None:
    content = file_of([record(1)], [record(2)], [record(3)])
    start, stop = len(file_of([])), len(file_of([record(1)], [record(2)]))
    for at in range(start, stop):
        with pytest.raises(CorruptFile) as caught:
            read(flip(content, at))
        assert caught.value.path == PATH
        assert caught.value.offset <= at


def test_good_frames_after_a_bad_one_do_not_make_it_corruption() -> None:
    """Unsynced pages reach the disk in any order: only a sync mark proves that something was durable."""
    start = len(file_of([record(1)]))
    content = file_of([record(1), record(2), record(3), record(4)])
    seqs, end = read(flip(content, start + 50))
    assert seqs == [1]
    assert (end.reason, end.offset) == (EndReason.TORN, start)


def test_a_lost_sector_before_a_sync_mark_is_corruption() -> None:
    content = file_of([record(seq) for seq in range(1, 60)], [record(60)])
    for at in range(0, len(file_of([record(seq) for seq in range(1, 60)])) - 512, 512):
        with pytest.raises(CorruptFile):
            read(content[:at] + bytes(512) + content[at + 512 :])


def test_a_sync_mark_at_another_offset_proves_nothing() -> None:
    """A payload, or an old file's blocks, may hold what looks like a mark."""
    start = len(file_of([record(1)]))
    forged = append_frame(1, 3, 0, 0, b"", b"", sync_mark(start))
    content = flip(file_of([record(1), record(2)]), start + 40) + forged
    assert read(content)[1].reason is EndReason.TORN


def test_a_checkpoint_mark_of_the_engine_is_no_sync_mark() -> None:
    start = len(file_of([record(1)]))
    mark = control_frame(FrameKind.CHECKPOINT_MARK, 0, 0, 0, b'{"checkpointed":1}')
    content = flip(file_of([record(1), record(2)]), start + 40) + mark
    assert read(content)[1].reason is EndReason.TORN


def test_a_torn_tail_in_a_file_that_another_follows_is_corruption() -> None:
    content = file_of([record(1), record(2)])
    assert read(content, followed=True)[1].reason is EndReason.CLEAN
    assert read(content + bytes(100), followed=True)[1].reason is EndReason.CLEAN
    with pytest.raises(CorruptFile):
        read(content[:-1], followed=True)
    with pytest.raises(CorruptFile):
        read(b"", followed=True)


def test_a_batch_without_its_last_frame_is_a_torn_tail_at_its_first() -> None:
    batch = write_frames(1, 2, 0, [(None, None, b"x")] * 3, durable=False)
    start = len(file_of([record(1)]))
    whole = file_of([record(1), batch])
    assert read(whole) == ([1, 2, 3, 4], End(EndReason.CLEAN, len(whole)))
    for cut in range(start + 1, len(whole)):
        seqs, end = read(whole[:cut])
        assert seqs == [1]
        assert (end.reason, end.offset) == (EndReason.TORN, start)


def test_a_mark_inside_a_batch_is_corruption() -> None:
    content = file_of([record(1, flags=BATCH_CONTINUES)], [record(2)])
    with pytest.raises(CorruptFile):
        read(content)


@pytest.mark.parametrize("content", [b"", b"\x01", bytes(10), bytes(10_000), file_mark(0, 0, 1)[:-1]])
def test_a_file_too_short_for_its_first_frame_is_torn_at_its_start(content: bytes) -> None:
    seqs, end = read(content)
    assert seqs == []
    assert (end.reason, end.offset) == (EndReason.TORN, 0)


def test_a_damaged_first_frame_is_corruption() -> None:
    """A file gets its name after its first frame was synced, so damage there is no accident of a crash."""
    content = file_of([record(1)])
    for at in range(len(file_mark(0, 0, 1))):
        with pytest.raises(CorruptFile):
            read(flip(content, at))


def test_a_file_that_begins_with_a_record_is_corrupt() -> None:
    with pytest.raises(CorruptFile):
        read(record(1) + record(2))
    with pytest.raises(CorruptFile):
        read(sync_mark(0) + record(2))


def test_another_format_number_is_an_unknown_version() -> None:
    for version, whose in ((WAL_FORMAT - 1, "an earlier version of topics"), (WAL_FORMAT + 1, "does not know")):
        body = b'{"format":%d,"shard":0,"first_lsn":0}' % version
        with pytest.raises(UnknownVersion, match=whose) as caught:
            read(control_frame(FrameKind.CHECKPOINT_MARK, 0, 0, 0, body) + record(1))
        assert caught.value.version == f"WAL format {version}"


def test_an_intact_frame_of_an_unknown_type_is_an_unknown_version() -> None:
    for kind in (0, 12, 255):
        frame = control_frame(kind, 1, 0, 0, b"?")  # type: ignore[arg-type]
        with pytest.raises(UnknownVersion):
            read(file_of([record(1), frame]))


def test_no_flipped_bit_gives_a_record_that_was_not_written() -> None:
    groups = [
        [record(1), write_frames(1, 2, 0, [("n", "t", b"x")] * 2, durable=True)],
        [record(4)],
        [record(5)],
    ]
    content = file_of(*groups, zeros=40)
    written = set(scan(content, PATH))
    for at in range(len(content)):
        for bit in range(8):
            survived: list[Frame] = []
            with suppress(CorruptFile):
                survived += scan(flip(content, at, bit), PATH)
            assert written.issuperset(survived)
            seqs = [frame[3] for frame in survived if frame[0] == FrameKind.APPEND]
            assert seqs == list(range(1, len(seqs) + 1))


@given(
    st.lists(
        st.tuples(
            st.integers(1, 11).filter(lambda kind: kind != 8),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**64 - 1),
            st.none() | st.binary(max_size=130),
            st.none() | st.binary(max_size=260),
            st.binary(max_size=2000),
        )
    )
)
def test_whatever_was_framed_reads_back(
    records: list[tuple[int, int, int, int, bytes | None, bytes | None, bytes]],
) -> None:
    content = file_mark(0, 0, 1)
    expected = []
    for kind, topic_id, seq, ts, node, tag, payload in records:
        if kind == 1:
            flags = (HAS_NODE if node is not None else 0) | (HAS_TAG if tag is not None else 0)
            content += append_frame(topic_id, seq, ts, flags, node or b"", tag or b"", payload)
            expected.append((kind, flags, topic_id, seq, ts, node or b"", tag or b"", payload, len(content)))
        else:
            content += control_frame(FrameKind(kind), topic_id, seq, ts, payload)
            expected.append((kind, 0, topic_id, seq, ts, b"", b"", payload, len(content)))
    frames = scan(content, PATH)
    assert list(frames)[1:] == expected
    assert frames.end == End(EndReason.CLEAN, len(content))
