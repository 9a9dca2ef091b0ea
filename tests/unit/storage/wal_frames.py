"""WAL frames made by hand, field after field as the document of the format has them."""

import struct

import xxhash


def frame_of(kind: int, flags: int, topic_id: int, seq: int, ts: int, node: bytes, tag: bytes, data: bytes) -> bytes:
    body = struct.pack("<B", kind) + struct.pack("<B", flags)
    body += struct.pack("<Q", topic_id) + struct.pack("<Q", seq) + struct.pack("<Q", ts)
    body += struct.pack("<H", len(node)) + struct.pack("<H", len(tag)) + struct.pack("<I", len(data))
    body += node + tag + data
    return struct.pack("<I", len(body) + 8) + body + struct.pack("<Q", xxhash.xxh3_64(body).intdigest())


def append_frame(topic_id: int, seq: int, ts: int, flags: int, node: bytes, tag: bytes, payload: bytes) -> bytes:
    return frame_of(1, flags, topic_id, seq, ts, node, tag, payload)
