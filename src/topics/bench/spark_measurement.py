"""Rows a second in and out of Spark: sealed segments read as files, the same over HTTP, and writes.

Beside them Spark's own JSON reader on the same records: the server's export, a line a record, read into the same
columns. The readers take turns, so what else the machine does touches all of them; ratios are those of rounds that ran
next to each other. Every column is made (`noop` throws the rows away after that).
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from topics.bench.child_process import LOOPBACK
from topics.bench.errors import BenchError
from topics.bench.measurement import Figure, Measurement, MeasurementResult, Progress
from topics.bench.own_process import OwnProcess, server_on
from topics.bench.records import DATA_BYTES, fill
from topics.clock import SystemClock
from topics.limits import SEGMENT_EVENTS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "bench-spark"
SINK = "bench-spark-sink"
RECORDS_DEFAULT = 1_000_000
SINK_SHARE = 5  # of the records read, one in so many is written
FILES_TO_JSON_MIN = 1.0
JSON_COLUMNS = "`$seq` bigint, `$ts` bigint, `$node` string, `$tag` string, meta map<string,string>, data string"
SETTINGS = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}


class SparkMeasurement(Measurement):
    name = "spark"
    part_of_everything = False  # it needs the extra [spark], and Java

    def __init__(self, records: int | None, durability: str, rounds: int) -> None:
        # Whole segments: what is left over would not be sealed.
        self._records = -(-(records or RECORDS_DEFAULT) // SEGMENT_EVENTS_MAX) * SEGMENT_EVENTS_MAX
        self._rounds = rounds
        self._config = msgspec.json.encode({"durability": durability})
        self._clock = SystemClock()

    def measure(self, progress: Progress) -> MeasurementResult:
        spark = _session()
        try:
            with tempfile.TemporaryDirectory(prefix="topics-bench-") as name:
                return self._measure(spark, Path(name), progress)
        finally:
            spark.stop()

    def _measure(self, spark: "SparkSession", directory: Path, progress: Progress) -> MeasurementResult:
        progress(f"spark: writing {self._records} records to be sealed")
        with server_on(directory) as server:
            with server.control() as control:
                control.call("PUT", f"/v0/topics/{TOPIC}", self._config)
                fill(control, [TOPIC], 0, self._records)
            server.stop()
        with server_on(directory) as server:
            progress("spark: exporting them as JSON")
            lines = directory / "lines"
            lines.mkdir()
            _export(server, lines / "records.json")
            url = f"http://{LOOPBACK}:{server.port}"
            tasks = str(spark.sparkContext.defaultParallelism)
            readers: dict[str, Callable[[], DataFrame]] = {
                "files": lambda: _topic(spark, path=str(directory / "data")),
                "http": lambda: _topic(spark, url=url, minPartitions=tasks),
                "json": lambda: spark.read.schema(JSON_COLUMNS).json(str(lines)),
            }
            rates = self._read(readers, progress)
            progress("spark: writing")
            sunk = [self._write(spark, server, url) for _ in range(self._rounds + 1)][1:]
        return _result(self._records, rates, sunk)

    def _read(self, readers: "dict[str, Callable[[], DataFrame]]", progress: Progress) -> dict[str, list[float]]:
        """Of each reader the rows a second in each round. A round before the first warms up and checks."""
        rates: dict[str, list[float]] = {name: [] for name in readers}
        order = list(readers)
        for number in range(self._rounds + 1):
            turn = number % len(order)
            for name in order[turn:] + order[:turn]:
                progress(f"spark: round {number} of {self._rounds}, {name}")
                frame = readers[name]()
                if number == 0 and (found := frame.count()) < self._records:
                    raise BenchError(f"{name} has {found} of {self._records} rows")
                rate = self._records / self._seconds(lambda frame=frame: _to_nowhere(frame))  # type: ignore[misc]
                if number:
                    rates[name].append(rate)
        return rates

    def _write(self, spark: "SparkSession", server: OwnProcess, url: str) -> float:
        count = self._records // SINK_SHARE
        data = f"""concat('{{"type":"resize","n":', id, ',"note":"{"x" * (DATA_BYTES - 40)}"}}') as data"""
        frame = spark.range(count).selectExpr(data, "concat('job-', id) as tag")
        writer = frame.write.format("topics").options(url=url, topic=SINK).mode("append")
        seconds = self._seconds(writer.save)
        with server.control() as control:
            state = msgspec.json.decode(control.call("GET", f"/v0/topics/{SINK}"), type=_State)
            if state.count != count:
                raise BenchError(f"{state.count} of {count} rows were written")
            control.call("DELETE", f"/v0/topics/{SINK}")
        return count / seconds

    def _seconds(self, job: Callable[[], object]) -> float:
        began_ns = self._clock.monotonic_ns()
        job()
        return (self._clock.monotonic_ns() - began_ns) / 1e9


class _State(msgspec.Struct):
    count: int


def _session() -> "SparkSession":
    try:
        from topics.spark.session import local_session  # noqa: PLC0415
    except ImportError as problem:
        raise BenchError(f'there is no PySpark ({problem}): pip install "topics-engine[spark]"') from problem
    return local_session("topics-bench", settings=SETTINGS)


def _topic(spark: "SparkSession", **options: str) -> "DataFrame":
    return spark.read.format("topics").options(subscribe=TOPIC, **options).load()


def _to_nowhere(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _export(server: OwnProcess, path: Path) -> None:
    with server.control() as control:
        lines = control.call("GET", f"/v0/topics/{TOPIC}/export")
    records, _, end = lines.rstrip(b"\n").rpartition(b"\n")
    if not end.startswith(b'{"$end"'):
        raise BenchError("the export was cut off")
    path.write_bytes(records + b"\n")


def _result(records: int, rates: dict[str, list[float]], sunk: list[float]) -> MeasurementResult:
    def ratio(subject: str) -> float:
        return median(a / b for a, b in zip(rates[subject], rates["json"], strict=True))

    return MeasurementResult(
        "spark",
        f"{records} records of {DATA_BYTES} bytes",
        (
            Figure("sealed segments", median(rates["files"]), "rows/s"),
            Figure("over HTTP", median(rates["http"]), "rows/s"),
            Figure("Spark's JSON reader", median(rates["json"]), "rows/s"),
            Figure("sealed segments / JSON reader", ratio("files"), "×", at_least=FILES_TO_JSON_MIN),
            Figure("over HTTP / JSON reader", ratio("http"), "×"),
            Figure(f"written by {records // SINK_SHARE} rows", median(sunk), "rows/s"),
        ),
        ("medians of the rounds; the JSON reader is given its columns and leaves data as text, as the others do",),
    )
