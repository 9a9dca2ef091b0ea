"""`topics pipeline import FILES --into TOPIC`."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from topics.cli.pipeline_job import Common, PipelineJob
from topics.cli.table import aligned
from topics.model.names import check_topic_name

if TYPE_CHECKING:
    from topics.spark.jobs.import_files import ImportSpec, ImportSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILES", nargs="+", help="files, or directories of files, in this order")
    parser.add_argument("--into", metavar="TOPIC", required=True, help="the topic; made if it does not exist")
    parser.add_argument("--format", choices=("jsonl", "csv", "parquet"), help="format of all files (from their names)")
    for name, meaning in (
        ("key", "identifies a row: rows whose key is already in the topic are left out"),
        ("tag", "the record's tag"),
        ("node", "the record's node"),
        ("time", "a time, kept in meta.time: ISO 8601 with a time zone, or milliseconds since 1970"),
        ("data", "the payload, instead of the whole row"),
    ):
        parser.add_argument(f"--{name}", metavar="COLUMN", help=f"column or JSON path: {meaning}")
    parser.add_argument("--rejects", metavar="FILE", help="where bad rows go, with reasons (TOPIC.rejects.jsonl)")
    parser.add_argument("--schema", metavar="COLUMNS", help="CSV: columns in SQL, such as 'id INT, name STRING'")
    parser.add_argument("--delimiter", metavar="CHAR", default=",", help="CSV: between values (a comma)")
    parser.add_argument("--no-header", action="store_true", help="CSV: the first line is a row; needs --schema")


def spec(args: argparse.Namespace, common: Common) -> "ImportSpec":
    from topics.spark.jobs.import_files import ImportSpec, check  # noqa: PLC0415
    from topics.spark.jobs.import_rows import Fields  # noqa: PLC0415
    from topics.spark.jobs.source_files import CsvOptions, FileFormat, find_files  # noqa: PLC0415

    check_topic_name(args.into, "--into")
    fields = Fields(args.data, args.key, args.tag, args.node, args.time)
    fields.check()
    wanted = ImportSpec(
        server=common.server(),
        files=find_files(args.files, None if args.format is None else FileFormat(args.format)),
        into=args.into,
        fields=fields,
        csv=CsvOptions(args.delimiter, not args.no_header, args.schema),
        rejects=args.rejects or f"{args.into}.rejects.jsonl",
    )
    check(wanted)
    return wanted


def run(spark: Any, wanted: "ImportSpec", progress: Any) -> "ImportSummary":
    from topics.spark.jobs.import_files import import_files  # noqa: PLC0415

    return import_files(spark, wanted, progress)


def writes(wanted: "ImportSpec") -> str:
    return f"{wanted.into} on {wanted.server.url}"


def render(summary: "ImportSummary") -> str:
    rows: list[Sequence[str]] = [("file", "rows", "imported", "already there", "duplicates", "rejected")]
    rows += [
        (file.file, *(f"{n:,}" for n in (file.rows, file.imported, file.already_there, file.duplicates, file.rejected)))
        for file in summary.files
    ]
    lines = [*aligned(rows), "", f"{summary.topic}: {summary.imported:,} imported, head_seq {summary.head_seq:,}"]
    if summary.rejects is not None:
        lines.append(f"rejected rows and reasons: {summary.rejects}")
    return "\n".join(lines)


JOB = PipelineJob(
    help="rows of files into a topic",
    description="Makes every row of JSON Lines, CSV or Parquet files a record, in order. Run it again, and it adds "
    "only what is missing: rows are recognized by the content of their file and their number in it, or by --key.",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    writes=writes,
    takes_url=True,
)
