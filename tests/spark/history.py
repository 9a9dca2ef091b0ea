"""A server with a past: sealed segments, deletes, a cap, a TTL, a cold tier, a crash. And what a copy of it must have.

A copy is a streaming query from these topics to another one. Every row it reads becomes a record that says what it was,
so the copy tells both what the source gave and what the sink added twice.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import struct, to_json
from pyspark.sql.streaming.query import StreamingQuery

from conformance.client import Topic, eventually
from spark.readings import history
from spark.server import RestartableServer

SETTINGS = {"TOPICS_SEGMENT_MAX_EVENTS": "50", "TOPICS_HOT_RETAIN_SEGMENTS": "1", "TOPICS_WAL_SHARDS": "2"}
NAMES = ("past.capped", "past.expired", "past.fast", "past.orders")

Seqs = set[int]


class ServerWithAPast(RestartableServer):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SETTINGS | {"TOPICS_COLD_DIR": str(directory / "cold")})
        self.cold_path = str(directory / "cold")
        self._write(300)
        orders = self.topic("past.orders")
        orders.delete_records(match="t.7")
        # A server that stops or starts makes a checkpoint, which moves segments to the cold tier.
        self.stop()
        self.start()
        eventually(self._has_cold_segments)
        # Some of these the crash may take.
        for _ in range(20):
            self.topic("past.fast").fill(10)
        self.kill()
        self.start()
        self._write(150)
        orders.delete_records(match="t.3")
        eventually(lambda: self.topic("past.expired").state()["count"] == 0)

    def _write(self, count: int) -> None:
        for name, config in (
            ("past.orders", {"durability": "fsync"}),
            ("past.capped", {"durability": "fsync", "cap_records": 60}),
            ("past.expired", {"durability": "fsync", "ttl_ms": 50}),
            ("past.fast", {"durability": "disk"}),
        ):
            self.topic(name).configure(**config)
            for first in range(0, count, 10):
                self.topic(name).write(*(_record(number) for number in range(first, first + 10)))

    def _has_cold_segments(self) -> bool:
        return any(Path(self.cold_path).rglob("*.data"))

    def accounts(self) -> dict[str, tuple[int, Seqs, Seqs]]:
        """Of each topic its head, the seqs of its records, and those that were lost, as the server tells a reader."""
        found = {}
        for name in NAMES:
            records, losses = history(self.topic(name))
            lost = {seq for first, last, _ in losses for seq in range(first, last + 1)}
            found[name] = (self.topic(name).state()["head_seq"], set(records), lost)
        return found


def _record(number: int) -> dict[str, Any]:
    meta = {"meta": {"m": str(number)}} if number % 3 == 0 else {}
    return {"data": {"n": number}, "tag": f"t.{number % 10}", **meta}


def start_copy(spark: SparkSession, url: str, target: str, checkpoint: Path) -> StreamingQuery:
    """A record a write, so that a batch takes long enough to be killed in."""
    source = spark.readStream.format("topics").options(
        url=url,
        subscribePrefix="past.",
        startingOffsets=json.dumps(dict.fromkeys(NAMES, 1)),
        onDataLoss="rows",
        maxOffsetsPerTrigger="600",
        minPartitions="2",
    )
    rows = source.load().select(to_json(struct("topic", "seq", "kind", "gap_from", "gap_to", "reason")).alias("data"))
    sink = rows.writeStream.format("topics").options(
        url=url, topic=target, maxRecordsPerChunk="1", checkpointLocation=str(checkpoint)
    )
    return sink.trigger(availableNow=True).start()


def batch_ranges(checkpoint: Path) -> list[dict[str, tuple[int, int]]]:
    """Of each batch and topic the offsets it went from (exclusive) and to."""
    numbers = sorted(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
    assert numbers == list(range(len(numbers)))
    before = dict.fromkeys(NAMES, 0)
    ranges = []
    for number in numbers:
        text = (checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
        ends = {name: position["seq"] for name, position in json.loads(text).items()}
        ranges.append({name: (before[name], end) for name, end in ends.items()})
        before = ends
    return ranges


def assert_copied_once(server: ServerWithAPast, target: Topic, checkpoint: Path) -> None:
    """Every batch: rows, seqs in tombstones and deleted records are its range. The sink: nothing twice."""
    copied, losses = history(target)
    assert losses == []
    texts = [json.dumps(record["data"], sort_keys=True) for record in copied.values()]
    assert [text for text, count in Counter(texts).items() if count > 1] == []
    rows = [record["data"] for record in copied.values()]
    accounts = server.accounts()
    ranges = batch_ranges(checkpoint)
    assert len(ranges) > 1
    for name, (head_seq, live, lost) in accounts.items():
        assert ranges[-1][name][1] == head_seq
        of_topic = [row for row in rows if row["topic"] == name]
        for batch in ranges:
            start, end = batch[name]
            wanted = set(range(start + 1, end + 1))
            seqs = [row["seq"] for row in of_topic if row["kind"] == "record" and start < row["seq"] <= end]
            gaps = [
                seq
                for row in of_topic
                if row["kind"] == "tombstone" and start < row["gap_from"] <= end
                for seq in range(row["gap_from"], row["gap_to"] + 1)
            ]
            deleted = wanted - live - lost
            assert len(seqs) + len(gaps) + len(deleted) == end - start, (name, batch)
            assert set(seqs) == wanted & live, (name, batch)
            assert set(gaps) == wanted & lost, (name, batch)
