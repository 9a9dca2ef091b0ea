"""Turns the records and losses of a server's replies into columns, a whole column at a time."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from topics import limits
from topics.spark.columns import Columns
from topics.spark.offsets import Gap
from topics.wire.arrow import array_of, record_arrays
from topics.wire.responses import RecordReply


class Texts(NamedTuple):
    """The records of a reply as the server sent them, joined by commas, with their seqs and times (ms)."""

    seqs: list[int]
    times: list[int]
    text: bytes


Page = list[RecordReply] | Texts


def gathered(items: Iterable[Page | Gap]) -> Iterator[Columns | Gap]:
    """Joins several replies into one batch. Gaps stay in their place."""
    waiting: list[Page] = []
    count = size_bytes = 0
    for item in items:
        if isinstance(item, Gap):
            if waiting:
                yield columns_of(waiting)
                waiting, count, size_bytes = [], 0, 0
            yield item
            continue
        waiting.append(item)
        if isinstance(item, Texts):
            count += len(item.seqs)
            size_bytes += len(item.text)
        else:
            count += len(item)
            size_bytes += sum([len(record.data) for record in item])
        if count >= limits.SPARK_BATCH_ROWS or size_bytes >= limits.SPARK_BATCH_BYTES:
            yield columns_of(waiting)
            waiting, count, size_bytes = [], 0, 0
    if waiting:
        yield columns_of(waiting)


def columns_of(pages: Sequence[Page]) -> Columns:
    """All of the pages are of one kind."""
    texts = [page for page in pages if isinstance(page, Texts)]
    if texts:
        seqs, times = (array_of([*chain.from_iterable(page[at] for page in texts)], pa.int64()) for at in (0, 1))
        nothing = pa.nulls(len(seqs), pa.string())
        return Columns(seqs, times, nothing, nothing, nothing, nothing, served=b",".join(page.text for page in texts))
    records = [record for page in pages if not isinstance(page, Texts) for record in page]
    seq, ts, node, tag, meta, data = record_arrays(records)
    return Columns(seq=seq, ts=ts, node=node, tag=tag, data=data, meta=meta)
