"""Who is synced with whom, and what each ticket is told. Turns are made by hand but for two tests."""

import errno
import queue

import pytest
from wal_frames import append_frame

from topics.clock import SystemClock
from topics.storage.errors import DiskFailed
from topics.storage.group_commit import SYNC_BUCKETS_US, CommitThread, SyncHistogram
from topics.storage.wal_replay import ShardReplay
from topics.storage.wal_writer import ShardWriter, wal_files
from topics.testing.fake_disk import FakeDisk

DIRECTORY = "/wal"


class HandClock:
    def __init__(self) -> None:
        self.now_ns = 0

    def now_ms(self) -> int:
        return self.now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns


class Shard:
    """A commit thread without its thread, and everything it reported."""

    def __init__(self, *, queue_writes_max: int = 100, queue_bytes_max: int = 100_000) -> None:
        self.disk = FakeDisk()
        self.clock = HandClock()
        self.durable: list[list[str]] = []
        self.failed: list[list[str]] = []
        self.errors: list[DiskFailed] = []
        self.untrimmed: list[DiskFailed] = []
        self.commit: CommitThread[str] = CommitThread(
            ShardWriter(self.disk, DIRECTORY, 0, 5000, 0),
            self.clock,
            on_durable=lambda tickets, sync_ns: self.durable.append(tickets),
            on_failed=self._on_failed,
            sync_interval_ms=10,
            write_gap_ms=1,
            queue_writes_max=queue_writes_max,
            queue_bytes_max=queue_bytes_max,
            on_untrimmed=self.untrimmed.append,
        )
        self.calls_before = self.disk.mutating_calls

    def _on_failed(self, tickets: list[str], error: DiskFailed) -> None:
        self.failed.append(tickets)
        self.errors.append(error)

    def submit(self, seq: int, needs_sync: bool = True) -> int:
        return self.commit.submit(frame(seq), 1, needs_sync, str(seq))

    @property
    def calls(self) -> int:
        return self.disk.mutating_calls - self.calls_before

    def found_after_power_cut(self) -> list[int]:
        return [found[3] for found in ShardReplay(self.disk.crash_drop_all(), DIRECTORY)]


def frame(seq: int) -> bytes:
    return append_frame(1, seq, 0, 0, b"", b"", b"payload")


def test_a_lone_write_is_synced_in_its_own_turn() -> None:
    shard = Shard()
    assert shard.submit(1) == 1
    assert shard.commit.step() is None
    assert shard.durable == [["1"]]
    assert shard.calls == 2
    assert shard.found_after_power_cut() == [1]


def test_a_crowd_shares_one_write_and_one_sync() -> None:
    shard = Shard()
    assert [shard.submit(seq) for seq in range(1, 51)] == list(range(1, 51))
    shard.commit.step()
    assert shard.calls == 2
    assert shard.durable == [[str(seq) for seq in range(1, 51)]]
    assert shard.commit.writer.counters.batches == 1
    assert shard.found_after_power_cut() == list(range(1, 51))


def test_a_turn_without_work_does_not_touch_the_disk() -> None:
    shard = Shard()
    assert shard.commit.step() is None
    assert shard.calls == 0


def test_a_write_that_asks_for_no_sync_is_written_now_and_synced_when_due() -> None:
    shard = Shard()
    shard.submit(1, needs_sync=False)
    assert shard.commit.step() == 10_000_000
    assert (shard.calls, shard.durable) == (1, [])
    shard.clock.now_ns += 9_999_999
    shard.submit(2, needs_sync=False)
    assert shard.commit.step() == 1
    shard.clock.now_ns += 1
    assert shard.commit.step() is None
    assert shard.durable == [["1", "2"]]


def test_a_sync_asked_for_by_one_covers_those_before_it() -> None:
    shard = Shard()
    shard.submit(1, needs_sync=False)
    shard.commit.step()
    shard.submit(2)
    shard.commit.step()
    assert shard.durable == [["1", "2"]]


def test_a_write_without_a_ticket_is_durable_without_a_report() -> None:
    shard = Shard()
    shard.commit.submit(frame(1), 1, True, None)
    shard.commit.step()
    assert shard.durable == []
    assert shard.found_after_power_cut() == [1]


@pytest.mark.parametrize("failing_call", [1, 2])
def test_a_failed_write_or_sync_fails_everything_not_yet_durable(failing_call: int) -> None:
    shard = Shard()
    shard.submit(1)
    shard.commit.step()
    shard.submit(2, needs_sync=False)
    shard.commit.step()
    shard.submit(3)
    shard.submit(4)
    shard.disk.fail_at(shard.disk.mutating_calls + failing_call, errno.EIO)
    shard.commit.step()
    assert shard.durable == [["1"]]
    assert shard.failed == [["2", "3", "4"]]
    assert shard.commit.failure is shard.errors[0]
    with pytest.raises(DiskFailed):
        shard.submit(5)
    calls = shard.calls
    shard.commit.step()
    shard.commit.close()
    assert shard.calls == calls
    assert shard.failed == [["2", "3", "4"]]
    assert shard.found_after_power_cut() == [1]


def test_what_was_queued_when_the_disk_failed_is_told_so() -> None:
    shard = Shard()
    shard.submit(1)
    shard.disk.fail_at(shard.disk.mutating_calls + 1, errno.EIO)
    with pytest.raises(DiskFailed):
        shard.commit.writer.write([frame(9)], 1)
    shard.commit.step()
    assert shard.failed == [["1"]]
    assert shard.errors == [shard.commit.writer.failure]


@pytest.mark.parametrize("bounds", [{"queue_writes_max": 2}, {"queue_bytes_max": 2 * len(frame(1))}])
def test_a_full_queue_has_no_room_until_a_turn_was_made(bounds: dict[str, int]) -> None:
    shard = Shard(**bounds)
    assert (shard.commit.has_room, shard.commit.backlog_share) == (True, 0.0)
    shard.submit(1)
    assert (shard.commit.has_room, shard.commit.backlog_share) == (True, 0.5)
    shard.submit(2)
    assert (shard.commit.has_room, shard.commit.backlog_share) == (False, 1.0)
    assert (shard.commit.queue_depth, shard.commit.queued_bytes) == (2, 2 * len(frame(1)))
    shard.commit.step()
    assert (shard.commit.has_room, shard.commit.backlog_share) == (True, 0.0)
    assert (shard.commit.queue_depth, shard.commit.queue_depth_peak) == (0, 2)


def test_what_was_admitted_is_taken_though_the_queue_has_filled_up_since() -> None:
    """An operation may be several submits: the room is asked for once, before the first of them."""
    shard = Shard(queue_writes_max=1)
    assert [shard.submit(seq) for seq in (1, 2, 3)] == [1, 2, 3]
    assert shard.commit.backlog_share == 3.0
    shard.commit.step()
    assert shard.durable == [["1", "2", "3"]]


def test_closing_drains_and_syncs() -> None:
    shard = Shard()
    shard.submit(1, needs_sync=False)
    shard.submit(2, needs_sync=False)
    shard.commit.close()
    assert shard.durable == [["1", "2"]]
    assert shard.commit.failure is None
    assert shard.found_after_power_cut() == [1, 2]
    with pytest.raises(ValueError, match="after close"):
        shard.submit(3)


def test_a_disk_that_fails_at_the_very_end_is_seen_after_closing() -> None:
    shard = Shard()
    shard.submit(1)
    shard.commit.step()
    shard.disk.fail_at(shard.disk.mutating_calls + 1, errno.EIO)
    shard.commit.close()
    assert shard.commit.failure is not None


def test_absorbed_files_are_removed_at_the_next_turn() -> None:
    shard = Shard()
    for seq in range(1, 200):
        shard.submit(seq)
        shard.commit.step()
    files = wal_files(shard.disk, DIRECTORY)
    assert len(files) > 2
    shard.commit.trim_below(files[2].first_lsn)
    shard.commit.step()
    assert wal_files(shard.disk, DIRECTORY) == files[2:]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_absorbed_files_that_cannot_be_removed_stay_until_the_next_time_and_the_shard_goes_on(error: int) -> None:
    shard = Shard()
    for seq in range(1, 200):
        shard.submit(seq)
        shard.commit.step()
    files = wal_files(shard.disk, DIRECTORY)
    shard.commit.trim_below(files[2].first_lsn)
    shard.disk.fail_at(shard.disk.mutating_calls + 1, error)
    shard.commit.step()
    assert shard.commit.failure is None
    assert [failure.os_error.errno for failure in shard.untrimmed] == [error]
    assert wal_files(shard.disk, DIRECTORY) == files
    shard.submit(200)
    shard.commit.trim_below(files[2].first_lsn)
    shard.commit.step()
    assert wal_files(shard.disk, DIRECTORY) == files[2:]
    assert shard.durable[-1] == ["200"]


def test_what_there_is_no_room_for_is_held_until_nobody_waits_for_room_any_more() -> None:
    shard = Shard()
    shard.submit(1)
    shard.commit.step()
    shard.disk.fail_at(shard.disk.mutating_calls + 1, errno.ENOSPC, and_after=True)
    shard.submit(2)
    for _ in range(3):
        shard.commit.step()
    assert (shard.durable, shard.failed, shard.commit.failure) == ([["1"]], [], None)
    shard.commit.waits_for_room = False
    shard.commit.step()
    assert shard.failed == [["2"]]
    assert [error.os_error.errno for error in shard.errors] == [errno.ENOSPC]
    with pytest.raises(DiskFailed):
        shard.submit(3)
    assert shard.found_after_power_cut() == [1]


def test_syncs_are_counted_by_how_long_they_took() -> None:
    histogram = SyncHistogram()
    for duration_us in (0, 50, 51, 1_000_000, 1_000_001):
        histogram.add(duration_us * 1000)
    assert histogram.count == 5
    assert histogram.total_us == 2_000_102
    assert histogram.counts[:2] == [2, 1]
    assert histogram.counts[-2:] == [1, 1]
    assert len(histogram.counts) == len(SYNC_BUCKETS_US) + 1


def test_a_running_thread_reports_every_ticket_once_and_in_order() -> None:
    disk = FakeDisk()
    reports: queue.Queue[list[int]] = queue.Queue()
    commit: CommitThread[int] = CommitThread(
        ShardWriter(disk, DIRECTORY, 0, 100_000, 0),
        SystemClock(),
        on_durable=lambda tickets, sync_ns: reports.put(tickets),
        on_failed=lambda tickets, error: reports.put([-1]),
        sync_interval_ms=1,
        write_gap_ms=1,
        queue_writes_max=10_000,
        queue_bytes_max=10_000_000,
    )
    commit.start("wal-0")
    # Alone, the first is answered without anything else arriving, whether it asks for a sync or not.
    commit.submit(frame(1), 1, True, 1)
    assert reports.get(timeout=10) == [1]
    commit.submit(frame(2), 1, False, 2)
    assert reports.get(timeout=10) == [2]
    for seq in range(3, 1001):
        commit.submit(frame(seq), 1, seq % 3 == 0, seq)
    commit.close()
    reported = []
    while not reports.empty():
        reported += reports.get()
    assert reported == list(range(3, 1001))
    assert [found[3] for found in ShardReplay(disk.crash_drop_all(), DIRECTORY)] == list(range(1, 1001))


def test_a_running_thread_begins_with_what_was_left_for_later_when_it_is_woken() -> None:
    disk = FakeDisk()
    reports: queue.Queue[list[int]] = queue.Queue()
    commit: CommitThread[int] = CommitThread(
        ShardWriter(disk, DIRECTORY, 0, 100_000, 0),
        SystemClock(),
        on_durable=lambda tickets, sync_ns: reports.put(tickets),
        on_failed=lambda tickets, error: reports.put([-1]),
        sync_interval_ms=1,
        write_gap_ms=1,
        queue_writes_max=10_000,
        queue_bytes_max=10_000_000,
    )
    commit.start("wal-0")
    for turn in range(100):
        expected = list(range(3 * turn + 1, 3 * turn + 4))
        for seq in expected:
            commit.submit(frame(seq), 1, True, seq, wakes_later=True)
        commit.wake()
        reported: list[int] = []
        while len(reported) < len(expected):
            reported += reports.get(timeout=10)
        assert reported == expected
    commit.close()
    assert [found[3] for found in ShardReplay(disk.crash_drop_all(), DIRECTORY)] == list(range(1, 301))
