"""A process to kill: imports a file into a topic and rolls it up, step by step, and says which step it is at."""

import sys
from pathlib import Path

from spark.settings import SESSION_SETTINGS
from topics.spark.jobs.import_files import ImportSpec, import_files
from topics.spark.jobs.import_rows import Fields
from topics.spark.jobs.progress import Silent
from topics.spark.jobs.rollup import rollup
from topics.spark.jobs.rollup_spec import IntoTopic, RollupSpec, aggregates_of
from topics.spark.jobs.source_files import CsvOptions, find_files
from topics.spark.options import Server
from topics.spark.session import local_session

BATCH_RECORDS = 4000


class Told(Silent):
    """Every step is a line on stdout."""

    def begin(self, verb: str, rows: int | None = None, unit: str = "rows") -> None:
        print(verb.partition(" ")[0], flush=True)

    def advance(self, rows: int, lag: int | None = None) -> None:
        print("step", flush=True)


def main(url: str, topic: str, directory: str) -> None:
    spark = local_session("killed", master="local[2]", settings=SESSION_SETTINGS)
    server, root = Server(url, None), Path(directory)
    files = find_files([str(root / "events.jsonl")], None)
    import_files(
        spark, ImportSpec(server, files, topic, Fields(tag="k"), CsvOptions(), str(root / "rejects.jsonl")), Told()
    )
    spec = RollupSpec(
        server=server,
        topic=topic,
        into=IntoTopic(f"{topic}.rolled"),
        checkpoint=str(root / "checkpoint"),
        window_ms=1000,
        aggregates=aggregates_of("count,sum:n"),
        by=("$.k",),
        time="$.t",
        batch_records_max=BATCH_RECORDS,
    )
    rollup(spark, spec, Told())
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
