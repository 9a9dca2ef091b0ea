"""`export`: a topic as files, in the order of seqs, with its losses beside them.

The columns are those of a DataFrame of the topic. Sorted by name, the files are in the order of seqs. The directory
appears only when it is complete.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
import pyspark.sql.functions as sf
from msgspec import Struct
from pyspark.sql import Column, DataFrame, Observation, SparkSession

from topics import limits
from topics.spark.archive.table import NO_SPACE
from topics.spark.errors import InvalidOption, PipelineError
from topics.spark.jobs.preflight import require_topics, require_writable
from topics.spark.jobs.progress import Progress
from topics.spark.jobs.source_files import FileFormat
from topics.spark.options import Server

LOSSES = "_losses.jsonl"
COLUMNS = (
    "topic string, seq bigint, ts timestamp, node string, tag string, meta string, data string, "
    "kind string, gap_from bigint, gap_to bigint, reason string"
)


class DirectoryExists(PipelineError):
    """The directory to write exists already, and nothing is overwritten. Name another one, or remove it first."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} exists already; name another directory, or remove it first", path=path)


class NoRoom(PipelineError):
    """The disk is full, and what was written has been removed. Free some space, or name a directory elsewhere."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: no space left; nothing was kept: free some space and run again", path=path)


@dataclass(frozen=True, slots=True)
class ExportSpec:
    """Both seqs are inclusive; None means the first or the last there is."""

    server: Server
    topic: str
    to: str
    format: FileFormat = FileFormat.JSONL
    from_seq: int | None = None
    to_seq: int | None = None


class Loss(Struct, frozen=True):
    gap_from: int
    gap_to: int | None
    reason: str


class ExportSummary(Struct, frozen=True):
    """`losses` are the seqs of the range that caps, TTLs or crashes took; deleted records are simply absent."""

    topic: str
    directory: str
    format: str
    records: int
    from_seq: int
    to_seq: int
    losses: list[Loss]


def check(spec: ExportSpec) -> None:
    """Refuses what it can before Spark starts."""
    require_topics(spec.server, [spec.topic])
    if "://" not in spec.to:
        if os.path.exists(spec.to):
            raise DirectoryExists(spec.to)
        require_writable(spec.to, "to")
    _range(spec)


def export_topic(spark: SparkSession, spec: ExportSpec, progress: Progress) -> ExportSummary:
    """Raises `DirectoryExists` before anything is read."""
    first, last = _range(spec)
    with OutputDirectory(spark, spec.to) as output:
        progress.begin(f"exporting {spec.topic}", last - first + 1)
        seen = Observation("export")
        rows = _rows(spark, spec, first, last).observe(
            seen,
            sf.count_if(sf.col("kind") == "record").alias("records"),
            sf.collect_list(sf.when(sf.col("kind") == "tombstone", sf.struct("gap_from", "gap_to", "reason"))).alias(
                "losses"
            ),
        )
        _write(rows.where("kind = 'record'"), spec.format, output.partial)
        output.name_files(spec.format)
        losses = merged(Loss(*gap) for gap in seen.get["losses"])
        output.write_text(LOSSES, "".join(f"{msgspec.json.encode(loss).decode()}\n" for loss in losses))
        output.complete()
    progress.advance(last - first + 1)
    return ExportSummary(spec.topic, spec.to, spec.format, seen.get["records"], first, last, losses)


def _range(spec: ExportSpec) -> tuple[int, int]:
    """The seqs to export, by default from seq 1: what was lost before the oldest record counts as lost, too."""
    with spec.server.client() as client:
        head = client.topic(spec.topic).head_seq
    first = 1 if spec.from_seq is None else spec.from_seq
    last = head if spec.to_seq is None else min(spec.to_seq, head)
    if head == 0:
        raise InvalidOption("topic", f'"{spec.topic}" never had a record; there is nothing to export')
    if first < 1:
        raise InvalidOption("from_seq", f"is the first seq to export; seqs begin at 1, so {first} is not one")
    if first > last:
        raise InvalidOption("from_seq", f"{first} is beyond the end, {last}")
    return first, last


def _rows(spark: SparkSession, spec: ExportSpec, first: int, last: int) -> DataFrame:
    options = {
        "url": spec.server.url,
        "subscribe": spec.topic,
        "startingOffsets": msgspec.json.encode({spec.topic: first}).decode(),
        "endingOffsets": msgspec.json.encode({spec.topic: last + 1}).decode(),
        "onDataLoss": "rows",
        "minPartitions": str(spark.sparkContext.defaultParallelism),
        "maxRecordsPerPartition": str(limits.EXPORT_FILE_RECORDS_MAX),
    }
    if spec.server.api_key is not None:
        options["apiKey"] = spec.server.api_key.reveal()
    # Meta stays text: in a map of texts, 1 and "1" would be the same.
    return spark.read.format("topics").options(**options).schema(COLUMNS).load()


def _write(rows: DataFrame, kind: FileFormat, path: str) -> None:
    columns: list[str | Column] = ["topic", "seq", "ts", "node", "tag"]
    match kind:
        case FileFormat.JSONL:
            # Payload and meta are inserted as text: Spark would parse and rewrite them.
            row = sf.to_json(sf.struct(*columns))
            begin = sf.expr("substring(row, 1, length(row) - 1)")
            meta = sf.when(sf.col("meta").isNotNull(), sf.concat(sf.lit(',"meta":'), "meta")).otherwise("")
            line = sf.concat(begin, meta, sf.lit(',"data":'), "data", sf.lit("}"))
            rows.select(row.alias("row"), "meta", "data").select(line.alias("value")).write.text(path)
        case FileFormat.CSV:
            rows.select(*columns, "meta", "data").write.csv(path, header=True, escape='"')
        case FileFormat.PARQUET:
            rows.select(*columns, "meta", "data").write.parquet(path, compression="zstd")


def merged(losses: Iterable[Loss]) -> list[Loss]:
    """Joins a loss that several tasks report in parts."""
    whole: list[Loss] = []
    for loss in sorted(losses, key=lambda loss: loss.gap_from):
        last = whole[-1] if whole else None
        if last is not None and last.gap_to == loss.gap_from - 1 and last.reason == loss.reason:
            whole[-1] = Loss(last.gap_from, loss.gap_to, loss.reason)
        else:
            whole.append(loss)
    return whole


class OutputDirectory:
    """A directory that appears whole or not at all, on any file system Spark knows. In a `with` block, write to
    `partial`, then call `complete()`, which renames it. If the block ends any other way, nothing is left; a killed job
    leaves `….incomplete-…`, which nobody reads and anybody may remove."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._name = path.rstrip("/")
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._path = self._new_path(self._name)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())
        if self._files.exists(self._path):
            raise DirectoryExists(path)
        self.partial = f"{self._name}.incomplete-{uuid4().hex[:8]}"
        self._partial = self._new_path(self.partial)

    def write_text(self, name: str, text: str) -> None:
        """Writes a small file beside Spark's; a leading underscore hides it from Spark's readers."""
        stream = self._files.create(self._new_path(f"{self.partial}/{name}"))
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def name_files(self, extension: str) -> None:
        """Renames Spark's files: short names in the same order."""
        for status in self._files.listStatus(self._partial):
            name = status.getPath().getName()
            if name.startswith("part-"):
                self._files.rename(status.getPath(), self._new_path(f"{self.partial}/{name[:10]}.{extension}"))

    def complete(self) -> None:
        # If the directory has appeared meanwhile, a rename would move ours into it.
        if self._files.exists(self._path) or not self._files.rename(self._partial, self._path):
            raise DirectoryExists(self._name)

    def __enter__(self) -> "OutputDirectory":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._files.exists(self._partial):
            self._files.delete(self._partial, True)
        if error is not None and NO_SPACE.search(str(error)):
            raise NoRoom(self._name) from error
