"""`topics pipeline replay`: records of an archive into a topic."""

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from topics.cli.pipeline_job import Common, PipelineJob, archive_at
from topics.cli.values import InvalidArguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.spark.jobs.progress import Progress
    from topics.spark.jobs.replay import ReplaySpec, ReplaySummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="directory", metavar="DIR", required=True, help="the archive")
    parser.add_argument(
        "--into", metavar="TOPIC", required=True, help="where the records go; made if it does not exist"
    )
    parser.add_argument("--topic", metavar="TOPIC", help="the archived topic, if the archive has several")
    parser.add_argument("--from-seq", metavar="N", type=int, default=1, help="the first seq")
    parser.add_argument("--to-seq", metavar="N", type=int, help="the last seq")
    parser.add_argument("--from-time", metavar="T", help="from this time on: 2026-11-16T05:00:00Z, or ms since 1970")
    parser.add_argument("--to-time", metavar="T", help="before this time")
    parser.add_argument("--tag", help="only records with this tag")
    parser.add_argument("--speed", metavar="N", type=float, help="N times as fast as it happened (as fast as possible)")


def spec(args: argparse.Namespace, common: Common) -> "ReplaySpec":
    from topics.spark.jobs.replay import ReplaySpec, check_spec  # noqa: PLC0415

    times = {name: milliseconds(f"--{name}-time", getattr(args, f"{name}_time")) for name in ("from", "to")}
    wanted = ReplaySpec(
        archive_at(args.directory),
        common.server(),
        args.into,
        args.topic,
        args.from_seq,
        args.to_seq,
        times["from"],
        times["to"],
        args.tag,
        args.speed,
    )
    check_spec(wanted)
    return wanted


def milliseconds(option: str, text: str | None) -> int | None:
    """A time as people or programs write it; without a zone it is UTC."""
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArguments(f"{option} {text}: write it as 2026-11-16T05:00:00Z, or as ms since 1970") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def run(spark: "SparkSession", wanted: "ReplaySpec", progress: "Progress") -> "ReplaySummary":
    from topics.spark.jobs.replay import replay  # noqa: PLC0415

    return replay(spark, wanted, progress)


def writes(wanted: "ReplaySpec") -> str:
    return f"{wanted.into} on {wanted.server.url}"


def render(summary: "ReplaySummary") -> str:
    where = f" (seqs {summary.first_seq}-{summary.last_seq})" if summary.appended else ""
    return (
        f"{summary.topic} of {summary.directory} into {summary.into}: {summary.selected:,} records selected, "
        f"{summary.present:,} were there already, {summary.appended:,} appended{where}, "
        f"{summary.elapsed_ms / 1000:.1f} s"
    )


JOB = PipelineJob(
    help="records of an archive into a topic",
    description="Appends records of an archive to a topic, in their order, with their origin in meta. Records that "
    "the topic already has from the archive are skipped, so it may be run again.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    writes=writes,
    takes_url=True,
    takes_storage=True,
)
