"""`topics pipeline export TOPIC --to DIR`."""

import argparse
from typing import TYPE_CHECKING, Any

from topics.cli.pipeline_job import Common, PipelineJob

if TYPE_CHECKING:
    from topics.spark.jobs.export_topic import ExportSpec, ExportSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--to", metavar="DIR", required=True, help="a directory that does not exist yet")
    parser.add_argument("--format", choices=("jsonl", "csv", "parquet"), default="jsonl", help="(jsonl)")
    parser.add_argument("--from-seq", metavar="SEQ", type=int, help="the first one (1)")
    parser.add_argument("--to-seq", metavar="SEQ", type=int, help="the last one (the newest)")


def spec(args: argparse.Namespace, common: Common) -> "ExportSpec":
    from topics.spark.jobs.export_topic import ExportSpec, check  # noqa: PLC0415
    from topics.spark.jobs.source_files import FileFormat  # noqa: PLC0415

    server = common.server()
    wanted = ExportSpec(server, args.topic, args.to, FileFormat(args.format), args.from_seq, args.to_seq)
    check(wanted)
    return wanted


def run(spark: Any, wanted: "ExportSpec", progress: Any) -> "ExportSummary":
    from topics.spark.jobs.export_topic import export_topic  # noqa: PLC0415

    return export_topic(spark, wanted, progress)


def writes(wanted: "ExportSpec") -> str:
    return f"{wanted.to}, from {wanted.topic} on {wanted.server.url}"


def render(summary: "ExportSummary") -> str:
    lines = [f"{summary.topic}: {summary.records:,} records of seqs {summary.from_seq:,} to {summary.to_seq:,}"]
    lines += [f"lost: seqs {loss.gap_from:,} to {loss.gap_to:,} ({loss.reason})" for loss in summary.losses]
    lines.append(f"in {summary.directory} as {summary.format}")
    return "\n".join(lines)


JOB = PipelineJob(
    help="a topic as files",
    description="Writes a topic as JSON Lines, CSV or Parquet, in the order of seqs. The directory appears when it is "
    "complete; what the topic lost is told, and listed in _losses.jsonl in it.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    writes=writes,
    takes_url=True,
)
