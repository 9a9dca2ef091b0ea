"""Writes each result of a roll-up once. A sink gets whole batches, and gets a batch again after a crash.

Into a topic: the query is a producer that numbers its results, and the results of a batch have a fixed order. So when a
batch is repeated, the server leaves out what arrived the first time, however long ago. The `meta` of every result names
its query and batch. One task writes them, chunk after chunk, so the driver need not hold them and gets only a count.

Into a directory: every batch has its own subdirectory, and a repeated batch replaces it.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Observation

from topics import limits
from topics.model.producer import Producer
from topics.spark.errors import PipelineError
from topics.spark.jobs.rollup_spec import field_name
from topics.spark.options import Server, WriteOptions
from topics.spark.telling import telling
from topics.spark.writer import ChunkSender, producer_of, records_of

ROLLUP_META = "rollup"  # "<query>/<batch>"
NOTE = "_rollup.json"
ADDED = "added bigint"


class DirectoryOfAnother(PipelineError):
    """The directory holds something other than the results of this roll-up. Name another one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has other files than the results of this roll-up; name another directory", path=path)


def query_id(checkpoint: str) -> str:
    """The id of the checkpoint's streaming query, which Spark writes before the first batch."""
    with open(os.path.join(checkpoint, "metadata"), "rb") as file:
        return str(msgspec.json.decode(file.read())["id"])


class TopicSink:
    def __init__(self, server: Server, topic: str, by: tuple[str, ...], checkpoint: str) -> None:
        self.results = 0
        self._topic = topic
        self._by = by
        self._checkpoint = checkpoint
        self._server = server

    def write(self, frame: DataFrame, batch: int) -> None:
        keys = ["window_start", "window_end", *(f"`{field_name(path)}`" for path in self._by)]
        # One partition: a topic has one order, and results are few.
        ordered = frame.repartition(1).sortWithinPartitions(*keys)
        data = sf.to_json(sf.struct("*"), {"ignoreNullFields": "false"})
        rows = ordered.select(data.alias("data"), _tag(self._by).alias("tag"))
        query = query_id(self._checkpoint)
        write = _TopicWrite(self._server, self._topic, producer_of(f"rollup/{query}", batch), f"{query}/{batch}")
        self.results += sum(row.added for row in rows.mapInArrow(write, ADDED).collect())


@dataclass(frozen=True, slots=True)
class _TopicWrite:
    """Writes the results of a batch, in a task."""

    server: Server
    topic: str
    producer: Producer
    origin: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        options = WriteOptions(self.server, self.topic, True, limits.SPARK_CHUNK_RECORDS, limits.SPARK_CHUNK_BYTES)
        meta = msgspec.Raw(msgspec.json.encode({ROLLUP_META: self.origin}))
        with telling(), self.server.client() as client:
            sender = ChunkSender(options, self.producer, client)
            for batch in batches:
                for topic, record in records_of(batch, self.topic):
                    record.meta = meta
                    sender.add(topic, record)
            sender.finish()
        yield pa.RecordBatch.from_pydict({"added": [sender.added]})


def _tag(by: tuple[str, ...]) -> Column:
    """The window and its group, such as `2026-11-16T05:00:00Z/AEROPRESS`."""
    start = sf.concat(sf.replace(sf.col("window_start").cast("string"), sf.lit(" "), sf.lit("T")), sf.lit("Z"))
    groups = [sf.coalesce(f"`{field_name(path)}`", sf.lit("null")) for path in by]
    tag = sf.concat_ws("/", start, *groups)
    hashed = sf.concat_ws("/", start, sf.sha2(tag, 256))
    return sf.when(sf.octet_length(tag) <= limits.TAG_BYTES_MAX, tag).otherwise(hashed)


class DirectorySink:
    def __init__(self, path: str, checkpoint: str) -> None:
        self.results = 0
        self._path = path
        self._checkpoint = checkpoint

    def write(self, frame: DataFrame, batch: int) -> None:
        self._claim()
        seen = Observation("results")
        target = os.path.join(self._path, f"batch={batch:06d}")
        # One job, which counts what it writes: another one would look into the state again.
        counted = (
            frame.repartition(1).sortWithinPartitions(*frame.columns[:2]).observe(seen, sf.count("*").alias("count"))
        )
        counted.write.parquet(target, mode="overwrite", compression="zstd")
        if not seen.get["count"]:
            shutil.rmtree(target)
        self.results += seen.get["count"]

    def _claim(self) -> None:
        """Takes the directory for this query, so that it cannot replace batches of another one with the same
        numbers."""
        note = os.path.join(self._path, NOTE)
        query = query_id(self._checkpoint)
        if not os.path.exists(note):
            if os.path.isdir(self._path) and os.listdir(self._path):
                raise DirectoryOfAnother(self._path)
            os.makedirs(self._path, exist_ok=True)
            with open(f"{note}.partial", "wb") as file:
                file.write(msgspec.json.encode({"query": query}))
            os.replace(f"{note}.partial", note)
        with open(note, "rb") as file:
            if msgspec.json.decode(file.read())["query"] != query:
                raise DirectoryOfAnother(self._path)
