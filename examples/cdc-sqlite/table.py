"""A captured table as a Spark table: table.py TABLE."""

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import max_by, struct

from topics.spark.session import local_session

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")


def current_rows(spark: SparkSession, url: str, table: str, columns: str) -> DataFrame:
    """The rows there are now: of each key its latest change, unless that was a delete."""
    changes = (
        spark.read.format("topics")
        .schema(f"seq bigint, tag string, op string, row struct<{columns}>")
        .options(url=url, subscribe=f"cdc.{table}")
        .load()
    )
    latest = changes.groupBy("tag").agg(max_by(struct("op", "row"), "seq").alias("change"))
    return latest.where("change.op <> 'delete'").select("change.row.*")


if __name__ == "__main__":
    session = local_session()
    rows = current_rows(session, URL, sys.argv[1], "id: bigint, name: string, price: bigint")
    rows.write.mode("overwrite").saveAsTable(sys.argv[1])
    session.table(sys.argv[1]).orderBy("id").show()
