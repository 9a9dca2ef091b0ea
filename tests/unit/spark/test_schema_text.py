"""Columns in SQL: a misspelt type is refused without Spark, and nothing that Spark would take."""

import pytest

from topics.spark.errors import InvalidOption
from topics.spark.jobs.preflight import require_types


@pytest.mark.parametrize(
    "schema",
    [
        "sku string, total bigint",
        "sku: STRING NOT NULL COMMENT 'a, b', price decimal(9,2)",
        "`a b, c` int, items array<struct<sku: string, n: int>>, m map<string,int>",
        "at timestamp_ntz, d interval day to second, v variant, c varchar(10)",
    ],
)
def test_what_may_be_columns_passes(schema: str) -> None:
    require_types(schema)


@pytest.mark.parametrize("schema", ["sku strin", "sku", "sku string,", ", sku string", "total 5", "a int, b imt"])
def test_what_has_no_type_is_refused(schema: str) -> None:
    with pytest.raises(InvalidOption, match="is not a schema"):
        require_types(schema)
