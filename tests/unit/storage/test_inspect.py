"""The dump of each kind of file: every entry, what is wrong with a bad one, and the way on behind it."""

import json

import pytest
from msgspec import Raw

from topics.cli.inspect import render_json, render_text
from topics.model.record import NewRecord
from topics.storage import paths, snapshot_chain
from topics.storage.frame import FrameKind, control_frame
from topics.storage.inspect import Entry, FileKind, NotInspectable, entries, kind_of
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import DATA_DIR, SimulatedServer

WAL = f"{DATA_DIR}/wal/wal-0000000000000000.log"
SEGMENT = f"{DATA_DIR}/topics/00000001/seg-0000000000000001"


def directory() -> FakeDisk:
    disk = FakeDisk()
    server = SimulatedServer(disk, FakeClock(), segment_events_max=3)
    server.start()
    records = [
        NewRecord(Raw(b"1"), tag="a", node="n"),
        NewRecord(Raw(b"2"), meta=Raw(b'{"m":"1"}')),
        NewRecord(Raw(b"3")),
    ]
    server.write("orders", records, key="k1", config={"durability": "fsync"})
    server.delete_records("orders", match="a")
    server.checkpoint()
    server.write("orders", 2)
    return disk.crash_keep_all()


def dump(disk: FakeDisk, path: str) -> list[Entry]:
    return list(entries(disk, path, kind_of(disk, path)))


def flip(disk: FakeDisk, path: str, at: int) -> None:
    file = disk.open_append(path)
    file.write_at(at, bytes([disk.read(path)[at] ^ 0xFF]))


def test_a_log_is_dumped_frame_by_frame_and_ends_with_the_readers_verdict() -> None:
    found = dump(directory(), WAL)
    kinds = [entry.kind for entry in found if entry.kind != "checkpoint_mark"]
    writes = ["appended"] * 3, ["appended"] * 2
    assert kinds == ["restarted", "topic-created", *writes[0], "records-deleted", *writes[1], "clean end"]
    created, deleted = (
        next(each for each in found if each.kind == kind) for kind in ("topic-created", "records-deleted")
    )
    assert (created.topic_id, created.fields["name"], created.flags) == (1, "orders", "continues")
    assert deleted.fields == {"before_seq": 4, "match": ("a", False)}
    appends = [entry for entry in found if entry.kind == "appended"]
    assert [entry.seq for entry in appends] == [1, 2, 3, 4, 5]
    assert (appends[0].node, appends[0].tag, appends[0].flags) == (b"n", b"a", "tag+node+durable+continues")
    assert appends[2].payload == b"3\x00\x00k1"
    assert all(not entry.wrong for entry in found)


def test_the_dump_of_a_log_goes_on_after_a_bad_checksum() -> None:
    disk = directory()
    second = next(entry for entry in dump(disk, WAL) if entry.seq == 2)
    flip(disk, WAL, second.offset + 40)
    found = dump(disk, WAL)
    assert [(entry.seq, entry.wrong) for entry in found if entry.wrong] == [
        (2, "the checksum does not match"),
        (0, found[-1].wrong),
    ]
    assert [entry.seq for entry in found if entry.kind == "appended"] == [1, 2, 3, 4, 5]
    assert (found[-1].kind, found[-1].offset) == ("corrupt", second.offset)


def test_the_dump_of_a_log_goes_on_at_the_next_sync_mark_after_bad_lengths() -> None:
    disk = directory()
    first = next(entry for entry in dump(disk, WAL) if entry.seq == 1)
    flip(disk, WAL, first.offset)
    found = dump(disk, WAL)
    assert [entry.kind for entry in found if entry.wrong] == ["?", "corrupt"]
    assert [entry.seq for entry in found if entry.kind == "appended"] == [4, 5]


def test_an_operation_this_version_does_not_know_is_shown_as_it_is() -> None:
    disk = directory()
    frame = control_frame(FrameKind.LEASE, 7, 0, 9, b'{"is":"unheard-of"}')
    disk.open_append(WAL).write_at(dump(disk, WAL)[-1].offset, frame)
    unknown = dump(disk, WAL)[-2]
    assert (unknown.kind, unknown.topic_id, unknown.payload) == ("lease", 7, b'{"is":"unheard-of"}')
    assert "no operation this version knows" in unknown.wrong


def test_a_torn_log_is_called_torn() -> None:
    disk = directory()
    end = dump(disk, WAL)[-1].offset
    disk.open_append(WAL).truncate(end - 3)
    verdict = dump(disk, WAL)[-1]
    assert (verdict.kind, verdict.wrong) == ("torn tail", "")


def test_a_log_whose_last_frames_are_missing_is_corrupt_when_another_file_follows() -> None:
    disk = directory()
    disk.open_append(WAL).truncate(dump(disk, WAL)[-1].offset - 3)
    disk.create(f"{DATA_DIR}/wal/wal-0000000000000099.log")
    assert dump(disk, WAL)[-1].kind == "corrupt"


def test_a_delete_since_the_segment_was_written_is_in_the_snapshot_before_it_is_in_the_segment() -> None:
    disk = FakeDisk()
    server = SimulatedServer(disk, FakeClock(), segment_events_max=3)
    server.start()
    server.write("orders", 3, config={"durability": "fsync"})
    server.checkpoint()
    server.delete_records("orders", before_seq=2)
    shown = []
    for _ in range(3):
        server.checkpoint()
        loaded = snapshot_chain.load_latest(disk, paths.meta_dir(DATA_DIR))
        assert loaded is not None
        shown.append((loaded.images[0].segments[0].deleted, dump(disk, f"{SEGMENT}.data")[0].kind))
    assert shown == [([0], "record"), ([0], "deleted"), ([], "deleted")]


def test_a_segment_shows_its_deleted_records() -> None:
    found = dump(directory(), f"{SEGMENT}.data")
    assert [(entry.kind, entry.seq) for entry in found] == [("deleted", 1), ("record", 2), ("record", 3)]
    assert found[1].payload == b'2\x00{"m":"1"}'


def test_the_dump_of_a_segment_finds_its_way_by_the_index() -> None:
    disk = directory()
    second = dump(disk, f"{SEGMENT}.data")[1]
    flip(disk, f"{SEGMENT}.data", second.offset)
    found = dump(disk, f"{SEGMENT}.data")
    assert [(entry.kind, entry.seq) for entry in found] == [("deleted", 1), ("?", 0), ("record", 3)]


def test_an_index_entry_is_held_against_its_record() -> None:
    disk = directory()
    assert [entry.wrong for entry in dump(disk, f"{SEGMENT}.idx")] == ["", "", ""]
    flip(disk, f"{SEGMENT}.idx", 20)
    assert [bool(entry.wrong) for entry in dump(disk, f"{SEGMENT}.idx")] == [False, True, False]


def test_a_tag_table_lists_seqs() -> None:
    disk = FakeDisk()
    server = SimulatedServer(disk, FakeClock(), segment_events_max=3)
    server.start()
    server.write("orders", [NewRecord(Raw(b"1"), tag=tag) for tag in "aba"], config={"durability": "fsync"})
    server.checkpoint()
    found = dump(disk, f"{SEGMENT}.tags")
    assert [(entry.tag, entry.fields["seqs"]) for entry in found[1:]] == [(b"a", [1, 3]), (b"b", [2])]
    flip(disk, f"{SEGMENT}.tags", 40)
    assert "checksum" in dump(disk, f"{SEGMENT}.tags")[0].wrong


def newest_increment(disk: FakeDisk) -> str:
    directory = paths.meta_dir(DATA_DIR)
    return snapshot_chain.increment_path(directory, snapshot_chain.numbers(disk, directory).newest)


def test_a_snapshot_shows_the_tails_it_has() -> None:
    disk = FakeDisk()
    server = SimulatedServer(disk, FakeClock())
    server.start()
    server.write("orders", 5, config={"durability": "fsync"})
    server.delete_records("orders", before_seq=2)
    server.checkpoint()
    found = dump(disk, newest_increment(disk))
    assert [(entry.kind, entry.seq) for entry in found[1:]] == [
        ("topic", 5),
        ("tail", 1),
        ("deleted", 1),
        ("record", 2),
        ("record", 3),
        ("record", 4),
        ("record", 5),
    ]
    assert found[3].topic_id == 1
    assert disk.read(newest_increment(disk))[found[4].offset :].startswith(b"\x29\x00\x00\x00\x00\x02\x00")


def test_a_snapshot_shows_topics_and_segments() -> None:
    disk = directory()
    path = newest_increment(disk)
    found = dump(disk, path)
    assert [entry.kind for entry in found] == ["snapshot", "topic", "segment"]
    assert found[1].fields["name"] == "orders"
    assert found[2].fields["live_count"] == 2
    flip(disk, path, 50)
    assert "checksum" in dump(disk, path)[0].wrong


def test_how_far_the_log_is_is_shown() -> None:
    (found,) = dump(directory(), f"{DATA_DIR}/meta/wal")
    assert (found.kind, found.wrong, list(found.fields)) == ("positions", "", ["synced"])


def test_heads_are_shown() -> None:
    found = dump(directory(), f"{DATA_DIR}/meta/heads")
    assert [(entry.kind, entry.topic_id, entry.seq) for entry in found] == [("heads", 0, 0), ("head", 1, 5)]


def test_a_file_of_somebody_else_is_refused() -> None:
    disk = FakeDisk()
    disk.make_dir("/x")
    disk.create("/x/notes.txt").write(b"hello")
    with pytest.raises(NotInspectable):
        kind_of(disk, "/x/notes.txt")


def test_text_shows_time_in_utc_and_keeps_terminal_codes_out() -> None:
    entry = Entry(7, "record", seq=3, ts=1_700_000_000_123, tag=b"\x1b[2J", payload=b'"' + b"x" * 200 + b'"')
    text = render_text(entry, FileKind.SEGMENT)
    assert "seq=3 ts=1700000000123 (2023-11-14 22:13:20.123Z)" in text
    assert "\x1b" not in text
    assert "… (202 characters) ok" in text


def test_json_splits_the_payload() -> None:
    document = json.loads(render_json(Entry(7, "appended", seq=3, payload=b'1\x00{"m":1}\x00key')))
    assert document == {
        "offset": 7,
        "kind": "appended",
        "ok": True,
        "seq": 3,
        "data": "1",
        "meta": '{"m":1}',
        "idempotency_key": "key",
    }
