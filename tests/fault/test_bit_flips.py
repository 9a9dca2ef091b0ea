"""One damaged byte anywhere in a data directory: the right data, or an error that names the file.

Never wrong data. The default run takes bytes spread evenly over every file, the first and the last always;
TOPICS_TEST_EXHAUSTIVE=1 takes every bit of every byte.
"""

from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec import Raw

from fault.workload import new_server
from sampling import EXHAUSTIVE
from topics.model.record import NewRecord
from topics.storage.errors import CorruptFile, StorageError, UnknownVersion
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import Reading

BYTES_PER_FILE = 12
CLASSES = ("fsync", "disk", "memory")


def populated(*, clean: bool) -> tuple[FakeDisk, dict[str, Reading]]:
    """Topics with sealed, cold, active and logged records, tags, deletes and keys; stopped, or killed while idle.

    Returns what readers saw at the end.
    """
    disk, clock = FakeDisk(), FakeClock()
    server = new_server(disk, clock, 1)
    server.start()
    for durability in CLASSES:
        server.put(durability, {"durability": durability})
    for _ in range(3):
        for durability in CLASSES:
            for number in range(3):
                server.write(durability, _records(number), key=f"{durability}-{clock.now_ms()}-{number}", node="eu")
            server.delete_records(durability, match="a:2")
        clock.advance(5)
        server.checkpoint()
    for durability in CLASSES:
        server.write(durability, _records(9))
    server.sync()
    server.lazy = True
    for durability in ("disk", "memory", "fsync"):
        server.delete_records(durability, before_seq=3)
    server.sync()
    expected = {topic: server.read_all(topic) for topic in CLASSES}
    if clean:
        server.stop()
    return disk, expected


def _records(number: int) -> list[NewRecord]:
    return [NewRecord(Raw(b'{"n":%d}' % number), tag=f"a:{number}"), NewRecord(Raw(b'"%d"' % number), tag=None)]


def flips(disk: FakeDisk) -> Iterator[tuple[str, int, int]]:
    """(path, offset, bit) of what to damage."""
    for path, content in disk.dump().items():
        size = len(content.rstrip(b"\0")) + 8 if path.endswith((".log", "heads")) else len(content)
        size = min(size, len(content))
        if EXHAUSTIVE:
            yield from ((path, offset, bit) for offset in range(size) for bit in range(8))
        else:
            offsets = range(size) if size <= BYTES_PER_FILE else _spread(size)
            yield from ((path, offset, (offset * 5) % 8) for offset in offsets)


def _spread(size: int) -> list[int]:
    return sorted({(size - 1) * number // (BYTES_PER_FILE - 1) for number in range(BYTES_PER_FILE)})


def flipped(disk: FakeDisk, path: str, offset: int, bit: int) -> FakeDisk:
    damaged = disk.crash_keep_all()
    byte = damaged.read(path)[offset] ^ (1 << bit)
    damaged.open_append(path).write_at(offset, bytes([byte]))
    return damaged.crash_keep_all()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_damaged_byte_never_serves_wrong_data(clean: bool, tried: "Counter[str]") -> None:
    disk, expected = populated(clean=clean)
    wrong: list[str] = []
    for path, offset, bit in flips(disk):
        tried["damaged bytes"] += 1
        where = f"{path} byte {offset} bit {bit}"
        damaged = new_server(flipped(disk, path, offset, bit), FakeClock(), 1)
        try:
            damaged.start()
            for topic in CLASSES:
                found = damaged.read_all(topic)
                if problem := _difference(found, expected[topic]):
                    wrong.append(f"{where}: {topic}: {problem}")
            # The tag tables lead a delete to the right records too.
            for topic in CLASSES:
                kept = {seq: text for seq, text in damaged.read_all(topic).records.items() if b'"a:1"' not in text}
                damaged.delete_records(topic, match="a:1")
                if damaged.read_all(topic).records != kept:
                    wrong.append(f"{where}: {topic}: a delete by tag took the wrong records")
        except (CorruptFile, UnknownVersion) as error:
            if path not in error.message:
                wrong.append(f"{where}: the error names another file: {error.message}")
        except StorageError as error:
            wrong.append(f"{where}: {error!r}")
    assert not wrong, "\n".join([f"{len(wrong)} damaged bytes did harm", *wrong[:40]])


def _difference(found: Reading, expected: Reading) -> str:
    altered = {seq for seq, text in found.records.items() if expected.records.get(seq) != text}
    if altered:
        return f"wrong or deleted records {sorted(altered)}"
    if missing := expected.records.keys() - found.records.keys():
        return f"missing records {sorted(missing)}"
    if list(found.missing()) != list(expected.missing()):
        return "what is told about missing seqs differs"
    return ""
