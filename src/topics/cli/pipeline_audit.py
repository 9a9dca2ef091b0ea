"""`topics pipeline audit`: every seq accounted for, and the archive the same as what is live.

Exit status: 0 sound, 1 problems, 2 could not be audited (all of it).
"""

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from topics.cli.pipeline_job import Common, PipelineJob, archive_at
from topics.cli.table import aligned, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.spark.jobs.audit import AuditSpec
    from topics.spark.jobs.audit_report import AuditSummary
    from topics.spark.jobs.progress import Progress

NOTES_SHOWN_MAX = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", required=True, help="a stopped server's data directory, or a backup")
    parser.add_argument(
        "--cold",
        metavar="DIR",
        default=os.environ.get("TOPICS_COLD_DIR"),
        help="directory of its cold tier ($TOPICS_COLD_DIR)",
    )
    parser.add_argument("--archive", metavar="DIR", help="compare this archive with it")
    parser.add_argument("--html", metavar="FILE", help="write the report as a page")


def spec(args: argparse.Namespace, common: Common) -> "AuditSpec":
    from topics.spark.jobs.audit import AuditSpec, check_spec  # noqa: PLC0415

    wanted = AuditSpec(
        os.path.abspath(args.data),
        None if not args.cold else os.path.abspath(args.cold),
        None if args.archive is None else archive_at(args.archive),
        args.html,
    )
    check_spec(wanted)
    return wanted


def run(spark: "SparkSession", wanted: "AuditSpec", progress: "Progress") -> "AuditSummary":
    from topics.spark.jobs.audit import audit  # noqa: PLC0415

    return audit(spark, wanted, progress)


def render(summary: "AuditSummary") -> str:
    rows: list[Sequence[str]] = [
        ("topic", "read", "deleted", "lost", "head", "archived to", "matched", "only archived")
    ]
    for topic in summary.topics:
        archived = ("–", "–", "–")
        if topic.archived_to is not None:
            archived = (f"{topic.archived_to:,}", f"{topic.archive_matched:,}", f"{topic.archive_only:,}")
        equals = "= " if topic.unaccounted == 0 else "≠ "
        counts = (f"{topic.read:,}", f"+ {topic.deleted:,}", f"+ {topic.lost:,}", f"{equals}{topic.head_seq:,}")
        rows.append((topic.topic, *counts, *archived))
    lines = [*aligned(rows), ""] if summary.topics else []
    problems = [*summary.problems, *(text for topic in summary.topics for text in topic.problems)]
    lines += [f"problem: {text}" for text in problems]
    lines += [f"unchecked: {text}" for text in summary.unchecked]
    lines += [f"note: {text}" for text in summary.notes[:NOTES_SHOWN_MAX]]
    if len(summary.notes) > NOTES_SHOWN_MAX:
        lines.append(f"and {len(summary.notes) - NOTES_SHOWN_MAX} more notes (--json has all)")
    if problems:
        verdict = counted(len(problems), "problem")
    else:
        verdict = "no problems, but not everything could be checked" if summary.unchecked else "sound"
    lines.append(
        f"{summary.data}: {verdict} ({summary.records:,} records read, {summary.checked_bytes / 1e6:.1f} MB checked, "
        f"{summary.elapsed_ms / 1000:.1f} s)"
    )
    return "\n".join(lines)


def status(summary: "AuditSummary") -> int:
    if summary.problems or any(topic.problems for topic in summary.topics):
        return 1
    return 2 if summary.unchecked else 0


JOB = PipelineJob(
    help="prove that every seq is accounted for, and that an archive matches",
    description="Checks every segment, WAL file and snapshot, reads every record, proves for each topic that read + "
    "deleted + lost = head, and compares an archive record by record with what is live. Changes nothing. "
    "Exit status: 0 sound, 1 problems, 2 could not be audited.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    status=status,
    takes_storage=True,
)
