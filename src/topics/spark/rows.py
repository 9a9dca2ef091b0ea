"""Records and losses as Arrow batches. Whole columns at a time: no Python object per record where it can be helped."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from topics import limits
from topics.spark.columns import Columns
from topics.spark.options import TableSchema
from topics.spark.schema import arrow
from topics.wire.arrow import RECORD, TOMBSTONE, meta_maps, record_arrays
from topics.wire.responses import RecordReply

KAFKA_PARTITION = 0  # a topic is one log


class Gap(NamedTuple):
    """Seqs that cannot be read any more; `gap_to` is None when nobody knows how far they went."""

    gap_from: int
    gap_to: int | None
    reason: str


def gathered(items: Iterable[list[RecordReply] | Gap]) -> Iterator[Columns | Gap]:
    """Replies as columns, several replies to a batch. Gaps stay in their place."""
    waiting: list[RecordReply] = []
    waiting_bytes = 0
    for item in items:
        if isinstance(item, Gap):
            if waiting:
                yield columns_of(waiting)
                waiting, waiting_bytes = [], 0
            yield item
            continue
        waiting += item
        waiting_bytes += sum([len(memoryview(record.data)) for record in item])
        if len(waiting) >= limits.SPARK_BATCH_ROWS or waiting_bytes >= limits.SPARK_BATCH_BYTES:
            yield columns_of(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield columns_of(waiting)


def columns_of(records: list[RecordReply]) -> Columns:
    seq, ts, node, tag, metas, data = record_arrays(records)
    meta = meta_maps(metas)
    return Columns(seq=seq, ts=ts, node=node, tag=tag, data=data, meta=meta)


def record_batch(topic: str, columns: Columns, schema: TableSchema, *, include_data: bool) -> pa.RecordBatch:
    """Exactly Spark's columns, in its order and with its types."""
    count = len(columns)
    fields = arrow(schema)
    ts = columns.ts.cast(pa.timestamp("ms", "UTC"))
    data = columns.data if include_data else pa.nulls(count, pa.string())
    names = pa.repeat(topic, count)
    if schema is TableSchema.KAFKA:
        partition = pa.repeat(pa.scalar(KAFKA_PARTITION, pa.int32()), count)
        values = [columns.tag, data, names, partition, columns.seq, ts, _headers(columns.meta, fields)]
    else:
        no_seq, no_text = pa.nulls(count, pa.int64()), pa.nulls(count, pa.string())
        kinds = pa.repeat(RECORD, count)
        records = [names, columns.seq, ts, columns.node, columns.tag, columns.meta, data]
        values = [*records, kinds, no_seq, no_seq, no_text]
    arrays = [value.cast(field.type) for value, field in zip(values, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def gap_batch(topic: str, gap: Gap) -> pa.RecordBatch:
    """A loss as a row of its own; only the columns about it are set."""
    row = {"topic": topic, "kind": TOMBSTONE, "gap_from": gap.gap_from, "gap_to": gap.gap_to, "reason": str(gap.reason)}
    return pa.RecordBatch.from_pylist([row], schema=arrow(TableSchema.TOPICS))


def _headers(meta: pa.Array, fields: pa.Schema) -> pa.Array:
    kind = fields.field("headers").type
    if meta.null_count == len(meta):
        return pa.nulls(len(meta), kind)
    headers = [
        None if pairs is None else [{"key": name, "value": value.encode()} for name, value in pairs]
        for pairs in meta.to_pylist()
    ]
    return pa.array(headers, kind)
