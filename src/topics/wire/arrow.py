"""An export as an Arrow IPC stream: its columns, and how records and its end become batches.

    kind        record                     tombstone               end, the last row
    seq         of the record              null                    next_from_seq
    meta_json   `meta` as it was written   null                    null
    gap_*       null                       the range, inclusive    null
    reason      null                       why it was lost         null, or why the export ended early

`meta` has texts only: a value that is not a string is its JSON text there, and `meta_json` tells `1` from `"1"`.
Readers filter by `kind`, which every Arrow library can; metadata of batches, which few show, is not used. The schema's
metadata names the topic. This module needs pyarrow, of the extra `[spark]`: import it where that is known to be there.
"""

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from topics.wire.responses import ExportEnd, RecordReply

RECORD = "record"
TOMBSTONE = "tombstone"
END = "end"

META = pa.map_(pa.string(), pa.string())

COLUMNS = pa.schema(
    [
        ("seq", pa.int64()),
        ("ts", pa.timestamp("ms", "UTC")),
        ("node", pa.string()),
        ("tag", pa.string()),
        ("meta", META),
        ("data", pa.string()),
        ("kind", pa.string()),
        ("gap_from", pa.int64()),
        ("gap_to", pa.int64()),
        ("reason", pa.string()),
        ("meta_json", pa.string()),
    ]
)

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_decode = msgspec.json.Decoder(list[RecordReply]).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def stream_start(topic: str) -> bytes:
    return bytes(COLUMNS.with_metadata({"topic": topic}).serialize())


def stream_records(fragments: Sequence[bytes]) -> bytes:
    """One batch, made of records as readers of JSON get them."""
    records = _decode(b"[%b]" % b",".join(fragments))
    count = len(records)
    seq, ts, node, tag, meta, data = record_arrays(records)
    no_seqs = pa.nulls(count, pa.int64())
    columns = [seq, ts.cast(pa.timestamp("ms", "UTC")), node, tag, meta_maps(meta), data]
    batch = pa.RecordBatch.from_arrays(
        [*columns, pa.repeat(RECORD, count), no_seqs, no_seqs, pa.nulls(count, pa.string()), meta], schema=COLUMNS
    )
    return bytes(batch.serialize())


def stream_end(end: ExportEnd) -> bytes:
    """The last batch: what was lost, where to go on, and why the export ended if that was early."""
    rows: list[dict[str, object]] = [
        {"kind": TOMBSTONE, "gap_from": gap.gap_from, "gap_to": gap.gap_to, "reason": gap.reason}
        for gap in end.tombstones
    ]
    rows.append({"kind": END, "seq": end.next_from_seq, "reason": end.error})
    return bytes(pa.RecordBatch.from_pylist(rows, schema=COLUMNS).serialize()) + _END_OF_STREAM


def record_arrays(records: Sequence[RecordReply]) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array, pa.Array, pa.Array]:
    """seq, ts (ms since 1970), node, tag, meta and data (both JSON text). Hot: whole columns at a time."""
    metas = [None if (meta := bytes(record.meta)) == b"null" else meta for record in records]
    return (
        pa.array([record.seq for record in records], pa.int64()),
        pa.array([record.ts for record in records], pa.int64()),
        pa.array([record.node for record in records], pa.string()),
        pa.array([record.tag for record in records], pa.string()),
        pa.array(metas, pa.string()),
        pa.array([bytes(record.data) for record in records], pa.string()),
    )


def meta_maps(metas: pa.Array) -> pa.Array:
    """JSON texts of meta as maps from string to string."""
    if metas.null_count == len(metas):
        return pa.nulls(len(metas), META)
    return pa.array([None if text is None else meta_members(text) for text in metas.to_pylist()], META)


def meta_members(text: str) -> list[tuple[str, str]]:
    """The members of `meta` as texts: a value that is not a string is its JSON text."""
    return [(name, _text_of(bytes(raw))) for name, raw in _decode_members(text).items()]


def _text_of(value: bytes) -> str:
    return _decode_text(value) if value.startswith(b'"') else value.decode()
