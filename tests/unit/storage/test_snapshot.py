"""A snapshot file: exact bytes, that every cut and every flipped byte is found, and other versions."""

import struct
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from topics import limits
from topics.storage import snapshot
from topics.storage.errors import CorruptFile, UnknownVersion
from topics.storage.snapshot import STATE_FORMAT, Head, NewTail, SnapshotWriter, TopicEntry
from topics.testing.fake_disk import FakeDisk

PATH = "/increment.0003.bin"
HEAD = Head(number=3, base=2, next_id=9, shards={"": 17}, start=1, clean=False)
TOPICS = [
    TopicEntry(7, b"image", [NewTail.at_hand(1, 0, b"frames"), NewTail.at_hand(5, 10, b"more")]),
    TopicEntry(8, b"another", []),
]


def written(topics: list[TopicEntry] = TOPICS, removed: list[int] | None = None, head: object = HEAD) -> bytes:
    disk = FakeDisk()
    writer = SnapshotWriter(disk.create(PATH), head)  # type: ignore[arg-type]
    for topic in topics:
        writer.add(topic)
    writer.finish([4] if removed is None else removed)
    disk.sync_dir("/")
    return disk.crash_drop_all().read(PATH)


def chunk(offset: int, kind: int, body: bytes) -> bytes:
    prefix = struct.pack("<IB3x", len(body), kind)
    checksum = xxhash.xxh3_64(struct.pack("<Q", offset) + prefix + body).intdigest()
    return prefix + struct.pack("<Q", checksum) + body


def test_a_snapshot_has_the_documented_bytes() -> None:
    expected = b"topicsnp" + struct.pack("<II", 2, 0)
    expected += chunk(len(expected), 1, msgspec.msgpack.encode(HEAD))
    first = struct.pack("<QII", 7, 5, 2) + struct.pack("<QQI", 1, 0, 6) + struct.pack("<QQI", 5, 10, 4)
    topics = first + b"imageframesmore" + struct.pack("<QII", 8, 7, 0) + b"another"
    expected += chunk(len(expected), 2, topics)
    expected += chunk(len(expected), 3, msgspec.msgpack.encode({"topics": 2, "removed": [4]}))
    assert written() == expected


def test_a_large_tail_has_the_documented_bytes_and_is_written_as_it_is() -> None:
    large = b"x" * limits.SNAPSHOT_CHUNK_BYTES
    topics = [
        TopicEntry(
            7, b"image", [NewTail.at_hand(1, 0, b"small"), NewTail.at_hand(5, 0, large), NewTail.at_hand(9, 0, b"more")]
        )
    ]
    tails = b"".join(struct.pack("<QQI", tail.first_seq, 0, tail.length) for tail in topics[0].tails)
    start = 16 + len(chunk(16, 1, msgspec.msgpack.encode(HEAD)))
    body = struct.pack("<QII", 7, 5, 3) + tails + b"imagesmall" + large + b"more"
    assert written(topics)[start:].startswith(chunk(start, 2, body))


def test_of_a_large_tail_one_piece_is_in_memory_at_a_time() -> None:
    disk = FakeDisk()
    file = disk.create(PATH)
    piece = b"x" * limits.SNAPSHOT_CHUNK_BYTES
    sizes: list[int] = []

    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            sizes.append(disk.size(PATH))
            yield piece

    writer = SnapshotWriter(file, HEAD)
    writer.add(TopicEntry(7, b"image", [NewTail(1, 0, 3 * len(piece), pieces())]))
    assert [after - before for before, after in pairwise(sizes)] == [len(piece)] * 2, "what was made is written"


@pytest.mark.parametrize("size", [3, limits.SNAPSHOT_CHUNK_BYTES], ids=["small", "large"])
def test_a_tail_that_is_not_as_long_as_it_was_to_be_is_not_written(size: int) -> None:
    writer = SnapshotWriter(FakeDisk().create(PATH), HEAD)
    with pytest.raises(AssertionError, match="bytes of a tail"):
        writer.add(TopicEntry(7, b"image", [NewTail(1, 0, size, [b"x" * (size - 1)])]))


def test_what_was_written_comes_back() -> None:
    file = snapshot.decode(written(), PATH)
    assert (file.head, file.removed) == (HEAD, [4])
    assert [(each.topic_id, file.at(each.image)) for each in file.topics()] == [(7, b"image"), (8, b"another")]
    tails = [(tail.first_seq, tail.kept, file.at(tail.place)) for tail in next(file.topics()).tails]
    assert tails == [(1, 0, b"frames"), (5, 10, b"more")]


@given(st.lists(st.binary(max_size=300_000), max_size=5))
def test_topics_of_any_size_are_cut_into_chunks_and_come_back(images: list[bytes]) -> None:
    file = snapshot.decode(written([TopicEntry(n, image, []) for n, image in enumerate(images, 1)]), PATH)
    assert [file.at(topic.image) for topic in file.topics()] == images


def test_a_cut_file_is_damaged() -> None:
    content = written()
    for length in range(len(content)):
        with pytest.raises(CorruptFile):
            snapshot.decode(content[:length], PATH)
    with pytest.raises(CorruptFile):
        snapshot.decode(content + b"\x00", PATH)


def test_every_flipped_bit_is_found() -> None:
    content = written()
    for at in [*range(8), *range(12, len(content))]:
        for bit in range(8):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            with pytest.raises(CorruptFile):
                snapshot.decode(bytes(damaged), PATH)


def test_chunks_that_changed_places_are_found() -> None:
    content = written([TopicEntry(1, b"a" * 300_000, []), TopicEntry(2, b"b" * 300_000, [])])
    size = 16 + 16 + 300_000
    first = content.index(b"a" * 300_000) - 32
    swapped = content[:first] + content[first + size : first + 2 * size] + content[first : first + size]
    with pytest.raises(CorruptFile):
        snapshot.decode(swapped + content[first + 2 * size :], PATH)


def test_another_version_is_named_and_not_called_damage() -> None:
    content = bytearray(written())
    content[8] = 9
    with pytest.raises(UnknownVersion) as caught:
        snapshot.decode(bytes(content), PATH)
    assert caught.value.version == "snapshot format 9"
    with pytest.raises(UnknownVersion) as caught:
        snapshot.decode(written(head={"format": STATE_FORMAT + 1, "something": "else"}), PATH)
    assert caught.value.message == (
        f"{PATH} has a format this version of topics does not know (state format {STATE_FORMAT + 1}): "
        "start the version that wrote it"
    )


def test_an_earlier_format_is_refused_with_the_way_to_take_the_topics_along() -> None:
    content = bytearray(written())
    content[8] = 1
    with pytest.raises(UnknownVersion) as caught:
        snapshot.decode(bytes(content), PATH)
    assert caught.value.message == (
        f"{PATH} was written by an earlier version of topics, and this one does not read its format "
        "(snapshot format 1): start that version on the directory and export your topics, "
        "then start this one on an empty directory"
    )
