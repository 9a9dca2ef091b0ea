"""Roll-ups against the same sums made by hand, over restarts and repeated batches."""

import json
import os
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.readings import driver_that_holds, forget_last_commit, history
from spark.server import RestartableServer
from topics.spark.jobs.progress import Silent
from topics.spark.jobs.rollup import RollupSummary, rollup
from topics.spark.jobs.rollup_checkpoint import PLACE_FILE, CheckpointInUse, CheckpointOfAnother, Place, write_place
from topics.spark.jobs.rollup_sinks import DirectoryOfAnother
from topics.spark.jobs.rollup_spec import Emit, IntoDirectory, IntoTopic, RollupSpec, aggregates_of
from topics.spark.options import Server
from topics.storage.fs import RealDisk

WINDOW_MS = 10_000
IN_PARTS = "count,sum:v,avg:v,min:v,max:v"  # tasks sum up what they read
WHOLE = f"{IN_PARTS},p50:v"  # percentiles are no sums: Spark gets every record
ODD = [
    {"t": 1, "k": 'a"b', "v": 1}, {"t": 2, "k": 1.5, "v": 1e3}, {"t": 3, "k": 7, "v": "12"}, {"t": 4, "k": None},
    {"t": 5, "k": True, "v": None}, {"t": 6, "v": -0.25}, {"t": "7", "k": "a", "v": 1}, {"t": 8.5, "k": "a", "v": 1},
    {"t": "1970-01-01T00:00:09.5Z", "k": "a", "v": 1}, {"t": "1970-01-01T01:00:11+01:00", "k": "a", "v": 2},
    {"t": "1970-02-30T00:00:00Z", "k": "a", "v": 1}, {"t": 12_000, "k": {"x": [1]}, "v": {"x": 1}}, {"k": "a", "v": 1},
    {"t": 13_000, "k": "ü", "v": 12345678901234567890}, {"t": None, "k": "a", "v": True}, {"t": 14_000, "k": ""},
]  # fmt: skip


def spec_of(server: RestartableServer, topic: Topic, tmp_path: Path, **changes: Any) -> RollupSpec:
    spec = RollupSpec(
        server=Server(server.url, None),
        topic=topic.name,
        into=IntoTopic(f"{topic.name}.rolled"),
        checkpoint=str(tmp_path / "checkpoint"),
        window_ms=WINDOW_MS,
        aggregates=aggregates_of(WHOLE),
        by=("$.k",),
        time="$.t",
        watermark_ms=0,
        batch_records_max=100,
    )
    return replace(spec, **changes)


def run(spark: SparkSession, spec: RollupSpec) -> RollupSummary:
    return rollup(spark, spec, Silent())


def write(topic: Topic, *events: tuple[int, str, object]) -> None:
    topic.write(*({"data": {"t": t, "k": k, "v": v}} for t, k, v in events))


def results(server: RestartableServer, spec: RollupSpec) -> list[dict[str, Any]]:
    assert isinstance(spec.into, IntoTopic)
    records, losses = history(server.topic(spec.into.topic))
    assert losses == []
    return [records[seq]["data"] for seq in sorted(records)]


def counts(found: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """By window and group; fails when one is there twice."""
    by_group: dict[tuple[str, str], int] = {}
    for result in found:
        key = (result["window_start"], result["k"])
        assert key not in by_group, f"{key} was written twice"
        by_group[key] = result["count"]
    return by_group


def test_a_closed_window_has_its_result_once(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    write(topic, (0, "a", 1), (1000, "a", 2), (2000, "b", 3.5), (9999, "a", "no number"), (25_000, "a", 1))
    spec = spec_of(server, topic, tmp_path)
    summary = run(spark, spec)
    assert (summary.records, summary.results, summary.open_groups, summary.not_numbers) == (5, 2, 1, 1)
    first, second = results(server, spec)
    assert first == {
        "window_start": "1970-01-01T00:00:00.000Z",
        "window_end": "1970-01-01T00:00:10.000Z",
        "k": "a",
        "count": 3,
        "sum_v": 3.0,
        "avg_v": 1.5,
        "min_v": 1.0,
        "max_v": 2.0,
        "p50_v": 1.0,
    }
    assert (second["k"], second["sum_v"]) == ("b", 3.5)
    records, _ = history(server.topic(f"{topic.name}.rolled"))
    assert records[1]["$tag"] == "1970-01-01T00:00:00Z/a"

    write(topic, (26_000, "a", 1), (41_000, "b", 1))
    again = run(spark, spec)
    assert (again.records, again.results) == (2, 1)
    assert counts(results(server, spec))["1970-01-01T00:00:20.000Z", "a"] == 2
    assert run(spark, spec).results == 0


def test_a_run_without_anything_new_tells_what_is_still_open(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.configure()
    spec = spec_of(server, topic, tmp_path)
    nothing = run(spark, spec)
    assert (nothing.records, nothing.open_groups) == (0, 0)
    write(topic, (0, "a", 1), (25_000, "a", 1), (25_000, "b", 1))
    first = run(spark, spec)
    assert (first.records, first.open_groups, first.watermark) == (3, 2, "1970-01-01T00:00:25.000Z")
    again = run(spark, spec)
    assert (again.records, again.open_groups, again.watermark) == (0, 2, first.watermark)
    # A note that is not of the last batch says nothing.
    note = Path(spec.checkpoint) / PLACE_FILE
    write_place(spec.checkpoint, structs.replace(msgspec.json.decode(note.read_bytes(), type=Place), batch=0))
    killed = run(spark, spec)
    assert (killed.records, killed.open_groups, killed.watermark) == (0, None, None)


def test_late_records_are_counted_one_by_one(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    spec = spec_of(server, topic, tmp_path)
    write(topic, (0, "a", 1), (35_000, "a", 1))
    assert run(spark, spec).late == 0
    # Three of one window and group, which Spark itself counts as one; and one that is just in time.
    write(topic, (5000, "a", 1), (6000, "a", 1), (7000, "a", 1), (20_000, "b", 1), (30_000, "a", 1), (61_000, "a", 1))
    assert run(spark, spec).late == 4
    assert counts(results(server, spec)) == {
        ("1970-01-01T00:00:00.000Z", "a"): 1,
        ("1970-01-01T00:00:30.000Z", "a"): 2,
    }


@pytest.mark.parametrize("aggregates", [IN_PARTS, WHOLE])
def test_every_record_is_in_a_result_or_counted(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, aggregates: str
) -> None:
    chance = random.Random(11)
    events = [(max(0, n * 100 - int(chance.expovariate(1 / 6000))), chance.choice("abc"), 1) for n in range(1000)]
    write(topic, *events)
    topic.write({"data": {"k": "a"}}, {"data": "text"})
    write(topic, (10_000_000, "end", 1))
    spec = spec_of(server, topic, tmp_path, batch_records_max=150, aggregates=aggregates_of(aggregates))
    summary = run(spark, spec)
    found = counts(results(server, spec))
    assert (summary.records, summary.without_time) == (1003, 2)
    assert summary.late > 0
    assert sum(found.values()) + summary.late == 1000
    expected: dict[tuple[str, str], int] = defaultdict(int)
    for t, k, _ in events:
        start = t // WINDOW_MS * WINDOW_MS // 1000
        expected[f"1970-01-01T00:{start // 60:02d}:{start % 60:02d}.000Z", k] += 1
    assert all(count <= expected[key] for key, count in found.items())


@pytest.mark.parametrize("slide_ms", [None, 4000])
def test_what_tasks_sum_up_is_what_spark_makes_of_every_record(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, slide_ms: int | None
) -> None:
    chance = random.Random(5)
    for some in (ODD, ODD[5:6], [{"t": n * 50, "k": chance.choice("abc"), "v": n} for n in range(300)]):
        topic.write(*({"data": data} for data in some))
    topic.write({"data": "text"}, {"data": {"t": 1_000_000, "k": "end", "v": 1}})
    found: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for aggregates in (IN_PARTS, WHOLE):
        spec = spec_of(server, topic, tmp_path / aggregates, aggregates=aggregates_of(aggregates), slide_ms=slide_ms)
        spec = replace(spec, into=IntoTopic(f"{topic.name}.{len(found)}"))
        summary = structs.asdict(run(spark, spec)) | {"into": ""}
        rows = results(server, spec)
        found.append((summary, [{name: row[name] for name in row if name != "p50_v"} for row in rows]))
    assert found[0] == found[1]
    assert len(found[0][1]) > 10


@pytest.mark.parametrize("kept", ["all of the batch", "a part of the batch"])
def test_a_batch_that_comes_again_adds_only_what_is_missing(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, kept: str
) -> None:
    write(topic, *((n * 1000, f"k{n % 5}", n) for n in range(60)))
    spec = spec_of(server, topic, tmp_path)
    run(spark, spec)
    whole = results(server, spec)
    forget_last_commit(tmp_path / "checkpoint" / "query")
    if kept == "a part of the batch":
        # What a kill between two appends leaves.
        target = server.topic(f"{topic.name}.rolled")
        records, _ = history(target)
        target.remove()
        query, batch = records[1]["meta"]["rollup"].split("/")
        target.write(
            *({"data": records[seq]["data"], "meta": records[seq]["meta"]} for seq in range(1, 5)),
            producer={"name": f"rollup/{query}", "sequence": int(batch) << 32},
        )
    assert run(spark, spec).results == (0 if kept == "all of the batch" else len(whole) - 4)
    assert results(server, spec) == whole


def test_windows_that_slide(spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path) -> None:
    write(topic, (12_000, "a", 1), (60_000, "a", 1))
    spec = spec_of(server, topic, tmp_path, slide_ms=5000)
    run(spark, spec)
    assert [result["window_start"][17:19] for result in results(server, spec)] == ["05", "10"]


def test_changed_results_come_with_every_batch(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    spec = spec_of(server, topic, tmp_path, emit=Emit.CHANGED)
    write(topic, (0, "a", 1))
    run(spark, spec)
    write(topic, (1000, "a", 1))
    run(spark, spec)
    assert [result["count"] for result in results(server, spec)] == [1, 2]


def test_the_record_s_own_time_and_no_groups(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(7)
    spec = spec_of(server, topic, tmp_path, time=None, by=(), aggregates=aggregates_of("count"), emit=Emit.CHANGED)
    run(spark, spec)
    assert sum(result["count"] for result in results(server, spec)) == 7


def test_results_in_a_directory_replace_themselves(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    write(topic, *((n * 1000, "a", n) for n in range(60)))
    target = tmp_path / "results"
    spec = spec_of(server, topic, tmp_path, into=IntoDirectory(str(target)))
    assert run(spark, spec).results == 5
    before = sorted(spark.read.parquet(str(target)).select("window_start", "k", "count").collect())
    forget_last_commit(tmp_path / "checkpoint" / "query")
    run(spark, spec)
    assert sorted(spark.read.parquet(str(target)).select("window_start", "k", "count").collect()) == before
    assert [row["count"] for row in before] == [10] * 5

    with pytest.raises(Exception, match="other files than the results of this roll-up"):
        run(spark, replace(spec, checkpoint=str(tmp_path / "other")))
    assert DirectoryOfAnother.__doc__


def test_more_results_than_the_driver_may_hold_go_into_a_topic(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    write(topic, *((0, f"{n:0>200}", n) for n in range(2000)), (60_000, "last", 1))
    spec = spec_of(server, topic, tmp_path, batch_records_max=10_000)
    with driver_that_holds(spark, "200k"):
        assert run(spark, spec).results == 2000
    assert sorted(result["sum_v"] for result in results(server, spec)) == list(range(2000))


def test_what_the_topic_lost_is_counted(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.configure(cap_records=10)
    write(topic, *((n * 1000, "a", n) for n in range(25)))
    summary = run(spark, spec_of(server, topic, tmp_path, aggregates=aggregates_of(IN_PARTS)))
    assert (summary.records, summary.lost_seqs) == (10, 15)


def test_one_checkpoint_has_one_run_at_a_time(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    write(topic, (0, "a", 1))
    spec = spec_of(server, topic, tmp_path)
    disk = RealDisk()
    disk.make_dir(spec.checkpoint)
    lock = disk.lock(str(tmp_path / "checkpoint" / "LOCK"))
    with pytest.raises(CheckpointInUse, match=f"in use by process {os.getpid()}"):
        run(spark, spec)
    lock.release()
    assert run(spark, spec).records == 1


def test_a_checkpoint_of_another_shape_is_refused(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    write(topic, (0, "a", 1), (35_000, "a", 1))
    spec = spec_of(server, topic, tmp_path)
    run(spark, spec)
    with pytest.raises(CheckpointOfAnother, match="window_ms 10000, not 20000"):
        run(spark, replace(spec, window_ms=20_000))
    assert json.loads((tmp_path / "checkpoint" / "rollup.json").read_text())["window_ms"] == WINDOW_MS
