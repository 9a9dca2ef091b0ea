"""The columns of an archive: those of every record, and `value`, which is `data` decoded to Spark's types.

`data` always stays the original text. `value` is a struct (of a given or inferred schema) or a VARIANT.
"""

import json
import re
from collections.abc import Iterable

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DateType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from topics.spark.archive.errors import SchemaDiffers, SchemaDoesNotFit
from topics.spark.archive.state import ArchiveColumns, ColumnKind
from topics.spark.errors import InvalidOption
from topics.spark.inference import infer
from topics.spark.json_columns import PayloadColumn, can_be_read

INFER = "infer"
VARIANT = "variant"
WORDS = (INFER, VARIANT)
"""Values of `--schema` that do not list columns."""
UNFIT = "_unfit"
PARSED = "_parsed"

RECORD_COLUMNS = (
    StructField("seq", LongType()),
    StructField("ts", TimestampType()),
    StructField("node", StringType()),
    StructField("tag", StringType()),
    StructField("meta", MapType(StringType(), StringType())),
    StructField("data", StringType()),
)
RECORD_NAMES = tuple(column.name for column in RECORD_COLUMNS)

_UNFIT_MARK = re.compile(r"topics-unfit:(\d+):([A-Za-z0-9._:-]+)")


def columns_of(wanted: str, payloads: Iterable[str] = ()) -> ArchiveColumns:
    """The columns that `--schema` asks for. Only `infer` looks at the payloads."""
    match wanted:
        case "":
            return ArchiveColumns()
        case "variant":
            return ArchiveColumns(ColumnKind.VARIANT)
        case "infer":
            return ArchiveColumns(ColumnKind.STRUCT, _inferred(payloads).json())
    try:
        schema = StructType.fromDDL(wanted)
    except (PySparkException, ValueError):
        schema = StructType()
    if not isinstance(schema, StructType) or not schema.fields:
        raise InvalidOption("schema", f"{wanted!r} is not a schema; give columns such as 'sku string, total bigint'")
    return ArchiveColumns(ColumnKind.STRUCT, schema.json(), strict=True)


def _inferred(payloads: Iterable[str]) -> StructType:
    found, _ = infer(payloads)
    if not found.fields:
        raise InvalidOption("schema", "infer found no JSON objects to infer from; give the columns, or use variant")
    return found


def require_columns(root: str, columns: ArchiveColumns, wanted: str) -> None:
    """Raises `SchemaDiffers` if an archive with these columns does not fit `infer` or `variant`."""
    match wanted:
        case "infer":
            fits = columns.kind is ColumnKind.STRUCT and not columns.strict
        case "variant":
            fits = columns.kind is ColumnKind.VARIANT
        case _:
            return
    if not fits:
        raise SchemaDiffers(root, described(columns), wanted)


def described(columns: ArchiveColumns) -> str:
    """The columns as people write them."""
    match columns.kind:
        case ColumnKind.NONE:
            return "data only"
        case ColumnKind.VARIANT:
            return "value variant"
        case ColumnKind.STRUCT:
            return f"value {_struct(columns).simpleString()}"


def file_schema(columns: ArchiveColumns) -> StructType:
    """The columns in a file."""
    match columns.kind:
        case ColumnKind.NONE:
            typed = []
        case ColumnKind.VARIANT:
            typed = [StructField("value", VariantType())]
        case ColumnKind.STRUCT:
            typed = [StructField("value", _struct(columns))]
    return StructType([*RECORD_COLUMNS, *typed])


def table_schema(columns: ArchiveColumns) -> StructType:
    """The columns in a file, and those in its path."""
    partitions = [StructField("topic", StringType()), StructField("date", DateType())]
    return StructType([*file_schema(columns).fields, *partitions])


def payload_columns(columns: ArchiveColumns) -> tuple[PayloadColumn, ...] | None:
    """The fields of `value` as tasks parse them; empty if there is no such column, None if only Spark can make it: a
    VARIANT, or a struct with a type that payloads cannot be read as."""
    match columns.kind:
        case ColumnKind.NONE:
            return ()
        case ColumnKind.VARIANT:
            return None
        case ColumnKind.STRUCT:
            schema = _struct(columns)
    if not can_be_read(schema):
        return None
    arrow = arrow_schema(columns).field("value").type
    return tuple(
        PayloadColumn(field.name, field.name, field.dataType, arrow.field(at).type)
        for at, field in enumerate(schema.fields)
    )


def arrow_schema(columns: ArchiveColumns) -> pa.Schema:
    """The columns in a file, as Arrow has them."""
    return to_arrow_schema(file_schema(columns), timezone="UTC")


def delta_schema(columns: ArchiveColumns) -> str:
    """The columns in Spark's JSON form, as Delta keeps them. A VARIANT appears as the two binary fields it is stored
    in, which is what readers without the type see."""
    as_stored = StructType([StructField("metadata", BinaryType()), StructField("value", BinaryType())])
    fields = [
        StructField(field.name, as_stored) if isinstance(field.dataType, VariantType) else field
        for field in table_schema(columns).fields
    ]
    return StructType(fields).json()


def with_value(records: DataFrame, columns: ArchiveColumns) -> DataFrame:
    """Adds the column `value`, if the archive has one. If it is strict, a record that does not fit fails the task."""
    match columns.kind:
        case ColumnKind.NONE:
            return records
        case ColumnKind.VARIANT:
            return records.withColumn("value", F.try_parse_json("data"))
        case ColumnKind.STRUCT:
            schema = _struct(columns)
    with_mark = StructType([*schema.fields, StructField(UNFIT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNFIT}
    # A separate column: Spark would parse the payload again for each field taken out of it.
    records = records.withColumn(PARSED, F.from_json("data", with_mark, options))
    parsed = F.col(PARSED)
    value = F.struct(*(parsed[field.name].alias(field.name) for field in schema.fields))
    fits = parsed[UNFIT].isNull()
    if not columns.strict:
        return records.withColumn("value", F.when(fits, value))
    mark = F.concat(F.lit("topics-unfit:"), F.col("seq").cast("string"), F.lit(":"), F.col("topic"))
    return records.withColumn("value", F.when(fits, value).otherwise(F.raise_error(mark).cast(schema)))


def unfit_of(error: Exception, columns: ArchiveColumns) -> SchemaDoesNotFit | None:
    """The error that names the refused record, if a strict schema refused one."""
    found = _UNFIT_MARK.search(str(error))
    return None if found is None else SchemaDoesNotFit(found[2], int(found[1]), described(columns))


def _struct(columns: ArchiveColumns) -> StructType:
    return StructType.fromJson(json.loads(columns.schema))
