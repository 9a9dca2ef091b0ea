"""Rows: Arrow batches that are exactly what Spark expects, and rows back into records."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from msgspec import Raw
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType, TimestampType

from topics import limits
from topics.client.calls import NewRecord
from topics.model.gap import GapReason
from topics.spark.columns import filtered
from topics.spark.errors import InvalidColumns
from topics.spark.offsets import Gap
from topics.spark.options import Filters, Parsing, TableSchema
from topics.spark.rows import columns_of, gathered
from topics.spark.schema import SPARK, Table
from topics.spark.writer import records_of
from topics.wire.responses import RecordReply

FULL = RecordReply(
    7, 1_700_000_000_123, Raw(b'{"b": 1.0,"a":1e400}'), "n", "t", Raw('{"k": "v","l":"ü","n": 1.0}'.encode())
)
BARE = RecordReply(9, 1_700_000_000_124, Raw(b"null"))


def batch_of(
    *records: RecordReply, schema: TableSchema = TableSchema.TOPICS, include_data: bool = True
) -> pa.RecordBatch:
    table = Table(SPARK[schema], Parsing(), kafka=schema is TableSchema.KAFKA, include_data=include_data)
    return table.batch("orders", columns_of([list(records)]))


def arrow(schema: TableSchema) -> pa.Schema:
    return to_arrow_schema(SPARK[schema], timezone="UTC")


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
            "meta": [("k", "v"), ("l", "ü"), ("n", "1.0")],
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
    batch = Table(SPARK[TableSchema.TOPICS], Parsing()).gap_batch("orders", gap)
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
            "headers": [
                {"key": "k", "value": b"v"},
                {"key": "l", "value": "ü".encode()},
                {"key": "n", "value": b"1.0"},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("columns", "needs"),
    [
        ("seq bigint", {"seq"}),
        ("topic string, kind string", set()),
        ("meta string", {"meta"}),
        ("meta map<string,string>", {"meta"}),
        ("tag string, sku string", {"tag", "payload"}),
        ("_corrupt_record string, ts timestamp", {"ts", "data"}),
        ("data struct<sku:string>, node string", {"data", "node"}),
    ],
)
def test_only_what_the_schema_names_is_read(columns: str, needs: set[str]) -> None:
    types = {
        "string": StringType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        "map<string,string>": MapType(StringType(), StringType()),
        "struct<sku:string>": StructType([StructField("sku", StringType())]),
    }
    named = [StructField(name, types[kind]) for name, kind in (column.split() for column in columns.split(", "))]
    assert Table(StructType(named), Parsing()).needs == needs


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
    columns = columns_of([[FULL, BARE, RecordReply(11, 1, Raw(b"1"), "m", "tt")]])
    nobody: tuple[str, ...] = ()
    assert filtered(columns, Filters(nobody, None)).seq.to_pylist() == [7, 9, 11]
    assert filtered(columns, Filters(("n",), None)).seq.to_pylist() == [9, 11]
    assert filtered(columns, Filters(nobody, ("tag", "Eq", "t"))).seq.to_pylist() == [7]
    assert filtered(columns, Filters(nobody, ("tag", "Glob", "t*"))).seq.to_pylist() == [7, 11]
    assert filtered(columns, Filters(("m",), ("tag", "Glob", "t*"))).seq.to_pylist() == [7]


# Rows to be written


def written(topic_for_all: str | None = "t", **columns: list[object]) -> list[tuple[str, NewRecord]]:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = {
        "meta": pa.string() if isinstance(columns.get("meta", [None])[0], str) else pa.map_(pa.string(), pa.string()),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(header),
    }
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


def test_rows_that_are_json_only_together_are_refused() -> None:
    with pytest.raises(InvalidColumns, match="column data"):
        written(data=["[1", "2]", "3,4"])


def test_spaces_around_a_value_are_left_out_and_those_inside_it_stay() -> None:
    assert [bytes(record.data) for _, record in written(data=[' {"a": 1} ', "2"])] == [b'{"a": 1}', b"2"]


@pytest.mark.parametrize("topic", [None, "", "no/name"])
def test_a_row_without_a_topic_is_refused(topic: str | None) -> None:
    with pytest.raises(InvalidColumns, match="column topic"):
        written(None, topic=[topic], data=["1"])


def test_a_header_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidColumns, match="column meta"):
        written(data=["1"], meta=[[("k", None)]])


def test_the_columns_of_kafka_become_a_record() -> None:
    headers = [{"key": "h", "value": b"v"}]
    [(topic, record)] = written(None, topic=["a"], key=[b"k"], value=[b'{"x": 1.0}'], headers=[headers])
    assert (topic, record.tag, bytes(record.data), record.meta) == ("a", "k", b'{"x": 1.0}', {"h": "v"})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": [b"\xff"]}, "column value has bytes that are not UTF-8"),
        ({"value": [b"plain"]}, "column data is not JSON"),
        ({"value": [b"1"], "headers": [[{"key": "h", "value": None}]]}, "no value for 'h'"),
        ({"value": [b"1"], "headers": [[{"key": "h", "value": b"\xff"}]]}, "header 'h' has bytes"),
        ({"value": [b"1"], "headers": [[{"key": "h", "value": b"1"}] * 2]}, "'h' twice"),
    ],
)
def test_what_kafka_would_take_and_a_topic_cannot_is_refused(columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(InvalidColumns, match=message):
        written("t", **columns)


def test_meta_as_text_is_written_as_it_is() -> None:
    [(_, record)] = written(data=["1"], meta=['{"n": 1, "s": "1"}'])
    assert isinstance(record.meta, Raw)
    assert bytes(record.meta) == b'{"n": 1, "s": "1"}'
    with pytest.raises(InvalidColumns, match="not a JSON object"):
        written(data=["1"], meta=["[1]"])
