"""Replay: the order of the archive, where a record comes from in its meta, and nothing twice."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.archives import Bar, archive_topics, origin
from spark.readings import history
from spark.server import RestartableServer
from topics import limits
from topics.spark.archive import table
from topics.spark.archive.errors import NotAnArchive, TopicNotArchived
from topics.spark.errors import InvalidOption
from topics.spark.jobs import replay as replaying
from topics.spark.jobs.compact import CompactSpec, compact
from topics.spark.jobs.replay import ReplayInUse, ReplaySpec, ReplaySummary, check_spec, replay
from topics.storage.fs import RealDisk
from topics.testing.fake_clock import FakeClock


@pytest.fixture
def archived(spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path) -> Path:
    """A hundred records, ten of a tag, in several files."""
    topic.write(*({"data": {"n": n}, "tag": f"t{n % 10}", "meta": {"own": "x"}} for n in range(100)))
    archive_topics(spark, server, tmp_path / "a", topic.name, round_records=30)
    return tmp_path / "a"


def run(spark: SparkSession, server: RestartableServer, directory: Path, into: Topic, **more: Any) -> ReplaySummary:
    return replay(spark, ReplaySpec(str(directory), origin(server), into.name, **more))


def numbers(topic: Topic) -> list[int]:
    records, _ = history(topic)
    return [record["data"]["n"] for _, record in sorted(records.items())]


def test_records_come_in_order_with_their_origin_and_only_once(
    spark: SparkSession, server: RestartableServer, topic: Topic, name: str, archived: Path
) -> None:
    into = server.topic(f"{name}into")
    bar = Bar()
    first = replay(spark, ReplaySpec(str(archived), origin(server), into.name, from_seq=11, to_seq=60), bar)
    assert bar.parts == [(50, 50)]
    assert (first.selected, first.present, first.appended, first.first_seq, first.last_seq) == (50, 0, 50, 1, 50)
    # A wider range has only what was missing; a repetition has nothing.
    second = run(spark, server, archived, into)
    assert (second.selected, second.present, second.appended) == (100, 50, 50)
    assert run(spark, server, archived, into).appended == 0
    assert numbers(into) == [*range(10, 60), *range(10), *range(60, 100)]
    records, _ = history(into)
    source, _ = history(topic)
    assert records[1]["meta"] == {
        "own": "x",
        "replay_archive": table.load(str(archived)).archive_id,
        "replay_topic": topic.name,
        "replay_seq": "11",
        "replay_ts": str(source[11]["$ts"]),
    }
    assert records[1]["$tag"] == "t0"


def test_a_file_larger_than_a_step_is_replayed_in_bounded_parts(
    spark: SparkSession,
    server: RestartableServer,
    topic: Topic,
    name: str,
    archived: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compact(spark, CompactSpec(str(archived)))
    monkeypatch.setattr(limits, "SPARK_BATCH_ROWS", 7)
    monkeypatch.setattr(limits, "SPARK_CHUNK_RECORDS", 9)
    monkeypatch.setattr(replaying, "LOOK_SEQS", 10)
    into = server.topic(f"{name}into")
    run(spark, server, archived, into, from_seq=40, to_seq=45)
    again = run(spark, server, archived, into)
    assert (again.selected, again.present, again.appended) == (100, 6, 94)
    assert numbers(into) == [*range(39, 45), *range(39), *range(45, 100)]


def test_what_was_deleted_is_appended_again_and_said_to_be(
    spark: SparkSession, server: RestartableServer, topic: Topic, name: str, archived: Path
) -> None:
    into = server.topic(f"{name}into")
    run(spark, server, archived, into, from_seq=1, to_seq=4)
    into.delete_records(before_seq=100)
    again = run(spark, server, archived, into, from_seq=1, to_seq=4)
    assert (again.selected, again.present, again.appended, again.first_seq) == (4, 0, 4, 5)
    assert numbers(into) == [0, 1, 2, 3]


def test_a_part_with_the_same_ends_and_another_middle_is_another_one(
    spark: SparkSession, server: RestartableServer, topic: Topic, name: str, archived: Path
) -> None:
    into = server.topic(f"{name}into")
    run(spark, server, archived, into, from_seq=2, to_seq=2)
    assert run(spark, server, archived, into, from_seq=1, to_seq=4).appended == 3  # 1, 3 and 4
    into.delete_records(before_seq=100)
    run(spark, server, archived, into, from_seq=3, to_seq=3)
    assert run(spark, server, archived, into, from_seq=1, to_seq=4).appended == 3  # 1, 2 and 4
    assert sorted(numbers(into)) == [0, 1, 2, 3]


def test_a_tag_and_times_select(
    spark: SparkSession, server: RestartableServer, topic: Topic, name: str, archived: Path
) -> None:
    into = server.topic(f"{name}into")
    source, _ = history(topic)
    last_ts = source[100]["$ts"]
    assert run(spark, server, archived, into, from_ts=last_ts + 1).selected == 0
    run(spark, server, archived, into, tag="t3", from_ts=source[1]["$ts"], to_ts=last_ts + 1)
    assert numbers(into) == list(range(3, 100, 10))


def test_speed_keeps_the_distances_in_time(
    spark: SparkSession, server: RestartableServer, topic: Topic, name: str, tmp_path: Path
) -> None:
    for n in range(3):
        topic.write({"data": {"n": n}})
    archive_topics(spark, server, tmp_path / "a", topic.name)
    source, _ = history(topic)
    clock = FakeClock()
    waited: list[float] = []

    def wait(duration_s: float) -> None:
        waited.append(duration_s)
        clock.advance(round(duration_s * 1000))

    spec = ReplaySpec(str(tmp_path / "a"), origin(server), f"{name}into", speed=0.5)
    replay(spark, spec, clock=clock, pause_s=wait)
    assert sum(waited) * 1000 == pytest.approx(2 * (source[3]["$ts"] - source[1]["$ts"]), abs=2)


def test_bad_input_is_refused_and_writes_nothing(
    spark: SparkSession, server: RestartableServer, topic: Topic, name: str, archived: Path
) -> None:
    into = server.topic(f"{name}into")
    spec = ReplaySpec(str(archived), origin(server), into.name)
    for wrong in ({"speed": 0.0}, {"from_seq": 0}, {"from_seq": 9, "to_seq": 3}, {"from_ts": 9, "to_ts": 9}):
        with pytest.raises(InvalidOption):
            check_spec(ReplaySpec(spec.directory, spec.server, spec.into, **wrong))
    with pytest.raises(InvalidOption):
        check_spec(ReplaySpec(str(archived), spec.server, "no name"))
    with pytest.raises(TopicNotArchived, match=topic.name):
        run(spark, server, archived, into, topic="other")
    with pytest.raises(NotAnArchive):
        run(spark, server, archived / "records", into)
    lock = RealDisk().lock(table.replay_lock_path(str(archived), topic.name, into.name))
    with pytest.raises(ReplayInUse):
        run(spark, server, archived, into)
    lock.release()
    assert not into.exists()
