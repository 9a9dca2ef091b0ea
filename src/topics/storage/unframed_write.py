"""A write on its way to the WAL, as columns. It becomes frames on the shard's thread, off the path of the answer."""

from msgspec import Struct

from topics.model.record import payload_of
from topics.storage.frame import DURABLE, HAS_NODE, HAS_TAG, Record, append_frame, append_frames


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
        """Hot: once per write, and most writes are one record."""
        if len(self.fragments) == 1 and self.key is None and not self.opening:
            return [self._single_frame()]
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

    def _single_frame(self) -> bytes:
        flags = DURABLE if self.durable else 0
        node = tag = b""
        if (given := self.nodes[0]) is not None:
            node = given.encode()
            flags |= HAS_NODE
        if (given := self.tags[0]) is not None:
            tag = given.encode()
            flags |= HAS_TAG
        payload = payload_of(self.fragments[0], self.meta_at[0])
        return append_frame(self.topic_id, self.first_seq, self.ts, flags, node, tag, payload)
