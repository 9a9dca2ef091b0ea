"""`import`: rows of files become records of a topic, in the order of the files, each exactly once however often the job
runs.

A record's `meta` says where it comes from: `import` names the content and the row, or `key` is the row's own key. So
the topic itself says what it has, whoever imported it and however long ago, and after a kill the job goes on behind the
last row that arrived. A named cursor remembers where the first import began: nothing before it is read. Tasks read,
check and encode; one connection appends, because a topic has one order.

Commit point: a chunk is in the topic, whole, when its append returns. The append's idempotency key is a hash of the
chunk, so a chunk sent twice is added once (`known_writes`). The file of rejects gets its name when the import is
complete.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

import msgspec
import pyspark.sql.functions as sf
import xxhash
from msgspec import Struct
from pyspark.sql import DataFrame, Row, SparkSession, Window

from topics import limits
from topics.client.sync_client import Client
from topics.errors import CursorNotFound, TopicNotFound
from topics.spark.errors import InvalidOption
from topics.spark.jobs import import_rows
from topics.spark.jobs.import_rows import Fields, Rejection, RowPlan
from topics.spark.jobs.known_writes import append_missing
from topics.spark.jobs.preflight import require_types
from topics.spark.jobs.progress import Progress
from topics.spark.jobs.source_files import CsvOptions, NumberedRows, SourceFile, read_rows
from topics.spark.options import Server

CURSOR = "import"

_IMPORTED = f"meta['{import_rows.IMPORT_META}'] is not null or meta['{import_rows.KEY_META}'] is not null"


@dataclass(frozen=True, slots=True)
class ImportSpec:
    server: Server
    files: tuple[SourceFile, ...]
    into: str
    fields: Fields
    csv: CsvOptions
    rejects: str


class FileSummary(Struct, frozen=True):
    """`already_there` rows were imported before or arrived twice; `duplicates` have the key of an earlier row."""

    file: str
    rows: int
    imported: int = 0
    already_there: int = 0
    duplicates: int = 0
    rejected: int = 0


class ImportSummary(Struct, frozen=True):
    topic: str
    imported: int
    already_there: int
    duplicates: int
    rejected: int
    rejects: str | None
    head_seq: int
    files: list[FileSummary]


def check(spec: ImportSpec) -> None:
    """Refuses what it can before Spark starts."""
    spec.fields.check()
    if spec.csv.schema is not None:
        require_types(spec.csv.schema)
    directory = os.path.dirname(os.path.abspath(spec.rejects))
    if not os.access(directory, os.W_OK):
        raise InvalidOption("rejects", f"{directory} is not a directory this user may write to")
    if spec.csv.schema is None and not spec.csv.header:
        raise InvalidOption("schema", "a CSV file without a header needs one, such as id INT, name STRING")
    if len(spec.csv.delimiter) != 1:
        raise InvalidOption("delimiter", "must be one character")


def import_files(spark: SparkSession, spec: ImportSpec, progress: Progress) -> ImportSummary:
    check(spec)
    partial = f"{spec.rejects}.partial"
    with spec.server.client() as client, open(partial, "w", encoding="utf-8") as rejects:
        job = _Import(spark, spec, client, rejects, progress)
        try:
            files = [job.run(file) for file in spec.files]
        finally:
            rejects.close()
            if not job.rejected:
                os.remove(partial)
        if job.rejected:
            os.replace(partial, spec.rejects)
        progress.end()
        return ImportSummary(
            topic=spec.into,
            imported=sum(file.imported for file in files),
            already_there=sum(file.already_there for file in files),
            duplicates=sum(file.duplicates for file in files),
            rejected=job.rejected,
            rejects=spec.rejects if job.rejected else None,
            head_seq=_head_seq(client, spec.into),
            files=files,
        )


class _Import:
    def __init__(
        self, spark: SparkSession, spec: ImportSpec, client: Client, rejects: TextIO, progress: Progress
    ) -> None:
        self.rejected = 0
        self._spark = spark
        self._spec = spec
        self._client = client
        self._rejects = rejects
        self._progress = progress
        self._looked_seq = 0
        """The head of the topic when its content was read."""

    def run(self, file: SourceFile) -> FileSummary:
        self._progress.begin(f"reading {os.path.basename(file.path)}")
        numbered = read_rows(self._spark, file, self._spec.csv)
        before = self._imported_before()
        if self._spec.fields.key is None:
            return self._append_rows(file, numbered, before)
        return self._append_keyed_rows(file, numbered, before)

    def _imported_before(self) -> DataFrame | None:
        """The `meta` of records from earlier imports, or None if there were none. Notes where the first one began."""
        topic = self._spec.into
        try:
            state = self._client.topic(topic)
        except TopicNotFound:
            self._looked_seq = 0
            return None
        self._looked_seq = state.head_seq
        try:
            begin = self._client.cursor(topic, CURSOR).seq
        except CursorNotFound:
            # Either nothing was ever imported, or a run was killed after its first append: the records show which.
            first_time = state.head_seq == 0 or self._meta_after(0).limit(1).count() == 0
            begin = state.head_seq if first_time else 0
            self._client.set_cursor(topic, CURSOR, begin)
        return self._meta_after(begin) if begin < state.head_seq else None

    def _meta_after(self, seq: int) -> DataFrame:
        topic, server = self._spec.into, self._spec.server
        options = {
            "url": server.url,
            "subscribe": topic,
            "startingOffsets": msgspec.json.encode({topic: seq + 1}).decode(),
            "includeData": "false",
            # This job goes on without losses: readers of the topic are told of them anyway.
            "onDataLoss": "rows",
            "schema": "topics",
            "minPartitions": str(self._spark.sparkContext.defaultParallelism),
        }
        if server.api_key is not None:
            options["apiKey"] = server.api_key.reveal()
        return self._spark.read.format("topics").options(**options).load().select("meta").where(_IMPORTED)

    def _append_rows(self, file: SourceFile, numbered: NumberedRows, before: DataFrame | None) -> FileSummary:
        done = 0 if before is None else _last_row(before, numbered.source)
        plan = RowPlan(numbered.source, self._spec.fields, done)
        chunks = numbered.frame.mapInArrow(
            lambda batches: import_rows.chunk_batches(plan, import_rows.parse_rows(plan, batches)),
            import_rows.CHUNK_SCHEMA,
        )
        return self._append(file, _in_parts(chunks, numbered), FileSummary(file.path, numbered.rows))

    def _append_keyed_rows(self, file: SourceFile, numbered: NumberedRows, before: DataFrame | None) -> FileSummary:
        plan = RowPlan(numbered.source, self._spec.fields, done=0)
        parsed = numbered.frame.mapInArrow(
            lambda batches: import_rows.parsed_batches(plan, batches), import_rows.PARSED_SCHEMA
        )
        first = sf.row_number().over(Window.partitionBy("key").orderBy("row"))
        # Rows without a key are rejects and blank rows; those are never duplicates.
        marked = parsed.withColumn("repeats", sf.col("key").isNotNull() & (first > 1))
        if before is None:
            marked = marked.withColumn("known", sf.lit(False))
        else:
            keys = before.select(sf.col("meta")[import_rows.KEY_META].alias("key")).where("key is not null").distinct()
            marked = marked.join(keys.withColumn("known", sf.lit(True)), "key", "left").fillna(False, ["known"])
        marked = marked.persist()
        try:
            counts = marked.agg(
                sf.count_if("known").alias("known"), sf.count_if(sf.expr("repeats and not known")).alias("repeats")
            ).first()
            assert counts is not None
            chunks = (
                marked.where("not known and not repeats")
                .drop("known", "repeats")
                .sort("row")
                .mapInArrow(
                    lambda batches: import_rows.chunk_batches(plan, import_rows.read_parsed(batches)),
                    import_rows.CHUNK_SCHEMA,
                )
            )
            known = FileSummary(file.path, numbered.rows, already_there=counts.known, duplicates=counts.repeats)
            return self._append(file, chunks, known)
        finally:
            marked.unpersist()

    def _append(self, file: SourceFile, chunks: DataFrame, summary: FileSummary) -> FileSummary:
        topic = self._spec.into
        imported = rejected = 0
        there = summary.already_there
        waiting = summary.rows - summary.already_there - summary.duplicates
        self._progress.begin(f"importing {os.path.basename(file.path)}", waiting)
        for chunk in _in_order(chunks):
            if chunk.records:
                body = bytes(chunk.body)
                key = f"import/{xxhash.xxh3_128_hexdigest(body)}"
                written = append_missing(self._client, topic, body, chunk.records, key, self._looked_seq)
                if written.created:
                    self._client.set_cursor(topic, CURSOR, 0)
                imported += written.added
                there += written.there
            there += chunk.skipped
            rejected += (bad := self._reject(file, chunk))
            done = chunk.records + chunk.skipped + bad
            waiting -= done
            self._progress.advance(done, lag=max(waiting, 0))
        # Blank rows do not become records and are not counted.
        self._progress.advance(max(waiting, 0), lag=0)
        return msgspec.structs.replace(summary, imported=imported, already_there=there, rejected=rejected)

    def _reject(self, file: SourceFile, chunk: Row) -> int:
        rejected = msgspec.json.decode(bytes(chunk.rejects), type=list[tuple[int, str, str]])
        for row, reason, text in rejected:
            self._rejects.write(msgspec.json.encode(Rejection(file.path, row, reason, text)).decode() + "\n")
        self.rejected += len(rejected)
        return len(rejected)


def _in_parts(chunks: DataFrame, numbered: NumberedRows) -> DataFrame:
    """The driver holds two partitions of chunks at a time, so a file that Spark reads in few large ones is cut into
    more: by rows, in their order."""
    parts = -(-numbered.size_bytes // limits.IMPORT_PART_BYTES)
    if parts <= numbered.pieces:
        return chunks
    part = sf.floor((sf.col("last_row") * parts) / (numbered.rows + 1)).cast("int")
    return chunks.repartitionById(parts, part).sortWithinPartitions("last_row")


def _in_order(frame: DataFrame) -> Iterator[Row]:
    """The rows, partition after partition; the next one already runs."""
    return frame.toLocalIterator(prefetchPartitions=True)


def _last_row(before: DataFrame, source: str) -> int:
    """How many rows of this content are in the topic. They were appended in order, so the last one tells."""
    origin = sf.col("meta")[import_rows.IMPORT_META]
    row = sf.substring_index(origin, ":", -1).cast("long")
    found = before.where(origin.startswith(f"{source}:")).agg(sf.max(row).alias("row")).first()
    assert found is not None
    return found.row or 0


def _head_seq(client: Client, topic: str) -> int:
    try:
        return client.topic(topic).head_seq
    except TopicNotFound:
        return 0  # there was nothing to import
