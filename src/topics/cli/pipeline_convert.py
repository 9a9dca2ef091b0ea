"""`topics pipeline convert DIR`: an archive of an older version becomes a Delta table, once."""

import argparse
from typing import TYPE_CHECKING, Any

from topics.cli.pipeline_job import Common, PipelineJob, archive_at
from topics.cli.table import counted

if TYPE_CHECKING:
    from topics.spark.archive.convert import ConvertSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the archive")


def spec(args: argparse.Namespace, common: Common) -> str:
    from topics.spark.archive.convert import check_old  # noqa: PLC0415

    directory: str = archive_at(args.directory)
    check_old(directory)
    return directory


def run(spark: Any, directory: str, progress: Any) -> "ConvertSummary":
    from topics.spark.archive.convert import convert  # noqa: PLC0415

    return convert(directory)


def writes(directory: str) -> str:
    return directory


def render(summary: "ConvertSummary") -> str:
    return (
        f"{summary.directory}: a Delta table now, {counted(summary.records, 'record')} of "
        f"{counted(summary.topics, 'topic')} in {counted(summary.files, 'file')}; lost ranges: {summary.losses:,}"
    )


JOB = PipelineJob(
    help="an archive of an older version as a Delta table",
    description="Makes a Delta table of an archive that an older version wrote. Its files stay as they are. If it is "
    "killed, run it again.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    writes=writes,
    needs_session=False,
)
