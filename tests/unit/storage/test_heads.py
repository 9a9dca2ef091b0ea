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
    heads.create({})
    return heads


def note(heads: Heads, topic_id: int, seq: int) -> None:
    heads.make_room(topic_id)
    heads.note(topic_id, seq)


def slot(topic_id: int, seq: int) -> bytes:
    return struct.pack("<QQQ", topic_id, seq, topic_id ^ seq ^ 0x5EA15EA15EA15EA1)


def the_file(disk: FakeDisk) -> str:
    (path,) = (name for name in disk.dump() if name.startswith(DIRECTORY))
    return path


def test_the_file_has_the_documented_bytes(disk: FakeDisk) -> None:
    note(created(disk), 7, 300)
    content = disk.read(the_file(disk))
    assert content[:64] == b"topicshd" + b"boot-1".ljust(40, b"\0") + struct.pack("<QQ", 1, 0)
    assert content[64:88] == slot(7, 300)
    assert content[88:] == bytes(24 * (SLOTS_MIN - 1))


def test_a_killed_process_leaves_the_last_seq_of_each_topic(disk: FakeDisk) -> None:
    heads = created(disk)
    for topic_id, seq in [(1, 5), (2, 9), (1, 6)]:
        note(heads, topic_id, seq)
    assert Heads(disk.crash_keep_all(), DIRECTORY).read() == {1: 6, 2: 9}


def test_a_power_cut_leaves_nothing_to_rely_on(disk: FakeDisk) -> None:
    note(created(disk), 1, 5)
    for seed in range(20):
        assert Heads(disk.crash(seed), DIRECTORY).read() is None
    assert Heads(disk.crash_drop_all(), DIRECTORY).read() is None


def test_there_is_nothing_to_rely_on_before_the_first_start(disk: FakeDisk) -> None:
    assert Heads(disk, DIRECTORY).read() is None


def test_a_new_start_forgets_what_was_noted(disk: FakeDisk) -> None:
    note(created(disk), 1, 5)
    note(created(disk), 2, 1)
    assert Heads(disk.crash_keep_all(), DIRECTORY).read() == {2: 1}


def test_a_machine_without_a_boot_id_has_nothing_to_rely_on(disk: FakeDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "boot_id", lambda: "")
    note(created(disk), 1, 5)
    assert Heads(disk, DIRECTORY).read() is None


def test_more_topics_than_there_is_room_for_make_more_room(disk: FakeDisk) -> None:
    heads = created(disk)
    count = 3 * SLOTS_MIN
    for topic_id in range(1, count + 1):
        note(heads, topic_id, topic_id)
        note(heads, 1, 1000 + topic_id)
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


def test_free_slots_are_passed_over() -> None:
    found = decode_heads(HEADER + slot(3, 30) + bytes(24) + slot(4, 40))
    assert found is not None
    assert (found.boot_id, found.slots, found.damaged) == (b"boot", [(64, 3, 30), (112, 4, 40)], False)


@pytest.mark.parametrize("damage", [b"\x05\0\0", struct.pack("<QQQ", 5, 50, 1)], ids=["torn", "check"])
def test_a_slot_cut_short_or_without_its_check_is_damage(damage: bytes) -> None:
    found = decode_heads(HEADER + slot(3, 30) + damage)
    assert found is not None
    assert (found.slots, found.damaged) == ([(64, 3, 30)], True)
