"""A process to kill: archives, compacts, replays and forgets, step by step, and says which step it is at."""

import sys
from pathlib import Path

from spark.settings import SESSION_SETTINGS
from topics.spark.jobs.archive import ArchiveSpec, archive
from topics.spark.jobs.compact import CompactSpec, compact
from topics.spark.jobs.forget import ForgetSpec, forget
from topics.spark.jobs.progress import Silent
from topics.spark.jobs.replay import ReplaySpec, replay
from topics.spark.options import Server
from topics.spark.session import local_session

ROUND_RECORDS = 2000
FORGOTTEN = "t7"


class Told(Silent):
    """Every step is a line on stdout."""

    def begin(self, verb: str, rows: int | None = None, unit: str = "rows") -> None:
        print(verb, flush=True)

    def advance(self, rows: int, lag: int | None = None) -> None:
        print("step", flush=True)


def main(url: str, topic: str, directory: str) -> None:
    spark = local_session("killed", master="local[2]", settings=SESSION_SETTINGS)
    server, target = Server(url, None), str(Path(directory) / "archive")
    archive(spark, ArchiveSpec(server, target, (topic,), round_records=ROUND_RECORDS), Told())
    compact(spark, CompactSpec(target), Told())
    replay(spark, ReplaySpec(target, server, f"{topic}.again"), Told())
    print("forgetting", flush=True)  # before it deletes from the topic
    forget(spark, ForgetSpec(server, topic, FORGOTTEN, target), Told())
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
