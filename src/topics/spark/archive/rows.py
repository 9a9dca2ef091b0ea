"""Reads the rows of one archive file in the order of seqs, in bounded batches.

Compacted files may have any size, so none is held in memory: row groups without a wanted seq are skipped, and a batch
has at most `SPARK_BATCH_ROWS` rows and about `SPARK_BATCH_BYTES`. Tasks use this too, so it imports nothing of Delta.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from topics import limits
from topics.spark.archive.errors import ArchiveDiffers
from topics.spark.archive.state import ArchivedFile

COLUMNS = ("seq", "ts", "node", "tag", "meta", "data")


def require_file(root: str, file: ArchivedFile) -> str:
    """The file's path. Raises `ArchiveDiffers` if it is missing or has another length; pages have checksums."""
    path = os.path.join(root, file.path)
    if not os.path.exists(path):
        raise ArchiveDiffers(path, "it is missing")
    size = os.path.getsize(path)
    if size != file.size_bytes:
        raise ArchiveDiffers(path, f"{size} bytes, expected {file.size_bytes}")
    return path


def rows_of(
    path: str, first_seq: int = 1, last_seq: int | None = None, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """The rows with seqs in [first_seq, last_seq]. `columns` must include `seq`. Raises `pa.ArrowException` for a
    damaged page."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        at = file.schema_arrow.get_field_index("seq")
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            if _is_outside(group.column(at), first_seq, last_seq):
                continue
            for batch in file.iter_batches(_batch_rows(group), row_groups=[number], columns=list(columns)):
                kept = _between(batch, first_seq, last_seq)
                if kept.num_rows:
                    yield kept


def _batch_rows(group: Any) -> int:
    fitting = limits.SPARK_BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
    return max(1, min(limits.SPARK_BATCH_ROWS, int(fitting)))


def _is_outside(seqs: Any, first_seq: int, last_seq: int | None) -> bool:
    found = seqs.statistics
    if found is None or not found.has_min_max:
        return False
    return bool(found.max < first_seq or (last_seq is not None and found.min > last_seq))


def _between(batch: pa.RecordBatch, first_seq: int, last_seq: int | None) -> pa.RecordBatch:
    seqs = batch.column("seq").to_numpy()
    start = int(np.searchsorted(seqs, first_seq))
    end = len(seqs) if last_seq is None else int(np.searchsorted(seqs, last_seq + 1))
    return batch.slice(start, max(end - start, 0))
