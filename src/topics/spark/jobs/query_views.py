"""Topics and archives as views for SQL, and how topic names become view names."""

import re
from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from topics.spark.archive import table
from topics.spark.archive.files import read_files
from topics.spark.errors import InvalidOption
from topics.spark.http_reader import named_ranges
from topics.spark.options import Server
from topics.spark.schema import TOPICS

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
ARCHIVE = "archive_"
PARSED = "try_parse_json(data) as v"
RECORD = ("topic", "seq", "ts", "node", "tag", "meta", "data")
RECORD_COLUMNS = [field for field in TOPICS.fields if field.name in RECORD]

_WORD = re.compile(r"[A-Za-z0-9_]+")
_NO_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_TOKEN = re.compile(r"`[^`]*`|[A-Za-z0-9_.]+|[^\sA-Za-z0-9_.]")
_NAMED_QUERY = re.compile(r"([A-Za-z0-9_]+)\s*(?:\([^()]*\)\s*)?\bAS\s*\(", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_0-9]+")
_NO_TABLES = {"select", "values", "lateral", "table", "unnest"}


def view_name(topic: str) -> str:
    """Letters, digits and underscores stay; everything else becomes an underscore: `shop.orders` is `shop_orders`.
    A name that begins with a digit gets `t_` in front."""
    name = _NOT_IN_NAMES.sub("_", topic)
    return f"t_{name}" if name[0].isdigit() else name


def names_of_views(topics: Iterable[str]) -> dict[str, str]:
    """Maps view names to topics, in lower case because SQL ignores case. Two topics with one view name are refused."""
    views: dict[str, str] = {}
    for topic in topics:
        name = view_name(topic).lower()
        if name in views:
            raise InvalidOption(
                "topic", f'"{views[name]}" and "{topic}" would both be the view {name}; query one of them'
            )
        views[name] = topic
    return views


def mentioned(sql: str, topics: Iterable[str], prefix: str = "") -> list[str]:
    """The topics with views that the text mentions. A few too many do no harm: a view costs nothing until it is
    read."""
    words = {word.lower() for word in _WORD.findall(sql)}
    return [topic for topic in topics if prefix + view_name(topic).lower() in words]


def unknown_tables(sql: str, known: Iterable[str]) -> list[str]:
    """Tables that the text reads and that are neither a view nor a CTE. The SQL is not parsed: only a plain name after
    JOIN, or after the FROM of a SELECT, counts as a table. Anything Spark might know is left to Spark."""
    text = _NO_CODE.sub(" ", sql)
    names = {name.lower() for name in known} | {found[1].lower() for found in _NAMED_QUERY.finditer(text)}
    tokens = _TOKEN.findall(text)
    words = [token.lower() for token in tokens]
    selects = [False]  # for each open parenthesis: whether there is a SELECT in it
    unknown: list[str] = []
    for at, word in enumerate(words):
        match word:
            case "(":
                selects.append(False)
            case ")" if len(selects) > 1:
                selects.pop()
            case "select":
                selects[-1] = True
            case "from" | "join" if selects[-1] and (at == 0 or words[at - 1] != "distinct"):
                name = tokens[at + 1].strip("`") if at + 1 < len(tokens) else ""
                called = at + 2 < len(tokens) and tokens[at + 2] == "("
                if _NAME.fullmatch(name) and not called and name.lower() not in names | _NO_TABLES:
                    unknown.append(name)
    return unknown


def add_archive_views(spark: SparkSession, root: str, sql: str) -> dict[str, str]:
    """Adds the view `archive` of the whole archive, and one such as `archive_shop_orders` for each topic. Raises
    `NotAnArchive`, `ArchiveDiffers`."""
    state = table.load(root)
    views = {"archive": root}
    read_files(spark, root, state.files, state.columns).selectExpr("*", PARSED).createOrReplaceTempView("archive")
    for topic in mentioned(sql, state.topics, ARCHIVE):
        name = ARCHIVE + view_name(topic).lower()
        frame = read_files(spark, root, state.files_of(topic), state.columns)
        frame.selectExpr("*", PARSED).createOrReplaceTempView(name)
        views[name] = f"{root}, {topic}"
    return views


def add_topic_view(spark: SparkSession, server: Server, name: str, topic: str) -> None:
    options = {
        "url": server.url,
        "subscribe": topic,
        "minPartitions": str(spark.sparkContext.defaultParallelism),
        "onDataLoss": "warn",
    }
    if server.api_key is not None:
        options["apiKey"] = server.api_key.reveal()
    with server.client() as client:
        found = named_ranges(client, [topic]).get(topic)
    add_view(spark, name, options, None if found is None else found.schema)


def add_view(spark: SparkSession, name: str, options: Mapping[str, str], schema: str | None = None) -> None:
    """Adds a view of the records. Its column `v` is the payload as a VARIANT, so that `v:order.total::double` reaches a
    field; the columns of the topic's own schema follow."""
    source = spark.read.format("topics")
    if schema is None:
        frame = source.options(**options, schema="topics").load().where("kind = 'record'")
        own = []
    else:
        parsed = StructType.fromDDL(schema)
        assert isinstance(parsed, StructType)
        fields = [field for field in parsed.fields if field.name not in RECORD]
        frame = source.options(**options).schema(StructType([*RECORD_COLUMNS, *fields])).load()
        own = [f"`{field.name.replace('`', '``')}`" for field in fields]
    frame.selectExpr(*RECORD, PARSED, *own).createOrReplaceTempView(name)
