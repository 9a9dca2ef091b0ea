"""`verify_directory`: what is sound, what is a note, and that any flipped byte of what counts is found."""

from collections.abc import Callable

import pytest
from msgspec import Raw, structs
from wal_frames import append_frame

from topics.model.gap import GapReason, LostRange
from topics.model.image import RouterImage, TopicImage
from topics.model.record import NewRecord
from topics.model.router import RouterSettings
from topics.storage import paths, snapshot, snapshot_chain
from topics.storage.errors import NoDataDirectory, UnknownVersion
from topics.storage.findings import Severity
from topics.storage.frame import FrameKind, control_frame
from topics.storage.segment_reader import SegmentReader
from topics.storage.snapshot import NewTail, TopicEntry
from topics.storage.snapshot_chain import Saving, decode_image, encode_image, load_latest
from topics.storage.verify import Report, verify_directory
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash
from topics.testing.simulated_server import COLD_DIR, DATA_DIR, SimulatedServer

FSYNC = {"durability": "fsync"}


def tagged(*tags: str) -> list[NewRecord]:
    return [NewRecord(Raw(b'"%d"' % number), tag=tag) for number, tag in enumerate(tags)]


def started(disk: FakeDisk, *, cold_dir: str = "") -> SimulatedServer:
    server = SimulatedServer(
        disk, FakeClock(), wal_file_bytes=4096, segment_events_max=4, cold_dir=cold_dir, hot_retain_segments=1
    )
    server.start()
    return server


def busy_directory() -> FakeDisk:
    """Sealed and unsealed segments, deletes before and after the last checkpoint, records only in the WAL."""
    disk = FakeDisk()
    server = started(disk)
    for _ in range(3):
        server.write("orders", tagged("a", "b", "a", "c"), config=FSYNC)
    server.write("orders", tagged("a", "b"))
    server.write("capped", 4, config=FSYNC | {"cap_records": 6})
    server.write("capped", 4)
    server.delete_records("orders", match="b", before_seq=9)
    server.checkpoint()
    server.delete_records("orders", match="c")
    server.write("orders", tagged("d", "d"))
    return disk.crash_keep_all()


def verified(disk: FakeDisk, cold: str = "") -> Report:
    return verify_directory(disk, DATA_DIR, cold)


def problems(disk: FakeDisk) -> list[tuple[str, int, str]]:
    return [(each.path, each.offset, each.reason) for each in verified(disk).of(Severity.PROBLEM)]


def overwrite(disk: FakeDisk, path: str, at: int, data: bytes) -> None:
    file = disk.open_append(path)
    file.write_at(at, data)
    file.close()


def newest_snapshot(disk: FakeDisk) -> str:
    directory = paths.meta_dir(DATA_DIR)
    return snapshot_chain.increment_path(directory, snapshot_chain.numbers(disk, directory).newest)


def change_topic(disk: FakeDisk, change: Callable[[TopicImage], TopicImage]) -> None:
    """Rewrites the newest snapshot with the topic `orders` changed."""
    path = newest_snapshot(disk)
    file = snapshot.load(disk, path)
    disk.remove(path)
    disk.remove(snapshot_chain.base_path(paths.meta_dir(DATA_DIR), file.head.number))  # made of the same
    saving = Saving(disk, path, file.head)
    for found in file.topics():
        image = decode_image(file.at(found.image))
        tails = [NewTail.at_hand(tail.first_seq, tail.kept, file.at(tail.place)) for tail in found.tails]
        image = change(image) if image.name == "orders" else image
        saving.add(TopicEntry(found.topic_id, encode_image(image), tails))
    saving.commit(file.removed)


def image_of(disk: FakeDisk) -> TopicImage:
    loaded = load_latest(disk, paths.meta_dir(DATA_DIR))
    assert loaded is not None
    return next(image for image in loaded.images if image.name == "orders")


def test_a_directory_of_a_killed_server_is_sound_and_counted() -> None:
    report = verified(busy_directory())
    assert report.findings == []
    counted = {topic.name: (topic.live, topic.deleted, topic.in_wal, topic.segments) for topic in report.topics}
    assert counted == {"orders": (12, 2, 2, 3), "capped": (6, 2, 0, 2)}
    assert report.wal_frames == 3


def test_a_cleanly_stopped_directory_has_nothing_to_replay() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.write("orders", 5, config=FSYNC)
    server.stop()
    report = verified(disk)
    assert (report.findings, report.wal_frames, report.topics[0].live) == ([], 0, 5)


def test_nothing_is_changed_by_looking() -> None:
    disk = busy_directory()
    before, calls = disk.dump(), disk.mutating_calls
    verified(disk)
    assert (disk.dump(), disk.mutating_calls) == (before, calls)


def test_an_empty_directory_is_no_data_directory() -> None:
    with pytest.raises(NoDataDirectory):
        verified(FakeDisk())


def test_a_checkpoint_stopped_anywhere_leaves_a_sound_directory() -> None:
    """Among these: a delete that a snapshot lists, its delete byte set and not set yet. Should the newest snapshot be
    lost, the one before it fits as well."""
    seen: set[tuple[int, bool]] = set()
    for call in range(1, 400):
        disk = FakeDisk()
        server = started(disk)
        server.write("orders", tagged("a", "b", "a", "c"), config=FSYNC)
        server.checkpoint()
        server.delete_records("orders", match="b")
        server.write("orders", tagged("a", "b"))
        disk.stop_at(disk.mutating_calls + call)
        try:
            for _ in range(3):
                server.checkpoint()
        except SimulatedCrash:
            for after in (disk.crash_keep_all(), disk.crash_drop_all(), disk.crash(call)):
                report = verified(after)
                assert report.of(Severity.PROBLEM) == [], call
                flagged = SegmentReader(after, paths.topic_dir(DATA_DIR, 1), 1).deleted(1)
                seen.add((report.topics[0].deleted, flagged))
                after.remove(newest_snapshot(after))
                assert problems(after) == [], call
        else:
            assert seen == {(0, False), (1, False), (1, True)}
            return
    pytest.fail("the checkpoint never came to its end")


def test_a_delete_the_snapshot_lists_is_counted_before_its_byte_is_set() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.write("orders", tagged("a", "b", "a", "c"), config=FSYNC)
    server.checkpoint()
    server.delete_records("orders", match="a")
    server.checkpoint()
    assert not SegmentReader(disk, paths.topic_dir(DATA_DIR, 1), 1).deleted(0)
    report = verified(disk)
    assert (report.findings, report.topics[0].live, report.topics[0].deleted) == ([], 2, 2)
    unlisted = [structs.replace(segment, deleted=[0]) for segment in image_of(disk).segments]
    change_topic(disk, lambda image: structs.replace(image, segments=unlisted))
    ((_, _, reason),) = problems(disk)
    assert reason.startswith("3 live records")


def test_a_delete_byte_the_log_does_not_explain_is_a_problem() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.write("orders", 4, config=FSYNC)
    server.seal()
    server.stop()
    path = f"{DATA_DIR}/topics/00000001/seg-0000000000000001.data"
    overwrite(disk, path, disk.size(path) - 1, b"\xd5")
    ((found, _, reason),) = problems(disk)
    assert found == path
    assert "3 live records" in reason


@pytest.mark.parametrize("part", ["data", "idx", "tags"])
def test_every_flipped_byte_of_a_sealed_segment_is_found(part: str) -> None:
    disk = busy_directory()
    path = f"{DATA_DIR}/topics/00000001/seg-0000000000000005.{part}"
    for at in range(disk.size(path)):
        damaged = disk.crash_keep_all()
        overwrite(damaged, path, at, bytes([disk.read(path)[at] ^ 0x10]))
        found = problems(damaged)
        assert found, at
        assert {name for name, _, _ in found} == {path}


def test_every_flipped_byte_of_a_snapshot_is_found() -> None:
    disk = busy_directory()
    path = newest_snapshot(disk)
    for at in range(disk.size(path)):
        damaged = disk.crash_keep_all()
        overwrite(damaged, path, at, bytes([disk.read(path)[at] ^ 0x10]))
        report = verified(damaged)
        assert not report.sound
        assert path in {finding.path for finding in report.findings}


def test_damage_to_what_was_synced_in_the_log_is_a_problem_with_file_and_offset() -> None:
    disk = busy_directory()
    path = f"{DATA_DIR}/wal/wal-0000000000000000.log"
    at = disk.read(path).index(b'"name":"orders"')
    overwrite(disk, path, at, b"X")
    ((found, offset, reason),) = problems(disk)
    assert (found, offset < at) == (path, True)
    assert "checksum" in reason


def test_a_torn_tail_is_a_note() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.write("orders", 2, config=FSYNC)
    shard = server.journal.shards[0].writer
    overwrite(disk, shard.active_path, shard.offset, append_frame(1, 3, 0, 0, b"", b"", b"3")[:20])
    report = verified(disk.crash_keep_all())
    (note,) = report.findings
    assert (note.severity, note.path, note.offset) == (Severity.NOTE, shard.active_path, shard.offset)
    assert report.sound


def test_a_log_file_that_is_missing_is_a_problem() -> None:
    disk = FakeDisk()
    server = started(disk)
    for _ in range(60):
        server.write("orders", 4, config=FSYNC)
    files = [name for name in disk.dump() if name.endswith(".log")]
    assert len(files) >= 3
    disk.remove(files[1])
    assert [reason for path, _, reason in problems(disk) if path == files[2]] != []


def test_a_segment_that_is_missing_or_short_is_a_problem() -> None:
    disk = busy_directory()
    path = f"{DATA_DIR}/topics/00000001/seg-0000000000000001.data"
    disk.open_append(path).truncate(10)
    assert problems(disk)[0][0::2] == (path, f"10 bytes long, expected {len(busy_directory().read(path))}")
    disk.remove(path)
    assert problems(disk)[0][0::2] == (path, "missing")


def test_files_nobody_points_to_are_notes() -> None:
    disk = busy_directory()
    for name in ("seg-0000000000000099.data", "seg-0000000000000099.idx", "seg-0000000000000005.data.tmp"):
        disk.create(f"{DATA_DIR}/topics/00000001/{name}")
    report = verified(disk)
    assert report.sound
    assert len(report.of(Severity.NOTE)) == 2


def test_cold_segments_need_their_directory() -> None:
    disk = FakeDisk()
    server = started(disk, cold_dir=COLD_DIR)
    for _ in range(3):
        server.write("orders", 4, config=FSYNC)
    server.checkpoint()
    server.stop()
    assert verified(disk, COLD_DIR).sound
    unnamed = verified(disk)
    assert (unnamed.sound, len(unnamed.of(Severity.UNCHECKED)), unnamed.of(Severity.PROBLEM)) == (False, 1, [])
    path = f"{COLD_DIR}/topics/00000001/seg-0000000000000001.data"
    overwrite(disk, path, 20, b"\xff")
    assert [finding.path for finding in verified(disk, COLD_DIR).of(Severity.PROBLEM)] == [path]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cap_lost_seq": 9}, "evict_floor 10 is above earliest_seq 1"),
        ({"earliest_seq": 99}, "earliest_seq 99 is above head_seq 14 + 1"),
        ({"lost_ranges": [LostRange(15, 16, GapReason.CRASH)]}, "lost range 15 to 16 is out of order"),
        ({"lost_ranges": [LostRange(3, 2, GapReason.CRASH)]}, "lost range 3 to 2 is out of order"),
        ({"routers": [RouterImage(9, "r", 77, RouterSettings(), 0, 0, 0)]}, "a source, topic 77, that is not there"),
        ({"routers": [RouterImage(9, "r", 1, RouterSettings(), 0, 99, 0)]}, "at seq 99, beyond the head of its source"),
        ({"head_seq": 20}, "seqs 15 to 20 are in no segment and not lost"),
        ({"head_seq": 12}, "a segment goes on to seq 14, beyond head_seq 12"),
    ],
)
def test_floors_that_contradict_each_other_are_problems(change: dict[str, object], reason: str) -> None:
    disk = busy_directory()
    change_topic(disk, lambda image: structs.replace(image, **change))
    assert any(reason in found for _, _, found in problems(disk))


def test_a_segment_missing_from_the_snapshot_is_noticed_by_its_seqs() -> None:
    disk = busy_directory()
    change_topic(disk, lambda image: structs.replace(image, segments=[image.segments[0], *image.segments[2:]]))
    assert any("seqs 5 to 8 are in no segment" in found for _, _, found in problems(disk))


def test_another_version_is_unchecked_and_no_problem() -> None:
    disk = busy_directory()
    overwrite(disk, newest_snapshot(disk), 8, b"\x09")
    assert [finding.path for finding in verified(disk).of(Severity.UNCHECKED)] == [newest_snapshot(disk)]


def test_an_operation_of_another_version_is_unchecked_and_stops_a_start() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.write("orders", 2, config=FSYNC)
    shard = server.journal.shards[0].writer
    overwrite(disk, shard.active_path, shard.offset, control_frame(FrameKind.LEASE, 1, 0, 9, b'{"is":"unheard-of"}'))
    disk = disk.crash_keep_all()
    assert [finding.path for finding in verified(disk).of(Severity.UNCHECKED)] == [shard.active_path]
    with pytest.raises(UnknownVersion, match="unheard-of"):
        started(disk)
