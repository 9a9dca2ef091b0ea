"""The WAL frame: one record or one control operation, as bytes. Little endian.

     off  size  field
       0    4   frame_len   u32   bytes of this frame without this field
       4    1   type        u8    FrameKind
       5    1   flags       u8    bit0 has_tag  bit1 has_node  bit2 durable  bit3 batch_continues
       6    8   topic_id    u64
      14    8   seq         u64   of other frames than Append: how far routers were, 0 if none copy to the topic
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

Owns the encoding; `wal_reader` is the decoder.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from msgspec import Raw
from xxhash import xxh3_64_digest

HEADER = Struct("<IBBQQQHHI")
LENGTH_BYTES = 4
CHECKSUM_BYTES = 8
OVERHEAD_BYTES = HEADER.size + CHECKSUM_BYTES

HAS_TAG = 1
HAS_NODE = 2
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

# The header without its length: what the checksum starts with.
_pack_body = Struct("<BBQQQHHI").pack
_pack_length = Struct("<I").pack

Record = tuple[bytes | None, bytes | None, bytes]
"""(node, tag, payload) of a record about to be framed."""


SingleRecord = tuple[int, int, int, str | None, str | None, bytes | Raw]
"""(topic_id, seq, ts, node, tag, payload) of a write of one record."""


def single_frames(writes: list[SingleRecord]) -> bytes:
    """The frames of writes of one record each, one after another. Hot: a plain loop over locals."""
    pack_body, pack_length, digest = _pack_body, _pack_length, xxh3_64_digest
    pieces: list[bytes] = []
    for topic_id, seq, ts, given_node, given_tag, payload in writes:
        flags = 0
        node = tag = b""
        if given_tag is not None:
            tag = given_tag.encode()
            flags = HAS_TAG
        if given_node is not None:
            node = given_node.encode()
            flags |= HAS_NODE
        head = pack_body(1, flags, topic_id, seq, ts, len(node), len(tag), len(payload))
        body = b"".join((head, node, tag, payload))
        # The digest is the big-endian number; the frame wants it little-endian.
        pieces += (pack_length(len(body) + 8), body, digest(body)[::-1])
    return b"".join(pieces)


def append_frames(topic_id: int, first_seq: int, ts: int, records: Sequence[Record], *, durable: bool) -> list[bytes]:
    """The frames of one atomic write, seqs counted up from `first_seq`. Hot: a plain loop over locals."""
    pack_body, pack_length, digest = _pack_body, _pack_length, xxh3_64_digest
    frames: list[bytes] = []
    add = frames.append
    base_flags = BATCH_CONTINUES | DURABLE if durable else BATCH_CONTINUES
    seq, last_seq = first_seq, first_seq + len(records) - 1
    for given_node, given_tag, payload in records:
        flags = base_flags
        if seq == last_seq:
            flags ^= BATCH_CONTINUES  # the last one closes the batch
        node = tag = b""
        if given_tag is not None:
            tag = given_tag
            flags |= HAS_TAG
        if given_node is not None:
            node = given_node
            flags |= HAS_NODE
        body = pack_body(1, flags, topic_id, seq, ts, len(node), len(tag), len(payload)) + node + tag + payload
        # The digest is the big-endian number; the frame wants it little-endian.
        add(pack_length(len(body) + 8) + body + digest(body)[::-1])
        seq += 1
    return frames


def control_frame(kind: FrameKind, topic_id: int, seq: int, ts: int, body: bytes, *, flags: int = 0) -> bytes:
    """Anything but a record; `body` is the data field."""
    covered = _pack_body(kind, flags, topic_id, seq, ts, 0, 0, len(body)) + body
    return _pack_length(len(covered) + 8) + covered + xxh3_64_digest(covered)[::-1]
