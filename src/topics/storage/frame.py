"""The WAL frame: one record or one control operation, as bytes. Little endian.

     off  size  field
       0    4   frame_len   u32   bytes of this frame without this field
       4    1   type        u8    FrameKind
       5    1   flags       u8    bit0 has_tag  bit1 has_node  bit2 durable  bit3 batch_continues
       6    8   topic_id    u64
      14    8   seq         u64   of an Append; 0 in any other frame
      22    8   ts          u64   commit time, ms
      30    2   node_len    u16
      32    2   tag_len     u16
      34    4   data_len    u32
      38    N   node
       .    M   tag
       .    P   data              payload (see model/payload.py) of an Append, body of any other frame
       .    8   xxh3        u64   XXH3-64 over [4 .. here)

`frame_len` is not under the checksum, but the other lengths are, and they must add up to it.

`batch_continues` says that the next frame belongs to the same atomic write: recovery applies a batch only
when its last frame, the one without the flag, is there. A batch never spans two files.

Owns the encoding and the decoding. What frames mean for a file, and what to do about bad ones, is for `wal_reader`.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from msgspec import Raw
from xxhash import xxh3_64_digest

from topics.storage.fs import MappedBytes

HEADER = Struct("<IBBQQQHHI")
LENGTH_BYTES = 4
DATA_LEN_AT = 34
CHECKSUM_BYTES = 8
OVERHEAD_BYTES = HEADER.size + CHECKSUM_BYTES
FIXED_LENGTH = OVERHEAD_BYTES - LENGTH_BYTES
"""`frame_len` of a frame whose node, tag and data are empty."""

# Of a frame in a segment, too.
HAS_TAG = 1
HAS_NODE = 2
HAS_TAG_OR_NODE = HAS_TAG | HAS_NODE

DURABLE = 4
BATCH_CONTINUES = 8


class FrameKind(IntEnum):
    APPEND = 1
    TOPIC_CREATE = 2
    TOPIC_DELETE = 3
    ROUTER_CREATE = 4
    ROUTER_DELETE = 5
    DELETE = 6
    EVICT_WATERMARK = 7
    CHECKPOINT_MARK = 8
    CONFIG_UPDATE = 9
    LEASE = 10
    HEAD_WATERMARK = 11


FRAME_KIND_MAX = max(FrameKind)

# Plain ints: comparing with an enum member costs 0.1 µs a frame.
APPEND = int(FrameKind.APPEND)
DELETE = int(FrameKind.DELETE)
CHECKPOINT_MARK = int(FrameKind.CHECKPOINT_MARK)

# A record on its way to or from the disk is a plain tuple: a named one takes 0.2 µs more to make, half of the time a
# record takes. Its fields have one order everywhere, and those that are clear from the place are left out in front:
#
#     topic_id, seq, ts, node, tag, payload      SingleRecord    a write of its own: node and tag are still text
#               seq, ts, node, tag, payload      StoredRecord    read from a segment, which is of one topic
#                    ts, node, tag, payload      SegmentInput    on its way into a segment, which counts the seqs

SingleRecord = tuple[int, int, int, str | None, str | None, bytes | Raw]
StoredRecord = tuple[int, int, bytes | None, bytes | None, bytes]

Frame = tuple[int, int, int, int, int, bytes, bytes, bytes, int]
"""(kind, flags, topic_id, seq, ts, node, tag, data, end): what was read, and the offset after it."""


# Encoding: the checksum is over everything behind the length, so that is packed first. The digest is the big-endian
# number; the frame wants it little-endian.
#
# The loops over records are written out, each for what it is given: one function called by all costs 10 to 13 % of the
# 0.36 µs a record takes, and most records have neither node nor tag, which is a third less work. Whole columns at a
# time, each step in C, were not faster.

_pack_body = Struct("<BBQQQHHI").pack
_pack_length = Struct("<I").pack


def single_frames(writes: list[SingleRecord], *, base_flags: int = 0) -> bytes:
    """The frames of writes of one record each, one after another. Hot: a plain loop over locals."""
    pack_body, pack_length, digest = _pack_body, _pack_length, xxh3_64_digest
    pieces: list[bytes] = []
    for topic_id, seq, ts, given_node, given_tag, payload in writes:
        if given_tag is None and given_node is None:
            body = pack_body(APPEND, base_flags, topic_id, seq, ts, 0, 0, len(payload)) + payload
        else:
            flags = base_flags
            node = tag = b""
            if given_tag is not None:
                tag = given_tag.encode()
                flags |= HAS_TAG
            if given_node is not None:
                node = given_node.encode()
                flags |= HAS_NODE
            head = pack_body(APPEND, flags, topic_id, seq, ts, len(node), len(tag), len(payload))
            body = b"".join((head, node, tag, payload))
        pieces += (pack_length(len(body) + CHECKSUM_BYTES), body, digest(body)[::-1])
    return b"".join(pieces)


def append_frames(
    topic_id: int,
    first_seq: int,
    ts: int,
    nodes: Sequence[str | None],
    tags: Sequence[str | None],
    payloads: Sequence[bytes | Raw],
    *,
    durable: bool,
) -> bytes:
    """The frames of one atomic write, seqs counted up from `first_seq`. Hot: plain loops over locals."""
    pack_body, pack_length, digest = _pack_body, _pack_length, xxh3_64_digest
    pieces: list[bytes] = []
    last_flags = DURABLE if durable else 0
    base_flags = last_flags | BATCH_CONTINUES
    seq, last_seq = first_seq, first_seq + len(payloads) - 1
    if nodes.count(None) == tags.count(None) == len(payloads):
        for payload in payloads:
            flags = base_flags if seq != last_seq else last_flags  # the last one closes the batch
            body = pack_body(APPEND, flags, topic_id, seq, ts, 0, 0, len(payload)) + payload
            pieces += (pack_length(len(body) + CHECKSUM_BYTES), body, digest(body)[::-1])
            seq += 1
        return b"".join(pieces)
    for given_node, given_tag, payload in zip(nodes, tags, payloads, strict=True):
        flags = base_flags if seq != last_seq else last_flags
        node = tag = b""
        if given_tag is not None:
            tag = given_tag.encode()
            flags |= HAS_TAG
        if given_node is not None:
            node = given_node.encode()
            flags |= HAS_NODE
        head = pack_body(APPEND, flags, topic_id, seq, ts, len(node), len(tag), len(payload))
        body = b"%b%b%b%b" % (head, node, tag, payload)
        pieces += (pack_length(len(body) + CHECKSUM_BYTES), body, digest(body)[::-1])
        seq += 1
    return b"".join(pieces)


def control_frame(kind: FrameKind, topic_id: int, seq: int, ts: int, body: bytes, *, flags: int = 0) -> bytes:
    """Anything but a record; `body` is the data field."""
    covered = _pack_body(kind, flags, topic_id, seq, ts, 0, 0, len(body)) + body
    return _pack_length(len(covered) + CHECKSUM_BYTES) + covered + xxh3_64_digest(covered)[::-1]


# Decoding


class BadFrame(NamedTuple):
    """Bytes that are not an intact frame. `frame` is what they say anyway, if only their checksum is wrong."""

    offset: int
    problem: str
    frame: Frame | None = None


class FrameDecoder:
    """Iterate once over the intact frames from `start` on; then `stop` says where and why they end. Behind a bad frame
    another decoder may go on."""

    __slots__ = ("_buffer", "_start", "stop")

    def __init__(self, buffer: MappedBytes, start: int = 0) -> None:
        self._buffer = buffer
        self._start = start
        self.stop = BadFrame(start, "nothing was read yet")

    def __iter__(self) -> Iterator[Frame]:
        """Hot, 0.5 µs a frame: one pass of plain slicing, checksum included."""
        buffer, unpack, digest = self._buffer, HEADER.unpack_from, xxh3_64_digest
        header_bytes, fixed_length, tag_or_node = HEADER.size, FIXED_LENGTH, HAS_TAG_OR_NODE
        size = len(buffer)
        offset = self._start
        last = size - OVERHEAD_BYTES
        problem = "an incomplete frame"  # unless another is found
        damaged: Frame | None = None
        while offset <= last:
            length, kind, flags, topic_id, seq, ts, node_len, tag_len, data_len = unpack(buffer, offset)
            covered_at = offset + LENGTH_BYTES
            end = covered_at + length
            if end > size:
                problem = "a frame longer than the file"
                break
            if node_len + tag_len + data_len + fixed_length != length:
                problem = "a frame whose lengths do not add up"
                break
            node_at = offset + header_bytes
            checksum_at = end - CHECKSUM_BYTES
            if digest(buffer[covered_at:checksum_at])[::-1] != buffer[checksum_at:end]:
                problem = "a frame whose checksum does not match"
                tag_at = node_at + node_len
                data_at = tag_at + tag_len
                node, tag, data = buffer[node_at:tag_at], buffer[tag_at:data_at], buffer[data_at:checksum_at]
                damaged = (kind, flags, topic_id, seq, ts, node, tag, data, end)
                break
            if flags & tag_or_node:
                tag_at = node_at + node_len
                data_at = tag_at + tag_len
                yield (
                    kind, flags, topic_id, seq, ts,
                    buffer[node_at:tag_at], buffer[tag_at:data_at], buffer[data_at:checksum_at], end,
                )  # fmt: skip
            else:
                yield kind, flags, topic_id, seq, ts, b"", b"", buffer[node_at:checksum_at], end
            offset = end
        self.stop = BadFrame(offset, problem, damaged)


def start_of(frame: Frame) -> int:
    """The offset the frame was read at."""
    return frame[8] - OVERHEAD_BYTES - len(frame[5]) - len(frame[6]) - len(frame[7])


def is_intact(buffer: MappedBytes, offset: int, end: int) -> bool:
    """Whether the checksum of the frame between these offsets matches."""
    checksum_at = end - CHECKSUM_BYTES
    return xxh3_64_digest(buffer[offset + LENGTH_BYTES : checksum_at])[::-1] == buffer[checksum_at:end]
