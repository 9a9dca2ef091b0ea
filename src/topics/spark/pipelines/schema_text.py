"""Columns as in SQL, such as `sku string, total decimal(9,2)`: whether the words can be types.

Spark has the last word, but takes seconds to start. A misspelt type is refused here; anything doubtful passes.
"""

import re

from topics.spark.errors import InvalidOption

TYPES = frozenset((
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double",
    "decimal", "dec", "numeric", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "char",
    "character", "varchar", "binary", "interval", "variant", "void", "array", "map", "struct", "geometry", "geography",
))  # fmt: skip
_COLUMN = re.compile(r"(?P<name>`(?:[^`]|``)+`|[^\s:`]+)\s*(?::\s*|\s+)(?P<type>[A-Za-z_]+)")


def require_types(schema: str) -> None:
    """Raises `InvalidOption` for a column without a type, or with one that nobody knows."""
    for column in _columns(schema):
        found = _COLUMN.match(column)
        if found is None or found["type"].lower() not in TYPES:
            raise InvalidOption(
                "schema",
                f"{schema!r} is no schema: {column!r} is no column and its type; "
                "give columns such as 'sku string, total bigint'",
            )


def _columns(schema: str) -> list[str]:
    """Cut at the commas that are in no brackets and no quotes."""
    columns, depth, quote, begin = [], 0, "", 0
    for at, char in enumerate(schema):
        if quote:
            quote = "" if char == quote else quote
        elif char in "`'\"":
            quote = char
        elif char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == "," and depth == 0:
            columns.append(schema[begin:at].strip())
            begin = at + 1
    return [*columns, schema[begin:].strip()]
