"""The files of a real server with a history, read as Spark does and over HTTP: the same records and the same gaps."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.client import Api, Topic, eventually
from conformance.process import ServerProcess

pytest.importorskip("pyarrow")

from topics.spark.file_log import FileLog
from topics.spark.file_reader import read_partition

SETTINGS = {"TOPICS_SEGMENT_MAX_EVENTS": "50", "TOPICS_HOT_RETAIN_SEGMENTS": "1", "TOPICS_WAL_SHARDS": "2"}
FSYNC = {"durability": "fsync"}

Lost = tuple[int, int, str]
Reading = tuple[int, dict[int, Any], list[Lost]]
"""(head_seq, records by seq, gaps)"""


def over_http(api: Api, name: str) -> Reading:
    topic, records, gaps, from_seq = Topic(api, name), {}, [], 0
    while True:
        batch = topic.diff(from_seq=from_seq, include_tags=True, limit=97)
        for record in batch["records"]:
            fields = (record["$ts"], record.get("$node"), record.get("$tag"), record["data"], record.get("meta"))
            records[record["$seq"]] = fields
        if gap := batch.get("tombstone"):
            gaps.append((gap["gap_from"], gap["gap_to"], gap["reason"]))
        if batch["next_from_seq"] >= batch["head_seq"]:
            return batch["head_seq"], records, gaps
        from_seq = batch["next_from_seq"]


def from_files(log: FileLog, name: str) -> Reading:
    head_seq = log.topics()[name].head_seq
    records: dict[int, Any] = {}
    gaps: list[Lost] = []
    for partition in log.partitions(name, 1, head_seq, max_records=70):
        for columns in read_partition(partition):
            for seq, ts, node, tag, data, meta in columns.rows():
                assert seq not in records
                records[seq] = (ts, node, tag, json.loads(data), meta)
            gaps += [(gap.gap_from, gap.gap_to or 0, str(gap.reason)) for gap in columns.gaps]
    return head_seq, records, gaps


def assert_whole(reading: Reading, deleted: set[int]) -> None:
    """Rows, gaps and deleted records are all there ever was."""
    head_seq, records, gaps = reading
    lost = {seq for first, last, _ in gaps for seq in range(first, last + 1)}
    assert not records.keys() & lost
    assert set(range(1, head_seq + 1)) - records.keys() - lost <= deleted


def record(number: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"data": {"n": number}, "tag": f"t.{number % 10}"}
    if number % 3 == 0:
        fields["meta"] = {"trace": str(number)}
    if number % 4 == 0:
        fields["node"] = "eu-1"
    return fields


def write(api: Api, name: str, count: int, **config: Any) -> None:
    for number in range(0, count, 5):
        Topic(api, name).write(*map(record, range(number, number + 5)), config=config)


def back_up(directory: Path) -> None:
    places = ["--data", directory / "data", "--cold", directory / "cold", directory / "copy"]
    command = [sys.executable, "-m", "topics.cli.main", "backup", *map(str, places)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], ServerProcess]]:
    """Starts the server of `tmp_path`; what still runs at the end is killed."""
    started: list[ServerProcess] = []

    def start_server() -> ServerProcess:
        started.append(ServerProcess(tmp_path, SETTINGS | {"TOPICS_COLD_DIR": str(tmp_path / "cold")}))
        return started[-1]

    yield start_server
    for process in started:
        process.kill()


def test_both_readers_say_the_same_of_a_server_with_a_history(
    tmp_path: Path, start: Callable[[], ServerProcess]
) -> None:
    names = ["orders", "capped", "expired", "fast", "again"]

    def files() -> FileLog:
        return FileLog(str(tmp_path / "data"), str(tmp_path / "cold"))

    def same(api: Api, name: str) -> bool:
        return over_http(api, name) == from_files(files(), name)

    process = start()
    write(process.api, "orders", 400, **FSYNC)
    write(process.api, "capped", 200, **FSYNC, cap_records=60)
    write(process.api, "expired", 100, **FSYNC, ttl_ms=300)
    write(process.api, "again", 30, **FSYNC)
    Topic(process.api, "again").remove()
    write(process.api, "again", 10, **FSYNC)
    Topic(process.api, "orders").delete_records(match="t.7")
    write(process.api, "fast", 100, durability="disk")
    # Files first: what a request finds expired is in no file before the next checkpoint, which may be 30 s away.
    eventually(lambda: from_files(files(), "expired")[1] == {})
    eventually(lambda: all(same(process.api, name) for name in ("orders", "expired", "fast", "again")))
    write(process.api, "fast", 300, durability="disk")
    process.kill()

    process = start()
    write(process.api, "orders", 300)
    write(process.api, "capped", 20)
    write(process.api, "fast", 50)
    Topic(process.api, "orders").delete_records(match="t.3")
    eventually(lambda: all(same(process.api, name) for name in ("orders", "expired", "fast", "again")))
    served = {name: over_http(process.api, name) for name in names}
    back_up(tmp_path)
    process.stop()

    stopped, copy = files(), FileLog(str(tmp_path / "copy"))
    assert any(segment.cold for segment in stopped.topics()["orders"].segments)
    for name in names:
        assert from_files(stopped, name) == served[name], name
        if name != "capped":  # a copy knows of what a cap took from the cold tier when a checkpoint does
            assert from_files(copy, name) == served[name], name
    deleted = {seq for seq in range(1, 701) if (seq - 1) % 10 in {7, 3}}
    assert_whole(from_files(stopped, "orders"), deleted)
    for name in names[1:]:
        assert_whole(from_files(stopped, name), set())
    assert [gap[2] for gap in served["capped"][2]] == ["cap"]
    assert [gap[2] for gap in served["expired"][2]] == ["ttl"]
    cold = FileLog(str(tmp_path / "cold"))
    name = f"#{stopped.topics()['orders'].epoch:08X}"
    _, records, gaps = from_files(cold, name)
    assert records.items() <= served["orders"][1].items()
    assert gaps == []
    assert len(records) > 100
