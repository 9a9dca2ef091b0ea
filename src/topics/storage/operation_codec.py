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
from topics.model.payload import SEPARATOR, are_data_only, join_payload, split_payload
from topics.model.record import RECORD_OVERHEAD_BYTES, Batch, plain_fragments, render_fragment
from topics.storage.frame import (
    BATCH_CONTINUES,
    HAS_NODE,
    HAS_TAG,
    FrameKind,
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


def encode(operations: Sequence[Operation], *, durable: bool) -> list[bytes]:
    """The frames of one batch, in pieces. Records come last."""
    frames: list[bytes] = []
    last = len(operations) - 1
    for number, each in enumerate(operations):
        if isinstance(each, Appended):
            assert number == last, "records end their batch"
            frames.append(_append_frames(each, durable=durable))
        else:
            if isinstance(each, Forwarded) and each.copies is not None:
                each = structs.replace(each, copies=None)  # noqa: PLW2901 - never logged
            flags = 0 if number == last else BATCH_CONTINUES
            frames.append(control_frame(KINDS[type(each)], each.topic_id, 0, each.ts, _encode(each), flags=flags))
    return frames


def _append_frames(appended: Appended, *, durable: bool) -> bytes:
    """The frames of one write. Once per write."""
    batch, payloads = appended.batch, appended.batch.payloads
    key = appended.writes[-1].key
    if key is not None:
        data, meta, _ = split_payload(bytes(payloads[-1]))
        payloads = [*payloads[:-1], join_payload(data, meta, key.encode())]
    return append_frames(
        appended.topic_id, appended.first_seq, appended.ts, batch.nodes, batch.tags, payloads, durable=durable
    )


def operations_of(frames: Iterable[Frame]) -> Iterator[Operation]:
    """The operations of whole batches, in order; writes of one topic that follow each other as one. Hot: once per
    frame."""
    topic_id = next_seq = 0
    gathered: list[Frame] = []
    for frame in frames:
        if frame[0] == _APPEND:
            if (
                frame[3] != next_seq
                or frame[2] != topic_id
                or (len(gathered) >= APPENDS_GATHERED_MAX and not gathered[-1][1] & BATCH_CONTINUES)
            ):
                if gathered:
                    yield _appended(gathered)
                    gathered = []
                topic_id, next_seq = frame[2], frame[3]
            gathered.append(frame)
            next_seq += 1
        else:
            if gathered:
                yield _appended(gathered)
                gathered = []
            topic_id = 0
            yield _decode(frame[7])
    if gathered:
        yield _appended(gathered)


def decode_control(body: bytes) -> Control:
    """The operation of a frame that is no record's."""
    return _decode(body)


def _appended(frames: Sequence[Frame]) -> Appended:
    """The writes of frames in a row, as one. Hot: columns instead of one record after the other."""
    _, flags, topic_ids, seqs, timestamps, nodes, tags, payloads, _ = zip(*frames, strict=True)
    seen = set(flags)
    batch = batch_of(
        seqs[0],
        timestamps,
        _where(HAS_NODE, seen, flags, nodes),
        _where(HAS_TAG, seen, flags, tags),
        payloads,
    )
    writes = [
        WriteEnd(seq, _key_of(payload) if SEPARATOR in payload else None)
        for seq, flag, payload in zip(seqs, flags, payloads, strict=True)
        if not flag & BATCH_CONTINUES
    ]
    return Appended(topic_ids[0], seqs[0], batch, array("q", timestamps), writes)


def _where(flag: int, seen: set[int], flags: Sequence[int], texts: Sequence[bytes]) -> Sequence[bytes | None]:
    """The texts, None where the flag says that there is none. `seen`: all values among the flags; there are few."""
    have = [bool(value & flag) for value in seen]
    if not any(have):
        return (None,) * len(texts)
    if all(have):
        return texts
    return [text if each & flag else None for each, text in zip(flags, texts, strict=True)]


def _key_of(payload: bytes) -> str | None:
    key = split_payload(payload)[2]
    return None if key is None else key.decode()


def batch_of(
    first_seq: int,
    timestamps: Sequence[int],
    nodes: Sequence[bytes | None],
    tags: Sequence[bytes | None],
    payloads: Sequence[bytes],
) -> Batch:
    """Records as they come from the disk, as a log keeps them. Hot: once per record, column by column."""
    node_texts = _texts(nodes)
    sizes = [RECORD_OVERHEAD_BYTES + size for size in map(len, payloads)]
    for column in (nodes, tags):
        if column.count(None) < len(column):
            sizes = [size + len(text or b"") for size, text in zip(sizes, column, strict=True)]
    if are_data_only(payloads):
        fragments = plain_fragments(first_seq, timestamps, node_texts, payloads)
        meta_at = [0] * len(fragments)
    else:
        fragments, meta_at = [], []
        for position, payload in enumerate(payloads):
            data, meta, key = split_payload(payload)
            seq, ts, node = first_seq + position, timestamps[position], node_texts[position]
            fragment, at = render_fragment(seq, ts, node, data, meta or b"")
            fragments.append(fragment)
            meta_at.append(at)
            if key is not None:  # only the log needs it
                sizes[position] -= len(key) + (2 if meta is None else 1)
    return Batch(fragments, sizes, node_texts, _texts(tags), meta_at, sum(sizes))


def _texts(column: Sequence[bytes | None]) -> list[str | None]:
    missing = column.count(None)
    if missing == len(column):
        return [None] * missing
    if not missing:
        return list(map(bytes.decode, column))  # type: ignore[arg-type]  # none is None
    return [None if text is None else text.decode() for text in column]
