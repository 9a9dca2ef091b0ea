"""Snapshots: exact bytes, atomic saving, the fallback, and every byte flipped once."""

import errno
import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from topics.storage.errors import CorruptFile, DiskFailed, UnknownVersion
from topics.storage.snapshot import decode_snapshot, encode_snapshot, load_latest, numbers, save
from topics.testing.fake_disk import FakeDisk, SimulatedCrash

DIRECTORY = "/data/meta"


def path(number: int) -> str:
    return f"{DIRECTORY}/snapshot.{number:04d}.bin"


def saved(*bodies: bytes) -> FakeDisk:
    disk = FakeDisk()
    for number, body in enumerate(bodies, 1):
        save(disk, DIRECTORY, number, body)
    return disk


def test_a_snapshot_has_the_documented_bytes() -> None:
    prefix = b"topicsnp" + struct.pack("<I", 1) + struct.pack("<Q", 4)
    checksum = struct.pack("<Q", xxhash.xxh3_64(prefix + b"body").intdigest())
    assert saved(b"body").dump() == {path(1): prefix + checksum + b"body"}


@given(st.binary())
def test_any_body_comes_back(body: bytes) -> None:
    assert decode_snapshot(encode_snapshot(body), "x") == body


def test_the_newest_is_loaded_and_the_previous_kept() -> None:
    disk = saved(b"one", b"two", b"three")
    assert numbers(disk, DIRECTORY) == [3, 2]
    loaded = load_latest(disk, DIRECTORY)
    assert loaded is not None
    assert (loaded.number, loaded.body, loaded.damaged) == (3, b"three", ())


def test_without_snapshots_there_is_nothing_to_load() -> None:
    assert load_latest(FakeDisk(), DIRECTORY) is None


def test_numbers_are_compared_as_numbers() -> None:
    disk = FakeDisk()
    save(disk, DIRECTORY, 9_999, b"old")
    save(disk, DIRECTORY, 10_000, b"new")
    assert numbers(disk, DIRECTORY) == [10_000, 9_999]


def test_a_damaged_newest_falls_back_to_the_previous_and_says_so() -> None:
    disk = saved(b"one", b"two")
    content = disk.read(path(2))
    for at in [*range(8), *range(12, len(content))]:
        for bit in range(8):
            disk.open_append(path(2)).write_at(at, bytes([content[at] ^ 1 << bit]))
            loaded = load_latest(disk, DIRECTORY)
            assert loaded is not None
            assert (loaded.number, loaded.body) == (1, b"one")
            assert [error.path for error in loaded.damaged] == [path(2)]
        disk.open_append(path(2)).write_at(at, content[at : at + 1])


def test_a_cut_snapshot_is_damaged() -> None:
    content = encode_snapshot(b"body")
    for length in range(len(content)):
        with pytest.raises(CorruptFile):
            decode_snapshot(content[:length], "x")
    with pytest.raises(CorruptFile):
        decode_snapshot(content + b"\x00", "x")


def test_when_none_can_be_read_the_newest_is_named() -> None:
    disk = saved(b"one", b"two")
    for number in (1, 2):
        disk.open_append(path(number)).write_at(28, b"?")
    with pytest.raises(CorruptFile) as caught:
        load_latest(disk, DIRECTORY)
    assert caught.value.path == path(2)


def test_another_version_is_its_own_error_and_no_fallback() -> None:
    disk = saved(b"one", b"two")
    for byte in range(8, 12):
        changed = saved(b"one", b"two")
        changed.open_append(path(2)).write_at(byte, b"\x09")
        with pytest.raises(UnknownVersion):
            load_latest(changed, DIRECTORY)
    disk.open_append(path(2)).write_at(8, b"\x02")
    with pytest.raises(UnknownVersion) as caught:
        load_latest(disk, DIRECTORY)
    assert caught.value.version == "snapshot format 2"


def test_a_save_can_be_repeated_after_one_that_was_cut_short() -> None:
    disk = saved(b"one")
    disk.create(f"{path(2)}.tmp").write(b"half")
    save(disk, DIRECTORY, 2, b"two")
    assert disk.list_dir(DIRECTORY) == ["snapshot.0001.bin", "snapshot.0002.bin"]


def test_a_failed_save_leaves_the_earlier_snapshots() -> None:
    calls = saved(b"one").mutating_calls
    for call in range(calls + 1, saved(b"one", b"two").mutating_calls + 1):
        disk = saved(b"one")
        disk.fail_at(call, errno.ENOSPC, written_bytes=5)
        with pytest.raises(DiskFailed):
            save(disk, DIRECTORY, 2, b"two")
        loaded = load_latest(disk.crash_drop_all(), DIRECTORY)
        assert loaded is not None
        assert loaded.body == b"one"


def test_a_crash_at_every_call_leaves_the_old_or_the_new_snapshot() -> None:
    before, after = saved(b"one", b"two").mutating_calls, saved(b"one", b"two", b"3" * 2000).mutating_calls
    for call in range(before + 1, after + 1):
        for applied, torn_bytes in ((False, 0), (False, 700), (True, 0)):
            disk = saved(b"one", b"two")
            disk.stop_at(call, applied=applied, torn_bytes=torn_bytes)
            with pytest.raises(SimulatedCrash):
                save(disk, DIRECTORY, 3, b"3" * 2000)
            for survivor in (
                disk.crash_keep_all(),
                disk.crash_drop_all(),
                *(disk.crash(call * 8 + seed) for seed in range(8)),
            ):
                loaded = load_latest(survivor, DIRECTORY)
                assert loaded is not None
                assert loaded.damaged == ()
                assert loaded.body in (b"two", b"3" * 2000)
