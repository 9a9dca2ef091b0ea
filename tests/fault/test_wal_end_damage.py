"""The end of a killed server's log, cut off, blanked, shortened or shifted: what was synced is missed, never skipped.

A log that was not closed has nothing behind its last frames that says they were once there. What has been synced is
known all the same: from the snapshot, from marks that name their own place, and from what was noted after each sync.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec import Raw

from topics.model.record import NewRecord
from topics.storage.errors import CorruptFile
from topics.storage.fs import replace_file
from topics.storage.verify import verify_directory
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import DATA_DIR, Reading, SimulatedServer

FSYNC = {"durability": "fsync"}
OFFSETS = 60

Damage = Callable[[bytes, int], bytes]

DAMAGES: dict[str, Damage] = {
    "cut off": lambda content, at: content[:at],
    "blanked": lambda content, at: content[:at] + bytes(len(content) - at),
    "shifted to the front": lambda content, at: content[:at] + content[at + 7 :] + bytes(7),
    "shifted to the back": lambda content, at: (content[:at] + bytes(7) + content[at:])[: len(content)],
    "repeated": lambda content, at: (content[:at] + content[max(at - 40, 0) :])[: len(content)],
    "without a piece": lambda content, at: content[:at] + content[at + 300 :] + bytes(300),
}


def killed(*, checkpointed: bool) -> tuple[FakeDisk, str, int, Reading]:
    """A disk whose server was killed, its last log file, where the frames in it end, and what its topic held."""
    disk = FakeDisk()
    server = SimulatedServer(disk, FakeClock(), wal_file_bytes=1 << 14)
    server.start()
    for number in range(40):
        server.write("t", [NewRecord(Raw(b'"%d"' % number), tag="x")] * (number % 3 + 1), config=FSYNC)
        if checkpointed and number == 30:
            server.checkpoint()
    writer = server.journal.shards[0].writer
    return disk.crash_keep_all(), writer.active_path, writer.offset, server.read_all("t")


def read_again(disk: FakeDisk) -> Reading:
    server = SimulatedServer(disk, FakeClock(), wal_file_bytes=1 << 14)
    server.start()
    return server.read_all("t")


def read_or_refused(disk: FakeDisk) -> Reading | CorruptFile:
    try:
        return read_again(disk)
    except CorruptFile as error:
        return error


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_synced_is_never_missing_in_silence(damage: str, checkpointed: bool, tried: "Counter[str]") -> None:
    disk, path, end, expected = killed(checkpointed=checkpointed)
    content = disk.read(path)
    told = 0
    for at in sorted({end * number // OFFSETS for number in range(OFFSETS + 1)}):
        tried["damaged ends of a log"] += 1
        damaged = disk.crash_keep_all()
        replace_file(damaged, path, DAMAGES[damage](content, at))
        sound = verify_directory(damaged, DATA_DIR, "").sound
        found = read_or_refused(damaged)
        told += isinstance(found, CorruptFile)
        if isinstance(found, CorruptFile):
            assert (found.path, sound) == (path, False), f"{damage} at byte {at}"
        else:
            assert (found, sound) == (expected, True), f"{damage} at byte {at}"
    assert told > OFFSETS // 2


def test_after_a_power_cut_the_last_snapshot_still_says_what_was_synced() -> None:
    disk, path, end, _ = killed(checkpointed=True)
    for name in disk.dump():
        if name.endswith(("meta/wal", "meta/heads")):
            disk.remove(name)
    content = disk.read(path)
    refused = [at for at in range(60, end, 97) if _is_refused(disk, path, content[:at])]
    assert refused, "a log that ends before the snapshot was never noticed"


def _is_refused(disk: FakeDisk, path: str, content: bytes) -> bool:
    damaged = disk.crash_keep_all()
    replace_file(damaged, path, content)
    return isinstance(read_or_refused(damaged), CorruptFile)


def test_a_group_taken_out_between_two_marks_is_noticed_by_the_marks_alone() -> None:
    disk, path, end, _ = killed(checkpointed=False)
    disk.remove(f"{DATA_DIR}/meta/wal")
    content = disk.read(path)[:end]
    marks = [at for at in range(len(content)) if content.startswith(b'{"synced_bytes"', at)]
    first, second = (content.rindex(b"\x08\x00", 0, at) - 4 for at in marks[3:5])
    replace_file(disk, path, content[:first] + content[second:])
    with pytest.raises(CorruptFile, match="belongs elsewhere"):
        read_again(disk)
