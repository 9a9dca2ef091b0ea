"""SQL over topics and archives, and what is said when it is wrong."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.server import RestartableServer
from topics.cli.table import aligned
from topics.spark.jobs.archive import ArchiveSpec, archive
from topics.spark.jobs.progress import Silent
from topics.spark.jobs.query import BadQuery, QuerySpec, QuerySummary, query
from topics.spark.jobs.query_views import view_name
from topics.spark.options import Server

README = Path(__file__).parents[2] / "README.md"


class Rows:
    """Keeps what a query hands over."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.rows: list[tuple[object, ...]] = []

    def take(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> int:
        self.columns = list(columns)
        self.rows = [tuple(row) for row in rows]
        return len(self.rows)


def ask(
    spark: SparkSession, server: RestartableServer, sql: str, *topics: str, archive: str | None = None
) -> tuple[Rows, QuerySummary]:
    found = Rows()
    spec = QuerySpec(sql, Server(server.url, None) if archive is None else None, topics, archive, found.take)
    return found, query(spark, spec, Silent())


def test_json_fields_are_reached_by_colon(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    topic.write(*({"data": {"order": {"total": n}, "sku": "AB"[n % 2]}} for n in range(4)), {"data": "no object"})
    found, summary = ask(
        spark,
        server,
        f"SELECT v:sku::string AS sku, sum(v:order.total::bigint) AS total FROM {view_name(topic.name)} "
        "WHERE v:sku IS NOT NULL GROUP BY sku ORDER BY sku",
    )
    assert found.columns == ["sku", "total"]
    assert found.rows == [("A", 2), ("B", 4)]
    assert (summary.rows, summary.views) == (2, {view_name(topic.name): topic.name})


def test_topics_can_be_joined(spark: SparkSession, server: RestartableServer, topic: Topic, name: str) -> None:
    other = server.topic(f"{name}other")
    topic.write({"data": {"id": 1}, "tag": "x"})
    other.write({"data": {"id": 1, "name": "one"}}, {"data": {"id": 2}})
    sql = "SELECT a.tag, b.v:name::string FROM {0} a JOIN {1} b ON a.v:id::int = b.v:id::int"
    found, _ = ask(spark, server, sql.format(view_name(topic.name), view_name(other.name)), topic.name, other.name)
    assert found.rows == [("x", "one")]


def test_losses_are_reported_beside_the_rows(spark: SparkSession, server: RestartableServer, topic: Topic) -> None:
    topic.configure(cap_records=2)
    topic.fill(5)
    found, summary = ask(spark, server, f"SELECT count(*) FROM {view_name(topic.name)}")
    assert found.rows == [(2,)]
    assert [(loss.topic, loss.gap_from, loss.gap_to, loss.reason) for loss in summary.losses] == [
        (topic.name, 1, 3, "cap")
    ]


def test_an_archive_is_a_view_and_so_is_each_of_its_topics(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.write({"data": {"a": 1}}, {"data": {"a": 2}})
    target = str(tmp_path / "archive")
    archive(spark, ArchiveSpec(Server(server.url, None), target, (topic.name,)), Silent())
    name = f"archive_{view_name(topic.name)}"
    found, _ = ask(
        spark, server, f"SELECT x.seq, y.v:a::int FROM archive x JOIN {name} y USING (seq) ORDER BY 1", archive=target
    )
    assert found.rows == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "Syntax error at or near 'SELEC'"),
        ("SELECT * FROM nothing_of_this_name", "The views here: none"),
        ("SELECT nope FROM VALUES (1) AS t(a)", "`nope` cannot be resolved"),
        ("SELECT v:a::int FROM {view}", "cannot be cast"),
    ],
)
def test_bad_sql_has_a_message_and_no_stack(
    spark: SparkSession, server: RestartableServer, topic: Topic, sql: str, said: str
) -> None:
    topic.write({"data": {"a": "text"}})
    with pytest.raises(BadQuery) as raised:
        ask(spark, server, sql.format(view=view_name(topic.name)))
    assert said in raised.value.message
    assert "\tat " not in raised.value.message
    assert "+- " not in raised.value.message


def test_the_query_in_the_readme_prints_what_it_shows(spark: SparkSession, own_server: RestartableServer) -> None:
    """What `topics pipeline query` prints for it, over the records that the commands before it write."""
    text = README.read_text()
    (sql,) = re.findall(r'^topics pipeline query "(.+)"$', text, re.MULTILINE)
    for record in re.findall(r'"data": (\{.+?\})|topics put orders \'(\{.+?\})\'', text):
        own_server.topic("orders").write({"data": msgspec.json.decode("".join(record))})
    found, _ = ask(spark, own_server, sql)
    table = "\n".join(aligned([found.columns, *([str(value) for value in row] for row in found.rows)], (False, True)))
    assert f"```\n{table}\n(2 rows)\n```" in text
