"""The bulk jobs of `topics pipeline`, compared with Spark or the client doing the same work.

A job and its peer take turns, and a ratio compares two neighbouring runs. The first round is a warm-up. Queries, which
are short, are warmed up longer and run several times a round.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyspark.sql.functions as sf

from topics.bench.errors import BenchError
from topics.bench.measurement import Figure, Progress, turn_name
from topics.clock import SystemClock
from topics.spark.archive.files import read_archive
from topics.spark.jobs.archive import ArchiveSpec, archive
from topics.spark.jobs.progress import Silent
from topics.spark.jobs.replay import ReplaySpec, replay
from topics.spark.jobs.rollup import rollup
from topics.spark.jobs.rollup_spec import IntoDirectory, RollupSpec, aggregates_of
from topics.spark.options import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARCHIVED_TO_JSON_MIN = 0.8
GROUPED_TO_PARQUET_MIN = 1.0
REPLAYED_TO_PRODUCER_MIN = 0.7
ROLLED_UP_TO_JSON_MIN = 0.6
FIRST_RESULT_TO_RANGE_MAX = 2.0
REPLAYED = "bench-spark-replayed"
WINDOW_MS = 60_000
LINES = "`$seq` bigint, `$ts` bigint, `$node` string, `$tag` string, meta map<string,string>, data string"
TIMED = "`$ts` bigint, data struct<type: string, height: double>"
RANGE_APPLICATION = (
    "from topics.spark.session import local_session\n"
    "spark = local_session('range')\n"
    "assert spark.range(1).count() == 1\n"
    "spark.stop()\n"
)
DEADLINE_S = 600
QUERIES_A_ROUND = 5
QUERY_WARM_UPS = 3

Pair = tuple[Callable[[], float], Callable[[], float]]
"""A job and its peer: each returns rows a second."""


class JobBench:
    """`fields` are the fields of a payload; `lines` and `payloads` are the same records as JSON. `produce` writes a
    number of records through the client and returns rows a second; `forget` removes a topic."""

    def __init__(
        self,
        spark: "SparkSession",
        directory: Path,
        server: Server,
        topic: str,
        fields: str,
        produce: Callable[[], float],
        forget: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._server = server
        self._topic = topic
        self._fields = fields
        self._produce = produce
        self._forget = forget
        self._clock = SystemClock()

    def figures(self, records: int, produced: int, small: str, rounds: int, progress: Progress) -> list[Figure]:
        """The topic has `records` records, of which `produced` are replayed; the topic `small` has only a few."""
        ratios: dict[str, list[float]] = {}
        rates: dict[str, list[float]] = {}
        jobs: dict[str, Pair] = {
            "archive": (lambda: records / self._archive(), lambda: records / self._json_to_parquet()),
            "replay": (lambda: produced / self._replay(produced), self._produce),
            "roll-up": (lambda: records / self._rollup(), lambda: records / self._aggregate()),
        }
        queries: dict[str, Pair] = {
            "group-by": (lambda: 1 / self._group(self._archived()), lambda: 1 / self._group(self._parquet())),
        }
        # A query is over in a second. At first half of that is compiling, which the second of a pair profits by.
        for pairs, times, warm_ups in ((jobs, rounds, 1), (queries, rounds * QUERIES_A_ROUND, QUERY_WARM_UPS)):
            for number in range(-warm_ups, times):
                for name, (job, peer) in pairs.items():
                    progress(f"spark: {name}, {turn_name(number, times)}")
                    # The first archive is there before anything reads it.
                    first, second = (peer, job) if number % 2 and number >= 0 else (job, peer)
                    found = {first: first(), second: second()}
                    if number >= 0:
                        rates.setdefault(name, []).append(found[job])
                        ratios.setdefault(name, []).append(found[job] / found[peer])
        progress("spark: the first result of a query")
        starts = [self._first_result(small) / self._range() for _ in range(rounds)]
        return [
            Figure("archived", median(rates["archive"]), "rows/s"),
            _ratio("archived / JSON to Parquet", ratios["archive"], ARCHIVED_TO_JSON_MIN),
            _ratio("typed group-by of an archive / of Parquet", ratios["group-by"], GROUPED_TO_PARQUET_MIN),
            Figure("replayed", median(rates["replay"]), "rows/s"),
            _ratio("replayed / the client's producer", ratios["replay"], REPLAYED_TO_PRODUCER_MIN),
            Figure("rolled up", median(rates["roll-up"]), "rows/s"),
            _ratio("rolled up / Spark on JSON files", ratios["roll-up"], ROLLED_UP_TO_JSON_MIN),
            Figure(
                "first result of a query / of an application that counts one row",
                median(starts),
                "×",
                at_most=FIRST_RESULT_TO_RANGE_MAX,
            ),
        ]

    @property
    def _target(self) -> Path:
        return self._directory / "archive"

    @property
    def _plain(self) -> Path:
        return self._directory / "plain"

    def _archive(self) -> float:
        with self._emptied(self._target):
            spec = ArchiveSpec(self._server, str(self._target), (self._topic,), schema=self._fields)
            return self._seconds(lambda: archive(self._spark, spec))

    def _json_to_parquet(self) -> float:
        """Writes the same columns as the archive: the record's, and the fields of its payload as a struct."""
        with self._emptied(self._plain):
            lines = self._spark.read.schema(LINES).json(str(self._directory / "lines"))
            typed = lines.withColumn("value", sf.from_json("data", self._fields))
            return self._seconds(lambda: typed.write.option("compression", "zstd").parquet(str(self._plain)))

    def _archived(self) -> "DataFrame":
        return read_archive(self._spark, str(self._target)).select("value.*")

    def _parquet(self) -> "DataFrame":
        return self._spark.read.parquet(str(self._plain)).select("value.*")

    def _group(self, frame: "DataFrame") -> float:
        return self._seconds(
            lambda: frame.groupBy("type", "width").agg({"height": "sum", "url": "max"}).collect(),
        )

    def _replay(self, count: int) -> float:
        spec = ReplaySpec(str(self._target), self._server, REPLAYED, to_seq=count)
        seconds = self._seconds(lambda: replay(self._spark, spec))
        self._forget(REPLAYED)
        return seconds

    def _rollup(self) -> float:
        checkpoint, into = self._directory / "checkpoint", self._directory / "rolled"
        with self._emptied(checkpoint), self._emptied(into):
            spec = RollupSpec(
                server=self._server,
                topic=self._topic,
                into=IntoDirectory(str(into)),
                checkpoint=str(checkpoint),
                window_ms=WINDOW_MS,
                aggregates=aggregates_of("count,sum:height"),
                by=("$.type",),
            )
            return self._seconds(lambda: rollup(self._spark, spec, Silent()))

    def _aggregate(self) -> float:
        lines = self._spark.read.schema(TIMED).json(str(self._directory / "lines"))
        window = sf.window(sf.timestamp_millis("`$ts`"), f"{WINDOW_MS} milliseconds")
        grouped = lines.groupBy(window, "data.type").agg(sf.count("*"), sf.sum("data.height"))
        return self._seconds(grouped.collect)

    def _first_result(self, small: str) -> float:
        words = ["-m", "topics.cli.main", "pipeline", "query", f"SELECT count(*) FROM `{small}`"]
        return self._process([*words, "--url", self._server.url])

    def _range(self) -> float:
        return self._process(["-c", RANGE_APPLICATION])

    def _process(self, words: list[str]) -> float:
        def run() -> None:
            done = subprocess.run([sys.executable, *words], capture_output=True, check=False, timeout=DEADLINE_S)
            if done.returncode:
                raise BenchError(f"a process ended with {done.returncode}: {done.stderr.decode()[-500:]}")

        return self._seconds(run)

    @contextmanager
    def _emptied(self, path: Path) -> Iterator[None]:
        shutil.rmtree(path, ignore_errors=True)
        yield

    def _seconds(self, job: Callable[[], object]) -> float:
        began_ns = self._clock.monotonic_ns()
        job()
        return (self._clock.monotonic_ns() - began_ns) / 1e9


def _ratio(name: str, found: list[float], at_least: float) -> Figure:
    return Figure(name, median(found), "×", at_least=at_least)
