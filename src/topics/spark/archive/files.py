"""Parquet files of an archive: how Spark writes and reads them, and how they are checked before a commit names them.
`archive` has its tasks write most of its files without Spark (`writing`).

Every page has a checksum, which every read verifies, here and in `rows`. The footer has none, but reads compare the
file's length with the table's, and a footer with a flipped bit is nearly always unreadable.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topics.spark.archive import table
from topics.spark.archive.columns import table_schema
from topics.spark.archive.row_hash import row_hash
from topics.spark.archive.rows import require_file
from topics.spark.archive.state import ArchiveColumns, ArchivedFile, ArchiveState, WrittenFile
from topics.spark.archive.writing import StagedFile

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Rows come in the order of seqs, and so of dates: a task keeps a file open for each date and sorts nothing.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # Spark's reader of shredded variants fails where code generation is off. The plain layout suits every reader.
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.variant.inferShreddingSchema": "false",
    # A union has the partitions of all its parts: Spark would make one of them all where each has only one.
    "spark.sql.unionOutputPartitioning": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
CHECKED = {"parquet.page.verify-checksum.enabled": "true"}


def own_session(spark: SparkSession) -> SparkSession:
    """A session of the same Spark with our settings; the caller's session stays as it is."""
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session


@contextmanager
def writing(root: str) -> Iterator[str]:
    """A directory for the files of one commit; gone when the block ends. Raises `TargetDiskFull`."""
    path = table.new_round(root)
    try:
        with table.room(root):
            yield path
    finally:
        # Tasks of an interrupted job may still be writing; `compact` removes what they leave.
        with suppress(OSError):
            shutil.rmtree(path)
        with suppress(OSError):
            os.rmdir(os.path.dirname(path))


def write_round(frame: DataFrame, path: str, partitions: Iterable[str] = table.PARTITIONS) -> None:
    (
        frame.write.partitionBy(*partitions)
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .option("parquet.page.write-checksum.enabled", "true")
        .option("parquet.enable.dictionary", "true")
        .parquet(path)
    )


def read_archive(
    spark: SparkSession, root: str, topics: Iterable[str] | None = None, state: ArchiveState | None = None
) -> DataFrame:
    """An archive as a frame: `topic`, `date`, `seq`, `ts`, `node`, `tag`, `meta`, `data` and, if it has one, `value`.

    Only files that the table names are read: a job that is still writing, or was killed, leaves no trace here.
    """
    state = state or table.load(root)
    wanted = None if topics is None else set(topics)
    files = [file for file in state.files if wanted is None or file.topic in wanted]
    return read_files(own_session(spark), root, files, state.columns)


def read_files(spark: SparkSession, root: str, files: Iterable[ArchivedFile], columns: ArchiveColumns) -> DataFrame:
    """Raises `ArchiveDiffers` if a file is missing or has another length; a changed page fails the query."""
    schema = table_schema(columns)
    paths = [require_file(root, file) for file in files]
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).options(**CHECKED).option("basePath", table.records_dir(root))
    return reader.parquet(*paths).select(*schema.names)


def one_file_each(
    spark: SparkSession,
    root: str,
    groups: Sequence[Sequence[ArchivedFile]],
    columns: ArchiveColumns,
    keep: Column | None = None,
) -> DataFrame:
    """The rows of files. Each group (of one topic and date) goes to one task and becomes one file in the order of seqs,
    without a shuffle."""
    parts = [read_files(spark, root, group, columns) for group in groups]
    if keep is not None:
        parts = [part.where(keep) for part in parts]
    return reduce(DataFrame.unionByName, [part.coalesce(1).sortWithinPartitions("seq") for part in parts])


def counted_rows(
    spark: SparkSession, root: str, files: Sequence[ArchivedFile], columns: ArchiveColumns, wanted: Column
) -> dict[str, int]:
    """How many such rows each file has, by its path in the archive; files without any are left out."""
    if not files:
        return {}
    paths = [require_file(root, file) for file in files]
    reader = spark.read.schema(table_schema(columns)).options(**CHECKED).option("basePath", table.records_dir(root))
    found = reader.parquet(*paths).where(wanted).groupBy(F.col("_metadata.file_path").alias("path")).count().collect()
    return {os.path.relpath(_local_path(row["path"]), os.path.abspath(root)): row["count"] for row in found}


def checked_files(spark: SparkSession, round_dir: str, columns: ArchiveColumns) -> list[WrittenFile]:
    """Reads back, counts, hashes and syncs every file of a round, in parallel. Returns them sorted by topic and seq."""
    ordered = sorted(_parquet_files(round_dir))
    if not ordered:
        return []
    rows = (
        spark.read.schema(table_schema(columns))
        .options(**CHECKED)
        .option("basePath", round_dir)
        .parquet(round_dir)
        .groupBy("topic", F.col("date").cast("string").alias("date"), F.col("_metadata.file_path").alias("path"))
        .agg(
            F.count("*").alias("count"),
            F.min("seq").alias("first_seq"),
            F.max("seq").alias("last_seq"),
            F.unix_millis(F.min("ts")).alias("first_ts"),
            F.unix_millis(F.max("ts")).alias("last_ts"),
            F.bit_xor(row_hash()).alias("rows_xor"),
        )
        .collect()
    )
    slices = min(len(ordered), 4 * spark.sparkContext.defaultParallelism)
    sizes = dict(spark.sparkContext.parallelize(ordered, slices).map(synced_size).collect())
    written = []
    for row in rows:
        path = _local_path(row["path"])
        file = ArchivedFile(
            path=table.records_path(row["topic"], row["date"], row["first_seq"], row["last_seq"], round_dir),
            topic=row["topic"],
            date=row["date"],
            first_seq=row["first_seq"],
            last_seq=row["last_seq"],
            first_ts=row["first_ts"],
            last_ts=row["last_ts"],
            count=row["count"],
            size_bytes=sizes[path],
        )
        written.append(WrittenFile(path, file, row["rows_xor"]))
    return sorted(written, key=lambda entry: (entry.file.topic, entry.file.first_seq))


def written_files(staged: Iterable[StagedFile], round_dir: str) -> list[WrittenFile]:
    """The files of tasks that wrote and checked them, in the order of topics and seqs."""
    written = []
    for entry in staged:
        sums = entry.sums
        file = ArchivedFile(
            path=table.records_path(entry.topic, entry.date, sums.first_seq, sums.last_seq, round_dir),
            topic=entry.topic,
            date=entry.date,
            first_seq=sums.first_seq,
            last_seq=sums.last_seq,
            first_ts=sums.first_ts,
            last_ts=sums.last_ts,
            count=sums.count,
            size_bytes=entry.size_bytes,
        )
        written.append(WrittenFile(entry.path, file, sums.rows_xor))
    return sorted(written, key=lambda entry: (entry.file.topic, entry.file.first_seq))


def _local_path(uri: str) -> str:
    """The path of a file that Spark reports as a URI, in which a `%` of the path itself is escaped once more."""
    return f"/{unquote(uri.removeprefix('file:')).lstrip('/')}"


def sums(spark: SparkSession, root: str, files: Iterable[ArchivedFile], columns: ArchiveColumns) -> tuple[int, int]:
    """How many rows the files have, and the XOR of the rows' hashes."""
    row = read_files(spark, root, files, columns).agg(F.count("*"), F.bit_xor(row_hash())).first()
    assert row is not None
    return row[0], row[1] or 0


def rows_xor(files: Iterable[WrittenFile]) -> str:
    """The `rows_xor` of one file with all their rows."""
    combined = 0
    for written in files:
        combined ^= written.rows_xor
    return f"{combined & (1 << 64) - 1:016x}"


def synced_size(path: str) -> tuple[str, int]:
    """Syncs a file and returns its path and size. Runs in a task."""
    # Hadoop keeps its checksum in a file beside this one, which a rename would leave behind. Page checksums move along.
    directory, name = os.path.split(path)
    with suppress(FileNotFoundError):
        os.remove(os.path.join(directory, f".{name}.crc"))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return path, os.path.getsize(path)


def _parquet_files(directory: str) -> Iterator[str]:
    for parent, _, names in os.walk(directory):
        for name in names:
            if name.endswith(".parquet") and not name.startswith("."):
                yield os.path.join(parent, name)
