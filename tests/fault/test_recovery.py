"""Single ways to lose or invent something, each found by a sweep once."""

import errno
from contextlib import suppress

import pytest
from msgspec import Raw

from topics.errors import StorageFailed
from topics.model.gap import GapReason
from topics.model.record import NewRecord
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash
from topics.testing.simulated_server import SimulatedServer


def server_on(disk: FakeDisk, clock: FakeClock | None = None, **overrides: object) -> SimulatedServer:
    settings: dict[str, object] = {"segment_events_max": 4, **overrides}
    return SimulatedServer(disk, clock or FakeClock(), **settings)  # type: ignore[arg-type]


def started(disk: FakeDisk, clock: FakeClock | None = None, **overrides: object) -> SimulatedServer:
    server = server_on(disk, clock, **overrides)
    server.start()
    return server


def tagged(*tags: str) -> list[NewRecord]:
    return [NewRecord(Raw(b"%d" % number), tag=tag) for number, tag in enumerate(tags)]


# Classes changed in place


def test_durable_records_survive_their_topic_becoming_ephemeral() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": "fsync"})
    server.write("t", 6)
    server.put("t", {"durability": "ephemeral"})
    server.write("t", 3)
    server.checkpoint()
    reading = started(disk.crash_drop_all()).read_all("t")
    assert sorted(reading.records) == [1, 2, 3, 4, 5, 6]
    assert [(gap.gap_from, gap.gap_to) for gap in reading.gaps] == [(7, 9)]


def test_a_topic_that_was_ephemeral_for_a_while_goes_on_in_segments_of_its_own() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": "disk"})
    server.write("t", 2)
    server.checkpoint()
    server.put("t", {"durability": "ephemeral"})
    server.checkpoint()
    server.checkpoint()
    server.put("t", {"durability": "disk"})
    server.write("t", 1)
    server.checkpoint()
    server.checkpoint()
    assert sorted(started(disk.crash_keep_all()).read_all("t").records) == [1, 2, 3]


def test_ephemeral_records_lost_by_a_restart_are_told_and_their_keys_forgotten() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": "ephemeral"})
    server.write("t", 2, key="k")
    server.stop()
    server = started(disk)
    reading = server.read_all("t")
    assert reading.records == {}
    assert [(gap.gap_from, gap.gap_to, gap.reason) for gap in reading.gaps] == [(1, 2, GapReason.CRASH)]
    again = server.write("t", 2, key="k")
    assert (again.deduped, again.first_seq) == (False, 3)


def test_a_delete_of_durable_records_survives_also_while_their_topic_is_ephemeral() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": "fsync"})
    server.write("t", tagged("a", "b"))
    server.put("t", {"durability": "ephemeral"})
    server.delete_records("t", match="a")
    server.sync()
    assert sorted(started(disk.crash_drop_all()).read_all("t").records) == [2]


# Seqs that were given out


def test_seqs_are_not_given_out_again_when_the_process_is_killed_before_its_first_checkpoint() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": "disk"})
    server.write("t", 2)
    server.sync()
    server.lazy = True
    assert server.write("t", 3).first_seq == 3
    disk = disk.crash_keep_all()
    second = server_on(disk)
    second.store.acquire()
    second.store.open(second.store.replay(lambda _: None))
    assert started(disk.crash_keep_all()).write("t", 1).first_seq == 6


def test_what_two_kills_in_a_row_took_is_told_as_one_loss() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": "disk"})
    server.write("t", 1)
    server.sync()
    for _ in range(2):
        server.lazy = True
        server.write("t", 1)
        disk = disk.crash_keep_all()
        server = started(disk)
    last = server.write("t", 1).first_seq
    reading = server.read_all("t")
    assert sorted(reading.records) == [1, last]
    assert list(reading.missing()) == []


def test_a_failed_write_leaves_no_hole_for_a_later_ephemeral_one() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": "fsync"})
    server.put("t", {"durability": "ephemeral"})
    topic = server.engine.topic("t")
    server.write("t", 1)
    server.put("t", {"durability": "fsync"})
    staged = server.hand_over("t", 2)
    disk.fail_at(disk.mutating_calls + 1, errno.EIO)
    with pytest.raises(StorageFailed):
        server.wait(staged.commit)
    assert topic.assigned_seq == topic.log.head_seq == 1


# Shards


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (3, 1)])
def test_a_crash_anywhere_in_the_first_start_with_another_number_of_shards_is_harmless(before: int, after: int) -> None:
    disk = FakeDisk()
    server = started(disk, wal_shards=before, wal_file_bytes=600)
    for topic in "abcdef":
        server.put(topic, {"durability": "fsync", "cap_records": 5})
    for _ in range(4):
        for topic in "abcdef":
            server.write(topic, 2)
        # Trims the WAL, so that not all frames there ever were are left.
        server.checkpoint()
    for topic in "abcdef":
        server.put(topic, {"cap_records": 0})
        server.write(topic, 1)
    expected = {topic: server.read_all(topic) for topic in "abcdef"}
    calls = _calls_of_start(disk.crash_keep_all(), after)
    for call in range(1, calls + 1):
        for crash in (FakeDisk.crash_keep_all, FakeDisk.crash_drop_all, lambda disk: disk.crash(7)):
            interrupted = disk.crash_keep_all()
            interrupted.stop_at(call, applied=True)
            with pytest.raises(SimulatedCrash):
                started(interrupted, wal_shards=after)
            again = started(crash(interrupted), wal_shards=after)
            assert {topic: again.read_all(topic) for topic in "abcdef"} == expected, call


def _calls_of_start(disk: FakeDisk, shards: int) -> int:
    started(disk, wal_shards=shards)
    return disk.mutating_calls


def test_an_idle_wal_is_never_trimmed_away_under_its_writer() -> None:
    disk = FakeDisk()
    server = started(disk, wal_file_bytes=400)
    server.put("t", {"durability": "fsync"})
    for _ in range(40):
        server.checkpoint()
        assert disk.exists(server.journal.shards[0].writer.active_path)
    server.write("t", 3)
    assert sorted(started(disk.crash_drop_all()).read_all("t").records) == [1, 2, 3]


def test_a_topic_refused_by_a_failed_disk_does_not_hide_the_one_made_after_it() -> None:
    disk = FakeDisk()
    server = started(disk, wal_shards=3)
    disk.fail_at(disk.mutating_calls + 2, errno.EIO)
    with pytest.raises(StorageFailed):
        server.put("t", {"durability": "fsync"})
    while server.engine.find_topic("t") is None:
        try:
            server.put("t", {"durability": "fsync"})
        except StorageFailed:
            # The same shard again: take the next id.
            server.engine.state.next_id += 1
    server.write("t", 2)
    again = started(disk.crash_keep_all(), wal_shards=3)
    assert sorted(again.read_all("t").records) == [1, 2]
    assert len(list(again.engine.topics)) == len(again.engine.topics)


@pytest.mark.parametrize(("refused_id", "next_id"), [(1, 4), (4, 5)], ids=["replayed-before", "replayed-after"])
def test_a_topic_refused_by_a_failed_disk_does_not_come_when_the_one_made_after_it_has_gone(
    refused_id: int, next_id: int
) -> None:
    disk = FakeDisk()
    server = started(disk, wal_shards=3)
    server.engine.state.next_id = refused_id
    disk.fail_at(disk.mutating_calls + 2, errno.EIO)
    with pytest.raises(StorageFailed):
        server.put("t", {"durability": "fsync"})
    server.engine.state.next_id = next_id
    server.put("t", {"durability": "fsync"})
    server.delete_topic("t")
    disk = disk.crash_keep_all()
    again = started(disk, wal_shards=3)
    assert again.engine.find_topic("t") is None
    again.put("t", {"durability": "fsync"})
    again.write("t", 2)
    once_more = started(disk.crash_keep_all(), wal_shards=3)
    assert sorted(once_more.read_all("t").records) == [1, 2]


# Checkpoints


def test_a_checkpoint_that_fails_at_any_call_is_made_up_for_by_the_next() -> None:
    call = 0
    while True:
        call += 1
        disk = FakeDisk()
        server = started(disk, cold_dir="/cold", hot_retain_segments=1)
        server.put("t", {"durability": "fsync"})
        server.write("t", tagged(*"abcabc"))
        server.checkpoint()
        server.write("t", tagged(*"abcabcabc"))
        server.write("t", 3)
        server.delete_records("t", match="a")
        server.put("gone", {})
        server.delete_topic("gone")
        calls = disk.mutating_calls
        disk.fail_at(calls + call, errno.EIO)
        server.checkpoint()
        if disk.mutating_calls < calls + call:
            return
        expected = server.read_all("t")
        # Whether or not it failed, a crash here finds everything ...
        for survivor in (disk.crash_keep_all(), disk.crash_drop_all(), disk.crash(call)):
            assert started(survivor, cold_dir="/cold").read_all("t") == expected, call
        if server.journal.shards[0].failure is not None:
            continue
        # ... and so it does while and after the next one.
        server.delete_records("t", match="b")
        expected = server.read_all("t")
        disk.stop_at(disk.mutating_calls + 1 + 5 * call % 37)
        with suppress(SimulatedCrash):
            assert server.checkpoint(), call
        for survivor in (disk.crash_keep_all(), disk.crash_drop_all(), disk.crash(call)):
            assert started(survivor, cold_dir="/cold").read_all("t") == expected, call


@pytest.mark.parametrize("error_number", [errno.EIO, errno.EMFILE])
def test_a_checkpoint_that_cannot_read_a_file_is_made_up_for_by_the_next(error_number: int) -> None:
    """Files it looks into, maps, opens or asks for: to move them, to set delete bytes, to fold."""
    call = 0
    while True:
        call += 1
        disk = FakeDisk()
        server = started(disk, cold_dir="/cold", hot_retain_segments=1)
        server.put("t", {"durability": "fsync"})
        server.write("t", tagged(*"abcabc"))
        server.checkpoint()
        server.write("t", tagged(*"abcabcabc"))
        server.delete_records("t", match="a")
        server.checkpoint()
        server.write("t", tagged(*"abcabcabc"))
        server.write("t", 2)
        server.put("gone", {})
        server.delete_topic("gone")
        calls = disk.reading_calls
        disk.reading_faults[calls + call] = error_number
        server.checkpoint()
        if disk.reading_calls < calls + call:
            assert call > 10  # so many are there
            return
        assert server.journal.failure is None
        expected = server.read_all("t")
        for survivor in (disk.crash_keep_all(), disk.crash_drop_all(), disk.crash(call)):
            assert started(survivor, cold_dir="/cold").read_all("t") == expected, call
        server.write("t", 1)  # behind those of the open block that it has saved
        server.delete_records("t", match="b")
        expected = server.read_all("t")
        for _ in range(3):
            assert server.checkpoint(), call
            for survivor in (disk.crash_keep_all(), disk.crash_drop_all(), disk.crash(call)):
                assert started(survivor, cold_dir="/cold").read_all("t") == expected, call


def test_a_configuration_that_came_and_went_while_a_checkpoint_ran_takes_nothing_after_a_crash() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": "fsync"})
    server.write("t", 1)

    def during(step: str) -> None:
        if step == "capture":
            server.put("t", {"cap_records": 2})
            server.put("t", {"cap_records": 0})
            server.write("t", 5)

    server.checkpoint(during=during)
    assert sorted(started(disk.crash_keep_all()).read_all("t").records) == [1, 2, 3, 4, 5, 6]


def test_records_evicted_during_replay_do_not_count_after_a_delete_is_replayed() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": "fsync", "cap_records": 8})
    server.write("t", tagged(*"abcd"))
    server.write("t", tagged(*"abcd"))
    server.checkpoint()
    server.checkpoint()
    server.write("t", 2)
    server.delete_records("t", match="c")
    topic = server.engine.topic("t")
    again = started(disk.crash_keep_all()).engine.topic("t")
    assert (again.log.count, again.log.bytes) == (topic.log.count, topic.log.bytes)


def test_without_room_for_another_topic_nothing_of_its_first_write_is_kept() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.lazy = True
    for number in range(1024):
        server.write(f"t{number}", 1, config={"durability": "memory"})
    server.sync()
    disk.fail_at(disk.mutating_calls + 1, errno.ENOSPC, and_after=True)
    with pytest.raises(StorageFailed):
        server.write("one-more", 1)
    assert server.engine.find_topic("one-more") is None
