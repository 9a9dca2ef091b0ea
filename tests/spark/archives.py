"""What the tests of the pipelines share: archiving a topic, and its archive as plain values to compare."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.readings import history
from spark.server import RestartableServer
from topics.spark.archive.files import read_archive
from topics.spark.jobs.archive import ArchiveSpec, ArchiveSummary, archive
from topics.spark.options import Server
from topics.storage.backup import back_up
from topics.storage.fs import RealDisk

Rows = dict[int, tuple[Any, ...]]


def origin(server: RestartableServer) -> Server:
    return Server(server.url, None)


def archive_topics(
    spark: SparkSession, server: RestartableServer, directory: Path | str, *topics: str, **more: Any
) -> ArchiveSummary:
    return archive(spark, ArchiveSpec(origin(server), str(directory), topics, **more))


def archived_rows(spark: SparkSession, directory: Path | str, topic: str) -> list[tuple[Any, ...]]:
    """(seq, ts, node, tag, meta, data) of every record, as they are in the files."""
    rows = read_archive(spark, str(directory), [topic]).orderBy("seq").collect()
    return [(row.seq, row.ts, row.node, row.tag, row.meta, row.data) for row in rows]


def live_rows(topic: Topic, from_seq: int = 0) -> list[tuple[Any, ...]]:
    """(seq, node, tag, meta) of every record the server has."""
    records, _ = history(topic, from_seq)
    return [
        (seq, record.get("$node"), record.get("$tag"), record.get("meta")) for seq, record in sorted(records.items())
    ]


def without_payload(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(seq, node, tag, meta) for seq, _, node, tag, meta, _ in rows]


def backup_of(server: RestartableServer, target: Path) -> str:
    back_up(RealDisk(), server.data_path, "", str(target), lambda done, total: None)
    return str(target)


class Bar:
    """Remembers of each part of a job how much was to be done, and how much was."""

    def __init__(self) -> None:
        self.parts: list[tuple[int | None, int]] = []

    def begin(self, verb: str, rows: int | None = None, unit: str = "rows") -> None:
        self.parts.append((rows, 0))

    def advance(self, rows: int, lag: int | None = None) -> None:
        whole, done = self.parts[-1]
        self.parts[-1] = (whole, done + rows)

    def end(self) -> None: ...

    @property
    def is_full(self) -> bool:
        return all(whole is None or whole == done for whole, done in self.parts)
