"""Streaming reads: bounded batches, restarts without loss or duplicates, and losses that are told."""

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.readings import Batches, forget_last_commit, gaps, seqs
from spark.server import RestartableServer


def from_start(topic: Topic, **options: object) -> dict[str, object]:
    return {"subscribe": topic.name, "startingOffsets": "earliest"} | options


def test_what_is_available_is_read_in_bounded_batches_and_a_restart_goes_on(
    spark: SparkSession, server: RestartableServer, topic: Topic, batches: Batches
) -> None:
    topic.fill(25)
    options = from_start(topic, maxOffsetsPerTrigger=10, cursor="reader")
    batches.run(spark, server.url, options)
    assert [seqs(rows) for rows in batches.by_id.values()] == [
        list(range(1, 11)),
        list(range(11, 21)),
        list(range(21, 26)),
    ]
    written = (batches.checkpoint / "offsets" / "2").read_text().splitlines()[-1]
    assert json.loads(written) == {topic.name: {"epoch": topic.state()["epoch"], "seq": 25}}
    with server.client() as client:
        # Spark commits a batch when it begins the next one: the last one of a run is committed by the next run.
        assert client.cursor(topic.name, "reader").seq == 20
        topic.fill(5)
        # As if the driver had died before it noted the last batch: it is repeated, and `batches` compares its rows.
        forget_last_commit(batches.checkpoint)
        batches.run(spark, server.url, options)
        assert seqs(batches.rows) == list(range(1, 31))
        assert client.cursor(topic.name, "reader").seq == 25


def test_a_running_query_sees_what_comes_and_begins_at_the_latest(
    spark: SparkSession, server: RestartableServer, topic: Topic, batches: Batches
) -> None:
    topic.fill(10)
    query = batches.run(spark, server.url, {"subscribe": topic.name}, processingTime="0 seconds")
    query.processAllAvailable()
    assert batches.rows == []
    topic.fill(3)
    query.processAllAvailable()
    topic.fill(2)
    query.processAllAvailable()
    query.stop()
    assert seqs(batches.rows) == [11, 12, 13, 14, 15]


def test_a_topic_that_appears_later_joins_at_its_beginning(
    spark: SparkSession, server: RestartableServer, name: str, batches: Batches
) -> None:
    server.topic(f"{name}a").fill(2)
    options = {"subscribePrefix": name, "startingOffsets": "latest"}
    query = batches.run(spark, server.url, options, processingTime="0 seconds")
    query.processAllAvailable()
    server.topic(f"{name}b").fill(3)
    server.topic(f"{name}a").fill(1)
    query.processAllAvailable()
    query.stop()
    assert sorted((row.topic, row.seq) for row in batches.rows) == [
        (f"{name}a", 3),
        (f"{name}b", 1),
        (f"{name}b", 2),
        (f"{name}b", 3),
    ]


def test_a_bound_is_shared_by_the_topics(
    spark: SparkSession, server: RestartableServer, name: str, batches: Batches
) -> None:
    server.topic(f"{name}a").fill(90)
    server.topic(f"{name}b").fill(10)
    options = {"subscribePrefix": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 50, "minPartitions": 3}
    batches.run(spark, server.url, options)
    counted = [Counter(row.topic for row in rows) for rows in batches.by_id.values()]
    assert counted == [{f"{name}a": 45, f"{name}b": 5}] * 2


def test_what_a_cap_took_while_nobody_read_is_told(
    spark: SparkSession, server: RestartableServer, topic: Topic, batches: Batches
) -> None:
    topic.configure(cap_records=20)
    topic.fill(10)
    options = from_start(topic, onDataLoss="rows", maxOffsetsPerTrigger=25)
    batches.run(spark, server.url, options)
    topic.fill(60)
    topic.delete_records(before_seq=55)
    batches.run(spark, server.url, options)
    lost = [seq for first, last, _ in gaps(batches.rows) for seq in range(first, (last or 0) + 1)]
    # A tombstone goes up to the first live record: what was deleted at its end counts as lost.
    assert lost == list(range(11, 55))
    assert seqs(batches.rows) == [*range(1, 11), *range(55, 71)]


def test_a_deleted_and_recreated_topic_is_a_loss_and_not_a_silent_restart(
    spark: SparkSession, server: RestartableServer, topic: Topic, batches: Batches
) -> None:
    topic.fill(10)
    batches.run(spark, server.url, from_start(topic))
    topic.remove()
    with pytest.raises(Exception, match=r"from seq 11 on of topic .* \(reason: deleted_topic\)"):
        batches.run(spark, server.url, from_start(topic))
    topic.fill(12)
    with pytest.raises(Exception, match=r"from seq 11 on of topic .* \(reason: recreated\)"):
        batches.run(spark, server.url, from_start(topic))
    batches.run(spark, server.url, from_start(topic, onDataLoss="rows"))
    assert gaps(batches.rows) == [(11, None, "recreated")]
    assert seqs(batches.by_id[1]) == list(range(1, 13))


def test_a_query_outlives_its_server(spark: SparkSession, own_server: RestartableServer, batches: Batches) -> None:
    topic = own_server.topic("orders")
    topic.configure(durable=True)
    topic.fill(20)
    query = batches.run(
        spark, own_server.url, from_start(topic, onDataLoss="rows", cursor="reader"), processingTime="0 seconds"
    )
    query.processAllAvailable()
    own_server.kill()
    own_server.start()
    topic.fill(20)
    query.processAllAvailable()
    query.stop()
    topic.fill(5)
    batches.run(spark, own_server.url, from_start(topic, onDataLoss="rows"))
    assert Counter(seqs(batches.rows)) == Counter(range(1, 46))
    assert gaps(batches.rows) == []


def test_files_are_a_stream_too(spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path) -> None:
    topic.fill(10)
    seen: list[int] = []

    def run() -> None:
        frame = (
            spark.readStream.format("topics")
            .options(subscribe=topic.name, startingOffsets="earliest")
            .load(server.data_path)
        )
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: seen.extend(seqs(batch.collect())))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    topic.fill(5)
    # What was just written reaches the files a moment later.
    for _ in range(5):
        if len(seen) < 15:
            run()
    assert seen == list(range(1, 16))


def test_a_key_that_may_not_write_reads_all_the_same(spark: SparkSession, tmp_path: Path, batches: Batches) -> None:
    locked = RestartableServer(tmp_path / "locked", {"TOPICS_API_KEYS": "all,reader:read"})
    try:
        orders = Topic(locked.api.with_key("all"), "orders")
        orders.fill(30)
        options = from_start(orders, maxOffsetsPerTrigger=10, cursor="copier", apiKey="reader")
        batches.run(spark, locked.url, options)
        assert seqs(batches.rows) == list(range(1, 31))
        assert orders.api.get(f"{orders.path}/cursors/copier").status == 404
    finally:
        locked.stop()
