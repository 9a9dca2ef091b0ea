"""A topic reads from files as it does from its server, whatever happened to it."""

import json
import pickle
from pathlib import Path

import pytest
from file_readings import FileReading, assert_as_served, kinds, payloads_of, read_partitions, read_topic, seqs_of
from msgspec import UNSET, Raw

from topics.engine.queues import Claimer
from topics.errors import TopicNotFound
from topics.model.gap import GapReason
from topics.model.record import NewRecord
from topics.spark import file_log
from topics.spark.file_log import FileLog
from topics.spark.file_partition import InlinePiece, OutOfRange, SegmentPiece, TailPiece, WalPiece
from topics.spark.offsets import Gap
from topics.storage.backup import back_up
from topics.storage.errors import ColdTierUnknown, CorruptFile, NoDataDirectory
from topics.storage.fs import RealDisk
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import DATA_DIR, SimulatedServer

FSYNC: dict[str, object] = {"durability": "fsync"}


def started(
    directory: Path, *, cold: bool = False, wal_shards: int = 1, wal_file_bytes: int = 1 << 16
) -> SimulatedServer:
    server = SimulatedServer(
        RealDisk(),
        FakeClock(),
        wal_file_bytes=wal_file_bytes,
        data_dir=str(directory / "data"),
        cold_dir=str(directory / "cold") if cold else "",
        segment_events_max=4,
        hot_retain_segments=1,
        wal_shards=wal_shards,
    )
    server.start()
    return server


def files(directory: Path, *, cold: bool = False) -> FileLog:
    return FileLog(str(directory / "data"), str(directory / "cold") if cold else None)


def rich(numbers: range) -> list[NewRecord]:
    """Records with and without node, tag and meta, in every combination, not all of them ASCII."""
    return [
        NewRecord(
            Raw(json.dumps({"n": number, "text": "żółw"}, ensure_ascii=False).encode()),
            tag=f"tag.{number % 3}" if number & 1 else None,
            node=f"węzeł-{number % 2}" if number & 2 else None,
            meta=Raw(b'{"a":"%d","b":"\\u00e9"}' % number) if number & 4 else UNSET,
        )
        for number in numbers
    ]


def write_each(server: SimulatedServer, records: list[NewRecord], config: dict[str, object] | None = None) -> None:
    """One write a record: what is written at once is in one segment."""
    for record in records:
        server.write("orders", [record], config=config)


def test_sealed_active_and_logged_records_read_as_one(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC)
    server.checkpoint()
    server.write("orders", rich(range(10, 17)), key="second")
    log = files(tmp_path)
    assert kinds(log.partitions("orders", 1, 17)) == {SegmentPiece, InlinePiece}
    assert_as_served(server, log)
    segments = log.topics()["orders"].segments
    assert [(each.first_seq, each.last_seq, each.sealed) for each in segments[:2]] == [(1, 4, True), (5, 8, True)]


def test_many_logged_records_are_read_from_the_wal_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "INLINE_BYTES_MAX", 0)
    server = started(tmp_path, wal_file_bytes=1000)
    for number in range(0, 60, 3):
        write_each(server, rich(range(number, number + 3)), FSYNC)
        server.write("other", 2)
    server.delete_records("orders", match="tag.1")
    log = files(tmp_path)
    partitions = log.partitions("orders", 1, 60)
    assert kinds(partitions) == {WalPiece}
    assert len({piece.path for part in partitions for piece in part.pieces if isinstance(piece, WalPiece)}) > 2
    assert_as_served(server, log)
    assert_as_served(server, log, max_records=7)


@pytest.mark.parametrize(("checkpoints_after", "parts"), [({2}, 1), ({1, 2}, 1), ({0, 1, 2}, 2)])
def test_a_large_tail_is_read_from_the_snapshots_that_hold_it(
    tmp_path: Path, checkpoints_after: set[int], parts: int
) -> None:
    """One part, or one in a base and what came since in an increment."""
    server = started(tmp_path, wal_file_bytes=1 << 20)
    large = [NewRecord(Raw(b'"%b"' % (b"x" * (file_log.INLINE_BYTES_MAX // 2))), tag=f"tag.{n}") for n in range(3)]
    for number, record in enumerate(large):
        write_each(server, [record], FSYNC)
        if number in checkpoints_after:
            server.checkpoint()
    server.delete_records("orders", match="tag.1")
    log = files(tmp_path)
    (partition,) = log.partitions("orders", 1, 3)
    (piece,) = partition.pieces
    assert isinstance(piece, TailPiece)
    assert len(piece.places) == parts
    assert len(pickle.dumps(partition)) < file_log.INLINE_BYTES_MAX, "its records are not sent along"
    assert read_topic(log, "orders").seqs == [1, 3]
    assert_as_served(server, log)
    assert_as_served(server, log, max_records=1)


def test_deleted_records_are_left_out_before_and_after_their_bytes_are_set(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC)
    server.checkpoint()
    server.delete_records("orders", match="tag.*")
    server.write("orders", rich(range(10, 14)))
    server.delete_records("orders", match="tag.2")
    assert_as_served(server, files(tmp_path))
    server.checkpoint()
    assert_as_served(server, files(tmp_path))
    server.delete_records("orders", before_seq=7)
    assert_as_served(server, files(tmp_path))
    server.checkpoint()
    server.checkpoint()
    assert_as_served(server, files(tmp_path))


def test_jobs_that_were_acked_or_moved_away_are_left_out(tmp_path: Path) -> None:
    server = started(tmp_path, wal_shards=2)
    server.put("orders", {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"} | FSYNC)
    write_each(server, rich(range(10)))
    server.write("orders", [NewRecord(Raw(b"0"), delay_ms=50)])
    claim = Claimer("w", 4)
    server.claim("orders", claim)
    server.ack("orders", "w", [1, 3])
    assert_as_served(server, files(tmp_path))
    server.checkpoint()
    server.nack("orders", "w", [2, 4])
    server.claim("orders", claim)
    server.ack("orders", "w", [6])
    assert read_topic(files(tmp_path), "orders").seqs == [5, 7, 8, 9, 10, 11]
    assert_as_served(server, files(tmp_path))
    server.checkpoint()
    assert_as_served(server, files(tmp_path))
    server.redrive("orders")
    assert read_topic(files(tmp_path), "dead").seqs == []
    assert_as_served(server, files(tmp_path))


def test_what_a_cap_took_is_a_gap(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC | {"cap_records": 6})
    server.checkpoint()
    server.write("orders", 3)
    log = files(tmp_path)
    assert_as_served(server, log)
    assert read_topic(log, "orders").gaps == [Gap(1, 7, GapReason.CAP)]
    assert read_partitions(log.partitions("orders", 5, 9)).gaps == [Gap(5, 7, GapReason.CAP)]


def test_what_a_ttl_took_is_a_gap_once_the_server_has_noted_it(tmp_path: Path) -> None:
    clock = FakeClock()
    server = SimulatedServer(RealDisk(), clock, data_dir=str(tmp_path / "data"), segment_events_max=4)
    server.start()
    server.write("orders", 5, config=FSYNC | {"ttl_ms": 1000})
    server.checkpoint()
    clock.advance(900)
    server.write("orders", 5)
    clock.advance(200)
    assert read_topic(files(tmp_path), "orders").gaps == []
    server.engine.expire_due()
    server.sync()
    assert_as_served(server, files(tmp_path))
    assert read_topic(files(tmp_path), "orders").gaps == [Gap(1, 5, GapReason.TTL)]


def test_what_a_power_cut_took_is_a_gap() -> None:
    disk, clock = FakeDisk(), FakeClock()
    server = SimulatedServer(disk, clock, lazy=True, segment_events_max=4)
    server.start()
    server.write("orders", 5, config={"durability": "disk"})
    server.sync()
    server.write("orders", 5)
    cut = disk.crash_drop_all()
    assert read_topic(FileLog(DATA_DIR, disk=cut), "orders", cut) == read_topic(
        FileLog(DATA_DIR, disk=cut), "orders", cut
    )
    assert FileLog(DATA_DIR, disk=cut).topics()["orders"].head_seq == 5, "what is lost is for a start to say"
    server = SimulatedServer(cut, clock, segment_events_max=4)
    server.start()
    server.write("orders", 3)
    log = FileLog(DATA_DIR, disk=cut)
    assert_as_served(server, log, cut)
    assert read_topic(log, "orders", cut).gaps[0].reason is GapReason.CRASH


def test_a_torn_tail_is_the_end() -> None:
    disk, clock = FakeDisk(), FakeClock()
    server = SimulatedServer(disk, clock, segment_events_max=4)
    server.start()
    server.write("orders", 5, config=FSYNC)
    for seed in range(30):
        server.write("orders", 3, config={"durability": "memory"})
        torn = disk.crash(seed)
        head_seq = FileLog(DATA_DIR, disk=torn).topics()["orders"].head_seq
        log = FileLog(DATA_DIR, disk=torn)
        assert read_topic(log, "orders", torn).seqs == list(range(1, head_seq + 1))
        assert head_seq >= 5


def test_the_cold_tier_reads_like_the_hot_one(tmp_path: Path) -> None:
    server = started(tmp_path, cold=True)
    write_each(server, rich(range(14)), FSYNC)
    server.checkpoint()
    server.checkpoint()
    server.delete_records("orders", match="tag.1")
    log = files(tmp_path, cold=True)
    assert [each.cold for each in log.topics()["orders"].segments] == [True, True, False, False]
    assert_as_served(server, log)
    with pytest.raises(ColdTierUnknown):
        files(tmp_path)


def test_a_cold_directory_by_itself_has_topics_by_their_ids(tmp_path: Path) -> None:
    server = started(tmp_path, cold=True)
    write_each(server, rich(range(14)), FSYNC)
    server.checkpoint()
    server.delete_records("orders", match="tag.1")
    server.checkpoint()
    server.checkpoint()  # a delete byte is set when two snapshots list the record
    log = FileLog(str(tmp_path / "cold"))
    assert list(log.topics()) == ["#00000001"]
    found = log.topics()["#00000001"]
    assert (found.earliest_seq, found.head_seq, found.evict_floor) == (1, 8, 1)
    served = server.read_all("orders").records
    assert read_topic(log, "#00000001").seqs == [seq for seq in sorted(served) if seq <= 8]


def test_a_recreated_topic_has_another_epoch_and_none_of_the_old_records(tmp_path: Path) -> None:
    server = started(tmp_path, wal_shards=2)
    write_each(server, rich(range(9)), FSYNC)
    server.checkpoint()
    before = files(tmp_path).topics()["orders"].epoch
    server.delete_topic("orders")
    assert files(tmp_path).topics() == {}
    server.write("orders", 2, config=FSYNC)
    log = files(tmp_path)
    assert log.topics()["orders"].epoch > before
    assert_as_served(server, log)


def test_a_backup_reads_like_its_source(tmp_path: Path) -> None:
    server = started(tmp_path, cold=True)
    write_each(server, rich(range(14)), FSYNC)
    server.checkpoint()
    server.write("orders", rich(range(5)))
    server.delete_records("orders", match="tag.2")
    target = str(tmp_path / "backup")
    cold = str(tmp_path / "cold")
    back_up(RealDisk(), str(tmp_path / "data"), cold, target, wait=lambda seconds: server.store.note_cut())
    assert_as_served(server, FileLog(target))


def test_nothing_is_written_and_nothing_locked(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(9)), FSYNC)
    server.checkpoint()
    server.write("orders", 9, config={"durability": "memory"})

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}

    before = contents()
    read_topic(files(tmp_path), "orders")
    assert contents() == before
    server.stop()
    assert len(read_topic(files(tmp_path), "orders").rows) == 18
    started(tmp_path).stop()


def test_records_of_class_ephemeral_are_in_no_file(tmp_path: Path) -> None:
    server = started(tmp_path)
    server.write("orders", 5, config=FSYNC)
    server.put("orders", {"durability": "ephemeral"})
    server.write("orders", 5)
    server.checkpoint()
    assert read_topic(files(tmp_path), "orders") == FileReading(read_topic(files(tmp_path), "orders").rows, [])
    assert files(tmp_path).topics()["orders"].head_seq == 5


def test_what_was_ephemeral_is_not_lost_while_the_server_may_write_it(tmp_path: Path) -> None:
    server = started(tmp_path)
    server.write("orders", 5, config=FSYNC)
    server.put("orders", {"durability": "ephemeral"})
    server.write("orders", 3)
    server.put("orders", FSYNC)
    server.write("orders", 2)
    found = files(tmp_path)
    assert found.topics()["orders"].head_seq == 5, "seqs 6 to 8 are in no file, and not lost"
    assert read_topic(found, "orders").gaps == []
    server.checkpoint()
    assert_as_served(server, files(tmp_path))


def test_what_was_ephemeral_is_lost_once_a_start_says_so() -> None:
    disk, clock = FakeDisk(), FakeClock()
    server = SimulatedServer(disk, clock)
    server.start()
    server.write("orders", 5, config=FSYNC)
    server.put("orders", {"durability": "ephemeral"})
    server.write("orders", 3)
    server.put("orders", FSYNC)
    server.write("orders", 2)
    cut = disk.crash_keep_all()
    assert FileLog(DATA_DIR, disk=cut).topics()["orders"].head_seq == 5
    server = SimulatedServer(cut, clock)
    server.start(serve_first=True)
    log = FileLog(DATA_DIR, disk=cut)
    assert_as_served(server, log, cut)
    assert read_topic(log, "orders", cut).gaps == [Gap(6, 8, GapReason.CRASH)]


# Planning


@pytest.mark.parametrize("max_records", [0, 1, 3, 4, 5, 100])
@pytest.mark.parametrize("min_partitions", [0, 1, 5, 100])
def test_however_it_is_cut_every_seq_is_read_once(tmp_path: Path, max_records: int, min_partitions: int) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC | {"cap_records": 20})
    server.checkpoint()
    server.write("orders", rich(range(10, 25)))
    server.delete_records("orders", match="tag.1")
    log = files(tmp_path)
    partitions = log.partitions("orders", 1, 25, min_partitions, max_records)
    assert_as_served(server, log, min_partitions=min_partitions, max_records=max_records)
    assert [part.start for part in partitions] == [1, *(part.end + 1 for part in partitions[:-1])]
    assert partitions[-1].end == 25
    assert len(partitions) >= min(min_partitions, 12)
    assert partitions == log.partitions("orders", 1, 25, min_partitions, max_records)


def test_segments_out_of_the_seq_range_are_not_looked_at(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(20)), FSYNC)
    server.checkpoint()
    partitions = files(tmp_path).partitions("orders", 6, 9)
    assert [piece.first_seq for part in partitions for piece in part.pieces if isinstance(piece, SegmentPiece)] == [
        5,
        9,
    ]
    assert read_partitions(partitions).seqs == [6, 7, 8, 9]


def test_times_choose_the_records_and_the_segments(tmp_path: Path) -> None:
    clock = FakeClock()
    server = SimulatedServer(RealDisk(), clock, data_dir=str(tmp_path / "data"), segment_events_max=4)
    server.start()
    begin = clock.now_ms()
    for _ in range(10):
        server.write("orders", 1, config=FSYNC)
        clock.advance(10)
    server.checkpoint()
    for _ in range(4):
        server.write("orders", 1)
        clock.advance(10)
    log = files(tmp_path)
    for first in range(-15, 165, 5):
        assert log.seq_at("orders", begin + first) == min(max(-(-first // 10), 0), 14) + 1
        for last in range(first, 165, 5):
            partitions = log.partitions("orders", 1, 14, from_ts=begin + first, to_ts=begin + last)
            expected = [seq for seq in range(1, 15) if first <= 10 * (seq - 1) < last]
            assert read_partitions(partitions).seqs == expected
            assert all(part.pieces for part in partitions)


def test_a_range_beyond_the_head_is_refused(tmp_path: Path) -> None:
    server = started(tmp_path)
    server.write("orders", 5, config=FSYNC)
    log = files(tmp_path)
    with pytest.raises(OutOfRange):
        log.partitions("orders", 1, 6)
    with pytest.raises(OutOfRange):
        log.partitions("orders", 0, 5)
    with pytest.raises(TopicNotFound):
        log.partitions("nothing", 1, 5)
    assert log.partitions("orders", 6, 5) == []


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoDataDirectory):
        FileLog(str(tmp_path))


# Partitions


@pytest.mark.parametrize(
    ("records", "partitions"),
    [(1, 1), (50_000, 1), (100_000, 2), (180_000, 4), (1_000_000, 4), (1_000_001, 8), (3_000_000, 12)],
)
def test_partitions_nobody_asked_a_number_of_divide_evenly_among_cores(records: int, partitions: int) -> None:
    assert -(-records // file_log.even_share(records)) == partitions


# Damage


def test_a_damaged_record_is_named_by_file_and_offset(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC)
    server.seal()
    server.stop()
    path = sorted((tmp_path / "data" / "topics").rglob("*.data"))[1]
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFile) as caught:
        read_topic(files(tmp_path), "orders")
    assert caught.value.path == str(path)
    assert 0 < caught.value.offset < len(content)


def test_seqs_alone_are_told_by_where_records_are_and_not_by_what_is_in_them(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC)
    server.seal()
    server.stop()
    path = sorted((tmp_path / "data" / "topics").rglob("*.data"))[1]
    content = path.read_bytes()
    path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    assert seqs_of(files(tmp_path), "orders") == list(range(1, 11))
    for at in (0, 5):  # the length and the seq of the first record
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CorruptFile) as caught:
            seqs_of(files(tmp_path), "orders")
        assert (caught.value.path, caught.value.offset) == (str(path), 0)


@pytest.mark.parametrize("damage", ["", "missing", "short", "flipped"])
def test_fields_are_taken_from_the_sealed_text_or_where_it_is_damaged_from_the_records(
    tmp_path: Path, damage: str
) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC)
    server.seal()
    server.stop()
    texts = sorted((tmp_path / "data" / "topics").rglob("*.text"))
    assert texts
    for path in texts:
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage:
            path.write_bytes(content[:-1] if damage == "short" else content[:-9] + b"x" + content[-8:])
    payloads, from_texts = payloads_of(files(tmp_path), "orders")
    assert payloads == {row[0]: row[4] for row in read_topic(files(tmp_path), "orders").rows}
    assert (from_texts > 0) == (not damage)


def test_fields_of_a_segment_with_deleted_records_are_those_of_the_others(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC)
    server.delete_records("orders", before_seq=2)
    server.seal()  # with a text that lacks one
    server.delete_records("orders", match="tag.2")
    log = files(tmp_path)
    payloads, _ = payloads_of(log, "orders")
    assert payloads == {row[0]: row[4] for row in read_topic(log, "orders").rows}
    assert len(payloads) < 9


def test_fields_of_a_damaged_record_without_a_text_are_refused(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC)
    server.seal()
    server.stop()
    path = sorted((tmp_path / "data" / "topics").rglob("*.data"))[1]
    content = path.read_bytes()
    path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    assert len(payloads_of(files(tmp_path), "orders")[0]) == 10, "the text is intact"
    path.with_suffix(".text").unlink()
    with pytest.raises(CorruptFile):
        payloads_of(files(tmp_path), "orders")


@pytest.mark.parametrize("damage", ["missing", "short", "shuffled"])
def test_a_damaged_index_changes_nothing(tmp_path: Path, damage: str) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(8)), FSYNC)
    server.seal()
    server.stop()
    for path in (tmp_path / "data" / "topics").rglob("*.idx"):
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(content[:25] if damage == "short" else content[:20] + content[40:60] * 2 + content[60:])
    assert read_topic(files(tmp_path), "orders").seqs == list(range(1, 9))
    assert seqs_of(files(tmp_path), "orders") == list(range(1, 9))


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    server = started(tmp_path)
    write_each(server, rich(range(10)), FSYNC)
    server.seal()
    server.stop()
    path = sorted((tmp_path / "data" / "topics").rglob("*.data"))[1]
    path.unlink()
    with pytest.raises(CorruptFile, match="missing"):
        files(tmp_path)
