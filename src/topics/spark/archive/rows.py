"""Reads the rows of one archive file in the order of seqs, in bounded batches.

Compacted files may have any size, so none is held in memory: row groups without a wanted seq are skipped, and a batch
has at most `SPARK_BATCH_ROWS` rows and about `SPARK_BATCH_BYTES`. Tasks use this too, so it imports nothing of Delta.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from topics import limits
from topics.model.tag_match import parse_match
from topics.spark.archive.errors import ArchiveDiffers
from topics.spark.archive.place import Place
from topics.spark.archive.state import ArchivedFile, Forgotten

DAMAGED = "could not verify page integrity"
"""How Arrow and Spark both tell of a page with another checksum."""
COLUMNS = ("seq", "ts", "node", "tag", "meta", "data")


def require_file(place: Place, file: ArchivedFile) -> str:
    """The file's path. Raises `ArchiveDiffers` if it is missing or has another length; pages have checksums."""
    size = place.size(file.path)
    if size is None:
        raise ArchiveDiffers(place.at(file.path), "it is missing")
    if size != file.size_bytes:
        raise ArchiveDiffers(place.at(file.path), f"{size} bytes, expected {file.size_bytes}")
    return file.path


def rows_of(
    place: Place, path: str, first_seq: int = 1, last_seq: int | None = None, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """The rows with seqs in [first_seq, last_seq]. `columns` must include `seq`. Raises `ArchiveDiffers` for a damaged
    page."""
    try:
        with place.reaching(), place.open(path) as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            at = file.schema_arrow.get_field_index("seq")
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                if _is_outside(group.column(at), first_seq, last_seq):
                    continue
                for batch in file.iter_batches(_batch_rows(group), row_groups=[number], columns=list(columns)):
                    kept = _between(batch, first_seq, last_seq)
                    if kept.num_rows:
                        yield kept
    except (OSError, pa.ArrowException) as error:
        if DAMAGED not in str(error):
            raise
        raise ArchiveDiffers(place.at(path), "a page of it is not what was written") from error


def to_forget(seqs: NDArray[np.int64], tags: pa.Array, entry: Forgotten) -> NDArray[np.bool_]:
    """Which rows are to be forgotten."""
    match = parse_match(entry.match)
    fits = pc.starts_with(tags, match.text) if match.is_prefix else pc.equal(tags, match.text)
    fits_text: NDArray[np.bool_] = pc.fill_null(fits, False).to_numpy(zero_copy_only=False)
    found: NDArray[np.bool_] = fits_text & (seqs <= entry.to_seq)
    return found


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
