"""`topics pipeline compact`: small files of an archive become few large ones."""

import argparse
from typing import TYPE_CHECKING

from topics.cli.pipeline_job import Common, PipelineJob, archive_at
from topics.cli.table import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.spark.jobs.compact import CompactSpec, CompactSummary
    from topics.spark.jobs.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the archive")
    parser.add_argument(
        "--file-mb", metavar="MB", type=int, default=128, help="largest size of a merged file, in megabytes (128)"
    )
    parser.add_argument(
        "--keep-hours", metavar="H", type=int, default=168, help="how long replaced files stay, for readers (168)"
    )


def spec(args: argparse.Namespace, common: Common) -> "CompactSpec":
    from topics.spark.jobs.compact import CompactSpec, check_spec  # noqa: PLC0415

    wanted = CompactSpec(archive_at(args.directory), args.file_mb, args.keep_hours)
    check_spec(wanted)
    return wanted


def run(spark: "SparkSession", wanted: "CompactSpec", progress: "Progress") -> "CompactSummary":
    from topics.spark.jobs.compact import compact  # noqa: PLC0415

    return compact(spark, wanted, progress)


def writes(wanted: "CompactSpec") -> str:
    return wanted.directory


def render(summary: "CompactSummary") -> str:
    return (
        f"{summary.directory}: {counted(summary.files_before, 'file')} ({summary.size_bytes_before / 1e6:.1f} MB), now "
        f"{summary.files_after:,} ({summary.size_bytes_after / 1e6:.1f} MB); {summary.records:,} records were "
        f"rewritten and compared, {summary.removed:,} unneeded files removed, {summary.elapsed_ms / 1000:.1f} s"
    )


JOB = PipelineJob(
    help="merge small files of an archive",
    description="Merges files of an archive that follow each other in one topic and date. The records stay what they "
    "are: what is merged is read back and compared before it takes the place of its parts.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    writes=writes,
    takes_storage=True,
)
