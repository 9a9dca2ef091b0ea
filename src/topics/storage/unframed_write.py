"""A write on its way to the WAL, as what it was in the engine: it is framed by the shard's thread, off the loop."""

from msgspec import Struct

from topics.model.record import payload_of
from topics.storage.frame import Record, append_frames


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
