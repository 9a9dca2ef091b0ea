"""A driver to be killed: `python -m spark.copy_driver URL TARGET CHECKPOINT` makes the copy of `spark.history`."""

import sys
from pathlib import Path

from spark.history import start_copy
from spark.settings import SESSION_SETTINGS
from topics.spark.session import local_session


def main(url: str, target: str, checkpoint: str) -> None:
    spark = local_session("topics-killed-driver", master="local[2]", settings=SESSION_SETTINGS)
    start_copy(spark, url, target, Path(checkpoint)).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
