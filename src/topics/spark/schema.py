"""The columns of a frame, and how records and losses become rows of it.

A user's schema names columns of the record, fields of its payload (`data`), or both. What it does not name is neither
read nor decoded nor sent to Spark: the schema is all that Spark tells a Python source about the columns it needs.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from topics.spark.columns import PAYLOAD, RECORD_FIELDS, Columns
from topics.spark.errors import InvalidColumns, InvalidOption, MalformedRecord
from topics.spark.json_columns import PayloadColumn, PayloadParser, can_be_read
from topics.spark.offsets import Gap
from topics.spark.options import OnDataLoss, ParseMode, Parsing, ReadOptions, TableSchema
from topics.wire.arrow import RECORD, TOMBSTONE, array_of, repeated

TOPICS = StructType(
    [
        StructField("topic", StringType()),
        StructField("seq", LongType()),
        StructField("ts", TimestampType()),
        StructField("node", StringType()),
        StructField("tag", StringType()),
        StructField("meta", MapType(StringType(), StringType())),
        StructField("data", StringType()),
        StructField("kind", StringType()),
        StructField("gap_from", LongType()),
        StructField("gap_to", LongType()),
        StructField("reason", StringType()),
    ]
)

KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField(
            "headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
    ]
)

SPARK: dict[TableSchema, StructType] = {TableSchema.TOPICS: TOPICS, TableSchema.KAFKA: KAFKA}
KAFKA_PARTITION = 0  # a topic is one log

OF_A_LOSS = ("kind", "gap_from", "gap_to", "reason")
PAYLOAD_PREFIX = "data."
_RECORD_TYPES: dict[str, DataType] = {field.name: field.dataType for field in TOPICS.fields}
_KAFKA_FIELDS = {
    "key": "tag", "value": "data", "topic": "topic", "partition": "partition", "offset": "seq", "timestamp": "ts",
    "headers": "headers",
}  # fmt: skip
_STORED_AS = {"headers": "meta", "meta_text": "meta"}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """`source` is a column of the record, None for a field of the payload or for the text of a malformed payload."""

    name: str
    source: str | None
    arrow: pa.DataType


class Table:
    """The columns of a frame and where they come from. It travels to the tasks."""

    def __init__(self, wanted: StructType, parsing: Parsing, *, kafka: bool = False, include_data: bool = True) -> None:
        self._fields = to_arrow_schema(wanted, timezone="UTC")
        self._parsing = parsing
        self._include_data = include_data
        self._payload: list[PayloadColumn] = []
        self._columns: list[TableColumn] = []
        self._has_corrupt_column = False
        for field, arrow in zip(wanted.fields, self._fields, strict=True):
            source = _KAFKA_FIELDS[field.name] if kafka else self._source(field, arrow.type)
            self._columns.append(TableColumn(field.name, source, arrow.type))
        self._require_each_field_once()
        self._parser: PayloadParser | None = None

    def __getstate__(self) -> dict[str, object]:
        # The parser's classes cannot be pickled, so each task builds its own.
        return self.__dict__ | {"_parser": None}

    @property
    def needs(self) -> frozenset[str]:
        """The fields of a record that must be read."""
        sources = {column.source for column in self._columns if column.source is not None}
        parts = {_STORED_AS.get(source, source) for source in sources} & set(RECORD_FIELDS)
        if self._has_corrupt_column or any(column.field is None for column in self._payload):
            parts.add("data")
        if self._payload and "data" not in parts:
            parts.add(PAYLOAD)
        return frozenset(parts if self._include_data else parts - {"data"})

    def _source(self, field: StructField, arrow: pa.DataType) -> str | None:
        name, kind = field.name, field.dataType
        if name == self._parsing.corrupt_column:
            if not isinstance(kind, StringType):
                raise InvalidColumns(f"column {name} holds malformed payloads as they are; it must be string")
            self._has_corrupt_column = True
            return None
        if not field.nullable:
            raise InvalidColumns(f"column {name} is NOT NULL, but a record need not have it; leave NOT NULL out")
        if name in _RECORD_TYPES and not (name == "data" and not isinstance(kind, StringType)):
            own = _RECORD_TYPES[name]
            if name == "meta" and isinstance(kind, StringType):
                return "meta_text"
            if kind != own:
                raise InvalidColumns(
                    f"column {name} is {kind.simpleString()}, but {name} of a record is {own.simpleString()}; for a "
                    f"field {name} of its payload write `data.{name}`"
                )
            return name
        if not can_be_read(kind):
            raise InvalidColumns(
                f"column {name} is {kind.simpleString()}, which a payload cannot be read as; take string and convert"
            )
        whole = name == "data"
        self._payload.append(PayloadColumn(name, None if whole else name.removeprefix(PAYLOAD_PREFIX), kind, arrow))
        return None

    def _require_each_field_once(self) -> None:
        seen: dict[str | None, str] = {}
        for column in self._payload:
            if column.field in seen:
                raise InvalidColumns(f"columns {seen[column.field]} and {column.name} are the same field; name it once")
            seen[column.field] = column.name
        if self._payload and not self._include_data:
            raise InvalidOption("includeData", f"is false, but column {self._payload[0].name} is read from data")

    def require_columns_for_losses(self) -> None:
        missing = [name for name in OF_A_LOSS if name not in {column.source for column in self._columns}]
        if missing:
            raise InvalidOption("onDataLoss", f"rows need columns for a loss: add {', '.join(missing)} to the schema")

    def batch(self, topic: str, columns: Columns) -> pa.RecordBatch:
        """Exactly the columns Spark expects, in its order and with its types."""
        parsed: dict[str, pa.Array] = {}
        if self._payload:
            if self._parser is None:
                self._parser = PayloadParser(self._payload, self._parsing.time_zone)
            found = self._parser.parse(columns.data, columns.served)
            parsed = {column.name: array for column, array in zip(self._payload, found.columns, strict=True)}
            if found.problems:
                columns, parsed = self._with_malformed(topic, columns, parsed, found.problems)
        count = len(columns)
        arrays = []
        for column in self._columns:
            if column.name in parsed and column.source is None:
                arrays.append(parsed[column.name])
            elif column.source is None:
                arrays.append(pa.nulls(count, column.arrow))
            else:
                arrays.append(self._record_column(column, topic, columns))
        return pa.RecordBatch.from_arrays(arrays, schema=self._fields)

    def _record_column(self, column: TableColumn, topic: str, columns: Columns) -> pa.Array:
        count = len(columns)
        match column.source:
            case "topic":
                found = repeated(topic, count)
            case "ts":
                found = columns.ts.cast(pa.timestamp("ms", "UTC"))
            case "meta":
                found = columns.meta_map()
            case "meta_text":
                found = columns.meta
            case "headers":
                found = columns.headers(column.arrow)
            case "data" if not self._include_data:
                found = pa.nulls(count, column.arrow)
            case "kind":
                found = repeated(RECORD, count)
            case "partition":
                found = pa.repeat(array_of([KAFKA_PARTITION], pa.int32())[0], count)
            case "gap_from" | "gap_to" | "reason":
                found = pa.nulls(count, column.arrow)
            case name:
                found = getattr(columns, str(name))
        return found if found.type == column.arrow else found.cast(column.arrow)

    def _with_malformed(
        self, topic: str, columns: Columns, parsed: dict[str, pa.Array], problems: dict[int, str]
    ) -> tuple[Columns, dict[str, pa.Array]]:
        places = sorted(problems)
        if self._parsing.mode is ParseMode.FAILFAST:
            raise MalformedRecord(topic, columns.seq[places[0]].as_py(), problems[places[0]])
        if self._parsing.mode is ParseMode.DROPMALFORMED:
            keep = np.ones(len(columns), bool)
            keep[places] = False
            mask = pa.array(keep)
            return columns.filter(mask), {name: array.filter(mask) for name, array in parsed.items()}
        if self._has_corrupt_column:
            texts: list[str | None] = [None] * len(columns)
            for place in places:
                texts[place] = columns.data[place].as_py()
            parsed = parsed | {self._parsing.corrupt_column: pa.array(texts, pa.string())}
        return columns, parsed

    def gap_batch(self, topic: str, gap: Gap) -> pa.RecordBatch:
        """A loss as a row of its own; only the columns about it are set."""
        row = {"topic": topic, "kind": TOMBSTONE, "gap_from": gap.gap_from, "gap_to": gap.gap_to, "reason": gap.reason}
        values = {column.name: row.get(column.source or "") for column in self._columns}
        return pa.RecordBatch.from_pylist([values], schema=self._fields)


def table_of(wanted: StructType, read: ReadOptions) -> Table:
    """Raises `InvalidColumns` for columns that a record cannot be read as."""
    if read.schema is TableSchema.KAFKA:
        if wanted != KAFKA:
            raise InvalidColumns(
                f"the columns of schema=kafka are {KAFKA.simpleString()}; leave .schema(…) or schema=kafka out"
            )
        return Table(wanted, read.parsing, kafka=True, include_data=read.include_data)
    table = Table(wanted, read.parsing, include_data=read.include_data)
    if read.on_data_loss is OnDataLoss.ROWS:
        table.require_columns_for_losses()
    return table
