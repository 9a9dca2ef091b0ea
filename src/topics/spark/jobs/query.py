"""`query`: SQL over topics and archives.

The result is passed on row by row, because it may be larger than memory. Losses of the topics are reported beside it.
"""

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import Struct
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from topics.spark.archive import table
from topics.spark.archive.errors import ArchiveDiffers
from topics.spark.errors import PipelineError
from topics.spark.jobs.progress import Progress
from topics.spark.jobs.query_views import (
    ARCHIVE,
    add_archive_views,
    add_topic_view,
    mentioned,
    names_of_views,
    unknown_tables,
    view_name,
)
from topics.spark.jobs.spark_messages import message_of
from topics.spark.options import Server

REPORTED_ROWS = 10_000
VIEWS_NAMED_MAX = 20
_DAMAGED = re.compile(r"reading file file:(?P<path>\S+?)\.? .*could not verify page integrity", re.DOTALL)


class BadQuery(PipelineError):
    """Spark refused the SQL, or failed on a row. The message is Spark's own and names the place."""


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """Without `topics`, the query sees those topics of the server whose view names the SQL mentions. `rows` gets the
    column names and the rows, and returns how many rows there were."""

    sql: str
    server: Server | None
    topics: tuple[str, ...]
    archive: str | None
    rows: Callable[[Sequence[str], Iterable[Sequence[object]]], int]


class LostBefore(Struct, frozen=True):
    topic: str
    gap_from: int
    gap_to: int
    reason: str


class QuerySummary(Struct, frozen=True):
    """`views` maps names in SQL to topics; `losses` is what those topics lost, which no query can see."""

    rows: int
    views: dict[str, str]
    losses: list[LostBefore]


def query(spark: SparkSession, spec: QuerySpec, progress: Progress) -> QuerySummary:
    # PySpark would also log what it raises, as a line of JSON.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark = spark.newSession()  # its views are the query's, not the caller's
    views = names_of_views(topics_of(spec))
    losses: list[LostBefore] = []
    if spec.server is not None:
        for name, topic in views.items():
            add_topic_view(spark, spec.server, name, topic)
        losses = losses_of(spec.server, views.values())
    if spec.archive is not None:
        views |= add_archive_views(spark, spec.archive, spec.sql)
    try:
        result = spark.sql(spec.sql)
        progress.begin("querying")
        count = spec.rows(result.columns, _rows(result, progress))
    except (PySparkException, Py4JJavaError) as error:
        if (damaged := _DAMAGED.search(str(error))) is not None:
            raise ArchiveDiffers(damaged["path"], "a page of it is not what was written") from None
        raise BadQuery(_message(error, views)) from error
    progress.end()
    return QuerySummary(count, views, losses)


def topics_of(spec: QuerySpec) -> list[str]:
    if spec.topics or spec.server is None:
        return list(spec.topics)
    with spec.server.client() as client:
        return mentioned(spec.sql, (listed.topic for listed in client.topics()))


def require_views(spec: QuerySpec) -> None:
    """Raises `BadQuery` for a table that is not a view, which Spark would take seconds to find. Also raises
    `NotAnArchive`."""
    names: list[str] = []
    if spec.server is not None:
        with spec.server.client() as client:
            topics = list(spec.topics) or [listed.topic for listed in client.topics()]
        names += [view_name(topic).lower() for topic in topics]
    if spec.archive is not None:
        state = table.load(spec.archive)
        names += ["archive", *(ARCHIVE + view_name(topic).lower() for topic in state.topics)]
    for unknown in unknown_tables(spec.sql, names):
        near = difflib.get_close_matches(unknown.lower(), names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the views here: {', '.join(names[:VIEWS_NAMED_MAX]) or 'none'}"
        raise BadQuery(f"there is no topic or archive for the view {unknown}; {hint}")


def losses_of(server: Server, topics: Iterable[str]) -> list[LostBefore]:
    with server.client() as client:
        return [
            LostBefore(topic, loss.gap_from, loss.gap_to, loss.reason)
            for topic in topics
            for loss in client.losses(topic).losses
        ]


def _rows(result: DataFrame, progress: Progress) -> Iterable[Sequence[object]]:
    for number, row in enumerate(result.toLocalIterator(prefetchPartitions=True), start=1):
        if number % REPORTED_ROWS == 0:
            progress.advance(REPORTED_ROWS)
        yield row


def _message(error: Exception, views: Iterable[str]) -> str:
    text = message_of(error)
    if text.startswith("[TABLE_OR_VIEW_NOT_FOUND]"):
        known = ", ".join(sorted(views)) or "none"
        return f"{text.splitlines()[0]} The views here: {known}. A topic is a view if --topic or the SQL names it."
    return text
