"""How tasks write the files of an archive: what they read of a topic, what Spark made of it, or other files anew.

Rows are Arrow columns all the way. Each file that is finished is synced and read back, with the checksum of every page,
and must have the rows that were written: as many, with the same seqs and the same hash. The driver gets numbers only.
Tasks use this, so nothing of Delta is imported here.

A task that is tried again writes files of other names; those of the first try are named by nobody.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import json
from pyspark.sql.datasource import InputPartition

from topics import limits
from topics.spark.archive.errors import ArchiveDiffers
from topics.spark.archive.place import Place
from topics.spark.archive.row_hash import rows_xor
from topics.spark.archive.rows import COLUMNS, require_file, rows_of, to_forget
from topics.spark.archive.state import ArchivedFile, Forgotten
from topics.spark.columns import Columns
from topics.spark.errors import PipelineError
from topics.spark.json_columns import PayloadColumn, PayloadParser
from topics.spark.offsets import Gap
from topics.spark.options import ReadOptions
from topics.spark.origin import open_log
from topics.spark.tasks import TopicsPartition
from topics.spark.telling import telling

US_PER_DAY = 86_400_000_000
STAGED = "staged string"
"""The column of what `FrameWriter` gives Spark."""


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
    place: Place
    round_dir: str
    schema: pa.Schema
    payload: tuple[PayloadColumn, ...]
    strict: bool

    def __call__(self, share: InputPartition) -> Outcome:
        assert isinstance(share, TopicsPartition)
        outcome = Outcome()
        parser = PayloadParser(self.payload, "UTC") if self.payload else None
        files = _Files(self.place, self.round_dir, self.schema)
        with telling(), open_log(self.read) as log:
            for topic, item in log.read_all(share.shares):
                if isinstance(item, Gap):
                    outcome.gaps.append((topic, item))
                    continue
                batch, unfit = self._batch(item, parser)
                if self.strict and unfit:
                    outcome.unfit = (topic, item.seq[unfit[0]].as_py())
                    return outcome
                files.add(topic, batch)
            outcome.files = files.finished()
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


@dataclass(frozen=True, slots=True)
class FrameWriter:
    """Sent to the tasks that have rows of Spark's, with their `topic`. Each file it wrote is a row, as JSON."""

    place: Place
    round_dir: str
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = _Files(self.place, self.round_dir, self.schema)
        with telling():
            for batch in batches:
                for topic, rows in _runs(batch.column("topic").to_pylist(), batch):
                    files.add(topic, rows.select(self.schema.names).cast(self.schema))
            staged = files.finished()
        yield pa.RecordBatch.from_pydict({"staged": pa.array([json.encode(file).decode() for file in staged])})


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The file that a group became, if any row was left, and what was read of it. `gone`: rows that were left out."""

    staged: StagedFile | None
    first_seq: int
    last_seq: int
    count: int
    gone: int


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Sent to the tasks: makes one file of several neighbours of a topic and date, without what is to be forgotten."""

    place: Place
    round_dir: str
    schema: pa.Schema
    entry: Forgotten | None = None

    def __call__(self, group: Sequence[ArchivedFile]) -> Rewritten:
        files = _Files(self.place, self.round_dir, self.schema)
        first_seq = last_seq = count = gone = 0
        with telling():
            for file in group:
                for rows in rows_of(self.place, require_file(self.place, file), columns=self.schema.names):
                    seqs = rows.column("seq").to_numpy()
                    if seqs[0] <= last_seq:
                        raise ArchiveDiffers(self.place.at(file.path), f"seq {seqs[0]} comes after {last_seq}")
                    first_seq, last_seq, count = first_seq or int(seqs[0]), int(seqs[-1]), count + len(seqs)
                    kept = rows
                    if self.entry is not None:
                        kept = rows.filter(pa.array(~to_forget(seqs, rows.column("tag"), self.entry)))
                    gone += rows.num_rows - kept.num_rows
                    if kept.num_rows:
                        files.add(file.topic, kept.cast(self.schema))
            staged = files.finished()
        return Rewritten(staged[0] if staged else None, first_seq, last_seq, count, gone)


@dataclass(frozen=True, slots=True)
class ForgottenCounter:
    """Sent to the tasks: how many rows of a file are to be forgotten."""

    place: Place
    entry: Forgotten

    def __call__(self, file: ArchivedFile) -> int:
        with telling():
            found = rows_of(self.place, require_file(self.place, file), columns=("seq", "tag"))
            return sum(
                int(to_forget(rows.column("seq").to_numpy(), rows.column("tag"), self.entry).sum()) for rows in found
            )


class _Files:
    """The files of a task, one after the other: a new one begins with each topic and each day, in UTC. Rows come in the
    order of seqs, and so of days."""

    def __init__(self, place: Place, directory: str, schema: pa.Schema) -> None:
        self._place = place
        self._directory = directory
        self._schema = schema
        self._file: _File | None = None
        self._finished: list[StagedFile] = []

    def add(self, topic: str, rows: pa.RecordBatch) -> None:
        days = pc.cast(rows.column("ts"), pa.int64()).to_numpy() // US_PER_DAY
        for day, some in _runs(days, rows):
            date = str(np.datetime64(int(day), "D"))
            if self._file is None or (self._file.topic, self._file.date) != (topic, date):
                self._finish()
                self._file = _File(self._place, self._directory, topic, date, self._schema)
            self._file.add(some)

    def finished(self) -> list[StagedFile]:
        """Raises `WrittenWrong`."""
        self._finish()
        return self._finished

    def _finish(self) -> None:
        if self._file is not None:
            self._finished.append(self._file.finished())
            self._file = None


def _runs(values: Any, batch: pa.RecordBatch) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """The rows of a batch in pieces that have the same value."""
    found = np.asarray(values)
    ends = [*(np.flatnonzero(found[1:] != found[:-1]) + 1).tolist(), len(found)] if len(found) else []
    start = 0
    for end in ends:
        yield values[start], batch.slice(start, end - start)
        start = end


class _File:
    """A file of one topic and date while it is written, a row group at a time."""

    def __init__(self, place: Place, directory: str, topic: str, date: str, schema: pa.Schema) -> None:
        self.topic = topic
        self.date = date
        self._place = place
        self._path = f"{directory}/{uuid4().hex}.parquet"
        self._sums: list[Sums] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._sink = place.create(self._path)
        self._writer = pq.ParquetWriter(
            self._sink,
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
        with self._place.reaching():
            self._writer.close()
            self._sink.close()
        self._place.sync(self._path)
        size_bytes = self._place.size(self._path)
        assert size_bytes is not None, "it was closed just now"
        written = joined(self._sums)
        found = joined([sums_of(rows) for rows in rows_of(self._place, self._path)])
        if found != written:
            raise WrittenWrong(self._place.at(self._path), f"it had {found} where {written} were due")
        return StagedFile(self._path, self.topic, self.date, written, size_bytes)

    def _write_group(self) -> None:
        group = pa.Table.from_batches(self._waiting)
        with self._place.reaching():
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
