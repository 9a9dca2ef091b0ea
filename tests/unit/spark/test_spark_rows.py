"""Rows: Arrow batches that are exactly what Spark expects, and rows back into records."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from msgspec import Raw

from topics import limits
from topics.client.core import NewRecord
from topics.client.replies import RecordReply
from topics.spark.errors import InvalidColumns
from topics.spark.options import TableSchema
from topics.spark.rows import Gap, RowBatch
from topics.spark.schema import arrow
from topics.spark.writer import records_of

FULL = RecordReply(7, 1_700_000_000_123, Raw(b'{"b": 1.0,"a":1e400}'), "n", "t", {"k": "v", "l": "ü"})
BARE = RecordReply(9, 1_700_000_000_124, Raw(b"null"))


def batch_of(
    *items: RecordReply | Gap, schema: TableSchema = TableSchema.TOPICS, include_data: bool = True
) -> pa.RecordBatch:
    rows = RowBatch("orders", schema, include_data=include_data)
    for item in items:
        if isinstance(item, Gap):
            rows.add_gap(item)
        else:
            rows.add_records([item])
    return rows.take()


@pytest.mark.parametrize("schema", list(TableSchema))
def test_the_schema_is_sparks_own(schema: TableSchema) -> None:
    assert batch_of(FULL, BARE, schema=schema).schema.equals(arrow(schema))


def test_a_record_has_every_column_of_its_own() -> None:
    assert batch_of(FULL).to_pylist() == [
        {
            "topic": "orders",
            "seq": 7,
            "ts": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
            "node": "n",
            "tag": "t",
            "meta": [("k", "v"), ("l", "ü")],
            "data": '{"b": 1.0,"a":1e400}',
            "kind": "record",
            "gap_from": None,
            "gap_to": None,
            "reason": None,
        }
    ]


def test_what_a_record_does_not_have_is_null() -> None:
    row = batch_of(BARE).to_pylist()[0]
    assert (row["node"], row["tag"], row["meta"], row["data"]) == (None, None, None, "null")


def test_a_loss_is_a_row_in_its_place() -> None:
    rows = batch_of(FULL, Gap(8, 8, "cap"), BARE, Gap(10, None, "recreated")).to_pylist()
    assert [(row["kind"], row["seq"], row["gap_from"], row["gap_to"], row["reason"]) for row in rows] == [
        ("record", 7, None, None, None),
        ("tombstone", None, 8, 8, "cap"),
        ("record", 9, None, None, None),
        ("tombstone", None, 10, None, "recreated"),
    ]


def test_data_can_be_left_out() -> None:
    assert batch_of(FULL, include_data=False).to_pylist()[0]["data"] is None


def test_the_columns_of_kafka() -> None:
    assert batch_of(FULL, schema=TableSchema.KAFKA).to_pylist() == [
        {
            "key": b"t",
            "value": b'{"b": 1.0,"a":1e400}',
            "topic": "orders",
            "partition": 0,
            "offset": 7,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
            "headers": [{"key": "k", "value": b"v"}, {"key": "l", "value": "ü".encode()}],
        }
    ]


def test_a_batch_is_full_by_rows_or_by_bytes() -> None:
    rows = RowBatch("orders", TableSchema.TOPICS, include_data=True)
    rows.add_records([BARE] * (limits.SPARK_BATCH_ROWS - 1))
    assert not rows.is_full
    rows.add_records([BARE])
    assert rows.is_full
    assert rows.take().num_rows == limits.SPARK_BATCH_ROWS
    assert not rows
    rows.add_records([RecordReply(1, 1, Raw(b"1" * limits.SPARK_BATCH_BYTES))])
    assert rows.is_full


# Rows to be written


def written(topic_for_all: str | None = "t", **columns: list[object]) -> list[tuple[str, NewRecord]]:
    kinds = {"meta": pa.map_(pa.string(), pa.string())}
    arrays = {name: pa.array(values, type=kinds.get(name, pa.string())) for name, values in columns.items()}
    return list(records_of(pa.RecordBatch.from_pydict(arrays), topic_for_all))


def test_a_row_becomes_a_record() -> None:
    [(topic, record)] = written(None, topic=["a"], data=['{"x": 1.0}'], tag=["t"], node=["n"], meta=[[("k", "v")]])
    assert (topic, bytes(record.data), record.tag, record.node, record.meta) == (
        "a",
        b'{"x": 1.0}',
        "t",
        "n",
        {"k": "v"},
    )


def test_the_topic_of_the_option_wins() -> None:
    assert written("t", topic=["a"], data=["1"])[0][0] == "t"


@pytest.mark.parametrize("data", [None, "", "plain", "{", "1,2", '1},{"data":2', '"\\'])
def test_data_that_is_not_one_json_value_is_refused(data: str | None) -> None:
    with pytest.raises(InvalidColumns, match="column data"):
        written(data=[data])


@pytest.mark.parametrize("topic", [None, "", "no/name"])
def test_a_row_without_a_topic_is_refused(topic: str | None) -> None:
    with pytest.raises(InvalidColumns, match="column topic"):
        written(None, topic=[topic], data=["1"])


def test_a_header_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidColumns, match="column meta"):
        written(data=["1"], meta=[[("k", None)]])
