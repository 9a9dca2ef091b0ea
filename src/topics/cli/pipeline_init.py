"""`topics pipeline init DIR`."""

import argparse
from typing import TYPE_CHECKING, Any

from topics.cli.pipeline_job import Common, PipelineJob

if TYPE_CHECKING:
    from topics.spark.jobs.project import InitSpec, InitSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a new or empty directory")
    parser.add_argument("--topic", metavar="TOPIC", default="events", help="the topic it reads (events)")


def spec(args: argparse.Namespace, common: Common) -> "InitSpec":
    from topics.spark.jobs.project import InitSpec, check_init  # noqa: PLC0415

    wanted = InitSpec(args.directory, args.topic, common.url)
    check_init(wanted)
    return wanted


def run(spark: Any, wanted: "InitSpec", progress: Any) -> "InitSummary":
    from topics.spark.jobs.project import init_project  # noqa: PLC0415

    return init_project(spark, wanted, progress)


def render(summary: "InitSummary") -> str:
    files = "\n".join(f"  {file}" for file in summary.files)
    return f"{summary.directory}:\n{files}\nrun it with: topics pipeline run {summary.directory}"


JOB = PipelineJob(
    help="a new declarative project",
    description="Writes a project of Spark Declarative Pipelines: bronze, silver and gold over a topic, results back "
    "into topics. spark-pipelines runs it as it is.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    needs_session=False,
    takes_url=True,
)
