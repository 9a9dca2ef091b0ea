"""Writes on their way to the WAL, as what they were in the engine.

Most are one record that nobody waits for: they become frames together, at the end of a turn of the loop, as one piece
for the shard's thread: handed over one by one, to be framed there, two threads take turns at the same objects. A larger
or gated write is framed by the thread, off the loop.
"""

from collections.abc import Iterable

from msgspec import Struct

from topics.model.record import payload_of
from topics.storage.frame import HAS_NODE, HAS_TAG, Record, append_frame, append_frames

SingleRecord = tuple[int, int, int, bytes, int, str | None, str | None, str | None]
"""(topic_id, seq, ts, fragment, meta_at, node, tag, key) of a write of one record."""


def frames_of(writes: Iterable[SingleRecord]) -> bytes:
    """Hot: once per write."""
    frames: list[bytes] = []
    for topic_id, seq, ts, fragment, meta_at, given_node, given_tag, key in writes:
        flags = 0
        node = tag = b""
        if given_node is not None:
            node = given_node.encode()
            flags = HAS_NODE
        if given_tag is not None:
            tag = given_tag.encode()
            flags |= HAS_TAG
        payload = payload_of(fragment, meta_at, None if key is None else key.encode())
        frames.append(append_frame(topic_id, seq, ts, flags, node, tag, payload))
    return b"".join(frames)


class UnframedWrite(Struct, frozen=True, gc=False):
    """One atomic write; the columns are those of the log's batch, and never change. `opening`: frames before them."""

    topic_id: int
    first_seq: int
    ts: int
    fragments: list[bytes]
    meta_at: list[int]
    nodes: list[str | None]
    tags: list[str | None]
    key: str | None
    durable: bool
    opening: list[bytes]

    @property
    def size(self) -> int:
        """About as many bytes as its frames have."""
        return sum(map(len, self.fragments))

    def frames(self) -> list[bytes]:
        """The frames, in the order they are written."""
        records: list[Record] = [
            (
                None if node is None else node.encode(),
                None if tag is None else tag.encode(),
                payload_of(fragment, at),
            )
            for fragment, at, node, tag in zip(self.fragments, self.meta_at, self.nodes, self.tags, strict=True)
        ]
        if self.key is not None:
            # The last record of a write carries its key.
            records[-1] = (*records[-1][:2], payload_of(self.fragments[-1], self.meta_at[-1], self.key.encode()))
        frames = append_frames(self.topic_id, self.first_seq, self.ts, records, durable=self.durable)
        return self.opening + frames if self.opening else frames
