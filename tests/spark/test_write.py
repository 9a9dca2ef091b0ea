"""Writes: what was in the columns is in the topic, once, whatever is tried again."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from conformance.client import Topic
from spark.readings import forget_last_commit, history, until
from spark.server import RestartableServer


def write(frame: DataFrame, url: str, **options: object) -> None:
    given = {name: str(value) for name, value in options.items()}
    frame.write.format("topics").options(url=url, **given).mode("append").save()


def payloads(topic: Topic) -> list[Any]:
    records, _ = history(topic)
    return [records[seq]["data"] for seq in sorted(records)]


def test_every_column_arrives(spark: SparkSession, server: RestartableServer, name: str) -> None:
    frame = spark.createDataFrame(
        [
            (f"{name}a", '{"b": 1.0, "a": [1e400]}', "tag", "node", {"k": "v"}),
            (f"{name}b", '"text"', None, None, None),
        ],
        "topic string, data string, tag string, node string, meta map<string,string>",
    )
    write(frame.coalesce(1), server.url)
    full, bare = server.topic(f"{name}a"), server.topic(f"{name}b")
    assert b'"$node":"node","data":{"b": 1.0, "a": [1e400]}' in server.api.post(f"{full.path}/diff", {}).body
    [record] = full.diff(include_tags=True)["records"]
    assert (record["$tag"], record["meta"]) == ("tag", {"k": "v"})
    [record] = bare.diff(include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "data"}


def test_rows_are_appended_in_chunks(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    frame = spark.range(0, 1000, numPartitions=3).selectExpr("cast(id as string) as data")
    write(frame, server.url, topic=topic.name, maxRecordsPerChunk=100)
    assert sorted(payloads(topic)) == list(range(1000))


def test_a_topic_read_is_written_to_another(
    spark: SparkSession, server: RestartableServer, topic: Topic, name: str
) -> None:
    topic.write(*({"data": number, "tag": str(number)} for number in range(50)))
    source = spark.read.format("topics").options(url=server.url, subscribe=topic.name).load()
    write(source.select("topic", "data", "tag"), server.url, topic=f"{name}copy")
    assert payloads(server.topic(f"{name}copy")) == list(range(50))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("'1' as data, 2 as seq", "column seq is not written"),
        ("'a' as tag", "column data is missing"),
        ("1 as data", "column data is int and must be string"),
        ("'1' as data, map('a', 1) as meta", "column meta is map<string,int>"),
        ("'plain' as data", "column data is not JSON"),
        ("cast(null as string) as data", "column data is null"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: SparkSession, server: RestartableServer, topic: Topic, columns: str, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.sql(f"select {columns}"), server.url, topic=topic.name)
    assert not topic.exists()


def test_a_topic_is_not_overwritten(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    frame = spark.sql("select '1' as data")
    with pytest.raises(Exception, match="only ever appended to"):
        frame.write.format("topics").options(url=server.url, topic=topic.name).mode("overwrite").save()


def test_topics_are_not_created_when_that_is_not_wanted(
    spark: SparkSession, server: RestartableServer, topic: Topic
) -> None:
    with pytest.raises(Exception, match="does not exist"):
        write(spark.sql("select '1' as data"), server.url, topic=topic.name, createTopics="false")


def start_copy(spark: SparkSession, url: str, checkpoint: Path, **options: object) -> StreamingQuery:
    """Copies the topic `source` to `target`, 100 records a batch, and ends."""
    partitions = str(options.pop("minPartitions", 2))
    given = {name: str(value) for name, value in options.items()}
    return (
        spark.readStream.format("topics")
        .options(url=url, subscribe="source", startingOffsets="earliest", minPartitions=partitions)
        .option("maxOffsetsPerTrigger", 100)
        .load()
        .select("data", "tag")
        .writeStream.format("topics")
        .options(url=url, topic="target", checkpointLocation=str(checkpoint), **given)
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_is_copied_once_whatever_is_killed_and_repeated(
    spark: SparkSession, own_server: RestartableServer, tmp_path: Path
) -> None:
    source, target, checkpoint = own_server.topic("source"), own_server.topic("target"), tmp_path / "checkpoint"
    source.configure(durable=True)
    source.fill(300)
    target.configure(durable=True)

    # The server dies in the middle: the query waits for it and goes on.
    query = start_copy(spark, own_server.url, checkpoint, maxRecordsPerChunk=10)
    until(lambda: target.state()["count"] > 0)
    own_server.kill()
    own_server.start()
    query.awaitTermination()
    assert sorted(payloads(target)) == list(range(300))

    # The driver dies before it notes the last batch, and the server, too: the batch is written again.
    own_server.kill()
    own_server.start()
    forget_last_commit(checkpoint)
    start_copy(spark, own_server.url, checkpoint, maxRecordsPerChunk=10).awaitTermination()
    assert sorted(payloads(target)) == list(range(300))

    # Cut into other chunks, a repeated batch is known all the same.
    forget_last_commit(checkpoint)
    start_copy(spark, own_server.url, checkpoint).awaitTermination()
    assert sorted(payloads(target)) == list(range(300))


def test_a_batch_that_was_written_in_part_is_completed_however_long_ago_that_was(
    spark: SparkSession, own_server: RestartableServer, tmp_path: Path
) -> None:
    source, target, checkpoint = own_server.topic("source"), own_server.topic("target"), tmp_path / "checkpoint"
    source.fill(100)
    target.configure(idempotency_window_ms=0)
    start_copy(spark, own_server.url, checkpoint, maxRecordsPerChunk=10).awaitTermination()
    records, _ = history(target)
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    partition = [records[seq] for seq in sorted(records) if records[seq]["data"] < 50]

    # As if the driver had died after 15 records of one partition.
    target.remove()
    target.configure(idempotency_window_ms=0)
    target.write(
        *({"data": record["data"]} for record in partition[:15]), producer={"name": f"{query}/0", "sequence": 0}
    )
    forget_last_commit(checkpoint)
    start_copy(spark, own_server.url, checkpoint, maxRecordsPerChunk=20).awaitTermination()
    assert sorted(payloads(target)) == list(range(100))


@pytest.mark.parametrize(
    ("deleted_before", "message"),
    [(21, "is not the one that topic"), (81, "had 50 records the first time and has 20 now")],
    ids=["some rows", "most rows"],
)
def test_a_batch_that_comes_again_with_other_rows_is_refused_and_loses_nothing_silently(
    spark: SparkSession, own_server: RestartableServer, tmp_path: Path, deleted_before: int, message: str
) -> None:
    source, target, checkpoint = own_server.topic("source"), own_server.topic("target"), tmp_path / "checkpoint"
    source.fill(100)
    target.configure(cap_records=50, discard="reject")
    options = {"maxRecordsPerChunk": 50, "minPartitions": 1}
    with pytest.raises(Exception, match="is full"):
        start_copy(spark, own_server.url, checkpoint, **options).awaitTermination()
    assert payloads(target) == list(range(50))

    target.configure(cap_records=0)
    source.delete_records(before_seq=deleted_before)
    with pytest.raises(Exception, match=message):
        start_copy(spark, own_server.url, checkpoint, **options).awaitTermination()
    assert payloads(target) == list(range(50))


def test_the_key_is_in_no_plan_and_no_log(
    spark: SparkSession, spark_log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key = "s3cret-of-this-test"
    locked = RestartableServer(tmp_path / "locked", {"TOPICS_API_KEYS": key})
    try:
        options = {"url": locked.url, "apiKey": key}
        spark.sql("select '1' as data").write.format("topics").options(**options, topic="t").mode("append").save()
        frame = spark.read.format("topics").options(**options, subscribe="t").load()
        assert frame.count() == 1
        frame.explain("extended")
        stream = spark.readStream.format("topics").options(**options, subscribe="t", startingOffsets="earliest").load()
        query = (
            stream.select("data")
            .writeStream.format("topics")
            .options(**options, topic="u", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(True)
        progress = json.dumps(query.lastProgress, default=str)
        with pytest.raises(Exception, match="does not exist") as failed:
            spark.read.format("topics").options(**options, subscribe="missing").load().count()
    finally:
        locked.stop()
    shown = capfd.readouterr()
    assert "Physical Plan" in shown.out
    logged = spark_log.read_text()
    assert "INFO org.apache.spark.sql.execution.streaming" in logged
    assert key not in shown.out + shown.err + progress + str(failed.value) + logged
