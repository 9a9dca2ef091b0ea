"""What a task of `archive` does: it reads its share of a round and writes it as files, in one pass.

Rows go from the reader into Parquet as Arrow columns, and none of them through the JVM. Then each file is synced and
read back, with the checksum of every page, and must have the rows that were read: as many, with the same seqs and the
same hash. The driver gets numbers only. Tasks use this, so nothing of Delta is imported here.

A task that is tried again writes files of other names; those of the first try are named by nobody.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from topics import limits
from topics.spark.archive.row_hash import rows_xor
from topics.spark.archive.rows import COLUMNS, rows_of
from topics.spark.columns import Columns
from topics.spark.errors import PipelineError
from topics.spark.json_columns import PayloadColumn, PayloadParser
from topics.spark.offsets import Gap
from topics.spark.options import ReadOptions
from topics.spark.origin import open_log
from topics.spark.tasks import TopicsPartition
from topics.spark.telling import telling

MS_PER_DAY = 86_400_000


class WrittenWrong(PipelineError):
    """A file that was just written has other rows than were written into it. Nothing was committed: check the disk and
    the memory of the machine, and run it again."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason} when it was read back; nothing was committed, check the disk and run again")


@dataclass(frozen=True, slots=True)
class Sums:
    """What rows come to. Times are ms."""

    count: int
    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int
    rows_xor: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that is written, synced and checked."""

    path: str
    topic: str
    date: str
    sums: Sums
    size_bytes: int


@dataclass(slots=True)
class Outcome:
    """What one task wrote, and what was lost of its share. `unfit`: the topic and seq of a record that a strict schema
    refuses; the task ended there."""

    files: list[StagedFile] = field(default_factory=list)
    gaps: list[tuple[str, Gap]] = field(default_factory=list)
    unfit: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ShareWriter:
    """Sent to the tasks. `schema` has the columns of a record and, if `payload` names its fields, `value`. A record
    that does not fit has none, or, if the schema is `strict`, ends the round."""

    read: ReadOptions
    round_dir: str
    schema: pa.Schema
    payload: tuple[PayloadColumn, ...]
    strict: bool

    def __call__(self, share: InputPartition) -> Outcome:
        assert isinstance(share, TopicsPartition)
        outcome = Outcome()
        parser = PayloadParser(self.payload, "UTC") if self.payload else None
        os.makedirs(self.round_dir, exist_ok=True)
        file: _File | None = None
        with telling(), open_log(self.read) as log:
            for topic, item in log.read_all(share.shares):
                if isinstance(item, Gap):
                    outcome.gaps.append((topic, item))
                    continue
                batch, unfit = self._batch(item, parser)
                if self.strict and unfit:
                    outcome.unfit = (topic, item.seq[unfit[0]].as_py())
                    return outcome
                for date, rows in _by_date(item, batch):
                    if file is None or (file.topic, file.date) != (topic, date):
                        if file is not None:
                            outcome.files.append(file.finished())
                        file = _File(self.round_dir, topic, date, self.schema)
                    file.add(rows)
            if file is not None:
                outcome.files.append(file.finished())
        return outcome

    def _batch(self, columns: Columns, parser: PayloadParser | None) -> tuple[pa.RecordBatch, list[int]]:
        """The rows as they are in a file, and the places of those that do not fit the schema."""
        ts = columns.ts.cast(pa.timestamp("ms", "UTC"))
        arrays = [columns.seq, ts, columns.node, columns.tag, columns.meta_map(), columns.data]
        unfit: list[int] = []
        if parser is not None:
            parsed = parser.parse(columns.data)
            unfit = sorted(parsed.problems)
            is_unfit = np.zeros(len(columns), bool)
            is_unfit[unfit] = True
            kind = self.schema.field("value").type
            mask = pa.array(is_unfit) if unfit else None
            arrays.append(pa.StructArray.from_arrays(parsed.columns, fields=list(kind), mask=mask))
        named = zip(arrays, self.schema, strict=True)
        cast = [array if array.type == column.type else array.cast(column.type) for array, column in named]
        return pa.RecordBatch.from_arrays(cast, schema=self.schema), unfit


def _by_date(columns: Columns, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by the day they were written on, in UTC. Rows come in the order of seqs, and so of days."""
    days = columns.ts.to_numpy() // MS_PER_DAY
    ends = [*(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    start = 0
    for end in ends:
        yield str(days[start].astype("datetime64[D]")), batch.slice(start, end - start)
        start = end


class _File:
    """A file of one topic and date while it is written, a row group at a time."""

    def __init__(self, directory: str, topic: str, date: str, schema: pa.Schema) -> None:
        self.topic = topic
        self.date = date
        self._path = os.path.join(directory, f"{uuid4().hex}.parquet")
        self._sums: list[Sums] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._writer = pq.ParquetWriter(
            self._path,
            schema,
            compression="zstd",
            write_page_checksum=True,
            coerce_timestamps="us",
            # Payloads and seqs hardly repeat, and a dictionary of them is given up only after much work.
            use_dictionary=[name for name in _leaves(schema) if name not in {"seq", "data"}],
        )

    def add(self, rows: pa.RecordBatch) -> None:
        self._sums.append(sums_of(rows))
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= limits.ARCHIVE_GROUP_ROWS_MAX or self._waiting_bytes >= limits.ARCHIVE_GROUP_BYTES_MAX:
            self._write_group()

    def finished(self) -> StagedFile:
        """Raises `WrittenWrong`. The file is durable when this returns."""
        if self._waiting:
            self._write_group()
        self._writer.close()
        size_bytes = _synced_size(self._path)
        written = joined(self._sums)
        found = joined([sums_of(rows) for rows in rows_of(self._path)])
        if found != written:
            raise WrittenWrong(self._path, f"it had {found} where {written} were due")
        return StagedFile(self._path, self.topic, self.date, written, size_bytes)

    def _write_group(self) -> None:
        group = pa.Table.from_batches(self._waiting)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0


def sums_of(rows: pa.RecordBatch) -> Sums:
    """Raises `WrittenWrong` unless seqs ascend: readers of archives go by that."""
    seqs = rows.column("seq").to_numpy()
    if (np.diff(seqs) <= 0).any():
        raise WrittenWrong("a batch", "seqs do not ascend")
    ts = pc.min_max(pc.cast(pc.cast(rows.column("ts"), pa.timestamp("ms", "UTC")), pa.int64()))
    return Sums(
        rows.num_rows,
        int(seqs[0]),
        int(seqs[-1]),
        ts["min"].as_py(),
        ts["max"].as_py(),
        rows_xor(rows.select(list(COLUMNS))),
    )


def joined(parts: Sequence[Sums]) -> Sums:
    """Of rows in several parts, which come in the order of seqs."""
    xor = 0
    for part in parts:
        xor ^= part.rows_xor
    return Sums(
        sum(part.count for part in parts),
        min(part.first_seq for part in parts),
        max(part.last_seq for part in parts),
        min(part.first_ts for part in parts),
        max(part.last_ts for part in parts),
        xor,
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """Where the values of columns are in a Parquet file."""
    found = []
    todo = [(column.name, column.type) for column in schema]
    while todo:
        path, kind = todo.pop()
        if pa.types.is_struct(kind):
            todo += [(f"{path}.{inner.name}", inner.type) for inner in kind]
        elif pa.types.is_map(kind):
            todo += [(f"{path}.key_value.key", kind.key_type), (f"{path}.key_value.value", kind.item_type)]
        elif pa.types.is_list(kind):
            todo.append((f"{path}.list.element", kind.value_type))
        else:
            found.append(path)
    return found


def _synced_size(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
