"""The script that starts Spark's Python processes, given the PYTHONPATH that Spark gives them."""

import os
import subprocess
import sys

import pytest

from topics.spark.session import WORKER_PYTHON

ZIPS = "/opt/spark/python/lib/pyspark.zip:/opt/spark/python/lib/py4j-0.10.9.9-src.zip"
JAR = "/opt/spark/jars/spark-core_2.13-4.3.0.jar"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (f"{ZIPS}:{JAR}", ""),
        (f"{ZIPS}:{JAR}:/home/ada/lib:/home/ada/my code", "/home/ada/lib:/home/ada/my code"),
        ("/home/ada/lib", "/home/ada/lib"),
        (f"{ZIPS}:/home/ada/lib", f"{ZIPS}:/home/ada/lib"),  # another version's: nobody knows what belongs to it
        ("", ""),
    ],
)
def test_entries_of_spark_are_taken_off_the_path_and_others_stay(given: str, left: str) -> None:
    environment = {**os.environ, "PYTHONPATH": given, "SPARK_TOPICS_PYTHON": sys.executable}
    words = [str(WORKER_PYTHON), "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])", "an argument"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{left} ['an argument']\n"
