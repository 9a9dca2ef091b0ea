"""What tests compare: rows of Spark, and the same history read from the server call by call."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from conformance.client import Topic


def read(spark: SparkSession, url: str, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("topics").options(url=url, **given).load()


def seqs(rows: Iterable[Row]) -> list[int]:
    return sorted(row.seq for row in rows if row.kind == "record")


def gaps(rows: Iterable[Row]) -> list[tuple[int, int | None, str]]:
    return sorted((row.gap_from, row.gap_to, row.reason) for row in rows if row.kind == "tombstone")


def history(topic: Topic, from_seq: int = 0) -> tuple[dict[int, dict[str, Any]], list[tuple[int, int, str]]]:
    """Everything the server itself tells of a topic: its records by seq, and its losses."""
    records: dict[int, dict[str, Any]] = {}
    losses = []
    while True:
        reply = topic.diff(from_seq=from_seq, limit=1000, include_tags=True)
        if reply["tombstone"] is not None:
            gap = reply["tombstone"]
            losses.append((gap["gap_from"], gap["gap_to"], gap["reason"]))
        records |= {record["$seq"]: record for record in reply["records"]}
        from_seq = reply["next_from_seq"]
        if reply["caught_up"]:
            return records, losses


@contextmanager
def driver_that_holds(spark: SparkSession, size: str) -> Iterator[None]:
    """While the block runs, Spark refuses to collect more than this on the driver in one job."""
    settings = spark.sparkContext._jsc.sc().conf()
    settings.set("spark.driver.maxResultSize", size)
    try:
        yield
    finally:
        settings.remove("spark.driver.maxResultSize")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Batches:
    """The rows of each batch of a streaming query, over all its runs. A batch that runs again replaces itself, and
    must have the same rows."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.by_id: dict[int, list[Row]] = {}

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.by_id) for row in self.by_id[number]]

    def run(self, spark: SparkSession, url: str, options: Mapping[str, object], **trigger: Any) -> Any:
        """Starts the query; without a trigger it runs until all that is there now is read."""
        source = spark.readStream.format("topics").option("url", url)
        for name, value in options.items():
            source = source.option(name, str(value))
        query = (
            source.load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        if not trigger:
            query.awaitTermination()
        return query

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = frame.collect()
        if number in self.by_id:
            assert sorted(map(str, rows)) == sorted(map(str, self.by_id[number]))
        self.by_id[number] = rows


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after the batch and before it noted so."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
