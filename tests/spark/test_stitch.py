"""The option `archive`: a topic whose early records are only in its archive reads as one."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.archives import archive_topics
from spark.readings import Batches, gaps, read, seqs
from spark.server import RestartableServer


def archived_then_capped(
    spark: SparkSession, server: RestartableServer, topic: Topic, directory: Path, count: int = 300
) -> None:
    """Archived whole, then cut to its last hundred, then written to again."""
    topic.write(*({"data": {"n": n}, "tag": f"t{n % 3}", "node": f"n{n % 2}"} for n in range(count)))
    archive_topics(spark, server, directory, topic.name, round_records=120)
    topic.configure(cap_records=100)
    topic.write(*({"data": {"n": n}, "tag": f"t{n % 3}"} for n in range(count, count + 50)))
    assert topic.state()["earliest_seq"] == count - 49


def test_early_records_come_from_the_archive_and_the_rest_from_the_server_once_each_and_in_order(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    archived_then_capped(spark, server, topic, tmp_path / "a")
    for more in ({}, {"minPartitions": 7}, {"maxRecordsPerPartition": 45}):
        rows = read(spark, server.url, subscribe=topic.name, archive=tmp_path / "a", **more).collect()
        assert [row.seq for row in rows] == list(range(1, 351))
        assert [json.loads(row.data)["n"] for row in rows] == list(range(350))
    # The files of the server do as well as the server.
    options = {"subscribe": topic.name, "archive": str(tmp_path / "a")}
    stored = spark.read.format("topics").options(**options).load(server.data_path)
    assert seqs(stored.collect()) == list(range(1, 351))


def test_ranges_times_and_tags_reach_into_the_archive(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    archived_then_capped(spark, server, topic, tmp_path / "a")
    whole = read(spark, server.url, subscribe=topic.name, archive=tmp_path / "a").collect()
    middle = {"startingOffsets": json.dumps({topic.name: 200}), "endingOffsets": json.dumps({topic.name: 321})}
    part = read(spark, server.url, subscribe=topic.name, archive=tmp_path / "a", tag="t1", **middle).collect()
    assert part == [row for row in whole if row.tag == "t1" and 200 <= row.seq <= 320]
    since = int(whole[130].ts.timestamp() * 1000)
    later = read(spark, server.url, subscribe=topic.name, archive=tmp_path / "a", startingTimestamp=since).collect()
    assert seqs(later) == [row.seq for row in whole if row.ts >= whole[130].ts]


def test_losses_before_and_after_the_archive_are_told_with_their_ranges(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.configure(cap_records=50)
    topic.fill(80)
    archive_topics(spark, server, tmp_path / "a", topic.name)
    topic.fill(70)
    options = {"startingOffsets": json.dumps({topic.name: 1}), "onDataLoss": "rows"}
    rows = read(spark, server.url, subscribe=topic.name, archive=tmp_path / "a", **options).collect()
    assert gaps(rows) == [(1, 30, "cap"), (81, 100, "cap")]
    assert [row.seq or row.gap_from for row in rows] == [1, *range(31, 81), 81, *range(101, 151)]
    frame = read(spark, server.url, subscribe=topic.name, archive=tmp_path / "a")
    with pytest.raises(Exception, match="seqs 81 to 100"):
        frame.collect()


def test_a_stream_begins_in_the_archive_and_goes_on_live(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    archived_then_capped(spark, server, topic, tmp_path / "a")
    batches = Batches(tmp_path / "checkpoint")
    options = {
        "subscribe": topic.name,
        "archive": tmp_path / "a",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 140,
    }
    batches.run(spark, server.url, options)
    topic.fill(5)
    batches.run(spark, server.url, options)
    assert [row.seq for row in batches.rows] == list(range(1, 356))


def test_an_archive_that_is_not_of_this_topic_or_is_none_is_refused(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(5)
    archive_topics(spark, server, tmp_path / "a", topic.name)
    with pytest.raises(Exception, match="is not an archive"):
        read(spark, server.url, subscribe=topic.name, archive=tmp_path / "none").collect()
    topic.remove()
    topic.fill(7)
    with pytest.raises(Exception, match="is an archive of another topic"):
        read(spark, server.url, subscribe=topic.name, archive=tmp_path / "a").collect()
