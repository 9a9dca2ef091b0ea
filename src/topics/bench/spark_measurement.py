"""Rows a second in and out of Spark: sealed segments read as files, the same over HTTP, and writes.

Reads are compared with Spark's JSON reader on the same records: on the server's export with a line for each record,
read into the same columns, and on the bare payloads, read into the same fields. Writes are compared with the client's
producer. All take turns, so other work on the machine affects all of them; ratios compare neighbouring rounds. Readers
of whole records fill every column, and then `noop` drops the rows; readers that count or group name the columns they
need.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from topics.bench.child_process import LOOPBACK
from topics.bench.errors import BenchError
from topics.bench.measurement import Figure, Measurement, MeasurementResult, Progress, turn_name
from topics.bench.own_process import OwnProcess, server_on
from topics.bench.records import DATA_BYTES, data_of, fill, tag_of
from topics.clock import SystemClock
from topics.limits import SEGMENT_EVENTS_MAX, SPARK_CHUNK_RECORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "bench-spark"
SINK = "bench-spark-sink"
SMALL = "bench-spark-small"
SMALL_RECORDS = 5000
RECORDS_DEFAULT = 1_000_000
SINK_SHARE = 5  # one in this many of the records is written
PRODUCERS = 2
READS_A_ROUND = 3
READ_WARM_UPS = 2
COUNT_TO_JSON_MIN = 1.5
HTTP_TO_JSON_MIN = 0.6
GROUPED_TO_JSON_MIN = 1.2
SINK_TO_PRODUCER_MIN = 0.8
COUNTED = "seq bigint"
GROUPED = "type string, width bigint, height bigint, url string"
JSON_COLUMNS = "`$seq` bigint, `$ts` bigint, `$node` string, `$tag` string, meta map<string,string>, data string"
SETTINGS = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}


class SparkMeasurement(Measurement):
    name = "spark"
    part_of_everything = False  # it needs the extra [spark], and Java

    def __init__(self, records: int | None, durability: str, rounds: int) -> None:
        # Whole segments: a remainder would not be sealed.
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
            payloads = directory / "payloads"
            payloads.mkdir()
            _export(server, lines / "records.json", payloads / "payloads.json")
            url = f"http://{LOOPBACK}:{server.port}"
            tasks = str(spark.sparkContext.defaultParallelism)
            data = str(directory / "data")
            readers: dict[str, Callable[[], object]] = {
                "files": lambda: _to_nowhere(_topic(spark, path=data)),
                "http": lambda: _to_nowhere(_topic(spark, url=url, minPartitions=tasks)),
                "json": lambda: _to_nowhere(spark.read.schema(JSON_COLUMNS).json(str(lines))),
                "files counted": lambda: _topic(spark, COUNTED, path=data).count(),
                "json counted": lambda: spark.read.schema(JSON_COLUMNS).json(str(lines)).count(),
                "files grouped": lambda: _grouped(_topic(spark, GROUPED, path=data)),
                "json grouped": lambda: _grouped(spark.read.schema(GROUPED).json(str(payloads))),
            }
            _check_rows(spark, data, url, lines, self._records)
            rates = self._read(readers, progress)
            progress("spark: writing")
            written = [(self._write(spark, server, url), self._produce(server, url)) for _ in range(self._rounds + 1)]
            jobs = self._jobs(spark, directory, server, url, progress)
        return _result(self._records, rates, [sink for sink, _ in written[1:]], [own for _, own in written[1:]], jobs)

    def _jobs(
        self, spark: "SparkSession", directory: Path, server: OwnProcess, url: str, progress: Progress
    ) -> list[Figure]:
        from topics.bench.spark_jobs import JobBench  # noqa: PLC0415
        from topics.spark.options import Server  # noqa: PLC0415

        def remove(topic: str) -> None:
            with server.control() as control:
                control.call("DELETE", f"/v0/topics/{topic}")

        with server.control() as control:
            fill(control, [SMALL], 0, SMALL_RECORDS)
        produced = self._records // SINK_SHARE
        bench = JobBench(
            spark, directory, Server(url, None), TOPIC, GROUPED, lambda: self._produce(server, url), remove
        )
        return bench.figures(self._records, produced, SMALL.replace("-", "_"), self._rounds, progress)

    def _read(self, readers: "dict[str, Callable[[], object]]", progress: Progress) -> dict[str, list[float]]:
        """The rows a second of each reader, several times a round: they take a second or two. The first ones warm up,
        or half of what they measure would be the JVM, compiling."""
        rates: dict[str, list[float]] = {name: [] for name in readers}
        order = list(readers)
        times = self._rounds * READS_A_ROUND
        for number in range(-READ_WARM_UPS, times):
            turn = number % len(order)
            for name in order[turn:] + order[:turn]:
                progress(f"spark: {name}, {turn_name(number, times)}")
                rate = self._records / self._seconds(readers[name])
                if number >= 0:
                    rates[name].append(rate)
        return rates

    def _write(self, spark: "SparkSession", server: OwnProcess, url: str) -> float:
        count = self._records // SINK_SHARE
        data = f"""concat('{{"type":"resize","n":', id, ',"note":"{"x" * (DATA_BYTES - 40)}"}}') as data"""
        frame = spark.range(count).selectExpr(data, "concat('job-', id) as tag")
        writer = frame.write.format("topics").options(url=url, topic=SINK).mode("append")
        seconds = self._seconds(writer.save)
        self._forget(server, count)
        return count / seconds

    def _produce(self, server: OwnProcess, url: str) -> float:
        """Writes as many records through the client: one producer thread for each task of Spark. Returns rows a
        second."""
        count = self._records // SINK_SHARE
        halves = [range(at, count, PRODUCERS) for at in range(PRODUCERS)]

        def produce() -> None:
            with ThreadPoolExecutor(PRODUCERS) as threads:
                list(threads.map(_append_all, [url] * PRODUCERS, halves))

        seconds = self._seconds(produce)
        self._forget(server, count)
        return count / seconds

    def _forget(self, server: OwnProcess, count: int) -> None:
        with server.control() as control:
            state = msgspec.json.decode(control.call("GET", f"/v0/topics/{SINK}"), type=_State)
            if state.count != count:
                raise BenchError(f"{state.count} of {count} rows were written")
            control.call("DELETE", f"/v0/topics/{SINK}")

    def _seconds(self, job: Callable[[], object]) -> float:
        began_ns = self._clock.monotonic_ns()
        job()
        return (self._clock.monotonic_ns() - began_ns) / 1e9


class _State(msgspec.Struct):
    count: int


class _Line(msgspec.Struct):
    data: msgspec.Raw


def _session() -> "SparkSession":
    try:
        from topics.spark.session import local_session  # noqa: PLC0415
    except ImportError as problem:
        raise BenchError(f'PySpark is missing ({problem}): pip install "topics-engine[spark]"') from problem
    return local_session("topics-bench", settings=SETTINGS)


def _topic(spark: "SparkSession", columns: str | None = None, **options: str) -> "DataFrame":
    source = spark.read.format("topics").options(subscribe=TOPIC, **options)
    return source.load() if columns is None else source.schema(columns).load()


def _to_nowhere(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _grouped(frame: "DataFrame") -> object:
    return frame.groupBy("type", "width").agg({"height": "sum", "url": "max"}).collect()


def _check_rows(spark: "SparkSession", data: str, url: str, lines: Path, records: int) -> None:
    frames = {"files": _topic(spark, path=data), "http": _topic(spark, url=url), "json": spark.read.text(str(lines))}
    for name, frame in frames.items():
        if (found := frame.count()) < records:
            raise BenchError(f"{name} has {found} of {records} rows")


def _append_all(url: str, numbers: range) -> None:
    from topics.client.calls import NewRecord  # noqa: PLC0415
    from topics.client.sync_client import Client  # noqa: PLC0415

    with Client(url) as client:
        for at in range(0, len(numbers), SPARK_CHUNK_RECORDS):
            chunk = numbers[at : at + SPARK_CHUNK_RECORDS]
            records = [NewRecord(msgspec.Raw(data_of(number)), tag_of(number).decode()) for number in chunk]
            client.append_many(SINK, records)


def _export(server: OwnProcess, path: Path, payloads_path: Path) -> None:
    with server.control() as control:
        lines = control.call("GET", f"/v0/topics/{TOPIC}/export")
    records, _, end = lines.rstrip(b"\n").rpartition(b"\n")
    if not end.startswith(b'{"$end"'):
        raise BenchError("the export was cut off")
    path.write_bytes(records + b"\n")
    with payloads_path.open("wb") as payloads:
        for line in records.split(b"\n"):
            payloads.write(bytes(msgspec.json.decode(line, type=_Line).data) + b"\n")


def _result(
    records: int, rates: dict[str, list[float]], sunk: list[float], produced: list[float], jobs: list[Figure]
) -> MeasurementResult:
    def ratio(subject: str, peer: str) -> float:
        return median(a / b for a, b in zip(rates[subject], rates[peer], strict=True))

    def rate(name: str) -> float:
        return median(rates[name])

    to_producer = median(a / b for a, b in zip(sunk, produced, strict=True))
    return MeasurementResult(
        "spark",
        f"{records} records of {DATA_BYTES} bytes",
        (
            Figure("whole records, sealed segments", rate("files"), "rows/s"),
            Figure("whole records, over HTTP", rate("http"), "rows/s"),
            Figure("whole records, Spark's JSON reader", rate("json"), "rows/s"),
            Figure("sealed segments / JSON reader", ratio("files", "json"), "×"),
            Figure("over HTTP / JSON reader", ratio("http", "json"), "×", at_least=HTTP_TO_JSON_MIN),
            Figure("count of sealed segments", rate("files counted"), "rows/s"),
            Figure("count / JSON reader", ratio("files counted", "json counted"), "×", at_least=COUNT_TO_JSON_MIN),
            Figure("typed group-by of sealed segments", rate("files grouped"), "rows/s"),
            Figure("group-by / JSON reader", ratio("files grouped", "json grouped"), "×", at_least=GROUPED_TO_JSON_MIN),
            Figure(f"written by {records // SINK_SHARE} rows", median(sunk), "rows/s"),
            Figure("written / the client's producer", to_producer, "×", at_least=SINK_TO_PRODUCER_MIN),
            *jobs,
        ),
        ("medians of the rounds; a ratio is that of readers that ran in the same round",),
    )
