"""Rows: Arrow batches that are exactly what Spark expects, and rows back into records."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from msgspec import Raw

from topics import limits
from topics.client.calls import NewRecord
from topics.model.gap import GapReason
from topics.spark.columns import filtered
from topics.spark.errors import InvalidColumns
from topics.spark.options import Filters, TableSchema
from topics.spark.rows import Gap, columns_of, gap_batch, gathered, record_batch
from topics.spark.schema import arrow
from topics.spark.writer import records_of
from topics.wire.responses import RecordReply

FULL = RecordReply(7, 1_700_000_000_123, Raw(b'{"b": 1.0,"a":1e400}'), "n", "t", Raw('{"k":"v","l":"ü"}'.encode()))
BARE = RecordReply(9, 1_700_000_000_124, Raw(b"null"))


def batch_of(
    *records: RecordReply, schema: TableSchema = TableSchema.TOPICS, include_data: bool = True
) -> pa.RecordBatch:
    return record_batch("orders", columns_of(list(records)), schema, include_data=include_data)


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


@pytest.mark.parametrize("gap", [Gap(8, 8, "cap"), Gap(10, None, GapReason.RECREATED)])
def test_a_loss_is_a_row_with_only_the_columns_about_it(gap: Gap) -> None:
    batch = gap_batch("orders", gap)
    assert batch.schema.equals(arrow(TableSchema.TOPICS))
    set_columns = {name: value for name, value in batch.to_pylist()[0].items() if value is not None}
    expected = {"topic": "orders", "kind": "tombstone", "gap_from": gap.gap_from, "reason": str(gap.reason)}
    assert set_columns == expected | ({} if gap.gap_to is None else {"gap_to": gap.gap_to})


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


def shapes(*items: list[RecordReply] | Gap) -> list[object]:
    return [item if isinstance(item, Gap) else len(item) for item in gathered(items)]


def test_replies_are_gathered_into_larger_batches() -> None:
    thousand = [BARE] * 1000
    assert shapes(*[thousand] * 12) == [limits.SPARK_BATCH_ROWS, 2000]


def test_large_records_make_smaller_batches() -> None:
    large = RecordReply(1, 1, Raw(b"1" * (limits.SPARK_BATCH_BYTES // 2)))
    assert shapes(*[[large]] * 3) == [2, 1]


def test_a_gap_stays_where_it_was() -> None:
    gap = Gap(8, 8, "cap")
    assert shapes(gap, [FULL], gap, [BARE], [BARE], gap) == [gap, 1, gap, 2, gap]


def test_what_files_have_is_filtered_as_a_server_does() -> None:
    columns = columns_of([FULL, BARE, RecordReply(11, 1, Raw(b"1"), "m", "tt")])
    nobody: tuple[str, ...] = ()
    assert filtered(columns, Filters(nobody, None)).seq.to_pylist() == [7, 9, 11]
    assert filtered(columns, Filters(("n",), None)).seq.to_pylist() == [9, 11]
    assert filtered(columns, Filters(nobody, ("tag", "Eq", "t"))).seq.to_pylist() == [7]
    assert filtered(columns, Filters(nobody, ("tag", "Glob", "t*"))).seq.to_pylist() == [7, 11]
    assert filtered(columns, Filters(("m",), ("tag", "Glob", "t*"))).seq.to_pylist() == [7]


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
