"""`rollup`: event-time windows over a topic, into another topic or a directory, each result once.

A roll-up is a streaming query with Spark's own state and watermark, over a source that sums up what it reads
(`rollup_source`). Its checkpoint says how far it has read and which windows are open; the sink (`rollup_sinks`)
recognises a repeated batch. To count late records it reads the batch again, but only if Spark says that it dropped
something: Spark counts groups, not records.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from topics.spark.jobs.progress import Progress
from topics.spark.jobs.rollup_checkpoint import LateRecords, Place, alone, check_checkpoint, read_place, write_place
from topics.spark.jobs.rollup_frames import aggregated_paths, events, parts_of, results, stream
from topics.spark.jobs.rollup_sinks import DirectorySink, TopicSink
from topics.spark.jobs.rollup_spec import Emit, IntoTopic, RollupSpec, check

QUERY_DIRECTORY = "query"
WAIT_S = 1
LOOK_S = 0.05
_starting = threading.Lock()
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
WHOLE_STAGE_CODE = "spark.sql.codegen.wholeStage"


class RollupSummary(Struct, frozen=True):
    """What this run did. `late` records came after their window was closed, so no result has them; `without_time` have
    no readable time; `not_numbers` are values that an aggregate had to leave out. `open_groups` and `watermark`
    describe the whole roll-up; they are None if this run found nothing new and the one before was killed before it
    noted them."""

    topic: str
    into: str
    records: int
    results: int
    late: int
    without_time: int
    not_numbers: int
    lost_seqs: int
    open_groups: int | None
    watermark: str | None


def rollup(spark: SparkSession, spec: RollupSpec, progress: Progress) -> RollupSummary:
    """Runs until it has read everything there is now, or, with `follow`, until it is stopped."""
    check(spec)
    with alone(spec.checkpoint):
        check_checkpoint(spec)
        return _Run(spark, spec, progress).until_done()


class _Run:
    """One run of the query, and what its batches report."""

    def __init__(self, spark: SparkSession, spec: RollupSpec, progress: Progress) -> None:
        self._spec = spec
        self._progress = progress
        self._checkpoint = os.path.join(spec.checkpoint, QUERY_DIRECTORY)
        self._sink = (
            TopicSink(spec.server, spec.into.topic, spec.by, self._checkpoint)
            if isinstance(spec.into, IntoTopic)
            else DirectorySink(spec.into.path, self._checkpoint)
        )
        self._late = LateRecords(spark, spec, self._checkpoint)
        self._spark = spark
        self._reported = -1
        self._counts = {"records": 0, "late": 0, "without_time": 0, "not_numbers": 0, "lost_seqs": 0}
        self._place = read_place(spec.checkpoint, self._checkpoint)

    def until_done(self) -> RollupSummary:
        self._progress.begin(f"rolling up {self._spec.topic}")
        query = self._start()
        try:
            while not query.awaitTermination(WAIT_S):
                self._take(query)
        except BaseException:
            query.stop()
            raise
        finally:
            self._take(query)
            if self._reported != -1:
                write_place(self._spec.checkpoint, self._place)
        self._progress.end()
        into = self._spec.into
        return RollupSummary(
            topic=self._spec.topic,
            into=into.topic if isinstance(into, IntoTopic) else into.path,
            results=self._sink.results,
            open_groups=self._place.open_groups,
            watermark=self._place.watermark,
            **self._counts,
        )

    def _start(self) -> StreamingQuery:
        spec = self._spec
        rows = stream(self._spark, spec)
        trigger: dict[str, Any] = {"processingTime": "1 second"} if spec.follow else {"availableNow": True}
        writer = (
            results(events(rows, spec), spec)
            .writeStream.foreachBatch(self._sink.write)
            .outputMode("append" if spec.emit is Emit.CLOSED else "update")
            .option("checkpointLocation", self._checkpoint)
            .trigger(**trigger)
        )
        settings = {
            # The state has a file for each partition in every batch, and Spark's default of 200 suits hundreds of
            # cores. A checkpoint keeps the number it began with.
            SHUFFLE_PARTITIONS: str(self._spark.sparkContext.defaultParallelism),
            # The default starts a process, `readlink`, six times for each file it writes, because that is how Hadoop
            # looks for links. Here, too, a rename is one call of the system.
            FILE_MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        }
        if parts_of(spec) is not None:
            # Spark gets few rows: compiling code for them takes longer than they do.
            settings[WHOLE_STAGE_CODE] = "false"
        with _settings(self._spark, settings):
            return start_query(writer)

    def _take(self, query: StreamingQuery) -> None:
        for report in query.recentProgress:
            if report["batchId"] <= self._reported or report["numInputRows"] is None:
                continue
            self._reported = report["batchId"]
            seen = (report["observedMetrics"] or {}).get("input")
            if seen is None:
                continue  # with `follow`, Spark reports idle moments, too
            self._counts["records"] += seen.records or 0
            self._counts["without_time"] += seen.without_time
            self._counts["lost_seqs"] += seen.lost_seqs or 0
            self._counts["not_numbers"] += sum(
                seen[f"bad_{number}"] for number in range(len(aggregated_paths(self._spec)))
            )
            self._place = Place(
                report["batchId"],
                sum(state["numRowsTotal"] for state in report["stateOperators"]),
                report["eventTime"].get("watermark", self._place.watermark),
            )
            if any(state["numRowsDroppedByWatermark"] for state in report["stateOperators"]):
                self._counts["late"] += self._late.count(report)
            self._progress.advance(seen.records or 0, _lag(report, self._spec.topic))


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """A query takes the settings of its session when it starts."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            spark.conf.unset(name) if earlier is None else spark.conf.set(name, earlier)


def _lag(report: Any, topic: str) -> int | None:
    source = report["sources"][0]
    try:
        latest, end = (msgspec.json.decode(source[name])[topic]["seq"] for name in ("latestOffset", "endOffset"))
    except (KeyError, TypeError, msgspec.DecodeError):
        return None
    lag: int = latest - end
    return max(lag, 0)


def start_query(writer: DataStreamWriter) -> StreamingQuery:
    """Starts a query, one at a time in this process; returns when its source is up, or has failed.

    Spark runs a Python source as a separate process and allows it a fixed ten seconds to answer. Starting it takes one
    second of a core, but several at once, or a busy machine, may need more than ten. Each start that is too late is a
    failed run, which makes the next ones more likely to fail.
    """
    with _starting:
        query = writer.start()
        while query.isActive and str(query.status["message"]).startswith("Initializing"):
            threading.Event().wait(LOOK_S)
    return query
