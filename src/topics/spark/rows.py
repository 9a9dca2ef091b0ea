"""Records and losses as Arrow batches, column by column. Hot: plain loops over whole replies, no object per row."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from topics import limits
from topics.client.replies import RecordReply
from topics.spark.options import TableSchema
from topics.spark.schema import arrow

RECORD = "record"
TOMBSTONE = "tombstone"
KAFKA_PARTITION = 0  # a topic is one log


class Gap(NamedTuple):
    """Seqs that cannot be read any more; `gap_to` is None when nobody knows how far they went."""

    gap_from: int
    gap_to: int | None
    reason: str


class RowBatch:
    """Rows of one topic, gathered until there are enough of them for a batch."""

    def __init__(self, topic: str, schema: TableSchema, *, include_data: bool) -> None:
        self._topic = topic
        self._schema = schema
        self._arrow = arrow(schema)
        self._include_data = include_data
        self._clear()

    def __len__(self) -> int:
        return len(self._seq)

    @property
    def is_full(self) -> bool:
        return len(self._seq) >= limits.SPARK_BATCH_ROWS or self._data_bytes >= limits.SPARK_BATCH_BYTES

    def add_records(self, records: Sequence[RecordReply]) -> None:
        self._seq += [record.seq for record in records]
        self._ts += [record.ts * 1000 for record in records]
        self._node += [record.node for record in records]
        self._tag += [record.tag for record in records]
        self._meta += [None if record.meta is None else list(record.meta.items()) for record in records]
        data = [bytes(record.data) for record in records]
        self._data_bytes += sum(map(len, data))
        self._data += data if self._include_data else [None] * len(data)
        self._gaps += [None] * len(records)

    def add_gap(self, gap: Gap) -> None:
        """A loss as a row of its own; only the columns about it are set."""
        for column in (self._seq, self._ts, self._node, self._tag, self._meta, self._data):
            column.append(None)
        self._gaps.append(gap)

    def take(self) -> pa.RecordBatch:
        """What was gathered; the next batch begins empty."""
        columns = self._kafka_columns() if self._schema is TableSchema.KAFKA else self._columns()
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, type=field.type)
            for column, field in zip(columns, self._arrow, strict=True)
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _columns(self) -> list[object]:
        count = len(self._seq)
        if any(self._gaps):
            kinds: object = [RECORD if gap is None else TOMBSTONE for gap in self._gaps]
        else:
            kinds = pa.repeat(RECORD, count)
        return [
            pa.repeat(self._topic, count),
            self._seq,
            self._ts,
            self._node,
            self._tag,
            self._meta,
            self._data,
            kinds,
            [None if gap is None else gap.gap_from for gap in self._gaps],
            [None if gap is None else gap.gap_to for gap in self._gaps],
            [None if gap is None else gap.reason for gap in self._gaps],
        ]

    def _kafka_columns(self) -> list[object]:
        count = len(self._seq)
        headers = [
            None if meta is None else [{"key": name, "value": value.encode()} for name, value in meta]
            for meta in self._meta
        ]
        return [
            [None if tag is None else tag.encode() for tag in self._tag],
            self._data,
            pa.repeat(self._topic, count),
            pa.array([KAFKA_PARTITION] * count, type=pa.int32()),
            self._seq,
            self._ts,
            headers,
        ]

    def _clear(self) -> None:
        self._seq: list[int | None] = []
        self._ts: list[int | None] = []
        self._node: list[str | None] = []
        self._tag: list[str | None] = []
        self._meta: list[list[tuple[str, str]] | None] = []
        self._data: list[bytes | None] = []
        self._gaps: list[Gap | None] = []
        self._data_bytes = 0
