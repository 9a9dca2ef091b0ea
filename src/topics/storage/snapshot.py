"""One snapshot file: a base, which has every topic, or an increment, which has those that changed. Little endian.

     off  size  field
       0    8   magic       "topicsnp"
       8    4   version     u32   2
      12    4   zero
      16    .   chunks

    a chunk
       0    4   body_len    u32
       4    1   kind        u8    1 head  2 topics  3 end
       5    3   zero
       8    8   xxh3        u64   over the offset of the chunk in the file (u64), [0 .. 8) and the body
      16    N   body

    a topic, one after another in the body of a chunk
       0    8   topic_id    u64
       8    4   image_len   u32
      12    4   tail_count  u32
      16  20×   tails             first_seq u64, kept u64, new_len u32
       .    N   image             MessagePack, `TopicImage`
       .    .   records           of each tail `new_len` bytes of segment frames, which follow `kept` bytes of the same
                                  tail in earlier files

The first chunk is the head, the last one the end: a file that ends before it is damaged. A tail that a topic does not
list is no more. Owns the bytes of a file; which files make a state is in `snapshot_chain`.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64

from topics import limits
from topics.storage.errors import CorruptFile, UnknownVersion
from topics.storage.fs import Disk, MappedBytes, WritableFile

MAGIC = b"topicsnp"
SNAPSHOT_VERSION = 2
STATE_FORMAT = 5

_FILE_HEADER = Struct("<8sI4x")
_CHUNK = Struct("<IB3x")
_CHUNK_BYTES = _CHUNK.size + 8
_OFFSET = Struct("<Q")
_TOPIC = Struct("<QII")
_TAIL = Struct("<QQI")

_HEAD, _TOPICS, _END = 1, 2, 3


class Head(msgspec.Struct, frozen=True):
    """`base`: the number this one builds on; 0: on nothing. `shards`: directory name of each WAL shard to the first lsn
    that is not in here. `start`: the number of the process that wrote it. `clean`: nothing follows."""

    number: int
    base: int
    next_id: int
    shards: dict[str, int]
    start: int
    clean: bool
    format: int = STATE_FORMAT


class _Format(msgspec.Struct):
    format: int


class _End(msgspec.Struct, frozen=True):
    topics: int
    removed: list[int]


Buffer = bytes | memoryview


class NewTail(NamedTuple):
    """The frames of a tail that a file gets: `length` bytes, in pieces that are made while they are written, because
    those of a hot topic together may be a quarter of all memory. `kept`: how many bytes of it earlier files have."""

    first_seq: int
    kept: int
    length: int
    pieces: Iterable[Buffer]

    @classmethod
    def at_hand(cls, first_seq: int, kept: int, content: Buffer) -> "NewTail":
        return cls(first_seq, kept, len(content), (content,))


class TopicEntry(NamedTuple):
    """What a file gets of a topic."""

    topic_id: int
    image: bytes
    tails: list[NewTail]


class Place(NamedTuple):
    """Some bytes of a file."""

    offset: int
    length: int


class FoundTail(NamedTuple):
    first_seq: int
    kept: int
    place: Place


class FoundTopic(NamedTuple):
    """Where a file has a topic."""

    topic_id: int
    image: Place
    tails: list[FoundTail]


class Chunk(NamedTuple):
    """Some topics of a file, one after another: from its topic number `first` to that before `stop`."""

    body: Place
    first: int
    stop: int


class SnapshotFile(NamedTuple):
    """A file that was read and found whole."""

    path: str
    content: MappedBytes
    head: Head
    offsets: "array[int]"  # of its topics
    chunks: list[Chunk]  # that have them
    removed: list[int]

    def topics(self) -> Iterator[FoundTopic]:
        for offset in self.offsets:
            yield self.topic(offset)

    def topic_ids(self, first: int = 0, stop: int | None = None) -> Iterator[int]:
        for offset in self.offsets[first:stop]:
            yield _OFFSET.unpack_from(self.content, offset)[0]

    def topic(self, offset: int) -> FoundTopic:
        """Once for each topic at a start."""
        content = self.content
        topic_id, image_len, tail_count = _TOPIC.unpack_from(content, offset)
        offset += _TOPIC.size
        if tail_count == 1:  # nearly all: a third faster than the general way
            heads = [_TAIL.unpack_from(content, offset)]
        else:
            heads = [_TAIL.unpack_from(content, offset + number * _TAIL.size) for number in range(tail_count)]
        offset += tail_count * _TAIL.size
        image = Place(offset, image_len)
        offset += image_len
        tails: list[FoundTail] = []
        for first_seq, kept, new_len in heads:
            tails.append(FoundTail(first_seq, kept, Place(offset, new_len)))
            offset += new_len
        return FoundTopic(topic_id, image, tails)

    def at(self, place: Place) -> bytes:
        return self.content[place.offset : place.offset + place.length]

    def view(self, place: Place) -> memoryview:
        """The same without a copy: the tails of a hot topic together may be as large as the budget of what is not
        sealed."""
        return memoryview(self.content)[place.offset : place.offset + place.length]


class SnapshotWriter:
    """Writes one, chunk by chunk. Nothing is durable before `finish` has returned."""

    def __init__(self, file: WritableFile, head: Head) -> None:
        self._file = file
        self._offset = _FILE_HEADER.size
        self._parts: list[Buffer] = []
        self._part_bytes = 0
        self._topics = 0
        file.write(_FILE_HEADER.pack(MAGIC, SNAPSHOT_VERSION))
        self._chunk(_HEAD, [msgspec.msgpack.encode(head)])

    def add(self, topic: TopicEntry) -> None:
        """Writes one topic with its tails. Once for each topic that changed."""
        tails = topic.tails
        self._topics += 1
        head: list[Buffer] = [_TOPIC.pack(topic.topic_id, len(topic.image), len(tails))]
        size = _TOPIC.size + len(topic.image)
        for tail in tails:
            head.append(_TAIL.pack(tail.first_seq, tail.kept, tail.length))
            size += _TAIL.size + tail.length
        head.append(topic.image)
        if size >= limits.SNAPSHOT_CHUNK_BYTES:
            self._flush()
            self._large_chunk(head, tails, size)
            return
        self._parts += head
        for tail in tails:
            self._parts += _pieces(tail)
        self._part_bytes += size
        if self._part_bytes >= limits.SNAPSHOT_CHUNK_BYTES:
            self._flush()

    def add_chunk(self, body: Buffer, topics: int) -> None:
        """Writes topics as they are in another file, of whose tails no other file has a part."""
        self._flush()
        self._topics += topics
        prefix = _CHUNK.pack(len(body), _TOPICS)
        self._file.write(prefix + _checksum(self._offset, prefix, [body]))
        self._file.write(body)
        self._offset += _CHUNK_BYTES + len(body)

    def finish(self, removed: Iterable[int]) -> None:
        self._flush()
        self._chunk(_END, [msgspec.msgpack.encode(_End(self._topics, list(removed)))])
        self._file.full_sync()

    def _flush(self) -> None:
        if self._parts:
            self._chunk(_TOPICS, self._parts)
            self._parts, self._part_bytes = [], 0

    def _chunk(self, kind: int, body: Sequence[Buffer]) -> None:
        length = sum(map(len, body))
        prefix = _CHUNK.pack(length, kind)
        self._file.write(b"".join((prefix, _checksum(self._offset, prefix, body), *body)))
        self._offset += _CHUNK_BYTES + length

    def _large_chunk(self, head: list[Buffer], tails: list[NewTail], length: int) -> None:
        """A topic that has a chunk of its own. The checksum is known when everything behind it is written."""
        prefix = _CHUNK.pack(length, _TOPICS)
        self._file.write(bytes(_CHUNK_BYTES))
        checksum = _checksum(self._offset, prefix, self._written(head, tails))
        self._file.write_at(self._offset, prefix + checksum)
        self._offset += _CHUNK_BYTES + length

    def _written(self, head: list[Buffer], tails: list[NewTail]) -> Iterator[Buffer]:
        """Writes the parts of a chunk one after the other, each handed on meanwhile."""
        joined = b"".join(head)
        self._file.write(joined)
        yield joined
        for tail in tails:
            for piece in _pieces(tail):
                self._file.write(piece)
                yield piece


def _pieces(tail: NewTail) -> Iterator[Buffer]:
    """Of another length than the file says, the next start could not read them."""
    made_bytes = 0
    for piece in tail.pieces:
        made_bytes += len(piece)
        yield piece
    assert made_bytes == tail.length, f"{made_bytes} bytes of a tail, {tail.length} expected"


def decode_head(content: MappedBytes, path: str) -> Head:
    """The head alone: the rest is not looked at."""
    for kind, body, _ in _chunks(content, path):
        if kind == _HEAD:
            return _decode_head(body, path)
        break
    raise CorruptFile(path, _FILE_HEADER.size, "it does not begin with a head")


def decode(content: MappedBytes, path: str) -> SnapshotFile:
    """The whole file, checked. Raises `CorruptFile` or `UnknownVersion`."""
    head = decode_head(content, path)
    offsets = array("Q")
    chunks: list[Chunk] = []
    end: _End | None = None
    for kind, body, offset in _chunks(content, path):
        if end is not None:
            raise CorruptFile(path, offset, "something follows the end")
        if kind == _TOPICS:
            first = len(offsets)
            offsets.extend(_topic_offsets(body, offset))
            chunks.append(Chunk(Place(offset, len(body)), first, len(offsets)))
        elif kind == _END:
            end = msgspec.msgpack.decode(body, type=_End)
    if end is None:
        raise CorruptFile(path, len(content), "it ends before its end")
    if end.topics != len(offsets):
        raise CorruptFile(path, len(content), f"{len(offsets)} topics, expected {end.topics}")
    return SnapshotFile(path, content, head, offsets, chunks, end.removed)


def load(disk: Disk, path: str) -> SnapshotFile:
    return decode(disk.map(path), path)


def _decode_head(body: memoryview, path: str) -> Head:
    found = msgspec.msgpack.decode(body, type=_Format).format
    if found != STATE_FORMAT:
        raise UnknownVersion(path, f"state format {found}", earlier=found < STATE_FORMAT)
    return msgspec.msgpack.decode(body, type=Head)


def _chunks(mapped: MappedBytes, path: str) -> Iterator[tuple[int, memoryview, int]]:
    """(kind, body, offset of the body) of each chunk, checked, and never copied: a chunk may be large."""
    content = memoryview(mapped)
    if len(content) < _FILE_HEADER.size:
        raise CorruptFile(path, 0, "too short for a snapshot")
    magic, version = _FILE_HEADER.unpack_from(content)
    if magic != MAGIC:
        raise CorruptFile(path, 0, "no snapshot")
    if version != SNAPSHOT_VERSION:
        raise UnknownVersion(path, f"snapshot format {version}", earlier=version < SNAPSHOT_VERSION)
    if bytes(content[12:16]) != b"\0\0\0\0":
        raise CorruptFile(path, 12, "its header is damaged")
    at = _FILE_HEADER.size
    while at < len(content):
        if at + _CHUNK_BYTES > len(content):
            raise CorruptFile(path, at, "an incomplete chunk")
        body_len, kind = _CHUNK.unpack_from(content, at)
        body_at = at + _CHUNK_BYTES
        body = content[body_at : body_at + body_len]
        if len(body) != body_len:
            raise CorruptFile(path, at, f"{len(body)} bytes of a chunk, expected {body_len}")
        if content[at + _CHUNK.size : body_at] != _checksum(at, content[at : at + _CHUNK.size], [body]):
            raise CorruptFile(path, at, "the checksum of a chunk does not match")
        yield kind, body, body_at
        at = body_at + body_len


def _topic_offsets(body: memoryview, body_at: int) -> Iterator[int]:
    """The offset in the file of each topic in the body of a chunk."""
    at = 0
    while at < len(body):
        yield body_at + at
        _, image_len, tail_count = _TOPIC.unpack_from(body, at)
        at += _TOPIC.size
        tails_at, at = at, at + tail_count * _TAIL.size + image_len
        for number in range(tail_count):
            at += _TAIL.unpack_from(body, tails_at + number * _TAIL.size)[2]


def _checksum(offset: int, prefix: Buffer, body: Iterable[Buffer]) -> bytes:
    hasher = xxh3_64(_OFFSET.pack(offset))
    hasher.update(prefix)
    for part in body:
        hasher.update(part)
    return hasher.digest()[::-1]
