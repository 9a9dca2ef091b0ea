"""Reads topics from files the way a Spark job would, and compares them with what a server says."""

import json
import pickle
from dataclasses import dataclass

import msgspec

from topics.spark.columns import PAYLOAD
from topics.spark.file_log import FileLog
from topics.spark.file_partition import FilePartition
from topics.spark.file_reader import read_partition
from topics.spark.offsets import Gap
from topics.storage.fs import Disk
from topics.testing.simulated_server import SimulatedServer

Row = tuple[int, int, str | None, str | None, str, dict[str, str] | None]


@dataclass(frozen=True)
class FileReading:
    rows: list[Row]
    gaps: list[Gap]

    @property
    def seqs(self) -> list[int]:
        return [row[0] for row in self.rows]


def read_partitions(partitions: list[FilePartition], disk: Disk | None = None) -> FileReading:
    rows: list[Row] = []
    gaps: list[Gap] = []
    for partition in partitions:
        for columns in read_partition(pickle.loads(pickle.dumps(partition)), disk):
            rows += columns.rows()
            gaps += columns.gaps
    return FileReading(rows, gaps)


def read_topic(log: FileLog, topic: str, disk: Disk | None = None, **options: int) -> FileReading:
    found = log.topics()[topic]
    return read_partitions(log.partitions(topic, 1, found.head_seq, **options), disk)


def seqs_of(log: FileLog, topic: str, disk: Disk | None = None, **options: int) -> list[int]:
    """The same for who asks for seqs alone, as a count does."""
    partitions = log.partitions(topic, 1, log.topics()[topic].head_seq, **options)
    batches = (columns for each in partitions for columns in read_partition(each, disk, frozenset({"seq"})))
    return [seq for columns in batches for seq in columns.seq.to_pylist()]


def payloads_of(log: FileLog, topic: str) -> tuple[dict[int, str], int]:
    """The same for who asks for fields of payloads, and how many of them came with the text of their record."""
    payloads: dict[int, str] = {}
    from_texts = 0
    for each in log.partitions(topic, 1, log.topics()[topic].head_seq):
        for columns in read_partition(each, fields=frozenset({"seq", PAYLOAD})):
            data = columns.data.to_pylist()
            if columns.served:
                served = msgspec.json.decode(b"".join((b"[", columns.served, b"]")), type=list[_Served])
                data = [bytes(record.data).decode() for record in served]
                from_texts += len(data)
            payloads |= dict(zip(columns.seq.to_pylist(), data, strict=True))
    return payloads, from_texts


class _Served(msgspec.Struct):
    data: msgspec.Raw


def kinds(partitions: list[FilePartition]) -> set[type]:
    return {type(piece) for partition in partitions for piece in partition.pieces}


def row_of(fragment: bytes) -> Row:
    """A record as the server renders it, with data in its canonical form."""
    record = json.loads(fragment)
    data = json.dumps(record["data"])
    return (record["$seq"], record["$ts"], record.get("$node"), record.get("$tag"), data, record.get("meta"))


def canonical(row: Row) -> Row:
    return (*row[:4], json.dumps(json.loads(row[4])), row[5])


def assert_as_served(server: SimulatedServer, log: FileLog, disk: Disk | None = None, **options: int) -> None:
    """Every topic reads from the files as it does from the server."""
    topics = {topic.name: topic for topic in server.engine.topics}
    found = log.topics()
    assert found.keys() == topics.keys()
    for name, topic in topics.items():
        served = server.read_all(name)
        assert found[name].epoch == topic.topic_id
        assert (found[name].head_seq, found[name].earliest_seq) == (served.head_seq, topic.log.earliest_seq), name
        assert found[name].evict_floor == topic.log.evict_floor
        read = read_topic(log, name, disk, **options)
        assert list(map(canonical, read.rows)) == [row_of(served.records[seq]) for seq in sorted(served.records)], name
        assert read.gaps == [Gap(*gap) for gap in served.gaps], name
        assert seqs_of(log, name, disk, **options) == read.seqs, name
