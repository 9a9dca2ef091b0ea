"""Parquet files of an archive: how Spark writes and reads them, and what they are checked for before they count."""

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType
from xxhash import xxh3_64

from topics.spark.pipelines import archive_layout as layout
from topics.spark.pipelines import manifest
from topics.spark.pipelines.archive_columns import row_hash, table_schema
from topics.spark.pipelines.archive_store import StagedFile, require_file
from topics.spark.pipelines.manifest import ArchiveColumns, ArchivedFile, ArchiveState, LastRecord

READ_BYTES = 1 << 20
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Rows come in the order of seqs, and so of dates: a file for each date of a task is open, and nothing is sorted.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # Spark's own reader of shredded variants fails where it may not generate code.
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}


def own_session(spark: SparkSession) -> SparkSession:
    """The same Spark with settings of our own: the caller's session stays as it is."""
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session


def write_staged(frame: DataFrame, path: str, partitions: Iterable[str]) -> None:
    (
        frame.write.partitionBy(*partitions)
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .option("parquet.enable.dictionary", "true")
        .parquet(path)
    )


def read_archive(
    spark: SparkSession, root: str, topics: Iterable[str] | None = None, state: ArchiveState | None = None
) -> DataFrame:
    """An archive as a frame: `topic`, `date`, `seq`, `ts`, `node`, `tag`, `meta`, `data` and, if it has one, `value`.

    What the manifest names, and nothing else: a job that is writing or was killed does not show.
    """
    state = state or manifest.load(root)
    wanted = None if topics is None else set(topics)
    files = [file for file in state.files.values() if wanted is None or file.topic in wanted]
    return read_files(own_session(spark), root, files, state.columns)


def read_files(spark: SparkSession, root: str, files: Iterable[ArchivedFile], columns: ArchiveColumns) -> DataFrame:
    """Raises `ArchiveDiffers` when one is missing or of another length."""
    schema = table_schema(columns)
    paths = []
    for file in files:
        require_file(root, file)
        paths.append(os.path.join(root, file.path))
    if not paths:
        return spark.createDataFrame([], schema)
    base = layout.records_dir(root)
    return spark.read.schema(schema).option("basePath", base).parquet(*paths)


def staged_paths(base: str) -> Iterator[tuple[str, str, str, str]]:
    """(path, topic, date, name) of every file Spark wrote below `base`, which has `topic=…/date=…` in it."""
    for directory, _, names in os.walk(base):
        parents = directory.split(os.sep)
        for name in names:
            if name.endswith(".parquet") and not name.startswith("."):
                topic = layout.parse_partition(parents[-2], "topic")
                date = layout.parse_partition(parents[-1], "date")
                assert topic is not None, directory
                assert date is not None, directory
                yield os.path.join(directory, name), topic, date, name


def checked_files(spark: SparkSession, base: str, columns: ArchiveColumns, groups: int = 1) -> list[StagedFile]:
    """Every staged file read back, counted, checksummed and synced, in parallel; in the order of topics and seqs.

    With several groups, `base` has a directory `group=N` for each.
    """
    bases = [base] if groups == 1 else [f"{base}/group={number}" for number in range(groups)]
    paths = {
        (number, topic, date, name): path
        for number, base_of_group in enumerate(bases)
        for path, topic, date, name in staged_paths(base_of_group)
    }
    if not paths:
        return []
    schema = table_schema(columns)
    group = F.lit(0) if groups == 1 else F.col("group")
    if groups > 1:
        schema = schema.add("group", IntegerType())
    rows = (
        spark.read.schema(schema)
        .option("basePath", base)
        .parquet(base)
        .groupBy(
            group.alias("number"),
            "topic",
            F.col("date").cast("string").alias("date"),
            F.col("_metadata.file_name").alias("name"),
        )
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
    ordered = sorted(paths.values())
    slices = min(len(ordered), 4 * spark.sparkContext.defaultParallelism)
    digests = dict(spark.sparkContext.parallelize(ordered, slices).map(synced_digest).collect())
    staged = []
    for row in rows:
        path = paths[row["number"], row["topic"], row["date"], row["name"]]
        size_bytes, digest = digests[path]
        file = ArchivedFile(
            path=layout.records_path(row["topic"], row["date"], row["first_seq"], row["last_seq"]),
            topic=row["topic"],
            date=row["date"],
            first_seq=row["first_seq"],
            last_seq=row["last_seq"],
            first_ts=row["first_ts"],
            last_ts=row["last_ts"],
            count=row["count"],
            size_bytes=size_bytes,
            file_xxh3=digest,
            rows_xor=f"{row['rows_xor'] & (1 << 64) - 1:016x}",
        )
        staged.append(StagedFile(path, file))
    return sorted(staged, key=lambda entry: (entry.file.topic, entry.file.first_seq))


def synced_digest(path: str) -> tuple[str, tuple[int, str]]:
    """Runs in a task. The file is durable when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return path, digest_of_file(path)


def digest_of_file(path: str) -> tuple[int, str]:
    digest, size_bytes = xxh3_64(), 0
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
    return size_bytes, digest.hexdigest()


def last_record(path: str) -> LastRecord:
    """Of a file with records in the order of seqs."""
    file = pq.ParquetFile(path)
    rows = file.read_row_group(file.num_row_groups - 1, columns=["seq", "ts", "data"])
    seq, ts, data = (column[-1] for column in rows.columns)
    return LastRecord(seq.as_py(), ts.cast(pa.timestamp("ms", "UTC")).value, manifest.digest_of(data.as_py().encode()))


def xor_of(files: Iterable[ArchivedFile]) -> str:
    """What a file with the rows of all of these would have."""
    combined = 0
    for file in files:
        combined ^= int(file.rows_xor, 16)
    return f"{combined:016x}"
