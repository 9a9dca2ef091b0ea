"""Typed reading: payloads as columns, with Spark's own JSON source as the judge of what a payload means."""

import json
import math
import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from conformance.client import Topic, success
from spark.readings import read
from spark.server import RestartableServer
from topics.spark.inference import infer
from topics.spark.json_columns import PayloadColumn, PayloadParser

COLUMNS = (
    "a bigint, b double, c string, d boolean, e int, f smallint, g tinyint, h float, i decimal(10,2), j date, "
    "k timestamp, l array<int>, m map<string,int>, n struct<x:int,y:string,z:array<struct<q:bigint>>>, o binary, "
    "p array<struct<x:int,s:string>>, r timestamp_ntz, s map<string,array<string>>, t array<timestamp>"
)
NAMES = "abcdefghijklmnoprst"

# Whatever a field may turn out to be.
VALUES = (
    "null", "true", "0", "-1", "1.0", "-2.75", "1e2", "1E400", "-1e400", "127", "256", "-129", "32768", "2147483648",
    "9223372036854775807", "9223372036854775808", "123456789012345678901234567890", "99999999.995", "12345678.125",
    '""', '"x"', '"1.5"', '"NaN"', '"Infinity"', '"-INF"', '"é\\u00e9😀"', '"\\ud83d\\ude00"', '"\\ud800"',
    '"a\\nb\\t\\"q\\""', '"true"', '"2024-02-29"', '"2024-02-30"', '"2024-02"', '"2024"', '"2024-02-29T10:11:12Z"',
    '"2024-02-29 10:11:12.123456"', '"2024-02-29T10:11:12.123456789+02:00"', '"2024-02-29T10:11:12 Europe/Berlin"',
    '"2024-02-29T10:11"', '"1,234.5"', "[]", "[1,2]", "[1,null]", '[1,"x"]', "[1.0]", '["a","b"]', "[[1]]", "{}",
    '{"x":1}', '{"x":"1","y":"2"}', '{"x":1,"y":"s","z":[{"q":1},{"q":"w"}]}', '{"x":1,"x":2}', '{"k":1,"l":null}',
    '{"k":"v"}', '{"k":["a","1"]}', '[{"x":1,"s":"t"},{"x":"bad","s":"u"}]', '[{"x":1},3]',
    '[{"x":{"deep":[1,{"x":2}]}}]', '{ "x" : 1 ,\n "y" : "raw\\u000a" }', '["2024-01-01T00:00:00Z", 5]',
    '{"x":1.0,"extra":{"x":3}}',
)  # fmt: skip
# Where Spark and this source differ on purpose: text of a value that is no text (Spark writes numbers anew), bytes that
# are not base64 (Spark's parser loses its way behind them), and seconds beyond all times (there Spark overflows).
OWN_VALUES = {
    "k": tuple(value for value in VALUES if value != "9223372036854775807"),
    "c": tuple(value for value in VALUES if value == "null" or value[0] == '"'),
    "o": ("null", "1", "[]", '"aGVsbG8="', '""'),
}


def documents(seed: int) -> list[str]:
    rng = random.Random(seed)
    found = [f'{{"{name}":{value}}}' for name in NAMES for value in OWN_VALUES.get(name, VALUES)]
    for _ in range(600):
        names = rng.sample(NAMES, rng.randint(1, 6)) + rng.choices([*NAMES, "zz", "q y"], k=rng.randint(0, 3))
        space = rng.choice(("", "", " ", "\n"))
        members = (f'"{name}":{space}{rng.choice(OWN_VALUES.get(name, VALUES))}' for name in names)
        found.append("{" + f",{space}".join(members) + "}")
    deep = "[" * 200 + "]" * 200
    return [
        *found, "null", "1", '"x"', "true", "{}", ' {"a":1} ', '{"a":1,"a":2}', '{"a":1,"a":"x"}', '{"a":"x","a":1}',
        '{"a":1,"a":null}', f'{{"zz":{deep},"a":1}}', f'{{"a":{deep},"e":1}}',
    ]  # fmt: skip


def comparable(value: Any) -> Any:
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case bytearray():
            return bytes(value)
        case datetime(tzinfo=zone) if zone is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
        case dict():
            return {name: comparable(each) for name, each in value.items()}
        case [(str(), _), *_]:
            return {name: comparable(each) for name, each in value}
        case list():
            return [comparable(each) for each in value]
        case _:
            return value


def test_payloads_are_read_as_sparks_own_json_source_reads_them(spark: SparkSession) -> None:
    texts = documents(17)
    lines = spark.sparkContext.parallelize(texts, 2)
    judged = spark.read.schema(f"{COLUMNS}, _corrupt_record string").json(lines).collect()
    schema = StructType.fromDDL(COLUMNS)
    assert isinstance(schema, StructType)
    arrow = to_arrow_schema(schema, timezone="UTC")
    fields = [
        PayloadColumn(field.name, field.name, field.dataType, kind.type)
        for field, kind in zip(schema.fields, arrow, strict=True)
    ]
    parser = PayloadParser(fields, "UTC")
    maps = {"m", "s"}
    checked = 0
    for at in range(0, len(texts), 50):
        parsed = parser.parse(pa.array(texts[at : at + 50]))
        rows = pa.RecordBatch.from_arrays(parsed.columns, schema=arrow).to_pylist()
        for place, row in enumerate(rows):
            wanted = judged[at + place].asDict(recursive=True)
            malformed = wanted.pop("_corrupt_record") is not None
            own = {name: {} if name in maps and value == [] else comparable(value) for name, value in row.items()}
            assert own == comparable(wanted), texts[at + place]
            assert (place in parsed.problems) == malformed, (texts[at + place], parsed.problems.get(place))
            checked += 1
    assert checked == len(texts) > 1500


def names_are_unique(text: str) -> bool:
    """Where they are not, Spark infers a column twice."""
    unique = True

    def look(pairs: list[tuple[str, object]]) -> None:
        nonlocal unique
        unique = unique and len(dict(pairs)) == len(pairs)

    json.loads(text, object_pairs_hook=look)
    return unique


def test_a_schema_is_inferred_as_spark_infers_it(spark: SparkSession) -> None:
    texts = [text for text in documents(5) if text.lstrip().startswith("{") and names_are_unique(text)]
    sparks = spark.read.json(spark.sparkContext.parallelize(texts, 2)).schema
    own, malformed = infer(texts)
    assert not malformed
    assert own == sparks


@pytest.fixture
def orders(topic: Topic) -> Topic:
    topic.write(
        {"data": {"sku": "KETTLE", "total": 16500, "tag": "gift"}, "tag": "order-1", "meta": {"n": "1"}},
        {"data": {"sku": "FILTERS", "total": "many", "lines": [{"n": 1}, {"n": 2}]}, "tag": "order-2"},
        {"data": "not an object"},
    )
    return topic


@pytest.mark.parametrize("from_files", [False, True])
def test_columns_of_the_record_and_fields_of_its_payload(
    spark: SparkSession, server: RestartableServer, orders: Topic, from_files: bool
) -> None:
    columns = "sku string, seq bigint, `data.tag` string, tag string, lines array<struct<n:int>>, total double"
    origin = {"path": server.data_path} if from_files else {"url": server.url}
    frame = (
        spark.read.format("topics")
        .schema(f"{columns}, bad string")
        .options(subscribe=orders.name, columnNameOfCorruptRecord="bad", **origin)
        .load()
    )
    first, second, third = frame.orderBy("seq").collect()
    assert first.asDict() == {
        "sku": "KETTLE",
        "seq": 1,
        "data.tag": "gift",
        "tag": "order-1",
        "lines": None,
        "total": 16500.0,
        "bad": None,
    }
    assert ([line.n for line in second.lines], second.total) == ([1, 2], None)
    assert json.loads(second.bad)["total"] == "many"
    assert (third.sku, third.bad) == (None, '"not an object"')


def test_malformed_records_are_dropped_or_fail_the_query(
    spark: SparkSession, server: RestartableServer, orders: Topic
) -> None:
    source = spark.read.format("topics").schema("seq bigint, total double")
    given = {"url": server.url, "subscribe": orders.name}
    assert [row.seq for row in source.options(**given, mode="DROPMALFORMED").load().collect()] == [1]
    with pytest.raises(
        Exception, match=r'seq 2 of topic ".*" is malformed: field total: "many" is not a number'
    ) as told:
        source.options(**given, mode="FAILFAST").load().collect()
    assert "[TOPICS_MALFORMED_RECORD]" in "".join(str(told.value).splitlines()[:2])
    assert "Traceback" not in str(told.value)


def test_the_schema_of_the_topic_is_the_default(spark: SparkSession, server: RestartableServer, orders: Topic) -> None:
    orders.configure(schema="seq bigint, total double")
    assert read(spark, server.url, subscribe=orders.name).columns == ["seq", "total"]
    assert "data" in read(spark, server.url, subscribe=orders.name, schema="topics").columns
    stored = spark.read.format("topics").options(subscribe=orders.name).load(server.data_path)
    assert stored.columns == ["seq", "total"]
    orders.configure(schema=None)
    inferred = read(spark, server.url, subscribe=orders.name, inferSchema="true")
    fields = ["data.tag", "lines", "sku", "total", "_corrupt_record"]
    assert inferred.columns == ["topic", "seq", "ts", "node", "tag", "meta", *sorted(fields[:4], key=plain), fields[4]]


def plain(name: str) -> str:
    return name.removeprefix("data.")


def test_meta_can_be_the_text_it_is(spark: SparkSession, server: RestartableServer, orders: Topic) -> None:
    source = spark.read.format("topics").options(url=server.url, subscribe=orders.name)
    as_text = source.schema("seq bigint, meta string").load().where("seq = 1").collect()
    assert as_text[0].meta == '{"n":"1"}'


def test_a_table_of_the_catalog_reads_a_topic(
    spark: SparkSession, server: RestartableServer, orders: Topic, name: str
) -> None:
    table = f"orders_{name.strip('.')}"
    spark.sql(f"CREATE TABLE {table} USING topics OPTIONS (url '{server.url}', subscribe '{orders.name}')")
    try:
        assert spark.sql(f"SELECT seq FROM {table} WITH ('tag' = 'order-2')").collect()[0].seq == 2
    finally:
        spark.sql(f"DROP TABLE {table}")


def test_a_server_that_is_not_there_is_told_at_once_and_in_the_first_line(spark: SparkSession) -> None:
    with pytest.raises(
        Exception, match=r"\[TOPICS_SERVER_UNREACHABLE\] nobody listens at http://127\.0\.0\.1:1;"
    ) as told:
        read(spark, "http://127.0.0.1:1", subscribe="orders")
    assert "Traceback" not in str(told.value)


def test_columns_that_a_record_cannot_be_read_as_are_refused(
    spark: SparkSession, server: RestartableServer, orders: Topic
) -> None:
    for columns, message in (
        ("seq string", "for a field seq of its payload write `data.seq`"),
        ("sku string not null", "leave NOT NULL out"),
        ("sku variant", "which a payload cannot be read as"),
        ("sku string, `data.sku` string", "are the same field"),
    ):
        frame = spark.read.format("topics").schema(columns).options(url=server.url, subscribe=orders.name).load()
        with pytest.raises(Exception, match=message):
            frame.collect()


def test_many_small_topics_share_a_task(spark: SparkSession, server: RestartableServer, name: str) -> None:
    names = [f"{name}{number}" for number in range(70)]
    for each in names:
        success(server.api.post(f"/v0/topics/{each}", {"records": [{"data": 1}, {"data": 2}]}))
    for chosen in ({"subscribe": ",".join(names)}, {"subscribePattern": f"{name[:-1]}\\.\\d+"}):
        frame = read(spark, server.url, schema="topics", **chosen)
        assert frame.rdd.getNumPartitions() == 1
        counted = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
        assert counted == dict.fromkeys(names, 2)
