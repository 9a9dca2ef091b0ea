"""`topics pipeline archive`: topics as a Delta table, only what is new each time."""

import argparse
import os
from typing import TYPE_CHECKING

from topics.cli.pipeline_job import Common, PipelineJob, archive_at
from topics.cli.table import aligned, counted
from topics.cli.values import InvalidArguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.spark.jobs.archive import ArchiveSpec, ArchiveSummary
    from topics.spark.jobs.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics to archive")
    parser.add_argument("--prefix", metavar="P", help="or every topic whose name begins with this")
    parser.add_argument(
        "--to",
        metavar="DIR",
        required=True,
        help="the archive, a directory or s3://bucket/path; made if it does not exist",
    )
    parser.add_argument("--follow", action="store_true", help="go on with new records, until Ctrl-C")
    parser.add_argument("--interval", metavar="S", type=float, default=5.0, help="seconds between rounds (5)")
    parser.add_argument(
        "--schema",
        metavar="COLUMNS",
        default="",
        help="typed columns beside data: 'sku string, total bigint', infer, or variant",
    )
    parser.add_argument("--file-mb", metavar="MB", type=int, default=256, help="megabytes of JSON text in a file (256)")
    parser.add_argument("--round", metavar="N", type=int, help="records in a commit (depends on the cores)")
    parser.add_argument("--data", metavar="DIR", help="read a data directory or backup instead of a server")
    parser.add_argument("--cold", metavar="DIR", help="the cold directory that goes with --data")


def spec(args: argparse.Namespace, common: Common) -> "ArchiveSpec":
    from topics.spark.jobs.archive import ArchiveSpec, check_spec  # noqa: PLC0415
    from topics.spark.options import Files  # noqa: PLC0415

    if args.topics and args.prefix is not None:
        raise InvalidArguments(f"{args.topics[0]} and --prefix contradict each other: name topics, or give --prefix")
    if not args.topics and args.prefix is None:
        raise InvalidArguments("name topics, or give --prefix")
    if args.data is not None and args.url is not None:
        raise InvalidArguments("--data and --url contradict each other: read a directory, or ask a server")
    if args.cold is not None and args.data is None:
        raise InvalidArguments("--cold goes with --data")
    origin = common.server() if args.data is None else Files(os.path.abspath(args.data), args.cold)
    wanted = ArchiveSpec(
        origin,
        archive_at(args.to),
        tuple(args.topics),
        args.prefix,
        args.schema,
        args.follow,
        args.interval,
        args.file_mb,
        args.round,
    )
    check_spec(wanted)
    return wanted


def run(spark: "SparkSession", wanted: "ArchiveSpec", progress: "Progress") -> "ArchiveSummary":
    from topics.spark.jobs.archive import archive  # noqa: PLC0415

    return archive(spark, wanted, progress)


def writes(wanted: "ArchiveSpec") -> str:
    from topics.spark.options import Server  # noqa: PLC0415

    origin = wanted.origin
    return f"{wanted.directory}, from {origin.url if isinstance(origin, Server) else origin.path}"


def render(summary: "ArchiveSummary") -> str:
    if not summary.topics:
        return f"{summary.directory}: nothing new"
    rows = [("topic", "seqs", "records", "deleted", "lost", "files", "MB")]
    rows += [
        (
            topic.topic,
            f"{topic.from_seq + 1}-{topic.to_seq}",
            f"{topic.records:,}",
            f"{topic.deleted:,}",
            f"{topic.lost:,}",
            f"{topic.files:,}",
            f"{topic.size_bytes / 1e6:.1f}",
        )
        for topic in summary.topics
    ]
    last = (
        f"{summary.directory}: {summary.records:,} records in {counted(summary.commits, 'commit')}, "
        f"{summary.elapsed_ms / 1000:.1f} s, {summary.records_per_s:,} records/s ({summary.columns})"
    )
    return "\n".join([*aligned(rows), "", last])


JOB = PipelineJob(
    help="topics to a Delta table, only what is new each time",
    description="Archives topics to a Delta table that any engine reads, partitioned by topic and date, and what they "
    "lost to a table beside it. Run it again and only what is new is added.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    writes=writes,
    takes_url=True,
    takes_storage=True,
)
