"""Tables of Spark's catalog: `CREATE TABLE … USING topics OPTIONS (…)`.

Spark keeps the options of such a table, but passes them to the source only when the table is created, never when it is
read. On a read it passes the schema, so the options are kept in the metadata of a column. The API key is not kept
there: it comes from the environment.
"""

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

MADE_BY_CATALOG = "option."
_METADATA = "topics.options"
_SECRET = "apikey"


def remembering(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema; if it is a table's, with the options in its metadata."""
    if not any(name.lower().startswith(MADE_BY_CATALOG) for name in options):
        return schema
    kept = {name: value for name, value in options.items() if not name.lower().endswith(_SECRET)}
    first, *rest = schema.fields
    metadata = {**first.metadata, _METADATA: json.dumps(kept)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *rest])


def remembered(schema: StructType, options: Mapping[str, str]) -> tuple[StructType, dict[str, str]]:
    """The schema without what `remembering` added, and all options; the query's own win."""
    found: dict[str, str] = {}
    fields = []
    for field in schema.fields:
        if _METADATA in (field.metadata or {}):
            found = json.loads(field.metadata[_METADATA])
            field = StructField(field.name, field.dataType, field.nullable)  # noqa: PLW2901
        fields.append(field)
    own = {name.lower() for name in options}
    return StructType(fields), {name: value for name, value in found.items() if name.lower() not in own} | dict(options)
