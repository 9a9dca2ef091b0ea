"""What the tasks of a roll-up sum up, and what they leave to Spark."""

import json
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

from topics.spark.columns import PAYLOAD, Columns
from topics.spark.jobs.rollup_source import Parts, PartsTable, bucket_us, summed_up
from topics.spark.offsets import Gap
from topics.spark.options import Mode, read_options

PARTS = Parts(bucket_us(10_000, 10_000), "t", ("k",), ("v",))


def columns_of(*payloads: Any) -> Columns:
    count = len(payloads)
    texts = [payload if isinstance(payload, str) else json.dumps(payload) for payload in payloads]
    seqs, nothing = pa.array(range(1, count + 1), pa.int64()), pa.nulls(count, pa.string())
    return Columns(seq=seqs, ts=seqs, node=nothing, tag=nothing, data=pa.array(texts), meta=nothing)


def test_one_row_for_each_bucket_and_group() -> None:
    found, left = summed_up(
        PARTS,
        columns_of(
            {"t": 9999, "k": "a", "v": 1}, {"t": 1000, "k": "a", "v": 2.5}, {"t": 1000, "k": "a"},
            {"t": 10_000, "k": "a"}, {"t": "1970-01-01T00:00:05.25Z", "k": 7, "v": -1e3}, {"t": -1, "k": None, "v": 1},
        ),
    )  # fmt: skip
    assert found is not None
    names = ["bucket", "by_0", "time_max", "count_all", "value_0_count", "value_0_sum", "value_0_min", "value_0_max"]
    assert [tuple(row[name] for name in names) for row in found.to_pylist()] == [
        (0, "a", 9_999_000, 3, 2, 3.5, 1.0, 2.5),
        (1, "a", 10_000_000, 1, 0, None, None, None),
        (0, "7", 5_250_000, 1, 1, -1000.0, -1000.0, -1000.0),
        (-1, None, -1000, 1, 1, 1.0, 1.0, 1.0),
    ]
    assert not left.any()


@pytest.mark.parametrize(
    "payload",
    [
        '{"t":1,"k":1.50}', '{"t":1,"k":-0}', '{"t":1,"k":{"x": 1}}', '{"t":1,"v":"12"}',
        '{"t":1,"v":true}', '{"t":1,"v":[1]}', '{"t":"1"}', '{"t":1.5}', '{"t":"1970-01-01T01:00:00+01:00"}',
        '{"k":"a"}', '{"t":null}', '{"t":"1970-01-01"}', '{"t":1234567890123456}',
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_spark(payload: str) -> None:
    found, left = summed_up(PARTS, columns_of({"t": 1, "k": "a", "v": 1}, payload))
    assert found is not None
    assert left.tolist() == [False, True]
    assert found.column("count_all").to_pylist() == [1]


USUAL: list[Any] = [
    {"t": 1, "k": 'a"b', "v": 1},
    {"t": 2},
    {"t": 3, "k": None, "v": None},
    '{"t":4,"k":"ü","v":-1.5e3}',
]


def test_records_as_a_server_sends_them_give_the_same_sums() -> None:
    columns = columns_of(*USUAL)
    text = b",".join(b'{"$seq":1,"$ts":1,"data":%b,"$tag":"x"}' % data.encode() for data in columns.data.to_pylist())
    served = replace(columns, data=columns.node, served=text)
    for each in (columns, served):
        found, left = summed_up(PARTS, each)
        assert found is not None
        assert not left.any()
        assert [(row["by_0"], row["count_all"], row["value_0_sum"]) for row in found.to_pylist()] == [
            ('a"b', 1, 1.0), (None, 2, None), ("ü", 1, -1500.0)
        ]  # fmt: skip
    unusual = replace(served, served=text.replace(b'"t":4', b'"t":[]'))
    found, left = summed_up(PARTS, unusual)
    assert left.tolist() == [False, False, False, True]
    assert unusual.with_data().filter(pa.array(left)).data.to_pylist() == ['{"t":[],"k":"ü","v":-1.5e3}']


def test_one_group_that_is_no_text_changes_nothing_for_the_others() -> None:
    """All values are then looked at one by one."""
    usual, _ = summed_up(PARTS, columns_of(*USUAL[1:]))
    found, left = summed_up(PARTS, columns_of(*USUAL[1:], {"t": 1, "k": 7}))
    assert usual is not None
    assert found is not None
    assert not left.any()
    assert found.to_pylist()[:2] == usual.to_pylist()


@pytest.mark.parametrize("payload", ["5", "[]", "null", '{"t":"1970-02-30T00:00:00Z"}'])
def test_a_batch_with_what_cannot_be_summed_up_at_all_is_left_to_spark(payload: str) -> None:
    found, left = summed_up(PARTS, columns_of({"t": 1, "k": "a", "v": 1}, payload))
    if found is not None:
        assert left.tolist() == [False, True]
    else:
        assert left.all()


def test_windows_that_overlap_have_common_buckets() -> None:
    assert bucket_us(10_000, 4000) == 2_000_000
    assert bucket_us(60_000, 60_000) == 60_000_000


def test_without_fields_payloads_are_not_looked_at() -> None:
    found, left = summed_up(Parts(5000, None, (), ()), columns_of("5", "[]", {"a": 1}, "null", "1", "2"))
    assert found is not None
    assert found.column("count_all").to_pylist() == [4, 2]
    assert not left.any()


def test_sums_records_and_losses_are_rows_of_one_table() -> None:
    types = {"ts": TimestampType(), "data": StringType(), "kind": StringType(), "gap_from": LongType()}
    types |= {"gap_to": LongType(), "reason": StringType(), "_part_time": TimestampType(), "_part_records": LongType()}
    types |= {"_part_by_0": StringType(), "_part_count_0": LongType()}
    types |= {f"_part_{what}_0": DoubleType() for what in ("sum", "min", "max")}
    wanted = StructType([StructField(name, kind) for name, kind in types.items()])
    read = read_options({"url": "http://127.0.0.1:1", "subscribe": "t"}, Mode.BATCH)
    table = pickle.loads(pickle.dumps(PartsTable(wanted, read.parsing, PARTS)))
    assert table.needs == {"ts", PAYLOAD}
    batch = table.batch("t", columns_of({"t": 1, "k": "a", "v": 1}, {"t": 2, "k": "a", "v": 2}, {"t": "x"}))
    gap = table.gap_batch("t", Gap(5, 9, "cap"))
    whole = table.batch("t", columns_of("5"))
    assert batch.schema == gap.schema == whole.schema
    summed, left = batch.to_pylist()
    assert (summed["kind"], summed["_part_records"], summed["_part_sum_0"], summed["data"]) == ("record", 2, 3.0, None)
    assert (left["kind"], left["_part_records"], left["data"]) == ("record", None, '{"t": "x"}')
    assert [(row["kind"], row["gap_from"], row["gap_to"]) for row in gap.to_pylist()] == [("tombstone", 5, 9)]
    assert [(row["kind"], row["data"]) for row in whole.to_pylist()] == [("record", "5")]
