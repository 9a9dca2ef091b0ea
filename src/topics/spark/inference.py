"""A schema from a sample of payloads, by the rules of Spark's own JSON source.

The sample is a bounded number of the first records. A later record that does not fit is malformed, and the option
`mode` says what happens to it.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from json import JSONDecoder
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from topics import limits
from topics.spark.log import Log
from topics.spark.offsets import Gap, SeqRange
from topics.spark.options import OnDataLoss, ReadOptions
from topics.spark.schema import OF_A_LOSS, PAYLOAD_PREFIX, TOPICS

RECORD_COLUMNS = ("topic", "seq", "ts", "node", "tag", "meta")
DECIMAL_DIGITS_MAX = 38
_LONG_AS_DECIMAL = DecimalType(20, 0)


class _Number(str):
    """The text of an integer: Python refuses to convert very long ones."""


class _Fraction(str):
    """The text of a number with a fraction or an exponent."""


_decode = JSONDecoder(parse_int=_Number, parse_float=_Fraction).decode


def inferred_schema(log: Log, read: ReadOptions) -> StructType:
    columns = [field for field in TOPICS.fields if field.name in RECORD_COLUMNS]
    if read.on_data_loss is OnDataLoss.ROWS:
        columns += [field for field in TOPICS.fields if field.name in OF_A_LOSS]
    found, malformed = infer(sample(log, limits.SPARK_INFERRED_RECORDS_MAX))
    for field in found.fields:
        name = PAYLOAD_PREFIX + field.name if field.name in TOPICS.names else field.name
        columns.append(StructField(name, field.dataType))
    if malformed:
        columns.append(StructField(read.parsing.corrupt_column, StringType()))
    return StructType(columns)


def sample(log: Log, records_max: int) -> Iterator[str]:
    """The first payloads of the topics. All topics have an equal share of `records_max` and of
    `SPARK_INFERRED_BYTES_MAX`."""
    ranges = log.ranges()
    if not ranges:
        return
    share = max(1, records_max // len(ranges))
    share_bytes = limits.SPARK_INFERRED_BYTES_MAX // len(ranges)
    left = records_max
    for topic, now in sorted(ranges.items()):
        wanted = SeqRange(topic, now.epoch, now.earliest_seq - 1, min(now.head_seq, now.earliest_seq - 1 + share))
        if not wanted.size:
            continue
        if left <= 0:
            return
        for text in islice(_payloads(log, wanted, share_bytes), left):
            left -= 1
            yield text


def _payloads(log: Log, wanted: SeqRange, bytes_max: int) -> Iterator[str]:
    """The payloads of a range, up to `bytes_max`."""
    left_bytes = bytes_max
    for planned in log.plan([wanted], 1, None):
        for item in log.read(planned):
            if isinstance(item, Gap):
                continue
            for text in item.data.to_pylist():
                yield text
                left_bytes -= len(text)
                if left_bytes <= 0:
                    return


def infer(payloads: Iterable[str]) -> tuple[StructType, bool]:
    """The fields, sorted by name, and whether any payload is not an object."""
    merged: DataType = StructType([])
    malformed = False
    for payload in payloads:
        try:
            value = _decode(payload)
        except RecursionError:
            value = None
        if isinstance(value, dict):
            merged = _merged(merged, _type_of(value))
        else:
            malformed = True
    found = _without_nulls(merged)
    return found if isinstance(found, StructType) else StructType([]), malformed


def _type_of(value: Any) -> DataType:
    match value:
        case None:
            return NullType()
        case bool():
            return BooleanType()
        case _Number():
            return _type_of_integer(value)
        case _Fraction():
            return DoubleType()
        case str():
            return StringType()
        case list():
            element: DataType = NullType()
            for each in value:
                element = _merged(element, _type_of(each))
            return ArrayType(element)
        case _:
            return StructType([StructField(name, _type_of(value[name])) for name in sorted(value)])


def _type_of_integer(text: str) -> DataType:
    digits = len(text.lstrip("-"))
    if digits < 19 or (digits == 19 and -(1 << 63) <= int(text) < 1 << 63):
        return LongType()
    return DecimalType(digits, 0) if digits <= DECIMAL_DIGITS_MAX else DoubleType()


def _merged(one: DataType, other: DataType) -> DataType:
    match one, other:
        case _ if one == other:
            return one
        case NullType(), _:
            return other
        case _, NullType():
            return one
        case ((LongType() | DoubleType() | DecimalType()), (LongType() | DoubleType() | DecimalType())):
            return _wider(one, other)
        case StructType(), StructType():
            types = {field.name: field.dataType for field in one.fields}
            for field in other.fields:
                known = types.get(field.name)
                types[field.name] = field.dataType if known is None else _merged(known, field.dataType)
            return StructType([StructField(name, types[name]) for name in sorted(types)])
        case ArrayType(), ArrayType():
            return ArrayType(_merged(one.elementType, other.elementType))
        case _:
            return StringType()


def _wider(one: DataType, other: DataType) -> DataType:
    decimals = [_LONG_AS_DECIMAL if isinstance(kind, LongType) else kind for kind in (one, other)]
    if not all(isinstance(kind, DecimalType) for kind in decimals):
        return DoubleType()
    digits = max(kind.precision for kind in decimals if isinstance(kind, DecimalType))
    return DecimalType(digits, 0) if digits <= DECIMAL_DIGITS_MAX else DoubleType()


def _without_nulls(kind: DataType) -> DataType | None:
    """A field that was always null becomes text; a struct without fields goes away."""
    match kind:
        case NullType():
            return StringType()
        case ArrayType():
            element = _without_nulls(kind.elementType)
            return None if element is None else ArrayType(element)
        case StructType():
            fields = [(field.name, _without_nulls(field.dataType)) for field in kind.fields]
            known = [StructField(name, each) for name, each in fields if each is not None]
            return StructType(known) if known else None
        case _:
            return kind
