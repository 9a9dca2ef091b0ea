"""`topics pipeline forget TOPIC --match TAG [--archive DIR]`: a tag's records leave a topic and its archive."""

import argparse
from typing import TYPE_CHECKING, Any

from topics.cli.pipeline_job import Common, PipelineJob, archive_at
from topics.cli.table import counted

if TYPE_CHECKING:
    from topics.spark.jobs.forget import ForgetSpec, ForgetSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--match", metavar="TAG", required=True, help="the tag, or the beginning of tags: user-1042:*")
    parser.add_argument("--archive", metavar="DIR", help="an archive of the topic, to forget them there, too")


def spec(args: argparse.Namespace, common: Common) -> "ForgetSpec":
    from topics.spark.jobs.forget import ForgetSpec, check_spec  # noqa: PLC0415

    archive = None if args.archive is None else archive_at(args.archive)
    wanted = ForgetSpec(common.server(), args.topic, args.match, archive)
    check_spec(wanted)
    return wanted


def run(spark: Any, wanted: "ForgetSpec", progress: Any) -> "ForgetSummary":
    from topics.spark.jobs.forget import forget  # noqa: PLC0415

    return forget(spark, wanted, progress)


def writes(wanted: "ForgetSpec") -> str:
    archive = "" if wanted.archive is None else f" and {wanted.archive}"
    return f"{wanted.topic} on {wanted.server.url}{archive}"


def render(summary: "ForgetSummary") -> str:
    lines = [
        f"{summary.topic}: {summary.deleted:,} records with the tag {summary.match} deleted, of seqs up to "
        f"{summary.head_seq:,}"
    ]
    if summary.archive is not None:
        files = counted(summary.files_rewritten, "file")
        lines.append(f"{summary.archive}: {summary.forgotten:,} of them removed, {files} rewritten")
    lines += [f"still on disk: {place}" for place in summary.still_on_disk]
    lines += [f"not touched: {place}" for place in summary.untouched]
    return "\n".join(lines)


JOB = PipelineJob(
    help="delete a tag's records from a topic and its archive",
    description="Deletes the records with a tag from a topic, and rewrites the files of an archive without them. "
    "If it is killed, run the same command again. Says what is still on disk and what it did not touch; an audit "
    "checks it.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    writes=writes,
    takes_url=True,
    takes_storage=True,
)
