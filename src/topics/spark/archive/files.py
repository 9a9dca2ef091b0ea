"""Parquet files of an archive as jobs of Spark have them: written by tasks (`writing`), and read as a frame.

Every page has a checksum, which every read verifies, here and in `rows`. The footer has none, but reads compare the
file's length with the table's, and a footer with a flipped bit is nearly always unreadable.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from topics.spark.archive import table
from topics.spark.archive.columns import arrow_schema, table_schema
from topics.spark.archive.place import Place
from topics.spark.archive.rows import require_file, rows_of
from topics.spark.archive.state import ArchiveColumns, ArchivedFile, ArchiveState, Forgotten, WrittenFile
from topics.spark.archive.table import ArchiveTable
from topics.spark.archive.writing import ForgottenCounter, Rewriter, Rewritten, StagedFile
from topics.spark.telling import telling

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
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


def read_files(spark: SparkSession, root: str, files: Sequence[ArchivedFile], columns: ArchiveColumns) -> DataFrame:
    """Raises `ArchiveDiffers` if a file is missing or has another length; a changed page fails the query."""
    place, schema = Place.of(root), table_schema(columns)
    if not files:
        return spark.createDataFrame([], schema)
    if not place.is_local:
        # Spark has no connector for a store: tasks read the files, each one whole.
        slices = spark.range(0, len(files), 1, len(files))
        return slices.mapInArrow(FileReader(place, tuple(files), arrow_schema(columns)), schema)
    paths = [place.at(require_file(place, file)) for file in files]
    reader = spark.read.schema(schema).options(**CHECKED).option("basePath", table.records_dir(root))
    return reader.parquet(*paths).select(*schema.names)


@dataclass(frozen=True, slots=True)
class FileReader:
    """Sent to the tasks, which get the numbers of the files they are to read."""

    place: Place
    files: tuple[ArchivedFile, ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling():
            for number in (number.as_py() for batch in numbers for number in batch.column("id")):
                file = self.files[number]
                for rows in rows_of(self.place, require_file(self.place, file), columns=self.schema.names):
                    named = rows.cast(self.schema)
                    named = named.append_column("topic", pa.repeat(file.topic, rows.num_rows))
                    yield named.append_column("date", pa.repeat(file.date, rows.num_rows).cast(pa.date32()))


def rewritten(
    spark: SparkSession,
    store: ArchiveTable,
    round_dir: str,
    groups: Sequence[Sequence[ArchivedFile]],
    entry: Forgotten | None = None,
) -> list[Rewritten]:
    """What each group of neighbours of one topic and date became, as one file and without what is to be forgotten."""
    writer = Rewriter(store.place, round_dir, arrow_schema(store.state.columns), entry)
    return spark.sparkContext.parallelize(groups, len(groups)).map(writer).collect()


def forgotten_counts(
    spark: SparkSession, place: Place, files: Sequence[ArchivedFile], entry: Forgotten
) -> dict[str, int]:
    """How many rows of each file are to be forgotten, by its path; files without any are left out."""
    if not files:
        return {}
    counts = spark.sparkContext.parallelize(files, len(files)).map(ForgottenCounter(place, entry)).collect()
    return {file.path: count for file, count in zip(files, counts, strict=True) if count}


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


def rows_xor(files: Iterable[WrittenFile]) -> str:
    """The `rows_xor` of one file with all their rows."""
    combined = 0
    for written in files:
        combined ^= written.rows_xor
    return f"{combined:016x}"
