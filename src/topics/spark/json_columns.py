"""Payloads as Arrow columns of a schema's types: only the fields it names are decoded.

The fast way is one call of msgspec for a whole batch, into structs built for the schema: about 1 µs a record. If
msgspec refuses a batch, it is decoded record by record; if it refuses a record, the exact way (`json_values`) decides
whether the record is malformed or only unusual, such as a number where text is wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
)

from topics.spark.columns import as_json_list, payloads_of
from topics.spark.json_values import INTEGER_BITS, Convert, Malformations, Malformed, converter, members
from topics.wire.arrow import array_of, text_of

_list: Any = list  # types made at run time, which mypy cannot follow
_typed_dict: Any = TypedDict

_NOTHING, _COMMA = text_of(""), text_of(",")
_NULL = msgspec.Raw(b"null")
_REFUSED = (msgspec.DecodeError, RecursionError, ValueError)


@dataclass(frozen=True, slots=True)
class PayloadColumn:
    """A column of the frame that comes from payloads: one field, or the whole payload (`field` is None)."""

    name: str
    field: str | None
    kind: DataType
    arrow: pa.DataType


class Parsed(NamedTuple):
    """The columns in their order. `problems` says what is wrong with each malformed record, by position."""

    columns: list[pa.Array]
    problems: dict[int, str]


def can_be_read(kind: DataType) -> bool:
    return converter(kind, "UTC") is not None


class PayloadParser:
    """Created once per task. Columns must have types that `can_be_read`, and each field may appear once."""

    def __init__(self, columns: Sequence[PayloadColumn], time_zone: str) -> None:
        self._columns = columns
        self._converters = [_known(converter(column.kind, time_zone)) for column in columns]
        self._by_field = {column.field: at for at, column in enumerate(columns) if column.field is not None}
        self._wholes = [at for at, column in enumerate(columns) if column.field is None]
        self._exact = [
            at for at, column in enumerate(columns) if column.field is not None and not _is_plain(column.kind)
        ]
        fields = [
            (f"f{at}", _type_of(column.kind), msgspec.field(default=_default(column.kind), name=column.field))
            for at, column in enumerate(columns)
            if column.field is not None
        ]
        fields += [(f"f{at}", Any, None) for at in self._wholes]
        self._row = msgspec.defstruct("Row", fields, gc=False)
        self._nothing = {f"f{at}": None for at in range(len(columns))}
        self._decode = msgspec.json.Decoder(self._row).decode
        self._decode_all = msgspec.json.Decoder(list[self._row]).decode  # type: ignore[name-defined]
        served = msgspec.defstruct("Served", [("data", self._row)], gc=False)
        self._decode_served: Any = msgspec.json.Decoder(list[served]).decode  # type: ignore[valid-type]
        # Made of text as `namedtuple` makes its classes: `attrgetter` takes twice as long, 0.04 µs a value.
        self._take = [eval(f"lambda rows: [row.f{at} for row in rows]") for at in range(len(columns))]
        self._has_maps = {at for at, column in enumerate(columns) if isinstance(column.kind, MapType)}

    def parse(self, data: pa.Array, served: bytes | memoryview = b"") -> Parsed:
        """`served`: the whole records, joined by commas, in place of `data`."""
        problems: dict[int, str] = {}
        rows = self._rows(data, served, problems)
        columns = []
        for at, column in enumerate(self._columns):
            values = self._take[at](rows)
            if at in self._has_maps:
                values = [list(value.items()) if type(value) is dict else value for value in values]
            columns.append(array_of(values, column.arrow))
        return Parsed(columns, problems)

    def _rows(self, data: pa.Array, served: bytes | memoryview, problems: dict[int, str]) -> list[Any]:
        rows: list[Any] = []
        if not self._wholes:
            try:
                if served:
                    rows = [record.data for record in self._decode_served(as_json_list(served))]
                else:
                    rows = self._decode_all(payloads_as_json_list(data))
                if not self._exact:
                    return rows
            except _REFUSED:
                rows = []
        texts: list[bytes] = payloads_of(served) if served else data.cast(pa.binary()).to_pylist()
        return [self._row_of(text, place, problems, rows[place] if rows else None) for place, text in enumerate(texts)]

    def _row_of(self, text: bytes, place: int, problems: dict[int, str], decoded: Any) -> Any:
        try:
            if self._wholes:
                raise Malformed("only the exact way decodes a whole payload")
            row = self._decode(text) if decoded is None else decoded
            for at in self._exact:
                name = f"f{at}"
                value = bytes(getattr(row, name))
                bad: Malformations = []
                setattr(row, name, None if value == b"null" else self._converters[at](value.decode(), bad))
                if bad:
                    raise Malformed(bad[0])
        except (*_REFUSED, Malformed):
            row, problem = self._row_by_members(text)
            if problem is not None:
                problems[place] = problem
        return row

    def _row_by_members(self, payload: bytes) -> tuple[Any, str | None]:
        """The exact way: if a name is repeated, the last value of the right type wins."""
        row = self._row(**self._nothing)
        bad: Malformations = []
        text = payload.decode().strip(" \t\n\r")
        try:
            for at in self._wholes:
                value, problem = _converted(self._converters[at], text)
                setattr(row, f"f{at}", value)
                bad += [] if problem is None else [problem]
            if not self._by_field:
                return row, bad[0] if bad else None
            if not text.startswith("{"):
                return row, f"{text[:40]} is not an object"
            for name, value in members(text):
                at = self._by_field.get(name, -1)
                if at < 0:
                    continue
                try:
                    setattr(row, f"f{at}", None if value == "null" else self._converters[at](value, bad))
                except Malformed as problem:
                    bad.append(f"field {name}: {problem}")
        except RecursionError:
            return self._row(**self._nothing), "is nested too deeply"
        return row, bad[0] if bad else None


def payloads_as_json_list(data: pa.Array) -> bytes:
    """All payloads as the elements of one array, without an object for each."""
    if not len(data):
        return b"[]"
    # Each with a comma after it. `binary_join` takes three times as long.
    _, ends, content = pc.binary_join_element_wise(data, _NOTHING, _COMMA).buffers()
    return b"".join((b"[", memoryview(content)[: memoryview(ends).cast("i")[len(data)] - 1], b"]"))


def _converted(convert: Convert, text: str) -> tuple[Any, str | None]:
    if text == "null":
        return None, None
    bad: Malformations = []
    try:
        value = convert(text, bad)
    except Malformed as problem:
        return None, str(problem)
    except RecursionError:
        return None, "is nested too deeply"
    return value, bad[0] if bad else None


def _known(convert: Convert | None) -> Convert:
    assert convert is not None, "the schema was checked"
    return convert


def _is_plain(kind: DataType) -> bool:
    """Whether msgspec alone decodes this type as Spark does."""
    return _plain(kind) is not None or (
        isinstance(kind, MapType) and isinstance(kind.keyType, StringType) and _plain(kind.valueType) is not None
    )


def _plain(kind: DataType) -> Any:
    match kind:
        case StringType():
            return str
        case BooleanType():
            return bool
        case DoubleType() | FloatType():
            return float
        case ArrayType():
            element = _plain(kind.elementType)
            return None if element is None else _list[element | None]
        case StructType():
            fields = {field.name: _plain(field.dataType) for field in kind.fields}
            if None in fields.values():
                return None
            return _typed_dict("Fields", {name: each | None for name, each in fields.items()}, total=False)
        case _ if (bits := INTEGER_BITS.get(type(kind))) is not None:
            return Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]
        case _:
            return None


def _type_of(kind: DataType) -> Any:
    if not _is_plain(kind):
        return msgspec.Raw
    if isinstance(kind, MapType):
        return dict[str, _plain(kind.valueType) | None] | None  # type: ignore[misc]
    return _plain(kind) | None


def _default(kind: DataType) -> Any:
    return None if _is_plain(kind) else _NULL
