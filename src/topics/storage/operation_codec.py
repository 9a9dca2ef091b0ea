"""Operations as frames of the log, and back. The one place that knows how an operation is written.

An `Appended` is a frame a record, payload and all; the last frame of a write carries its key. Every other operation
is one frame whose body is the operation as JSON, its type named by `"is"`. The operations of one batch share their
fate: all frames but the last say that the batch goes on.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec import structs

from topics.model import operation
from topics.model.operation import Appended, Control, Forwarded, Operation, WriteEnd
from topics.model.payload import join_payload, split_payload
from topics.model.record import RECORD_OVERHEAD_BYTES, Batch, fragment_of
from topics.storage.frame import (
    BATCH_CONTINUES,
    HAS_NODE,
    HAS_TAG,
    FrameKind,
    Record,
    append_frames,
    control_frame,
)
from topics.storage.wal_reader import Frame

KINDS: dict[type, FrameKind] = {
    operation.TopicCreated: FrameKind.TOPIC_CREATE,
    operation.TopicDeleted: FrameKind.TOPIC_DELETE,
    operation.ConfigChanged: FrameKind.CONFIG_UPDATE,
    operation.CursorSet: FrameKind.CONFIG_UPDATE,
    operation.Moved: FrameKind.CONFIG_UPDATE,
    operation.SeqsReserved: FrameKind.HEAD_WATERMARK,
    operation.Restarted: FrameKind.HEAD_WATERMARK,
    operation.RecordsDeleted: FrameKind.DELETE,
    operation.JobsDeleted: FrameKind.DELETE,
    operation.ClockReached: FrameKind.EVICT_WATERMARK,
    operation.CapReached: FrameKind.EVICT_WATERMARK,
    operation.Claimed: FrameKind.LEASE,
    operation.Released: FrameKind.LEASE,
    operation.Extended: FrameKind.LEASE,
    operation.JobsDelayed: FrameKind.LEASE,
    operation.RouterPut: FrameKind.ROUTER_CREATE,
    operation.Forwarded: FrameKind.ROUTER_CREATE,
    operation.RouterDeleted: FrameKind.ROUTER_DELETE,
}
"""The kind of frame each has, for whoever looks at frames; the body says exactly which operation it is."""

APPENDS_GATHERED_MAX = 1000

_APPEND = int(FrameKind.APPEND)
_encode = msgspec.json.encode
_decode: Callable[[bytes], Control] = msgspec.json.Decoder(Control).decode

ReplayedRecord = tuple[int, int, bytes, bytes, bytes]
"""(flags, ts, node, tag, payload)"""


def encode(operations: Sequence[Operation], *, durable: bool) -> list[bytes]:
    """The frames of one batch. Records come last."""
    frames: list[bytes] = []
    last = len(operations) - 1
    if not last and isinstance(only := operations[0], Appended):
        return _append_frames(only, durable=durable)
    for number, each in enumerate(operations):
        if isinstance(each, Appended):
            assert number == last, "records end their batch"
            frames += _append_frames(each, durable=durable)
        else:
            if isinstance(each, Forwarded) and each.copies is not None:
                each = structs.replace(each, copies=None)  # noqa: PLW2901 - never logged
            flags = 0 if number == last else BATCH_CONTINUES
            frames.append(control_frame(KINDS[type(each)], each.topic_id, 0, each.ts, _encode(each), flags=flags))
    return frames


def _append_frames(appended: Appended, *, durable: bool) -> list[bytes]:
    """The frames of one write. Once per write."""
    batch = appended.batch
    records: list[Record] = [
        (None if node is None else node.encode(), None if tag is None else tag.encode(), bytes(payload))
        for node, tag, payload in zip(batch.nodes, batch.tags, batch.payloads, strict=True)
    ]
    key = appended.writes[-1].key
    if key is not None:
        node, tag, payload = records[-1]
        data, meta, _ = split_payload(payload)
        records[-1] = (node, tag, join_payload(data, meta, key.encode()))
    return append_frames(appended.topic_id, appended.first_seq, appended.ts, records, durable=durable)


def operations_of(frames: Iterable[Frame]) -> Iterator[Operation]:
    """The operations of whole batches, in order; writes of one topic that follow each other as one. Hot: once per
    frame."""
    topic_id = first_seq = 0
    records: list[ReplayedRecord] = []
    for kind, flags, frame_topic_id, seq, ts, node, tag, payload, _ in frames:
        if kind == _APPEND:
            if (
                frame_topic_id != topic_id
                or seq != first_seq + len(records)
                or (len(records) >= APPENDS_GATHERED_MAX and not records[-1][0] & BATCH_CONTINUES)
            ):
                if records:
                    yield _appended(topic_id, first_seq, records)
                    records = []
                topic_id, first_seq = frame_topic_id, seq
            records.append((flags, ts, node, tag, payload))
        else:
            if records:
                yield _appended(topic_id, first_seq, records)
                records = []
            yield _decode(payload)
    if records:
        yield _appended(topic_id, first_seq, records)


def decode_control(body: bytes) -> Control:
    """The operation of a frame that is no record's."""
    return _decode(body)


def _appended(topic_id: int, first_seq: int, records: Sequence[ReplayedRecord]) -> Appended:
    batch, timestamps = batch_of(first_seq, records)
    writes: list[WriteEnd] = []
    for seq, (flags, _, _, _, payload) in enumerate(records, first_seq):
        if not flags & BATCH_CONTINUES:
            key = split_payload(payload)[2] if b"\0" in payload else None
            writes.append(WriteEnd(seq, None if key is None else key.decode()))
    return Appended(topic_id, first_seq, batch, timestamps, writes)


def batch_of(first_seq: int, records: Iterable[ReplayedRecord]) -> tuple[Batch, "array[int]"]:
    """Records as they come from the disk, as a log keeps them. Hot: once per record."""
    fragments: list[bytes] = []
    sizes: list[int] = []
    nodes: list[str | None] = []
    tags: list[str | None] = []
    meta_at: list[int] = []
    timestamps = array("q")
    total_bytes = 0
    seq = first_seq
    for flags, ts, node_bytes, tag_bytes, payload in records:
        node = node_bytes.decode() if flags & HAS_NODE else None
        fragment, at = fragment_of(seq, ts, node, payload)
        # The payload without the key it may carry, which only the log needs.
        key_bytes = 0
        if b"\0" in payload:
            _, meta, key = split_payload(payload)
            if key is not None:
                key_bytes = len(key) + (2 if meta is None else 1)
        size = RECORD_OVERHEAD_BYTES + len(node_bytes) + len(tag_bytes) + len(payload) - key_bytes
        fragments.append(fragment)
        meta_at.append(at)
        nodes.append(node)
        tags.append(tag_bytes.decode() if flags & HAS_TAG else None)
        timestamps.append(ts)
        sizes.append(size)
        total_bytes += size
        seq += 1
    return Batch(fragments, sizes, nodes, tags, meta_at, total_bytes), timestamps
