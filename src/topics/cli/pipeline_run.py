"""`topics pipeline run DIR`."""

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from topics.cli.pipeline_job import Common, PipelineJob

if TYPE_CHECKING:
    from topics.spark.jobs.project import RunSpec, RunSummary

_TOLD = re.compile(r"[0-9-]{10} [0-9:]{8}: ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a project, such as init writes")
    parser.add_argument(
        "--full-refresh", action="store_true", help="forget what was read and start over: results are written again"
    )
    parser.add_argument("--verbose", action="store_true", help="everything Spark prints, not only how far it is")


def spec(args: argparse.Namespace, common: Common) -> "RunSpec":
    from topics.spark.jobs.project import RunSpec, check_run  # noqa: PLC0415

    def said(line: str) -> None:
        if args.verbose or _TOLD.match(line):
            print(line, file=sys.stderr, flush=True)

    wanted = RunSpec(args.directory, common.master, common.settings, common.api_key, args.full_refresh, said)
    check_run(wanted)
    return wanted


def run(spark: Any, wanted: "RunSpec", progress: Any) -> "RunSummary":
    from topics.spark.jobs.project import run_project  # noqa: PLC0415

    return run_project(spark, wanted, progress)


def render(summary: "RunSummary") -> str:
    return f"{summary.directory}: completed"


JOB = PipelineJob(
    help="run a declarative project",
    description="Runs a project of Spark Declarative Pipelines with Spark's own spark-pipelines. The address of the "
    "server is in the project.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    needs_session=False,
)
