"""Payloads become the same columns, by themselves or in the records they are in."""

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, DateType, LongType, StringType

from topics.spark.json_columns import PayloadColumn, PayloadParser

FITTING = ['{"name":"a","n":1}', '{"n":2,"other":[{"data":{"n":9}}]}', '{"name":null,"n":null}', "{}"]
MALFORMED = [*FITTING, '{"name":"żółw","n":"two"}', '"text"', "[1]", "null", '{"n":3,"n":4}', '{"n":5,"n":"six"}']
DATED = [*MALFORMED, '{"day":"2026-11-18"}', '{"day":"someday","n":7}']
COLUMNS: dict[str, tuple[DataType, pa.DataType]] = {
    "name": (StringType(), pa.string()),
    "n": (LongType(), pa.int64()),
    "day": (DateType(), pa.date32()),
}


@pytest.mark.parametrize(
    ("payloads", "fields", "problems"),
    [(FITTING, ("name", "n"), 0), (MALFORMED, ("name", "n"), 5), (DATED, ("n", "day"), 6), ([], ("n",), 0)],
)
def test_records_are_parsed_as_their_payloads_are(payloads: list[str], fields: tuple[str, ...], problems: int) -> None:
    parser = PayloadParser([PayloadColumn(name, name, *COLUMNS[name]) for name in fields], "UTC")
    served = ",".join(
        f'{{"$seq":{seq},"$ts":{seq},"$node":"data","data":{payload},"meta":{{"n":"8"}},"$tag":"t"}}'
        for seq, payload in enumerate(payloads)
    )
    alone = parser.parse(pa.array(payloads, pa.string()))
    together = parser.parse(pa.nulls(len(payloads), pa.string()), memoryview(served.encode()))
    assert [column.to_pylist() for column in together.columns] == [column.to_pylist() for column in alone.columns]
    assert together.problems == alone.problems
    assert len(together.problems) == problems
