"""The last seq of each topic, where a killed process leaves it and a power cut does not."""

import struct

import pytest

from topics.storage.errors import DiskFailed
from topics.storage.heads import HEADS_FORMAT, MAGIC, SLOTS_MIN, Heads, decode_heads
from topics.testing.fake_disk import FakeDisk

DIRECTORY = "/data/meta"


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


def created(disk: FakeDisk) -> Heads:
    heads = Heads(disk, DIRECTORY)
    heads.create()
    return heads


def the_file(disk: FakeDisk) -> str:
    (path,) = (name for name in disk.dump() if name.startswith(DIRECTORY))
    return path


def test_the_file_has_the_documented_bytes(disk: FakeDisk) -> None:
    created(disk).note(7, 300)
    content = disk.read(the_file(disk))
    assert content[:64] == b"topicshd" + b"boot-1".ljust(40, b"\0") + struct.pack("<QQ", 1, 0)
    assert content[64:80] == struct.pack("<QQ", 7, 300)
    assert content[80:] == bytes(16 * (SLOTS_MIN - 1))


def test_a_killed_process_leaves_the_last_seq_of_each_topic(disk: FakeDisk) -> None:
    heads = created(disk)
    for topic_id, seq in [(1, 5), (2, 9), (1, 6)]:
        heads.note(topic_id, seq)
    assert Heads(disk.crash_keep_all(), DIRECTORY).read() == {1: 6, 2: 9}


def test_a_power_cut_leaves_nothing_to_rely_on(disk: FakeDisk) -> None:
    created(disk).note(1, 5)
    for seed in range(20):
        assert Heads(disk.crash(seed), DIRECTORY).read() is None
    assert Heads(disk.crash_drop_all(), DIRECTORY).read() is None


def test_there_is_nothing_to_rely_on_before_the_first_start(disk: FakeDisk) -> None:
    assert Heads(disk, DIRECTORY).read() is None


def test_a_new_start_forgets_what_was_noted(disk: FakeDisk) -> None:
    created(disk).note(1, 5)
    created(disk).note(2, 1)
    assert Heads(disk.crash_keep_all(), DIRECTORY).read() == {2: 1}


def test_a_machine_without_a_boot_id_has_nothing_to_rely_on(disk: FakeDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "boot_id", lambda: "")
    created(disk).note(1, 5)
    assert Heads(disk, DIRECTORY).read() is None


def test_more_topics_than_there_is_room_for_make_more_room(disk: FakeDisk) -> None:
    heads = created(disk)
    count = 3 * SLOTS_MIN
    for topic_id in range(1, count + 1):
        heads.note(topic_id, topic_id)
        heads.note(1, 1000 + topic_id)
    found = Heads(disk.crash_keep_all(), DIRECTORY).read()
    assert found == {1: 1000 + count} | {topic_id: topic_id for topic_id in range(2, count + 1)}


def test_a_disk_that_has_no_room_is_named(disk: FakeDisk) -> None:
    disk.fail_at(3)
    with pytest.raises(DiskFailed, match="making room for heads"):
        created(disk)


HEADER = struct.pack("<8s40sQ8x", MAGIC, b"boot", HEADS_FORMAT)


@pytest.mark.parametrize(
    "content",
    [b"", HEADER[:-1], b"x" + HEADER[1:], struct.pack("<8s40sQ8x", MAGIC, b"boot", HEADS_FORMAT + 1)],
    ids=["empty", "short", "magic", "format"],
)
def test_what_is_no_heads_file_is_not_taken_for_one(content: bytes) -> None:
    assert decode_heads(content) is None


def test_free_slots_and_a_torn_last_one_are_passed_over() -> None:
    content = HEADER + struct.pack("<QQQQQQ", 3, 30, 0, 0, 4, 40) + b"\x05\0\0"
    found = decode_heads(content)
    assert found is not None
    assert (found.boot_id, found.slots) == (b"boot", [(64, 3, 30), (96, 4, 40)])
