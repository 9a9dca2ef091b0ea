"""What the engine hands to a checkpoint: each changed topic as it is at one moment.

Columns are copies, so the log may go on changing while they are written.
"""

from collections.abc import Sequence
from typing import NamedTuple

from topics.model.image import TopicImage


class Columns(NamedTuple):
    """Consecutive records, a dead one without fragment."""

    fragments: Sequence[bytes | None]
    timestamps: Sequence[int]
    meta_at: Sequence[int]
    nodes: Sequence[str | None]
    tags: Sequence[str | None]


class BlockCapture(NamedTuple):
    """One block. `columns` are its records from `flushed_count` on, which no segment file has yet."""

    first_seq: int
    record_count: int
    live_count: int
    live_bytes: int
    first_ts: int
    last_ts: int
    sealed: bool  # it is a sealed segment already
    seal: bool  # it takes no more records: seal it
    cold: bool
    flushed_count: int
    columns: Columns | None
    unflagged: list[int]  # positions on disk, deleted since, whose delete byte is to be set


class TopicCapture(NamedTuple):
    """Without the blocks that are never written (class `ephemeral`)."""

    image: TopicImage  # without segments
    blocks: list[BlockCapture]
