"""What the tasks of `archive` make themselves is what Spark would make: hashes of rows, and typed payloads."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from topics.spark.archive.columns import (
    arrow_schema,
    columns_of,
    file_schema,
    payload_columns,
    with_value,
)
from topics.spark.archive.files import own_session
from topics.spark.archive.place import Place
from topics.spark.archive.row_hash import row_hash, row_hashes
from topics.spark.archive.state import ArchiveColumns, ColumnKind
from topics.spark.archive.writing import ShareWriter, WrittenWrong, _File, sums_of
from topics.spark.columns import Columns
from topics.spark.json_columns import PayloadParser
from topics.spark.options import Mode, read_options

SCHEMA = (
    "a bigint, b string, c double, d boolean, e array<int>, f map<string,bigint>, g struct<x: string, y: int>, "
    "h timestamp, i date, j decimal(9,2), k binary, l tinyint, m float"
)
PAYLOADS = [
    '{"a":1,"b":"two","c":3.5,"d":true,"e":[1,2],"f":{"k":1},"g":{"x":"y","y":2},"l":7,"m":1.5}',
    '{"a":"1"}', '{"a":1.0}', '{"a":null}', '{"a":1,"a":2}', '{"a":9223372036854775808}', '{"b":1}', '{"b":[1,2]}',
    '{"b":{"x":1}}', '{"c":"NaN"}', '{"c":1e400}', '{"d":1}', '{"e":[1,"x"]}', '{"e":{}}', '{"f":{"k":"v"}}',
    '{"g":{"x":1,"y":"no"}}', '{"g":[]}', '{"h":"2026-03-01T23:59:59.143Z"}', '{"h":1}', '{"i":"2026-03-01"}',
    '{"j":"1.005"}', '{"j":12345678901}', '{"k":"aGk="}', '{"k":"?"}', "{}", "[]", '[{"a":1}]', "5",
    '"text"', "null", "true", '{"B":"upper"}', '{"b":"\\u00fc\\ud83d"}', ' {"a":1} ',
]  # fmt: skip


def batch_of(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(list(column), kind.type) for column, kind in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_a_row_has_the_hash_that_spark_gives_it(spark: SparkSession) -> None:
    chance = random.Random(3)
    texts = [None, "", "a", "ü" * 9, "x" * 31, "x" * 32, "x" * 400]
    metas = [None, [], [("k", "v")], [("k", ""), ("other", "x" * 40)]]
    rows = [
        (
            chance.choice([n + 1, 1 << 62]),
            datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC) + timedelta(milliseconds=n * 777),
            chance.choice(texts),
            chance.choice(texts),
            chance.choice(metas),
            chance.choice(texts[1:]),
        )
        for n in range(300)
    ]
    batch = batch_of(rows, arrow_schema(ArchiveColumns()))
    frame = own_session(spark).createDataFrame(pa.Table.from_batches([batch]), file_schema(ArchiveColumns()))
    found = [row.hash & (1 << 64) - 1 for row in frame.select(row_hash().alias("hash")).collect()]
    assert row_hashes(batch).tolist() == found
    # Without a single value, and with all of them, other ways are taken.
    for some in (batch.filter(batch.column("tag").is_null()), batch.filter(batch.column("tag").is_valid())):
        places = [at for at, row in enumerate(rows) if (row[3] is None) == (some.column("tag").null_count > 0)]
        assert row_hashes(some).tolist() == [found[at] for at in places]


def test_a_payload_has_the_value_that_spark_gives_it(spark: SparkSession, tmp_path: Path) -> None:
    columns = ArchiveColumns(ColumnKind.STRUCT, columns_of(SCHEMA).schema, strict=False)
    payload = payload_columns(columns)
    assert payload
    schema = arrow_schema(columns)
    read = read_options({"url": "http://127.0.0.1:1", "subscribe": "t"}, Mode.BATCH)
    count = len(PAYLOADS)
    seqs, nothing = pa.array(range(1, count + 1), pa.int64()), pa.nulls(count, pa.string())
    given = Columns(seq=seqs, ts=seqs, node=nothing, tag=nothing, data=pa.array(PAYLOADS), meta=nothing)
    writer = ShareWriter(read, Place(str(tmp_path)), "round", schema, payload, strict=False)
    batch, unfit = writer._batch(given, PayloadParser(payload, "UTC"))
    file = _File(Place(str(tmp_path)), "round", "t", "1970-01-01", schema)
    file.add(batch)
    path = str(tmp_path / file.finished().path)

    session = own_session(spark)
    frame = session.createDataFrame([(n + 1, text) for n, text in enumerate(PAYLOADS)], "seq bigint, data string")
    by_spark = with_value(frame, columns).orderBy("seq").collect()
    by_task = session.read.schema(file_schema(columns)).parquet(path).orderBy("seq").collect()
    found, due = ({row.data: repr(row.value) for row in rows} for rows in (by_task, by_spark))
    assert [(text, found[text], due[text]) for text in found if found[text] != due[text]] == []
    assert [place + 1 for place in unfit] == [row.seq for row in by_spark if row.value is None]


def test_where_spark_would_change_a_value_the_text_of_the_payload_counts() -> None:
    """Spark makes -128 of a `tinyint` 128, and takes the spaces out of an object that is read as text."""
    columns = columns_of("l tinyint, b string")
    payload = payload_columns(columns)
    assert payload
    parsed = PayloadParser(payload, "UTC").parse(pa.array(['{"l":128}', '{"b":{"x": [1, 2]}}']))
    assert [column.to_pylist() for column in parsed.columns] == [[None, None], [None, '{"x": [1, 2]}']]
    assert [*parsed.problems] == [0]


@pytest.mark.parametrize("schema", ["variant", "v variant", "c char(3)"])
def test_types_that_only_spark_can_make_are_left_to_it(schema: str) -> None:
    assert payload_columns(columns_of(schema)) is None


def test_a_file_with_other_rows_than_were_written_is_refused(tmp_path: Path) -> None:
    schema = arrow_schema(ArchiveColumns())
    time = datetime(2026, 3, 1, tzinfo=UTC)
    batch = batch_of([(seq, time, None, "t", [("k", "v")], f'"{seq}"') for seq in range(1, 1000)], schema)
    other = batch_of(
        [(seq, time, None, "t", [("k", "v")], f'"{seq + (seq == 500)}"') for seq in range(1, 1000)], schema
    )
    file = _File(Place(str(tmp_path)), "round", "t", "1970-01-01", schema)
    file.add(batch)
    file._waiting = [other]
    with pytest.raises(WrittenWrong, match="when it was read back"):
        file.finished()
    with pytest.raises(WrittenWrong, match="do not ascend"):
        sums_of(batch.take(pa.array([1, 0])))


def test_pages_have_checksums_and_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.limits.ARCHIVE_GROUP_ROWS_MAX", 100)
    schema = arrow_schema(ArchiveColumns())
    file = _File(Place(str(tmp_path)), "round", "t", "2026-03-01", schema)
    for first in range(1, 401, 40):
        rows = [(seq, datetime(2026, 3, 1, tzinfo=UTC), None, None, None, "{}") for seq in range(first, first + 40)]
        file.add(batch_of(rows, schema))
    done = file.finished()
    path = tmp_path / done.path
    found = pq.ParquetFile(path)
    assert [found.metadata.row_group(at).num_rows for at in range(found.num_row_groups)] == [120, 120, 120, 40]
    assert (done.sums.count, done.sums.first_seq, done.sums.last_seq) == (400, 1, 400)
    damaged = bytearray(path.read_bytes())
    seqs = found.metadata.row_group(0).column(0)
    damaged[seqs.data_page_offset + seqs.total_compressed_size - 4] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        pq.ParquetFile(path, page_checksum_verification=True).read(["seq"])
