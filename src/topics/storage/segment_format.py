"""The bytes of a segment: record frames in `.data`, a fixed-stride index in `.idx`. Little endian.

`.data` is a gapless run of frames, one a record:

     off  size  field
       0    4   frame_len   u32   bytes of this frame without this field
       4    1   flags       u8    bit0 has_tag  bit1 has_node
       5    8   seq         u64
      13    8   ts          u64   commit time, ms
      21    2   node_len    u16
      23    2   tag_len     u16
      25    4   data_len    u32
      29    N   node
       .    M   tag
       .    P   data              payload (see payload.py)
       .    8   xxh3        u64   XXH3-64 over [4 .. here)
       .    1   deleted     u8    0xD5 is deleted, anything else is live; 0x00 when written

The last byte is inside `frame_len` and outside the checksum, so a delete flips it in place.

`.idx` has 20 bytes a record, entry i for seq first_seq + i:

       0    4   offset      u32   of the frame in .data
       4    4   len         u32   of the whole frame, its length field included
       8    8   ts          u64
      16    1   flags       u8    as in the frame
      17    3   zero

The index is never evidence: it has no checksum, a reader checks every entry it uses against the frame.

Owns the encoding and the decoding. There are three ways to read frames: `decode_records` checks everything and gives
records, `frame_heads` only goes from frame to frame, `frame_at` looks at one, good or bad. (`segment_columns` reads
millions into arrays; it needs numpy, which the server does without.)
"""

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_digest

from topics.storage.errors import CorruptFile
from topics.storage.frame import (
    CHECKSUM_BYTES,
    HAS_NODE,
    HAS_TAG,
    HAS_TAG_OR_NODE,
    LENGTH_BYTES,
    StoredRecord,
)
from topics.storage.fs import MappedBytes

HEADER = Struct("<IBQQHHI")
NODE_AT = HEADER.size
HEADER_FIELDS = ("frame_len", "flags", "seq", "ts", "node_len", "tag_len", "data_len")
ENTRY = Struct("<IIQB3x")
TAIL_BYTES = CHECKSUM_BYTES + 1
"""Checksum and delete byte: the payload ends so many bytes before the end of its frame."""
OVERHEAD_BYTES = HEADER.size + TAIL_BYTES
FIXED_LENGTH = OVERHEAD_BYTES - LENGTH_BYTES
"""`frame_len` of a frame whose node, tag and data are empty."""

DATA_BYTES_MAX = 2**32 - 1

DELETED = 0xD5
DELETED_BYTE = bytes([DELETED])
LIVE = 0

# Single fields of the frame, or the index entry, at an offset, each as a tuple of one.
unpack_length = Struct("<I").unpack_from
unpack_seq = Struct("<5xQ").unpack_from
unpack_ts = Struct("<13xQ").unpack_from
unpack_entry_offset = Struct("<I").unpack_from

_unpack_head = Struct("<IBQQ").unpack_from
_pack_body = Struct("<BQQHHI").pack
_pack_length = Struct("<I").pack

Corrupt = Callable[[int, int], CorruptFile]
"""Says what is wrong with the frame at an offset that should have this seq."""

SegmentRecord = StoredRecord

SegmentInput = tuple[int, bytes | None, bytes | None, bytes]
"""(ts, node, tag, payload) of a record about to be written; see `frame` for the order."""


def encode_records(first_seq: int, records: Iterable[SegmentInput], offset: int) -> tuple[list[bytes], list[bytes]]:
    """Frames and index entries of records that begin at `offset` of `.data`. Hot: a loop over locals."""
    pack_body, pack_length, pack_entry, digest = _pack_body, _pack_length, ENTRY.pack, xxh3_64_digest
    frames: list[bytes] = []
    entries: list[bytes] = []
    add_frame, add_entry = frames.append, entries.append
    seq = first_seq
    for ts, given_node, given_tag, payload in records:
        flags = 0
        if given_tag is None and given_node is None:
            body = pack_body(0, seq, ts, 0, 0, len(payload)) + payload
        else:
            node = tag = b""
            if given_tag is not None:
                tag = given_tag
                flags = HAS_TAG
            if given_node is not None:
                node = given_node
                flags |= HAS_NODE
            body = pack_body(flags, seq, ts, len(node), len(tag), len(payload)) + node + tag + payload
        frame = b"%b%b%b\x00" % (pack_length(len(body) + TAIL_BYTES), body, digest(body)[::-1])
        add_frame(frame)
        add_entry(pack_entry(offset, len(frame), ts, flags))
        offset += len(frame)
        seq += 1
    return frames, entries


def flagged_deleted(frame: bytes) -> bytes:
    return frame[:-1] + DELETED_BYTE


def decode_records(
    data: bytes, base: int, first_seq: int, stop_seq: int, corrupt: Corrupt, *, with_deleted: bool
) -> list[StoredRecord]:
    """The records with seqs [first_seq, stop_seq). Their frames are all there is in `data`, which begins at the offset
    `base` of the file.

    Hot, 0.6 µs a record: one pass of slicing, checksum included.
    """
    unpack, digest, size = HEADER.unpack_from, xxh3_64_digest, len(data)
    records: list[StoredRecord] = []
    add = records.append
    offset = 0
    last = size - OVERHEAD_BYTES
    for seq in range(first_seq, stop_seq):
        if offset > last:
            raise corrupt(base + offset, seq)
        length, flags, found_seq, ts, node_len, tag_len, data_len = unpack(data, offset)
        covered_at = offset + LENGTH_BYTES
        end = covered_at + length
        if end > size or found_seq != seq or node_len + tag_len + data_len + FIXED_LENGTH != length:
            raise corrupt(base + offset, seq)
        checksum_at = end - TAIL_BYTES
        if digest(data[covered_at:checksum_at])[::-1] != data[checksum_at : end - 1]:
            raise corrupt(base + offset, seq)
        if with_deleted or data[end - 1] != DELETED:
            node_at = offset + NODE_AT
            if flags & HAS_TAG_OR_NODE:
                tag_at = node_at + node_len
                data_at = tag_at + tag_len
                node = data[node_at:tag_at] if flags & HAS_NODE else None
                tag = data[tag_at:data_at] if flags & HAS_TAG else None
                add((seq, ts, node, tag, data[data_at:checksum_at]))
            else:
                add((seq, ts, None, None, data[node_at:checksum_at]))
        offset = end
    return records


def frame_heads(data: MappedBytes, size: int, first_seq: int) -> Iterator[tuple[int, int, int, int]]:
    """(offset, end, ts, flags) of the frames in the first `size` bytes, by lengths and seqs alone; ends before one that
    does not fit. Hot, 0.2 µs a record."""
    unpack, last = _unpack_head, size - OVERHEAD_BYTES
    offset, seq = 0, first_seq
    while offset <= last:
        length, flags, found_seq, ts = unpack(data, offset)
        end = offset + LENGTH_BYTES + length
        if found_seq != seq or end > size:
            return
        yield offset, end, ts, flags
        offset = end
        seq += 1


class SegmentFrame(NamedTuple):
    """A frame whose lengths fit; its checksum may be wrong, and then anything in it."""

    flags: int
    seq: int
    ts: int
    node: bytes | None
    tag: bytes | None
    payload: bytes
    delete_byte: int
    end: int
    intact: bool


def frame_at(data: MappedBytes, offset: int, size: int) -> SegmentFrame | None:
    """The frame at the offset of the first `size` bytes; None when its lengths do not fit."""
    if offset > size - OVERHEAD_BYTES:
        return None
    length, flags, seq, ts, node_len, tag_len, data_len = HEADER.unpack_from(data, offset)
    covered_at = offset + LENGTH_BYTES
    end = covered_at + length
    if end > size or node_len + tag_len + data_len + FIXED_LENGTH != length:
        return None
    checksum_at = end - TAIL_BYTES
    node_at = offset + NODE_AT
    tag_at = node_at + node_len
    data_at = tag_at + tag_len
    return SegmentFrame(
        flags=flags,
        seq=seq,
        ts=ts,
        node=data[node_at:tag_at] if flags & HAS_NODE else None,
        tag=data[tag_at:data_at] if flags & HAS_TAG else None,
        payload=data[data_at:checksum_at],
        delete_byte=data[end - 1],
        end=end,
        intact=xxh3_64_digest(data[covered_at:checksum_at])[::-1] == data[checksum_at : end - 1],
    )
