"""Batch reads: every seq of a range is a row, a tombstone or deleted, whatever the history of the topic."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

from conformance.client import Topic, eventually, success
from spark.readings import gaps, history, read, seqs, until
from spark.server import RestartableServer


def write_history(topic: Topic) -> None:
    """Caps take the oldest, deletes take some of the rest; payloads are of every kind."""
    topic.configure(cap_records=1500)
    for number in range(20):
        topic.write(
            *(
                {
                    "data": {"n": number * 100 + position, "text": 'ü\n"quoted"'},
                    "tag": f"k{position % 10}",
                    "node": f"node{position % 2}",
                    **({"meta": {"a": "b", "c": "d"}} if position % 3 == 0 else {}),
                }
                for position in range(100)
            )
        )
    topic.delete_records(match="k3")
    topic.delete_records(before_seq=600)


def test_rows_and_tombstones_and_deleted_make_the_range(
    spark: SparkSession, server: RestartableServer, topic: Topic
) -> None:
    write_history(topic)
    rows = read(
        spark, server.url, subscribe=topic.name, startingOffsets=json.dumps({topic.name: 1}), onDataLoss="rows"
    ).collect()
    records, losses = history(topic)
    assert losses
    assert gaps(rows) == losses
    assert seqs(rows) == sorted(records)
    for row in rows:
        if row.kind == "record":
            record = records[row.seq]
            assert (row.topic, row.node, row.tag, row.meta) == (
                topic.name,
                record.get("$node"),
                record.get("$tag"),
                record.get("meta"),
            )
            assert json.loads(row.data) == record["data"]
    lost = {seq for first, last, _ in losses for seq in range(first, last + 1)}
    deleted = set(range(1, 2001)) - lost - set(records)
    assert len(rows) - len(losses) + len(lost) + len(deleted) == topic.state()["head_seq"]


def test_files_give_the_same_rows_as_the_server(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    write_history(topic)
    options = {"startingOffsets": json.dumps({topic.name: 1}), "onDataLoss": "rows", "subscribe": topic.name}
    live = read(spark, server.url, **options).collect()
    stored = spark.read.format("topics").options(**options, minPartitions="3").load(server.data_path).collect()
    assert stored == sorted(stored, key=lambda row: row.seq or row.gap_from)
    assert live == stored


def test_copies_and_what_their_source_lost_are_rows_from_the_server_and_from_its_files(
    spark: SparkSession, server: RestartableServer, topic: Topic
) -> None:
    dest = server.topic(f"{topic.name}-copy")
    topic.configure(cap_records=2)
    dest.configure(cap_records=1, discard="reject")
    success(server.api.put(f"/v0/routers/{topic.name}", {"source": topic.name, "dest": dest.name}))
    topic.fill(1)
    assert dest.seqs() == [1]
    topic.fill(10)
    dest.configure(cap_records=0)
    eventually(lambda: bool(dest.state()["head_seq"] == 4))
    options = {"startingOffsets": json.dumps({dest.name: 1}), "onDataLoss": "rows", "subscribe": dest.name}
    live = read(spark, server.url, **options).collect()
    stored = spark.read.format("topics").options(**options).load(server.data_path).collect()
    for rows in (live, stored):
        assert (seqs(rows), gaps(rows)) == ([1, 3, 4], [(2, 2, "source_trim")])


def test_by_default_a_read_begins_at_the_earliest_record(
    spark: SparkSession, server: RestartableServer, topic: Topic
) -> None:
    topic.configure(cap_records=10)
    topic.fill(25)
    assert seqs(read(spark, server.url, subscribe=topic.name).collect()) == list(range(16, 26))


@pytest.mark.parametrize("given", [{}, {"failOnDataLoss": "true"}, {"onDataLoss": "fail"}])
def test_a_loss_fails_the_query_and_says_what_is_lost(
    spark: SparkSession, server: RestartableServer, topic: Topic, given: dict[str, str]
) -> None:
    topic.configure(cap_records=10)
    topic.fill(25)
    frame = read(spark, server.url, subscribe=topic.name, startingOffsets=json.dumps({topic.name: 5}), **given)
    with pytest.raises(
        Exception, match=rf'seqs 5 to 15 of topic "{topic.name}" cannot be read any more \(reason: cap\)'
    ):
        frame.collect()


def test_a_loss_can_be_gone_on_without(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    topic.configure(cap_records=10)
    topic.fill(25)
    frame = read(
        spark, server.url, subscribe=topic.name, startingOffsets=json.dumps({topic.name: 5}), failOnDataLoss="false"
    )
    assert seqs(frame.collect()) == list(range(16, 26))
    assert gaps(frame.collect()) == []


def test_a_loss_within_a_partition_of_its_own_is_told_by_each(
    spark: SparkSession, server: RestartableServer, topic: Topic
) -> None:
    topic.configure(ttl_ms=1)
    topic.fill(20)
    until(lambda: topic.state()["count"] == 0)
    topic.configure(ttl_ms=0)
    topic.fill(10)
    frame = read(
        spark,
        server.url,
        subscribe=topic.name,
        startingOffsets=json.dumps({topic.name: 1}),
        onDataLoss="rows",
        maxRecordsPerPartition=8,
    )
    rows = frame.collect()
    assert frame.rdd.getNumPartitions() == 4
    lost = [seq for first, last, _ in gaps(rows) for seq in range(first, (last or 0) + 1)]
    assert lost == list(range(1, 21))
    assert {reason for _, _, reason in gaps(rows)} == {"ttl"}
    assert seqs(rows) == list(range(21, 31))


def test_the_range_is_cut_for_parallel_tasks(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    topic.fill(100)
    frame = read(spark, server.url, subscribe=topic.name, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert seqs(frame.collect()) == list(range(1, 101))


def test_several_topics_are_one_frame(spark: SparkSession, server: RestartableServer, name: str) -> None:
    for letter, count in (("a", 3), ("b", 5), ("c", 0)):
        other = server.topic(f"{name}{letter}")
        other.configure()
        if count:
            other.fill(count)
    server.topic("elsewhere").fill(1)
    counted = {(f"{name}a", 3), (f"{name}b", 5)}
    by_prefix = read(spark, server.url, subscribePrefix=name).groupBy("topic").count().collect()
    assert {tuple(row) for row in by_prefix} == counted
    by_name = read(spark, server.url, subscribe=f"{name}a,{name}b,{name}c").groupBy("topic").count().collect()
    assert {tuple(row) for row in by_name} == counted


def test_nothing_is_an_empty_frame(spark: SparkSession, server: RestartableServer) -> None:
    assert read(spark, server.url, subscribePrefix="nobody-has-this").collect() == []


def test_offsets_are_inclusive_at_the_start_and_exclusive_at_the_end(
    spark: SparkSession, server: RestartableServer, topic: Topic
) -> None:
    topic.fill(20)
    frame = read(
        spark,
        server.url,
        subscribe=topic.name,
        startingOffsets=json.dumps({topic.name: 5}),
        endingOffsets=json.dumps({topic.name: 9}),
    )
    assert seqs(frame.collect()) == [5, 6, 7, 8]


def test_times_bound_a_read(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    topic.fill(5)
    time.sleep(0.02)  # the next records are of a later millisecond
    first_of_middle = topic.fill(5)["first_seq"]
    time.sleep(0.02)
    topic.fill(5)
    records, _ = history(topic)
    frame = read(
        spark,
        server.url,
        subscribe=topic.name,
        startingTimestamp=records[first_of_middle]["$ts"],
        endingTimestamp=records[15]["$ts"],
    )
    rows = frame.collect()
    assert seqs(rows) == list(range(6, 11))
    seen = {row.seq: row.ts.replace(tzinfo=UTC) for row in rows}
    assert seen[6] == datetime.fromtimestamp(records[6]["$ts"] / 1000, UTC)
    late = read(spark, server.url, subscribe=topic.name, startingTimestamp=records[15]["$ts"] + 1_000_000)
    assert late.collect() == []


@pytest.mark.parametrize("from_files", [False, True])
def test_records_are_chosen_by_node_and_tag(
    spark: SparkSession, server: RestartableServer, topic: Topic, from_files: bool
) -> None:
    topic.write(
        {"data": 1, "tag": "a1", "node": "x"},
        {"data": 2, "tag": "a2", "node": "y"},
        {"data": 3, "tag": "b1"},
        {"data": 4},
    )

    def chosen(**options: str) -> list[int]:
        origin = {"path": server.data_path} if from_files else {"url": server.url}
        return seqs(spark.read.format("topics").options(subscribe=topic.name, **origin, **options).load().collect())

    assert chosen(tag="a1") == [1]
    assert chosen(tagPrefix="a") == [1, 2]
    assert chosen(node="x") == [2, 3, 4]
    assert chosen(node="x,y", tagPrefix="b") == [3]


def test_data_can_be_left_out(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    topic.fill(2)
    assert [row.data for row in read(spark, server.url, subscribe=topic.name, includeData="false").collect()] == [
        None
    ] * 2


def test_the_columns_of_kafka(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    topic.write({"data": {"a": 1}, "tag": "key", "meta": {"h": "v"}}, {"data": None})
    frame = read(spark, server.url, subscribe=topic.name, schema="kafka")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    first, second = frame.orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset) == (
        b"key",
        b'{"a":1}',
        topic.name,
        0,
        1,
    )
    assert [(header.key, bytes(header.value)) for header in first.headers] == [("h", b"v")]
    assert (second.key, bytes(second.value), second.headers) == (None, b"null", None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a", "subscribed": "b"}, "option subscribed: is not known"),
        ({"subscribe": "a", "subscribePrefix": "b"}, "option subscribe: contradicts subscribePrefix"),
        ({"subscribe": "a", "schema": "avro"}, "option schema: 'avro' is not one of topics, kafka"),
        ({"subscribe": "no-such-topic"}, 'topic "no-such-topic" does not exist'),
    ],
)
def test_a_refusal_reaches_the_user(
    spark: SparkSession, server: RestartableServer, given: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(spark, server.url, **given).collect()


def test_an_offset_beyond_the_head_is_refused(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    topic.fill(3)
    with pytest.raises(Exception, match="has 9, but its last seq is 3"):
        read(spark, server.url, subscribe=topic.name, startingOffsets=json.dumps({topic.name: 9})).collect()


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, when it hands filters over to sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize("from_files", [False, True])
def test_filters_narrow_what_is_read(
    pushing: SparkSession, server: RestartableServer, name: str, from_files: bool
) -> None:
    lossy, other = server.topic(f"{name}a"), server.topic(f"{name}b")
    lossy.configure(cap_records=10)
    lossy.fill(5)
    other.write(*({"data": number, "tag": f"k{number % 3}"} for number in range(30)))
    lossy.fill(25)
    origin = {"path": server.data_path} if from_files else {"url": server.url}
    # All of it cannot be read without a loss; what the filters leave can.
    starts = json.dumps({lossy.name: 1, other.name: 1})
    frame = pushing.read.format("topics").options(subscribePrefix=name, startingOffsets=starts, **origin).load()
    with pytest.raises(Exception, match="cannot be read any more"):
        frame.collect()
    wanted = frame.where(col("topic") == other.name)
    assert seqs(wanted.where("seq > 10 and seq <= 20").collect()) == list(range(11, 21))
    assert seqs(wanted.where("tag = 'k1' and seq < 8").collect()) == [2, 5]
    assert seqs(wanted.where("tag like 'k%' and data like '%9'").collect()) == [10, 20, 30]
    assert seqs(frame.where(col("topic") == lossy.name).where("seq >= 25").collect()) == list(range(25, 31))
    first_ts = wanted.agg({"ts": "min"}).collect()[0][0]
    assert wanted.where(col("ts") >= lit(first_ts)).count() == 30
    assert wanted.where(col("ts") < lit(first_ts)).count() == 0
    partitions = wanted.where("seq <= 4").rdd.getNumPartitions()
    assert partitions == 1
    rows = (
        pushing.read.format("topics")
        .options(subscribePrefix=name, startingOffsets=starts, onDataLoss="rows", **origin)
        .load()
    )
    assert gaps(rows.where(col("topic") == lossy.name).collect()) == [(1, 20, "cap")]
    assert gaps(rows.where("seq > 0").collect()) == []
