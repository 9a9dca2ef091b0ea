"""A session of `local_session`, as a user gets it."""

import pyspark
from pyspark.sql import SparkSession


def test_workers_import_the_installed_pyspark_which_is_compiled(spark: SparkSession) -> None:
    # A lambda: a function of this module would have to be imported by the worker.
    found = spark.sparkContext.parallelize([1], 1).map(lambda _: __import__("pyspark").__file__).collect()
    assert found == [pyspark.__file__]
