"""The files of a new declarative project, as text. They belong to the user: nothing here reads them again.

The layers are views over topics, and their results go to topics: there are no tables, and only the checkpoints have to
outlive a run. The watermark is set where the topic is read, because Spark resolves it before it knows the pipeline's
views.
"""

from collections.abc import Mapping

SPEC = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  topics.url: "{url}"
  topics.source: "{source}"
  topics.silver: "{source}.silver"
  topics.gold: "{source}.gold"
  spark.sql.session.timeZone: "UTC"
  spark.sql.shuffle.partitions: "4"
"""

BRONZE = '''\
"""Bronze: the records of the topic as they come, with the time of the event."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.temporary_view
def bronze() -> DataFrame:
    return (
        spark.readStream.format("topics")
        .options(
            url=spark.conf.get("topics.url"),
            subscribe=spark.conf.get("topics.source"),
            startingOffsets="earliest",
            schema="topics",
        )
        .load()
        # The record's own time; for a field use try_cast(get_json_object(data, '$.at') AS timestamp).
        .selectExpr("seq", "ts AS at", "tag", "data")
        # The watermark must be set here: a view of the pipeline cannot have one.
        .withWatermark("at", "1 minute")
    )
'''

SILVER = '''\
"""Silver: records that are JSON objects, with their fields as columns, in a topic of their own."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink(
    "silver_topic",
    "topics",
    {"url": spark.conf.get("topics.url"), "topic": spark.conf.get("topics.silver")},
)


@dp.temporary_view
def silver() -> DataFrame:
    return (
        spark.readStream.table("bronze")
        .where("data LIKE '{%'")
        .selectExpr(
            "seq",
            "at",
            "coalesce(get_json_object(data, '$.kind'), 'unknown') AS kind",
            "try_cast(get_json_object(data, '$.total') AS double) AS total",
        )
    )


@dp.append_flow(target="silver_topic")
def silver_records() -> DataFrame:
    return spark.readStream.table("silver").selectExpr("to_json(struct(*)) AS data", "kind AS tag")
'''

GOLD = '''\
"""Gold: totals of each minute and kind. A minute is written once, when nothing can change it any more."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, sum, window

spark = SparkSession.active()

dp.create_sink(
    "gold_topic",
    "topics",
    {"url": spark.conf.get("topics.url"), "topic": spark.conf.get("topics.gold")},
)


@dp.temporary_view
def gold() -> DataFrame:
    return (
        spark.readStream.table("silver")
        .groupBy(window("at", "1 minute").alias("window"), "kind")
        .agg(count("*").alias("count"), sum("total").alias("total"))
    )


@dp.append_flow(target="gold_topic")
def gold_records() -> DataFrame:
    return spark.readStream.table("gold").selectExpr(
        "to_json(struct(window.start AS minute, kind, count, total)) AS data", "kind AS tag"
    )
'''

README = """\
# {name}

A Spark Declarative Pipeline over the topic `{source}`: bronze → silver → gold, results in `{source}.silver` and
`{source}.gold`. Every run reads what is new and ends.

```sh
spark-pipelines run             # in this directory; PYSPARK_PYTHON names the Python that has topics-engine[pipelines]
topics pipeline run .           # the same, from anywhere
```

Addresses and names are in `spark-pipeline.yml`, the layers in `transformations/`. `storage/` has the checkpoints:
without it a pipeline begins at the start of its topic, and writes its results again. A server with keys: set
TOPICS_API_KEY.
"""

IGNORE = "storage/\nspark-warehouse/\n__pycache__/\n"


def project_files(name: str, storage: str, url: str, source: str) -> Mapping[str, str]:
    """Paths in the project to their text."""
    values = {"name": name, "storage": storage, "url": url, "source": source}
    return {
        "spark-pipeline.yml": SPEC.format(**values),
        "transformations/bronze.py": BRONZE,
        "transformations/silver.py": SILVER,
        "transformations/gold.py": GOLD,
        "README.md": README.format(**values),
        ".gitignore": IGNORE,
    }
