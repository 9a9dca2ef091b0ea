"""Files as rows of JSON text with their numbers: JSON Lines, CSV and Parquet, one file at a time.

Spark cuts a file into consecutive pieces. A first pass counts the rows of each piece, which gives every row its number
and the content its name without moving a row. The name is a position-weighted sum of the rows' hashes: it does not
depend on how the file was cut, compressed or named.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyspark.sql.functions as sf
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from topics.spark.errors import InvalidOption, PipelineError
from topics.spark.jobs.spark_messages import message_of

CORRUPT = "_topics_corrupt"

_ROW_BITS = 33  # of monotonically_increasing_id; the bits above are the number of the partition
_HASH_BITS = 48  # leaves room for exact sums: 2^48 × 2^33 rows × 2^33 is below 10^36


class FileFormat(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


_EXTENSIONS = {
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
    ".csv": FileFormat.CSV,
    ".parquet": FileFormat.PARQUET,
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")


class FileUnreadable(PipelineError):
    """A file to import cannot be read in its format. None of it was imported; records from other files stay."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}", file=path)


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """`schema` is a list of columns in SQL, such as `id INT, name STRING`; without one all values are text."""

    delimiter: str = ","
    header: bool = True
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str
    format: FileFormat


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """`frame` has the columns `row` (from 1), `line` (JSON text, binary) and `problem`. `source` names the content.
    `pieces`: how many partitions Spark reads it in; a packed file, and CSV, is one. `size_bytes` is that of the
    lines."""

    frame: DataFrame
    rows: int
    source: str
    pieces: int
    size_bytes: int


def find_files(paths: Sequence[str], chosen: FileFormat | None) -> tuple[SourceFile, ...]:
    """The files to read, in order; a directory stands for its files sorted by name. Needs no Spark."""
    found: list[SourceFile] = []
    for path in paths:
        if "://" not in path and not os.path.exists(path):
            raise FileUnreadable(path, "there is no such file")
        for file in _files_of(path):
            if "://" not in file and not os.access(file, os.R_OK):
                raise FileUnreadable(file, "this user may not read it")
            found.append(SourceFile(file, chosen or format_of(file)))
    if not found:
        raise InvalidOption("FILES", "there is nothing to import: the directory has no files")
    return tuple(found)


def _files_of(path: str) -> list[str]:
    if "://" in path or not os.path.isdir(path):
        return [path]
    # As everywhere in Spark, a leading dot or underscore marks notes of whoever wrote the directory.
    names = sorted(name for name in os.listdir(path) if not name.startswith((".", "_")))
    return [file for name in names if os.path.isfile(file := os.path.join(path, name))]


def format_of(path: str) -> FileFormat:
    stem, extension = os.path.splitext(path)
    if extension in _COMPRESSED:
        extension = os.path.splitext(stem)[1]
    try:
        return _EXTENSIONS[extension.lower()]
    except KeyError:
        raise InvalidOption(
            "format", f"the name of {path} does not say its format; give --format jsonl, csv or parquet"
        ) from None


def read_rows(spark: SparkSession, file: SourceFile, csv: CsvOptions) -> NumberedRows:
    """Raises `FileUnreadable` if the file is not in its format. The file is read once, to count."""
    try:
        lines = _lines(spark, file, csv)
        placed = lines.select(
            "line",
            "problem",
            sf.spark_partition_id().alias("piece"),
            sf.monotonically_increasing_id().bitwiseAND((1 << _ROW_BITS) - 1).alias("position"),
        )
        pieces = _pieces(placed)
    except (PySparkException, Py4JJavaError) as error:
        raise FileUnreadable(file.path, message_of(error).partition("\n")[0]) from error
    starts, total, source, size_bytes = [], 0, [0, 0], 0
    for rows, hashes, weighted, piece_bytes in pieces:
        starts.append(total)
        source[0] += hashes
        source[1] += weighted + total * hashes
        total += rows
        size_bytes += piece_bytes
    name = hashlib.sha256(f"{total} {source[0]} {source[1]}".encode()).hexdigest()[:16]
    start = sf.element_at(sf.array(*map(sf.lit, starts or [0])), sf.col("piece") + 1)
    row = (start + sf.col("position") + 1).cast("long").alias("row")
    return NumberedRows(placed.select(row, "line", "problem"), total, name, len(pieces), size_bytes)


def _pieces(placed: DataFrame) -> list[tuple[int, int, int, int]]:
    """For each piece of the file: its rows, the sum of their hashes, that sum weighted by position, and its bytes."""
    hashed = sf.xxhash64("line").bitwiseAND((1 << _HASH_BITS) - 1).cast("decimal(15,0)")
    weight = (sf.col("position") + 1).cast("decimal(10,0)")
    counted = (
        placed.groupBy("piece")
        .agg(
            sf.count("*").alias("rows"),
            sf.sum(hashed).alias("hashes"),
            sf.sum(hashed * weight).alias("weighted"),
            sf.sum(sf.length("line")).alias("bytes"),
        )
        .collect()
    )
    by_piece = {
        found.piece: (found.rows, int(found.hashes), int(found.weighted), found.bytes or 0) for found in counted
    }
    return [by_piece.get(piece, (0, 0, 0, 0)) for piece in range(max(by_piece, default=-1) + 1)]


def _lines(spark: SparkSession, file: SourceFile, csv: CsvOptions) -> DataFrame:
    nothing = sf.lit(None).cast("string")
    match file.format:
        case FileFormat.JSONL:
            # As bytes: a line that is not UTF-8 is rejected, not repaired.
            return spark.read.text(file.path).select(
                sf.col("value").cast("binary").alias("line"), nothing.alias("problem")
            )
        case FileFormat.PARQUET:
            frame = spark.read.parquet(file.path)
            return frame.select(_as_json(frame.columns).alias("line"), nothing.alias("problem"))
        case FileFormat.CSV:
            return _csv_lines(spark, file, csv)


def _csv_lines(spark: SparkSession, file: SourceFile, csv: CsvOptions) -> DataFrame:
    # Quoted line breaks are allowed, so a file is read in one piece.
    options: dict[str, bool | str] = {
        "sep": csv.delimiter,
        "header": csv.header,
        "multiLine": True,
        "escape": '"',
        "enforceSchema": False,
    }
    names = spark.read.options(**options).csv(file.path).columns if csv.header else []
    if csv.schema is not None:
        schema = parse_schema(csv.schema)
        if csv.header and names != schema.names:
            raise FileUnreadable(
                file.path, f"its header is {', '.join(names)}, but the schema has {', '.join(schema.names)}"
            )
    elif names:
        schema = StructType([StructField(name, StringType()) for name in names])
    else:
        raise FileUnreadable(file.path, "has no header; the first line must name the columns")
    columns = schema.names
    expected = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in schema.fields)
    schema = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    frame = spark.read.options(**options, columnNameOfCorruptRecord=CORRUPT).csv(file.path, schema=schema)
    bad = sf.col(CORRUPT).isNotNull()
    line = sf.when(bad, sf.col(CORRUPT).cast("binary")).otherwise(_as_json(columns))
    return frame.select(line.alias("line"), sf.when(bad, f"does not fit the columns {expected}").alias("problem"))


def parse_schema(text: str) -> StructType:
    """Raises `InvalidOption`. Needs a running session: Spark's own parser reads it."""
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise InvalidOption("schema", f"{text!r} is not a list of columns such as id INT, name STRING: "
                            f"{message_of(error)}") from None  # fmt: skip
    assert isinstance(schema, StructType)
    return schema


def _as_json(columns: Sequence[str]) -> Column:
    quoted = [f"`{name.replace('`', '``')}`" for name in columns]
    return sf.to_json(sf.struct(*quoted), {"ignoreNullFields": "false"}).cast("binary")
