"""One JSON value as a value of a Spark type, by the rules of Spark's own JSON source.

This is the exact way and the slow one, some 10 µs a record: `json_columns` uses it where its fast way gives up. A value
of the wrong type becomes null and makes its record malformed; the record's other values are kept. A wrong element makes
its whole array or map null, unless only a field of a struct in it is wrong.
"""

import base64
import re
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from json import JSONDecoder
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import make_scanner
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from topics.spark.json_times import parse_date, parse_local_time, parse_time

INTEGER_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}

_scan = make_scanner(JSONDecoder(parse_int=lambda text: 0, parse_float=lambda text: 0.0))  # type: ignore[arg-type]
_SPACE = re.compile(r"[ \t\n\r]*")
_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER_START = frozenset("-0123456789")
_SPECIAL_FLOATS = {
    "NaN": "nan", "INF": "inf", "+INF": "inf", "Infinity": "inf", "+Infinity": "inf", "-INF": "-inf",
    "-Infinity": "-inf",
}  # fmt: skip
_DECIMALS = Context(prec=100, rounding=ROUND_HALF_UP)

Malformations = list[str]
Convert = Callable[[str, Malformations], Any]
"""From the text of a value that is not null to the value. Raises `Malformed` if the text is not of the type; if only a
part of it is not, notes that in the list."""


class Malformed(Exception):
    """The value is not of the type. The message says how."""


def converter(kind: DataType, time_zone: str) -> Convert | None:
    """None for types that payloads cannot be read as."""
    match kind:
        case StringType():
            return _string
        case BooleanType():
            return _boolean
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _integer_of(INTEGER_BITS[type(kind)])
        case DoubleType() | FloatType():
            return _double
        case DecimalType():
            return _decimal_of(kind.precision, kind.scale)
        case DateType():
            return _date
        case TimestampType():
            return _time_in(time_zone)
        case TimestampNTZType():
            return lambda text, bad: _parsed(parse_local_time, text)
        case BinaryType():
            return _binary
        case ArrayType():
            return _array_of(converter(kind.elementType, time_zone))
        case MapType(keyType=StringType()):
            return _map_of(converter(kind.valueType, time_zone))
        case StructType():
            return _struct_of({field.name: converter(field.dataType, time_zone) for field in kind.fields})
        case _:
            return None


def members(text: str) -> Iterator[tuple[str, str]]:
    """Names and texts of an object's members, in their order; a name may come twice."""
    at = _skip(text, 0) + 1
    at = _skip(text, at)
    while text[at] != "}":
        name, at = scanstring(text, at + 1, True)
        begin = _skip(text, _skip(text, at) + 1)
        end = _end_of(text, begin)
        yield name, text[begin:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def elements(text: str) -> Iterator[str]:
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "]":
        end = _end_of(text, at)
        yield text[at:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _end_of(text: str, at: int) -> int:
    return int(_scan(text, at)[1])


def _value(convert: Convert, text: str, bad: Malformations) -> Any:
    return None if text == "null" else convert(text, bad)


def _plain_text(text: str) -> str | None:
    """The text of a JSON string, or None for any other value. Half of a surrogate pair becomes `?`, as in Java."""
    if text[0] != '"':
        return None
    found: str = scanstring(text, 1, True)[0]
    return found.encode("utf-8", "replace").decode() if "\\u" in text else found


def _string(text: str, bad: Malformations) -> str:
    found = _plain_text(text)
    return text if found is None else found


def _boolean(text: str, bad: Malformations) -> bool:
    if text not in {"true", "false"}:
        raise Malformed(f"{text[:40]} is not a boolean")
    return text == "true"


def _integer_of(bits: int) -> Convert:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(text: str, bad: Malformations) -> int:
        if _INTEGER.fullmatch(text) is None or len(text) > 20 or not low <= int(text) <= high:
            raise Malformed(f"{text[:40]} is not an integer of {bits} bits")
        return int(text)

    return convert


def _double(text: str, bad: Malformations) -> float:
    if text[0] in _NUMBER_START:
        return float(text)
    special = _SPECIAL_FLOATS.get(_plain_text(text) or "")
    if special is None:
        raise Malformed(f"{text[:40]} is not a number")
    return float(special)


def _decimal_of(precision: int, scale: int) -> Convert:
    step = Decimal(1).scaleb(-scale)
    limit = Decimal(10) ** (precision - scale)

    def convert(text: str, bad: Malformations) -> Decimal:
        plain = text if text[0] in _NUMBER_START else (_plain_text(text) or "").replace(",", "")
        try:
            found = _DECIMALS.create_decimal(plain)
            if abs(found) >= limit:
                raise Malformed(f"{text[:40]} has more than {precision - scale} digits before the point")
            rounded = found.quantize(step, context=_DECIMALS)
        except InvalidOperation:
            raise Malformed(f"{text[:40]} is not a decimal") from None
        if not rounded.is_finite() or abs(rounded) >= limit:
            raise Malformed(f"{text[:40]} is not a decimal of {precision} digits")
        return rounded

    return convert


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    plain = _plain_text(text)
    found = None if not plain else parse(plain)
    if found is None:
        raise Malformed(f"{text[:40]} is not a date or time")
    return found


def _date(text: str, bad: Malformations) -> Any:
    return _parsed(parse_date, text)


def _time_in(time_zone: str) -> Convert:
    def convert(text: str, bad: Malformations) -> int:
        """Microseconds since 1970. A number is seconds."""
        if _INTEGER.fullmatch(text) is not None:
            micros = int(text) * 1_000_000 if len(text) <= 20 else 1 << 63
            if not -(1 << 63) <= micros < 1 << 63:
                raise Malformed(f"{text[:40]} is not a time")
            return micros
        found: int = _parsed(lambda plain: parse_time(plain, time_zone), text)
        return found

    return convert


def _binary(text: str, bad: Malformations) -> bytes:
    plain = _plain_text(text)
    try:
        if plain is None:
            raise Malformed(f"{text[:40]} is not a string")
        return base64.b64decode(plain, validate=True)
    except ValueError:
        raise Malformed(f"{text[:40]} is not base64") from None


def _array_of(element: Convert | None) -> Convert | None:
    if element is None:
        return None

    def convert(text: str, bad: Malformations) -> list[Any]:
        if text[0] != "[":
            raise Malformed(f"{text[:40]} is not an array")
        return [_value(element, each, bad) for each in elements(text)]

    return convert


def _map_of(value: Convert | None) -> Convert | None:
    if value is None:
        return None

    def convert(text: str, bad: Malformations) -> list[tuple[str, Any]]:
        if text[0] != "{":
            raise Malformed(f"{text[:40]} is not an object")
        return list({name: _value(value, each, bad) for name, each in members(text)}.items())

    return convert


def _struct_of(fields: dict[str, Convert | None]) -> Convert | None:
    known = {name: convert for name, convert in fields.items() if convert is not None}
    if len(known) < len(fields):
        return None

    def convert(text: str, bad: Malformations) -> dict[str, Any]:
        if text[0] != "{":
            raise Malformed(f"{text[:40]} is not an object")
        found: dict[str, Any] = dict.fromkeys(known)
        for name, each in members(text):
            field = known.get(name)
            if field is not None:
                try:
                    found[name] = _value(field, each, bad)
                except Malformed as problem:
                    bad.append(f"field {name}: {problem}")
        return found

    return convert
