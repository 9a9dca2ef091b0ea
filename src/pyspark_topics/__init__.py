"""Found by Spark by its name: PySpark registers the `DefaultSource` of every importable `pyspark_*` package."""

from topics.spark.source import DefaultSource

__all__ = ["DefaultSource"]
