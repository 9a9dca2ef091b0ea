"""Turns the records and losses of a server's replies into columns, a whole column at a time."""

from collections.abc import Iterable, Iterator

from topics import limits
from topics.spark.columns import Columns
from topics.spark.offsets import Gap
from topics.wire.arrow import record_arrays
from topics.wire.responses import RecordReply


def gathered(items: Iterable[list[RecordReply] | Gap]) -> Iterator[Columns | Gap]:
    """Joins several replies into one batch. Gaps stay in their place."""
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
    seq, ts, node, tag, meta, data = record_arrays(records)
    return Columns(seq=seq, ts=ts, node=node, tag=tag, data=data, meta=meta)
