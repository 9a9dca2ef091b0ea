"""`topics pipeline status`: how the jobs of `up` are, by their last reports."""

import argparse
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from topics.cli.pipeline_job import Common, PipelineJob
from topics.cli.table import aligned

SILENT_MS = 120_000
"""How late a run may begin, or an idle job report, before something is wrong."""


class JobStatus(Struct, frozen=True):
    """`ago_ms`: the age of the last report. `silent`: the job should have reported since, but has not: whatever ran it
    is gone or stuck."""

    pipeline: str
    job: str
    state: str
    silent: bool
    rows: int | None
    rows_per_s: int | None
    lag: int | None
    error: str | None
    ago_ms: int


class StatusSummary(Struct, frozen=True):
    url: str
    jobs: tuple[JobStatus, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has only the options that all jobs have."""


def spec(args: argparse.Namespace, common: Common) -> Any:
    return common.server()


def run(spark: Any, server: Any, progress: Any) -> StatusSummary:
    from topics.clock import SystemClock  # noqa: PLC0415
    from topics.spark.jobs.reports import told  # noqa: PLC0415

    last: dict[str, dict[str, Any]] = {}
    with server.client() as client:
        for ts, report in told(client):
            if "audit" not in report:
                # What a run found stays until the next one ends.
                known = last.get(report["pipeline"], {})
                last[report["pipeline"]] = {**known, "error": None, "wait_ms": None, **report, "ts": ts}
    now_ms = SystemClock().now_ms()
    return StatusSummary(server.url, tuple(_status(name, report, now_ms) for name, report in sorted(last.items())))


def _status(name: str, report: dict[str, Any], now_ms: int) -> JobStatus:
    ago_ms = max(0, now_ms - report["ts"])
    wait_ms = report["wait_ms"]
    return JobStatus(
        name,
        report.get("job", ""),
        report.get("state", ""),
        wait_ms is not None and ago_ms > wait_ms + SILENT_MS,
        report.get("rows"),
        report.get("rows_per_s"),
        report.get("lag"),
        report["error"],
        ago_ms,
    )


def render(summary: StatusSummary) -> str:
    if not summary.jobs:
        return f"{summary.url}: no pipeline has reported yet; topics pipeline up FILE runs them"
    rows: list[Sequence[str]] = [("pipeline", "job", "state", "rows", "rows/s", "lag", "told")]
    rows += [
        (
            job.pipeline,
            job.job,
            f"{job.state}, silent" if job.silent else job.state,
            *("–" if value is None else f"{value:,}" for value in (job.rows, job.rows_per_s, job.lag)),
            f"{job.ago_ms / 1000:.0f} s ago",
        )
        for job in summary.jobs
    ]
    errors = [f"{job.pipeline}: {job.error}" for job in summary.jobs if job.error]
    right = [False] * 3 + [True] * 4
    return "\n".join([*aligned(rows, right), *([""] if errors else []), *errors])


JOB = PipelineJob(
    help="how the jobs of `topics pipeline up` are doing",
    description="The last report of every job that `topics pipeline up` runs, or ran. Exit status: 1 when the last "
    "run of a job failed, or a job is silent although it was due to run.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    status=lambda summary: 1 if any(job.state == "failed" or job.silent for job in summary.jobs) else 0,
    takes_url=True,
    needs_session=False,
    needs_java=False,
)
