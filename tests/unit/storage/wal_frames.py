"""WAL frames made by hand, field after field as the document of the format has them; and the writer's, from rows."""

import struct
from collections.abc import Sequence

import xxhash

from topics.storage.frame import append_frames


def frame_of(kind: int, flags: int, topic_id: int, seq: int, ts: int, node: bytes, tag: bytes, data: bytes) -> bytes:
    body = struct.pack("<B", kind) + struct.pack("<B", flags)
    body += struct.pack("<Q", topic_id) + struct.pack("<Q", seq) + struct.pack("<Q", ts)
    body += struct.pack("<H", len(node)) + struct.pack("<H", len(tag)) + struct.pack("<I", len(data))
    body += node + tag + data
    return struct.pack("<I", len(body) + 8) + body + struct.pack("<Q", xxhash.xxh3_64(body).intdigest())


def append_frame(topic_id: int, seq: int, ts: int, flags: int, node: bytes, tag: bytes, payload: bytes) -> bytes:
    return frame_of(1, flags, topic_id, seq, ts, node, tag, payload)


def write_frames(
    topic_id: int, first_seq: int, ts: int, records: Sequence[tuple[str | None, str | None, bytes]], *, durable: bool
) -> bytes:
    """The frames of one atomic write of these records, each as (node, tag, payload)."""
    nodes, tags, payloads = zip(*records, strict=True) if records else ((), (), ())
    return append_frames(topic_id, first_seq, ts, nodes, tags, payloads, durable=durable)
