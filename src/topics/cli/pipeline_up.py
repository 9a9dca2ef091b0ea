"""`topics pipeline up FILE`: the jobs of a file, in one Spark application, until it is stopped."""

import argparse
import signal
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from topics.cli.pipeline_job import Common, PipelineJob
from topics.cli.table import counted

if TYPE_CHECKING:
    from topics.cli.pipeline_file import FileJob
    from topics.spark.jobs.reports import Report
    from topics.spark.options import Server


@dataclass(frozen=True, slots=True)
class UpSpec:
    path: str
    server: "Server"
    jobs: "list[FileJob]"
    once: bool


class UpSummary(Struct, frozen=True):
    """`failing`: for each job whose last run failed, how many runs failed in a row."""

    jobs: int
    failing: dict[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the jobs: pipelines.toml")
    parser.add_argument("--once", action="store_true", help="run each job once, and end")


def spec(args: argparse.Namespace, common: Common) -> UpSpec:
    from topics.cli.pipeline_file import read_file  # noqa: PLC0415

    server = common.server()
    return UpSpec(args.file, server, read_file(args.file, common, args.pipeline_jobs), args.once)


def run(spark: Any, wanted: UpSpec, progress: Any) -> UpSummary:
    from pyspark.java_gateway import ensure_callback_server_started  # noqa: PLC0415

    from topics.spark.jobs.reports import TopicReports  # noqa: PLC0415
    from topics.spark.jobs.supervise import supervise  # noqa: PLC0415

    # Spark would start it with the first query that calls Python. Two threads at once would start two, and Java would
    # call one of the queries where nobody listens.
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    stop = threading.Event()
    reports = TopicReports(wanted.server, _say)
    before = {number: signal.signal(number, lambda *_: _stop(stop)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        reports.begin()

        def tell(report: "Report") -> None:
            _say(_line(report))
            reports.tell(report)

        turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        jobs = [job.supervised(spark, turns[job.archive or f"job {job.name}"]) for job in wanted.jobs]
        failures = supervise(jobs, tell, stop, once=wanted.once)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        reports.close()
    return UpSummary(len(jobs), {name: count for name, count in failures.items() if count})


def _stop(stop: threading.Event) -> None:
    if stop.is_set():
        raise KeyboardInterrupt
    stop.set()
    _say("stopping: jobs finish their current runs; a second signal ends them at once")


def _say(text: str) -> None:
    print(f"topics: {text}", file=sys.stderr, flush=True)


def _line(report: "Report") -> str:
    match report.state:
        case "done":
            return f"{report.pipeline}: {report.rows:,} rows in {(report.elapsed_ms or 0) / 1000:.1f} s"
        case "failed":
            return f"{report.pipeline}: failed, again in {(report.wait_ms or 0) / 1000:g} s: {report.error}"
    return f"{report.pipeline}: {report.state}"


def writes(wanted: UpSpec) -> str:
    return f"topics:pipelines on {wanted.server.url}, and where its {counted(len(wanted.jobs), 'job')} write"


def render(summary: UpSummary) -> str:
    failing = ", ".join(f"{name} ({counted(count, 'run')} in a row)" for name, count in summary.failing.items())
    return f"{counted(summary.jobs, 'job')} ended" + (f"; failed: {failing}" if failing else "")


JOB = PipelineJob(
    help="run the jobs of a file on schedule",
    description="Runs the jobs of a file in one Spark application, each as often as it says. A job that fails is tried "
    "again after a growing wait, and does not affect the others. Every run is reported in the topic topics:pipelines. "
    "Ctrl-C lets the jobs finish their current runs. Exit status: 1 when the last run of a job failed.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    status=lambda summary: 1 if summary.failing else 0,
    writes=writes,
    takes_url=True,
    takes_storage=True,
    settings={"spark.scheduler.mode": "FAIR"},
)
