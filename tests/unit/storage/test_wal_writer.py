"""One shard's writer and its replay: files, marks, rotation, trims, poison, and a crash at every call."""

import errno
import traceback
from collections.abc import Callable
from itertools import count

import pytest
from wal_frames import append_frame, write_frames

from topics.storage import paths
from topics.storage.errors import CorruptFile, DiskFailed, NoRoom
from topics.storage.wal_mark import file_mark, sync_mark
from topics.storage.wal_replay import ShardReplay
from topics.storage.wal_writer import ShardWriter, truncate_tail, wal_files
from topics.testing.fake_disk import FakeDisk, SimulatedCrash

DIRECTORY = "/data/wal/shard-00"
FIRST = f"{DIRECTORY}/wal-0000000000000000.log"


def record(seq: int, size: int = 100) -> bytes:
    return append_frame(1, seq, seq, 0, b"", b"", b"x" * size)


def open_writer(disk: FakeDisk, first_lsn: int = 0, file_bytes_max: int = 1000) -> ShardWriter:
    return ShardWriter(disk, DIRECTORY, 0, file_bytes_max, first_lsn)


def replayed(disk: FakeDisk, from_lsn: int = 0) -> list[int]:
    return [frame[3] for frame in ShardReplay(disk, DIRECTORY, from_lsn)]


def write_seqs(writer: ShardWriter, *seqs: int) -> None:
    writer.write([record(seq) for seq in seqs], len(seqs))


def test_a_new_shard_has_a_preallocated_file_and_a_pointer_to_it() -> None:
    disk = FakeDisk()
    open_writer(disk)
    mark = file_mark(0, 0, 1)
    assert disk.crash_drop_all().dump() == {
        FIRST: mark + bytes(1000 - len(mark)),
        f"{DIRECTORY}/CURRENT": b"wal-0000000000000000.log\n",
    }


def test_a_file_that_holds_only_marks_takes_a_write_larger_than_itself() -> None:
    disk = FakeDisk()
    writer = open_writer(disk)
    for _ in range(3):  # as idle checkpoints do
        writer.write([], 0)
        writer.sync()
    writer.write([record(1, size=1000)], 1)
    writer.sync()
    writer.remove_files_below(0)
    assert replayed(disk.crash_drop_all()) == [1]


def test_the_first_write_after_a_sync_begins_with_a_sync_mark() -> None:
    disk = FakeDisk()
    writer = open_writer(disk)
    write_seqs(writer, 1)
    write_seqs(writer, 2)
    writer.sync()
    synced_bytes = writer.offset
    write_seqs(writer, 3)
    write_seqs(writer, 4)
    expected = file_mark(0, 0, 1) + record(1) + record(2) + sync_mark(synced_bytes) + record(3) + record(4)
    assert disk.read(FIRST).rstrip(b"\x00") == expected.rstrip(b"\x00")
    assert writer.offset == len(expected)
    assert (writer.next_lsn, writer.synced_lsn) == (4, 2)
    assert (writer.counters.frames, writer.counters.batches, writer.counters.fsyncs) == (4, 4, 2)
    assert writer.counters.written_bytes == len(expected)


def test_a_sync_without_new_frames_does_not_touch_the_disk() -> None:
    disk = FakeDisk()
    writer = open_writer(disk)
    write_seqs(writer, 1)
    writer.sync()
    calls = disk.mutating_calls
    writer.sync()
    assert disk.mutating_calls == calls
    assert not writer.unsynced


def test_a_full_file_is_synced_and_cut_before_the_next_begins() -> None:
    disk = FakeDisk()
    writer = open_writer(disk)
    for seq in range(1, 8):
        write_seqs(writer, seq)
    assert writer.counters.rotations == 1
    names = [paths.wal_file_name(lsn) for lsn in (0, 6)]
    assert disk.list_dir(DIRECTORY) == ["CURRENT", *names]
    assert disk.read(f"{DIRECTORY}/CURRENT") == f"{names[1]}\n".encode()
    assert disk.read(FIRST) == file_mark(0, 0, 1) + b"".join(record(seq) for seq in range(1, 7))
    assert replayed(disk.crash_drop_all()) == [1, 2, 3, 4, 5, 6]
    assert replayed(disk) == [1, 2, 3, 4, 5, 6, 7]


def test_a_write_larger_than_a_file_gets_one_of_its_own() -> None:
    disk = FakeDisk()
    writer = open_writer(disk)
    write_seqs(writer, 1)
    writer.write([record(2, 5000)], 1)
    write_seqs(writer, 3)
    assert [file.first_lsn for file in wal_files(disk, DIRECTORY)] == [0, 1, 2]
    assert replayed(disk) == [1, 2, 3]


def test_a_closed_shard_ends_with_a_mark_so_that_later_damage_is_noticed() -> None:
    disk = FakeDisk()
    writer = open_writer(disk)
    write_seqs(writer, 1)
    writer.close()
    content = disk.read(FIRST)
    assert content.endswith(sync_mark(len(content) - len(sync_mark(len(file_mark(0, 0, 1) + record(1))))))
    assert replayed(disk.crash_drop_all()) == [1]
    disk.open_append(FIRST).write_at(len(file_mark(0, 0, 1)) + 50, b"?")
    with pytest.raises(CorruptFile):
        replayed(disk)


def test_a_restart_goes_on_in_a_fresh_file() -> None:
    disk = FakeDisk()
    write_seqs(open_writer(disk), 1, 2)
    disk = disk.crash_keep_all()
    replay = ShardReplay(disk, DIRECTORY)
    assert [frame[3] for frame in replay] == [1, 2]
    assert replay.torn is None
    assert replay.read_bytes == replay.total_bytes == 1000
    writer = open_writer(disk, replay.next_lsn)
    write_seqs(writer, 3)
    assert [file.first_lsn for file in wal_files(disk, DIRECTORY)] == [0, 2]
    assert replayed(disk) == [1, 2, 3]


def test_a_restart_without_any_frame_reuses_the_name() -> None:
    disk = FakeDisk()
    open_writer(disk)
    writer = open_writer(disk.crash_keep_all())
    write_seqs(writer, 1)
    assert writer.active_path == FIRST


def test_a_writer_refuses_to_begin_before_the_end_of_the_log() -> None:
    disk = FakeDisk()
    open_writer(disk, 10)
    with pytest.raises(ValueError, match="not replayed"):
        open_writer(disk, 3)


def test_files_left_half_made_are_cleared_away() -> None:
    disk = FakeDisk()
    disk.make_dir(DIRECTORY)
    disk.create(f"{DIRECTORY}/CURRENT.tmp")
    disk.create(f"{DIRECTORY}/wal-0000000000000000.log.tmp")
    open_writer(disk)
    assert disk.list_dir(DIRECTORY) == ["CURRENT", "wal-0000000000000000.log"]


def test_a_torn_tail_is_cut_off_for_good() -> None:
    disk = FakeDisk()
    writer = open_writer(disk)
    write_seqs(writer, 1)
    end = writer.offset
    writer.write([record(2)[:70]], 1)
    replay = ShardReplay(disk, DIRECTORY)
    assert [frame[3] for frame in replay] == [1]
    assert replay.torn is not None
    assert (replay.torn.path, replay.torn.offset) == (FIRST, end)
    replay.repair()
    assert disk.crash_drop_all().size(FIRST) == end
    again = ShardReplay(disk, DIRECTORY)
    assert [frame[3] for frame in again] == [1]
    assert again.torn is None
    assert again.next_lsn == replay.next_lsn == 1


def test_a_file_torn_at_its_start_is_removed() -> None:
    disk = FakeDisk()
    disk.make_dir(DIRECTORY)
    disk.create(FIRST).preallocate(100)
    replay = ShardReplay(disk, DIRECTORY)
    assert list(replay) == []
    replay.repair()
    assert disk.crash_drop_all().list_dir(DIRECTORY) == []


def test_truncating_a_tail_is_durable_when_it_returns() -> None:
    disk = FakeDisk()
    write_seqs(open_writer(disk), 1)
    truncate_tail(disk, FIRST, 100)
    assert disk.crash_drop_all().size(FIRST) == 100


def test_only_files_below_the_absorbed_lsn_are_removed_and_never_the_active_one() -> None:
    disk = FakeDisk()
    writer = open_writer(disk, file_bytes_max=300)
    for seq in range(1, 7):
        write_seqs(writer, seq)
    assert [file.first_lsn for file in wal_files(disk, DIRECTORY)] == [0, 1, 2, 3, 4, 5]
    assert [file.first_lsn for file in writer.files_absorbed_before(3)] == [0, 1, 2]
    assert writer.remove_files_below(3) == 3
    assert writer.remove_files_below(3) == 0
    assert replayed(disk.crash_drop_all(), 3) == [4, 5]
    assert replayed(disk, 4) == [5, 6]
    with pytest.raises(CorruptFile):
        replayed(disk, 2)
    assert writer.remove_files_below(99) == 2
    assert wal_files(disk, DIRECTORY)[0].path == writer.active_path


def test_a_lost_file_is_corruption() -> None:
    def lose(first_lsn: int) -> FakeDisk:
        disk = FakeDisk()
        writer = open_writer(disk, file_bytes_max=300)
        for seq in range(1, 4):
            write_seqs(writer, seq)
        disk.remove(f"{DIRECTORY}/{paths.wal_file_name(first_lsn)}")
        return disk

    for first_lsn in (0, 1, 2):
        with pytest.raises(CorruptFile):
            replayed(lose(first_lsn))


def test_a_file_under_another_files_name_is_corruption() -> None:
    disk = FakeDisk()
    write_seqs(open_writer(disk), 1)
    disk.rename(FIRST, f"{DIRECTORY}/{paths.wal_file_name(5)}")
    with pytest.raises(CorruptFile):
        replayed(disk, 5)


def count_calls(workload: Callable[[FakeDisk], object]) -> int:
    disk = FakeDisk()
    workload(disk)
    return disk.mutating_calls


class Failing:
    """A workload on a disk that fails; `synced` is the last seq it was promised."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        self.synced = 0
        self.trimmed = False
        self.writer: ShardWriter | None = None

    def run(self) -> None:
        self.writer = writer = open_writer(self.disk, file_bytes_max=400)
        for seq in range(1, 6):
            write_seqs(writer, seq)
            writer.sync()
            self.synced = seq
        self.trimmed = True
        writer.remove_files_below(3)


def test_any_failed_call_but_a_removal_poisons_the_writer() -> None:
    error_number = errno.EIO
    passed_over, files = 0, 6
    for call in range(1, count_calls(lambda disk: Failing(disk).run()) + 1):
        disk = FakeDisk()
        disk.fail_at(call, error_number, written_bytes=30)
        workload = Failing(disk)
        try:
            workload.run()
        except DiskFailed as failure:
            found = failure
        else:  # what an earlier try might have left could not be removed, and nothing was left
            passed_over += 1
            assert replayed(disk.crash_drop_all(), 3) == [4, 5]
            continue
        assert found.os_error.errno == error_number
        writer = workload.writer
        if workload.trimmed:
            assert writer is not None
            assert writer.failure is None
            writer.remove_files_below(3)
            assert replayed(disk.crash_drop_all(), 3) == [4, 5]
            continue
        if writer is not None:
            assert writer.failure is found
            calls = disk.mutating_calls
            with pytest.raises(DiskFailed):
                writer.write([record(9)], 1)
            with pytest.raises(DiskFailed):
                writer.sync()
            with pytest.raises(DiskFailed):
                writer.remove_files_below(9)
            writer.close()
            assert disk.mutating_calls == calls
        assert replayed(disk.crash_drop_all()) == list(range(1, workload.synced + 1))
    assert 0 < passed_over < files


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_what_the_system_has_run_out_of_is_waited_for_and_nothing_is_lost(error_number: int) -> None:
    """At any call but a sync: what was not written is written to the same place, and what only tidies up is not."""
    waited = 0
    poisoned: list[str] = []
    unsynced: list[str] = []
    for call in count(1):
        disk = FakeDisk()
        disk.fail_at(call, error_number, written_bytes=30)
        try:
            writer = open_writer(disk, file_bytes_max=400)
        except DiskFailed:
            continue  # a start that cannot begin its log is no start
        try:
            for seq in range(1, 6):
                try:
                    write_seqs(writer, seq)
                except NoRoom:
                    waited += 1
                    assert writer.failure is None
                    write_seqs(writer, seq)
                writer.sync()
            writer.close()
        except DiskFailed as failure:
            calls = {frame.name for frame in traceback.extract_tb(failure.os_error.__traceback__)}
            (unsynced if calls & {"sync", "sync_dir"} else poisoned).append(failure.operation)
        else:
            assert replayed(disk.crash_drop_all()) == [1, 2, 3, 4, 5], call
        if disk.mutating_calls < call:
            break
    assert waited > 5
    assert set(unsynced) == {"sync", "rotation", "closing"}
    assert not poisoned


class Workload:
    """Writes, batches, syncs, rotations and a trim; remembers what was written and what was promised."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        self.promised_lsn = 0
        self.absorbed_lsn = 0

    def run(self) -> None:
        writer = open_writer(self.disk, file_bytes_max=900)
        seq = 1
        for turn in range(8):
            size = turn % 3 + 1
            frames = write_frames(1, seq, 0, [(None, "t", b"x" * 90)] * size, durable=True)
            writer.write([frames], size)
            seq += size
            if turn % 2:
                writer.sync()
                self.promised_lsn = writer.synced_lsn
            if turn == 5:
                self.absorbed_lsn = 4
                writer.remove_files_below(4)
        writer.close()
        self.promised_lsn = writer.synced_lsn


BATCHES = [[1], [2, 3], [4, 5, 6], [7], [8, 9], [10, 11, 12], [13], [14, 15]]


def check_recovery(disk: FakeDisk, promised_lsn: int, absorbed_lsn: int) -> None:
    """Nothing synced is lost, nothing is invented, batches are whole, and recovering twice is the same."""
    replay = ShardReplay(disk, DIRECTORY, absorbed_lsn)
    seqs = [frame[3] for frame in replay]
    assert seqs == list(range(absorbed_lsn + 1, absorbed_lsn + 1 + len(seqs)))
    assert replay.next_lsn == absorbed_lsn + len(seqs) >= promised_lsn
    assert replay.next_lsn in [0, *(batch[-1] for batch in BATCHES)]
    replay.repair()
    again = ShardReplay(disk, DIRECTORY, absorbed_lsn)
    assert [frame[3] for frame in again] == seqs
    assert again.torn is None
    writer = open_writer(disk, again.next_lsn)
    write_seqs(writer, 1000)
    writer.sync()
    assert replayed(disk.crash_drop_all(), absorbed_lsn) == [*seqs, 1000]


def test_a_crash_at_every_call_loses_nothing_synced_and_invents_nothing() -> None:
    calls = count_calls(lambda disk: Workload(disk).run())
    points = 0
    for call in range(1, calls + 1):
        for applied, torn_bytes in ((False, 0), (False, 1), (False, 150), (True, 0)):
            disk = FakeDisk()
            disk.stop_at(call, applied=applied, torn_bytes=torn_bytes)
            workload = Workload(disk)
            with pytest.raises(SimulatedCrash):
                workload.run()
            survivors = [
                disk.crash_keep_all(),
                disk.crash_drop_all(),
                *(disk.crash(call * 8 + seed) for seed in range(8)),
            ]
            for survivor in survivors:
                check_recovery(survivor, workload.promised_lsn, workload.absorbed_lsn)
                points += 1
    assert points > 1000


def test_the_same_work_gives_the_same_bytes() -> None:
    first, second = FakeDisk(), FakeDisk()
    Workload(first).run()
    Workload(second).run()
    assert first.dump() == second.dump()
