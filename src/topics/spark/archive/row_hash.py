"""The hash of a whole record: by Spark (`row_hash`), and by a task for its Arrow columns (`row_hashes`).

Both give the same number, XXH64 of one column after the other, each with the hash so far as its seed. A null and an
empty text differ, and so do values that moved to another column. `tests/spark/test_archive_writing.py` compares the
two.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F
from xxhash import xxh64_intdigest

Hashes = NDArray[np.uint64]

SEED = 42
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def row_hash() -> Column:
    """As a column of Spark's, of the columns of a record."""
    return F.xxhash64(
        F.col("seq"),
        F.unix_millis("ts"),
        F.isnull("node"),
        F.col("node"),
        F.isnull("tag"),
        F.col("tag"),
        F.isnull("meta"),
        F.map_entries("meta"),
        F.col("data"),
    )


def row_hashes(rows: pa.RecordBatch) -> Hashes:
    """Of each row. Hot: whole columns at a time, half a microsecond a row, most of it for `tag` and `data`."""
    ms = pc.cast(pc.cast(rows.column("ts"), pa.timestamp("ms", "UTC")), pa.int64())
    hashes = np.full(rows.num_rows, SEED, np.uint64)
    hashes = _of_longs(rows.column("seq"), hashes)
    hashes = _of_longs(ms, hashes)
    hashes = _of_texts(rows.column("node"), _of_nulls(rows.column("node"), hashes))
    hashes = _of_texts(rows.column("tag"), _of_nulls(rows.column("tag"), hashes))
    hashes = _of_entries(rows.column("meta"), _of_nulls(rows.column("meta"), hashes))
    return _of_texts(rows.column("data"), hashes)


def rows_xor(rows: pa.RecordBatch) -> int:
    """The exclusive or of the hashes, which does not depend on how rows are spread over batches and files."""
    return int(np.bitwise_xor.reduce(row_hashes(rows)))


def _of_longs(column: pa.Array, hashes: Hashes) -> Hashes:
    """XXH64 of eight bytes each."""
    with np.errstate(over="ignore"):
        mixed = _rotated(column.to_numpy().view(np.uint64) * _PRIME_2, 31) * _PRIME_1
        found = _rotated((hashes + _PRIME_5 + np.uint64(8)) ^ mixed, 27) * _PRIME_1 + _PRIME_4
        return _final(found)


def _of_nulls(column: pa.Array, hashes: Hashes) -> Hashes:
    """XXH64 of four bytes each: Spark hashes a boolean as an int, here 1 where the value is null."""
    is_null = np.zeros(len(column), np.uint64)
    if column.null_count:
        is_null = column.is_null().to_numpy(zero_copy_only=False).astype(np.uint64)
    with np.errstate(over="ignore"):
        found = _rotated((hashes + _PRIME_5 + np.uint64(4)) ^ (is_null * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
        return _final(found)


def _of_texts(column: pa.Array, hashes: Hashes) -> Hashes:
    """A null leaves the hash as it is."""
    if column.null_count == len(column):
        return hashes
    texts, seeds = column.cast(pa.binary()).to_pylist(), hashes.tolist()
    if column.null_count:
        pairs = zip(texts, seeds, strict=True)
        return np.array([seed if text is None else xxh64_intdigest(text, seed) for text, seed in pairs], np.uint64)
    return np.fromiter(map(xxh64_intdigest, texts, seeds), np.uint64, len(texts))


def _of_entries(column: pa.Array, hashes: Hashes) -> Hashes:
    if column.null_count == len(column):
        return hashes
    found = hashes.tolist()
    for at, entries in enumerate(column.to_pylist()):
        for entry in entries or ():
            for text in entry:
                if text is not None:
                    found[at] = xxh64_intdigest(text.encode(), found[at])
    return np.array(found, np.uint64)


def _rotated(numbers: Hashes, bits: int) -> Hashes:
    return (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))


def _final(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _PRIME_2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _PRIME_3
    return hashes ^ (hashes >> np.uint64(32))
