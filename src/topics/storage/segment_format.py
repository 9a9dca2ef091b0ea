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
"""

from collections.abc import Iterable
from struct import Struct

from xxhash import xxh3_64_digest

from topics.storage.frame import HAS_NODE, HAS_TAG

HEADER = Struct("<IBQQHHI")
HEADER_FIELDS = ("frame_len", "flags", "seq", "ts", "node_len", "tag_len", "data_len")
ENTRY = Struct("<IIQB3x")
CHECKSUM_FROM_END = 9
"""The checksum begins so many bytes before the end of its frame, and ends before the delete byte."""
OVERHEAD_BYTES = HEADER.size + 8 + 1
FIXED_LENGTH = OVERHEAD_BYTES - 4
"""`frame_len` of a frame whose node, tag and data are empty."""

DATA_BYTES_MAX = 2**32 - 1

DELETED = 0xD5
DELETED_BYTE = bytes([DELETED])

_pack_body = Struct("<BQQHHI").pack
_pack_length = Struct("<I").pack

SegmentInput = tuple[int, bytes | None, bytes | None, bytes]
"""(ts, node, tag, payload) of a record about to be written."""

SegmentRecord = tuple[int, int, bytes | None, bytes | None, bytes]
"""(seq, ts, node, tag, payload) of a record that was read."""


def encode_records(first_seq: int, records: Iterable[SegmentInput], offset: int) -> tuple[list[bytes], list[bytes]]:
    """Frames and index entries of records that begin at `offset` of `.data`. Hot: a loop over locals."""
    pack_body, pack_length, pack_entry, digest = _pack_body, _pack_length, ENTRY.pack, xxh3_64_digest
    frames: list[bytes] = []
    entries: list[bytes] = []
    add_frame, add_entry = frames.append, entries.append
    seq = first_seq
    for ts, given_node, given_tag, payload in records:
        flags = 0
        node = tag = b""
        if given_tag is not None:
            tag = given_tag
            flags = HAS_TAG
        if given_node is not None:
            node = given_node
            flags |= HAS_NODE
        body = pack_body(flags, seq, ts, len(node), len(tag), len(payload)) + node + tag + payload
        frame = b"%b%b%b\x00" % (pack_length(len(body) + 9), body, digest(body)[::-1])
        add_frame(frame)
        add_entry(pack_entry(offset, len(frame), ts, flags))
        offset += len(frame)
        seq += 1
    return frames, entries
