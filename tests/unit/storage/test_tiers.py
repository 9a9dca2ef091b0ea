"""Hot and cold: which segments move, that a crash loses none, and that nothing is left behind."""

from collections.abc import Mapping

import pytest
from sealed_segments import COLD, HOT, RECORDS, TOPIC_ID, reader_of, seal

from topics.model.image import SegmentImage
from topics.storage import paths
from topics.storage.errors import DiskFailed
from topics.storage.tiers import Tiers
from topics.testing.fake_disk import FakeDisk, SimulatedCrash

HOT_DIR, COLD_DIR = paths.topic_dir(HOT, TOPIC_ID), paths.topic_dir(COLD, TOPIC_ID)


def segment(
    first_seq: int, *, data_bytes: int = 100, sealed: bool = True, cold: bool = False, cleared: bool = False
) -> SegmentImage:
    return SegmentImage(first_seq, 10, data_bytes, 10, 100, 1, 1, sealed=sealed, cold=cold, cleared=cleared)


def mapping(*segments: SegmentImage) -> Mapping[int, SegmentImage]:
    return {each.first_seq: each for each in segments}


def tiers(disk: FakeDisk, *, cold_root: str = COLD, segments: int = 4, bytes_max: int = 0) -> Tiers:
    made = Tiers(disk, HOT, cold_root, segments, bytes_max)
    disk.make_dir(COLD)
    made.cold.claim(1, lambda: f"{1:032x}")
    return made


def filled(*first_seqs: int) -> FakeDisk:
    disk = FakeDisk()
    for first_seq in first_seqs:
        seal(disk, HOT, first_seq)
    return disk


def found(disk: FakeDisk, directory: str) -> list[int]:
    """The first seqs of the segments whose data is there."""
    parsed = (paths.parse_segment_name(name) for name in disk.list_dir(directory))
    return sorted(each[0] for each in parsed if each is not None and each[1] is paths.SegmentPart.DATA)


def everything(disk: FakeDisk) -> set[str]:
    """But for what says whose the cold tier is."""
    of_owner = (paths.owner_path(COLD), paths.owner_path(COLD_DIR), paths.cold_id_path(HOT))
    return {name for name in disk.dump() if name.startswith((HOT, COLD)) and name not in of_owner}


@pytest.mark.parametrize(
    ("kept", "bytes_max", "moving"),
    [
        (4, 0, []),
        (3, 0, [1]),
        (0, 0, [1, 11, 21, 31]),
        (4, 250, [1, 11]),
        (1, 250, [1, 11, 21]),
        (9, 1, [1, 11, 21, 31]),
    ],
)
def test_the_oldest_beyond_either_bound_move(kept: int, bytes_max: int, moving: list[int]) -> None:
    disk = filled(1, 11, 21, 31)
    segments = mapping(*(segment(first_seq) for first_seq in (1, 11, 21, 31)))
    assert tiers(disk, segments=kept, bytes_max=bytes_max).relocate(TOPIC_ID, segments) == moving
    assert found(disk, COLD_DIR) == moving
    assert found(disk, HOT_DIR) == [1, 11, 21, 31], "hot copies go only when a snapshot points to the cold ones"


def test_only_sealed_hot_segments_with_records_count_and_move() -> None:
    disk = filled(11, 31)
    segments = mapping(
        segment(1, cold=True), segment(11), segment(21, cleared=True), segment(31), segment(41, sealed=False)
    )
    assert tiers(disk, segments=1).relocate(TOPIC_ID, segments) == [11]


def test_without_a_cold_tier_nothing_moves() -> None:
    assert tiers(filled(1, 11), cold_root="", segments=0).relocate(TOPIC_ID, mapping(segment(1), segment(11))) == []


def test_a_cold_copy_is_whole_and_durable() -> None:
    disk = filled(1)
    tiers(disk, segments=0).relocate(TOPIC_ID, mapping(segment(1)))
    after = disk.crash_drop_all()
    reader = reader_of(after, COLD, 1)
    assert (len(reader.slices(0, 100)), reader.index.rebuilt, reader.find_tag(b"b"), reader.tags_rebuilt) == (
        len(RECORDS),
        False,
        [3],
        False,
    )


def test_a_copy_cut_short_anywhere_is_made_again() -> None:
    for call in range(1, 100):
        disk = filled(1)
        disk.stop_at(disk.mutating_calls + call)
        try:
            tiers(disk, segments=0).relocate(TOPIC_ID, mapping(segment(1)))
        except SimulatedCrash:
            for seed in range(5):
                after = disk.crash(seed)
                assert tiers(after, segments=0).relocate(TOPIC_ID, mapping(segment(1))) == [1]
                assert len(reader_of(after, COLD, 1).slices(0, 100)) == len(RECORDS)
        else:
            assert call > 10
            return
    pytest.fail("the copy never came to its end")


def test_a_cold_tier_that_refuses_is_named() -> None:
    disk = filled(1)
    both = tiers(disk, segments=0)
    disk.fail_at(disk.mutating_calls + 2)
    with pytest.raises(DiskFailed, match="copying a segment to the cold tier"):
        both.relocate(TOPIC_ID, mapping(segment(1)))
    assert found(disk, HOT_DIR) == [1]


def test_a_removed_topic_is_gone_from_both_tiers() -> None:
    disk = filled(1, 11)
    both = tiers(disk, segments=1)
    both.relocate(TOPIC_ID, mapping(segment(1), segment(11)))
    both.remove_topic(TOPIC_ID)
    both.remove_topic(TOPIC_ID)
    assert everything(disk) == set()


def test_orphans_go_and_what_is_known_stays() -> None:
    disk = filled(1, 11, 21, 31)
    both = tiers(disk, segments=2)
    both.relocate(TOPIC_ID, mapping(*(segment(first_seq) for first_seq in (1, 11, 21, 31))))
    known = {TOPIC_ID: mapping(segment(1, cold=True), segment(11), segment(21, cleared=True))}
    both.remove_orphans(known, frozenset(), frozenset())
    assert (found(disk, HOT_DIR), found(disk, COLD_DIR)) == ([11], [1])
    assert len(everything(disk)) == 6


def test_what_only_the_snapshot_before_points_to_is_no_orphan() -> None:
    disk = filled(1, 11)
    both = tiers(disk, segments=1)
    both.relocate(TOPIC_ID, mapping(segment(1), segment(11)))
    known = {TOPIC_ID: mapping(segment(1, cold=True))}
    both.remove_orphans(known, {(TOPIC_ID, 1, False)}, frozenset())
    assert (found(disk, HOT_DIR), found(disk, COLD_DIR)) == ([1], [1])
    both.remove_orphans({}, frozenset(), {TOPIC_ID})
    assert (found(disk, HOT_DIR), found(disk, COLD_DIR)) == ([1], [1])
    both.remove_orphans({}, frozenset(), frozenset())
    assert everything(disk) == set()


def test_unfinished_copies_go_and_files_of_others_stay() -> None:
    disk = filled(1)
    for name in ("seg-0000000000000099.data.tmp", "notes.txt"):
        disk.create(f"{HOT_DIR}/{name}").close()
    disk.make_dir(f"{HOT}/topics/lost+found")
    tiers(disk).remove_orphans({TOPIC_ID: mapping(segment(1))}, frozenset(), frozenset())
    assert f"{HOT_DIR}/notes.txt" in everything(disk)
    assert len(everything(disk)) == 4
    assert disk.exists(f"{HOT}/topics/lost+found")
