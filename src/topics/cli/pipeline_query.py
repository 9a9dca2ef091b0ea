"""`topics pipeline query "SELECT …"`."""

import argparse
import csv
import json
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

from topics.cli.pipeline_job import Common, PipelineJob, archive_at
from topics.cli.table import aligned, counted
from topics.cli.values import InvalidArguments

if TYPE_CHECKING:
    from topics.spark.jobs.query import QuerySpec, QuerySummary

CELL_CHARS_MAX = 80
TABLE_ROWS_MAX = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sql", metavar="SQL", help="a query; topics are views: shop.orders is shop_orders")
    parser.add_argument(
        "--topic", metavar="TOPIC", action="append", default=[], help="a topic to make a view of (those the SQL names)"
    )
    parser.add_argument(
        "--archive", metavar="DIR", help="an archive, as the view archive, and each topic of it as archive_TOPIC"
    )
    parser.add_argument(
        "--format", choices=("table", "json", "csv"), default="table", help="format of the rows (table)"
    )


def spec(args: argparse.Namespace, common: Common) -> "QuerySpec":
    from topics.spark.jobs.preflight import require_topics  # noqa: PLC0415
    from topics.spark.jobs.query import QuerySpec, require_views  # noqa: PLC0415
    from topics.spark.jobs.query_views import names_of_views  # noqa: PLC0415

    if args.json:
        raise InvalidArguments("--json is the summary of a job; rows as JSON are --format json")
    # An archive needs no server.
    server = common.server() if args.topic or args.archive is None else None
    if server is not None:
        require_topics(server, args.topic)
    names_of_views(args.topic)
    archive = None if args.archive is None else archive_at(args.archive)
    wanted = QuerySpec(args.sql, server, tuple(args.topic), archive, PRINTERS[args.format])
    require_views(wanted)
    return wanted


def run(spark: Any, wanted: "QuerySpec", progress: Any) -> "QuerySummary":
    from topics.spark.jobs.query import query  # noqa: PLC0415

    summary = query(spark, wanted, progress)
    for loss in summary.losses:
        gap = f"{loss.gap_from:,} to {loss.gap_to:,} ({loss.reason})"
        print(f"topics: {loss.topic} lost seqs {gap}; no query sees them", file=sys.stderr)
    return summary


def print_json(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> int:
    """One object a line. JSON has no NaN and no infinity: they are null."""
    _require_apart(columns)
    count = 0
    for row in rows:
        print(_json_text(dict(zip(columns, map(_plain, row), strict=True))))
        count += 1
    return count


def _json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _require_apart(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidArguments(
                f'two columns are called "{name}", and a JSON object can have only one: rename one with AS'
            )


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> int:
    writer = csv.writer(sys.stdout)
    writer.writerow(columns)
    count = 0
    for row in rows:
        writer.writerow(["" if value is None else _text(value) for value in row])
        count += 1
    return count


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> int:
    """Columns that line up: numbers to the right. A thousand rows, then it says that there are more."""
    kept = list(islice(rows, TABLE_ROWS_MAX + 1))
    cells = [["NULL" if value is None else _short(_text(value)) for value in row] for row in kept[:TABLE_ROWS_MAX]]
    right = [
        all(isinstance(row[at], (int, float, Decimal)) or row[at] is None for row in kept) and bool(kept)
        for at in range(len(columns))
    ]
    for line in aligned([columns, *cells], right):
        print(line)
    if len(kept) > TABLE_ROWS_MAX:
        print("… and more: the table ends here; --format json or csv has all of them")
        return TABLE_ROWS_MAX
    print(f"({counted(len(kept), 'row')})")
    return len(kept)


def _short(text: str) -> str:
    text = text.replace("\n", "\\n")
    return text if len(text) <= CELL_CHARS_MAX else f"{text[: CELL_CHARS_MAX - 1]}…"


def _text(value: object) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: object) -> Any:
    """As JSON has it: times as ISO 8601, VARIANTs as what they hold, decimals as numbers are written."""
    if hasattr(value, "toPython"):
        return _plain(value.toPython())
    if hasattr(value, "asDict"):
        _require_apart(getattr(value, "__fields__", ()))
        return {name: _plain(part) for name, part in value.asDict().items()}
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        # PySpark hands times over in the time zone of this machine, without saying so.
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)


def render(summary: "QuerySummary") -> str:
    return ""  # the rows are all there is to say


PRINTERS = {"table": print_table, "json": print_json, "csv": print_csv}

JOB = PipelineJob(
    help="SQL over topics and archives",
    description="Spark SQL. Each topic is a view named like it, with an underscore for every other character than "
    "letters, digits and underscores. Columns: topic, seq, ts, node, tag, meta, data (JSON text) and v (the same as a "
    "VARIANT: v:order.total::double).",
    add_arguments=add_arguments,
    spec=spec,
    run=run,
    render=render,
    takes_url=True,
    takes_storage=True,
)
