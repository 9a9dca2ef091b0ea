"""Something is killed in the middle of a batch: the copy is whole and has nothing twice, batch by batch."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from conformance.client import Topic
from spark import processes
from spark.history import NAMES, ServerWithAPast, assert_copied_once, batch_ranges, start_copy
from spark.readings import until


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerWithAPast]:
    server = ServerWithAPast(tmp_path_factory.mktemp("past"))
    yield server
    server.stop()


@pytest.fixture
def target(past: ServerWithAPast, name: str) -> Topic:
    topic = past.topic(f"{name}copy")
    topic.configure(durable=True, idempotency_window_ms=0)
    return topic


def copied(topic: Topic) -> int:
    count = topic.state()["count"]
    assert isinstance(count, int)
    return count


def lines_with(log: Path, text: str) -> int:
    return log.read_text().count(text)


@pytest.mark.parametrize(
    ("kill", "sign"),
    [(processes.kill_python_workers, "Lost task"), (processes.kill_an_executor, "Lost executor")],
    ids=["worker", "executor"],
)
def test_a_killed_executor_costs_nothing(
    spark: SparkSession,
    spark_log: Path,
    past: ServerWithAPast,
    target: Topic,
    tmp_path: Path,
    kill: Callable[[], int],
    sign: str,
) -> None:
    noted = lines_with(spark_log, sign)
    query = start_copy(spark, past.url, target.name, tmp_path / "checkpoint")
    # Twice, at places no batch and no task ends at: one of them is in the middle of a task's writes.
    for wanted in (25, 175):
        until(lambda wanted=wanted: copied(target) >= wanted)  # type: ignore[misc]
        until(lambda: kill() > 0)
        assert query.isActive
    query.awaitTermination()
    assert lines_with(spark_log, sign) > noted
    assert_copied_once(past, target, tmp_path / "checkpoint")


def test_a_killed_server_costs_nothing(
    spark: SparkSession, past: ServerWithAPast, target: Topic, tmp_path: Path
) -> None:
    query = start_copy(spark, past.url, target.name, tmp_path / "checkpoint")
    for wanted in (20, 300):
        until(lambda wanted=wanted: copied(target) >= wanted)  # type: ignore[misc]
        assert query.isActive
        past.kill()
        past.start()
    query.awaitTermination()
    assert_copied_once(past, target, tmp_path / "checkpoint")


def test_a_killed_driver_costs_nothing(
    spark: SparkSession, past: ServerWithAPast, target: Topic, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "spark.copy_driver", past.url, target.name, str(checkpoint)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: copied(target) >= 20 or driver.poll() is not None)
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python and its JVM
        driver.wait()
    batches_done = len([path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()])
    assert batches_done < len(batch_ranges(checkpoint))
    start_copy(spark, past.url, target.name, checkpoint).awaitTermination()
    assert_copied_once(past, target, checkpoint)


def whole(spark: SparkSession, **origin: str) -> list[Row]:
    starts = json.dumps(dict.fromkeys(NAMES, 1))
    frame = spark.read.format("topics").options(
        subscribePrefix="past.", startingOffsets=starts, onDataLoss="rows", minPartitions="3", **origin
    )
    return sorted(frame.load().collect(), key=lambda row: (row.topic, row.seq or row.gap_from))


def test_both_readers_give_the_same_rows_of_the_past(spark: SparkSession, past: ServerWithAPast) -> None:
    live = whole(spark, url=past.url)
    stored = whole(spark, path=past.data_path, coldPath=past.cold_path)
    assert seqs_of(live) == seqs_of(stored)
    assert [row for row in live if row.kind == "record"] == [row for row in stored if row.kind == "record"]
    for name, (head_seq, records, lost) in past.accounts().items():
        assert seqs_of(live)[name] == (records, lost)
        assert max(records | lost) == head_seq
    assert {row.reason for row in live} >= {"cap", "ttl", None}
    assert any(Path(past.cold_path).rglob("*.data"))


def seqs_of(rows: list[Row]) -> dict[str, tuple[set[int], set[int]]]:
    """Of each topic the seqs of its records, and those in tombstones. Where these are cut is the readers' business."""
    found: dict[str, tuple[set[int], set[int]]] = {name: (set(), set()) for name in NAMES}
    for row in rows:
        if row.kind == "record":
            found[row.topic][0].add(row.seq)
        else:
            found[row.topic][1].update(range(row.gap_from, row.gap_to + 1))
    return found
