"""`topics pipeline rollup TOPIC --window 1m --agg count,sum:PATH --into TOPIC|DIR`."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from topics.cli.pipeline_job import Common, PipelineJob

if TYPE_CHECKING:
    from topics.spark.jobs.rollup import RollupSummary
    from topics.spark.jobs.rollup_spec import RollupSpec

CHECKPOINTS = ".topics-checkpoints"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--window", metavar="TIME", required=True, help="length of a window: 30s, 1m, 1h, 1d")
    parser.add_argument("--slide", metavar="TIME", help="a window begins this often (windows do not overlap)")
    parser.add_argument("--by", metavar="PATH", nargs="+", default=[], help="JSON paths to group by, such as $.sku")
    parser.add_argument(
        "--agg",
        metavar="LIST",
        default="count",
        help="count, sum:PATH, avg:PATH, min:PATH, max:PATH, p95:PATH, separated by commas (count)",
    )
    parser.add_argument(
        "--into", metavar="TOPIC|DIR", required=True, help="a topic, or a directory (a name with a slash)"
    )
    parser.add_argument("--time", metavar="PATH", help="JSON path of the event time (the record's own ts)")
    parser.add_argument(
        "--watermark", metavar="TIME", help="how late a record may come (0s; with --time, as long as a window)"
    )
    parser.add_argument(
        "--emit",
        choices=("closed", "changed"),
        default="closed",
        help="write a result when its window is closed, or each time a batch changes it (closed)",
    )
    parser.add_argument("--batch", metavar="COUNT", type=int, default=1_000_000, help="records in a batch (1000000)")
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C, instead of until all is read")


def spec(args: argparse.Namespace, common: Common) -> "RollupSpec":
    from topics.spark.jobs.json_paths import json_path  # noqa: PLC0415
    from topics.spark.jobs.preflight import require_topics, require_writable  # noqa: PLC0415
    from topics.spark.jobs.rollup_spec import (  # noqa: PLC0415
        Emit,
        IntoDirectory,
        IntoTopic,
        RollupSpec,
        aggregates_of,
        check,
        duration_ms,
    )

    window_ms = duration_ms(args.window, "window")
    if args.watermark is not None:
        watermark_ms = duration_ms(args.watermark, "watermark")
    else:
        # A topic's own times never step back.
        watermark_ms = 0 if args.time is None else window_ms
    wanted = RollupSpec(
        server=common.server(),
        topic=args.topic,
        into=IntoDirectory(args.into) if "/" in args.into else IntoTopic(args.into),
        checkpoint=common.checkpoint or _checkpoint(args.topic, args.into),
        window_ms=window_ms,
        aggregates=aggregates_of(args.agg),
        slide_ms=None if args.slide is None else duration_ms(args.slide, "slide"),
        by=tuple(json_path(path, "by") for path in args.by),
        time=None if args.time is None else json_path(args.time, "time"),
        watermark_ms=watermark_ms,
        emit=Emit(args.emit),
        follow=args.follow,
        batch_records_max=args.batch,
    )
    check(wanted)
    if isinstance(wanted.into, IntoDirectory):
        require_writable(wanted.into.path, "into")
    require_writable(wanted.checkpoint, "checkpoint")
    require_topics(wanted.server, [args.topic])
    return wanted


def _checkpoint(topic: str, into: str) -> str:
    return os.path.join(CHECKPOINTS, f"rollup-{topic}-into-{into.strip('./').replace('/', '_')}")


def run(spark: Any, wanted: "RollupSpec", progress: Any) -> "RollupSummary":
    from topics.spark.jobs.rollup import rollup  # noqa: PLC0415

    return rollup(spark, wanted, progress)


def writes(wanted: "RollupSpec") -> str:
    from topics.spark.jobs.rollup_spec import IntoTopic  # noqa: PLC0415

    url = wanted.server.url
    into = wanted.into
    return f"{into.topic} on {url}" if isinstance(into, IntoTopic) else f"{into.path}, from {wanted.topic} on {url}"


def render(summary: "RollupSummary") -> str:
    lines = [f"{summary.topic}: {summary.records:,} records read, {summary.results:,} results into {summary.into}"]
    if summary.late:
        lines.append(f"late: {summary.late:,} records came after their window was closed and are in no result")
    if summary.without_time:
        lines.append(f"without a time: {summary.without_time:,} records are in no window")
    if summary.not_numbers:
        lines.append(f"not numbers: {summary.not_numbers:,} values were left out of their aggregate")
    if summary.lost_seqs:
        lines.append(f"lost: {summary.lost_seqs:,} seqs of {summary.topic} could not be read any more")
    if summary.open_groups:
        lines.append(f"open: {summary.open_groups:,} results wait for their window to close; "
                     f"the watermark is {summary.watermark}")  # fmt: skip
    return "\n".join(lines)


JOB = PipelineJob(
    help="windows over a topic, into a topic or a directory",
    description="Aggregates a topic by event-time windows. Reads what is there (or follows), writes each result once, "
    "and goes on from its checkpoint the next time.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    takes_checkpoint=True,
    writes=writes,
    takes_url=True,
)
