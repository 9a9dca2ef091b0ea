"""Rolls readings up by device and minute: rollup.py CHECKPOINT."""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, col, concat_ws, count, max, min, round, struct, to_json, window

from topics.spark.session import local_session

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
LATE = "1 minute"


def roll_up(spark: SparkSession, url: str, checkpoint: str, source: str = "readings") -> None:
    """What is there and not rolled up yet; then it returns."""
    readings = (
        spark.readStream.format("topics")
        .schema("device string, at timestamp, celsius double")
        .options(url=url, subscribe=source, startingOffsets="earliest")
        .load()
    )
    minutes = (
        readings.withWatermark("at", LATE)
        .groupBy("device", window("at", "1 minute").alias("minute"))
        .agg(
            count("*").alias("readings"),
            min("celsius").alias("min"),
            round(avg("celsius"), 2).alias("avg"),
            max("celsius").alias("max"),
        )
        .select("device", col("minute.start").alias("minute"), "readings", "min", "avg", "max")
    )
    rows = minutes.select(
        to_json(struct("device", "minute", "readings", "min", "avg", "max")).alias("data"),
        concat_ws("@", "device", "minute").alias("tag"),
    )
    (
        rows.writeStream.format("topics")
        .options(url=url, topic=f"{source}.minutes", checkpointLocation=checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    roll_up(local_session(), URL, sys.argv[1])
