"""Workloads: the same records for every target, and cursors that cover the preloaded topic."""

import json

import pytest

from topics.bench.diff_workload import PRELOADED_RECORDS, READ_RECORDS, DiffWorkload
from topics.bench.records import DATA_BYTES, data_of
from topics.bench.targets import Target, TargetKind
from topics.bench.workloads import select, select_measurements, selections
from topics.bench.write_workload import WriteWorkload

SERVER = Target("topics", TargetKind.TOPICS, "127.0.0.1", 4000)
REDIS = Target("redis", TargetKind.REDIS, "127.0.0.1", 6379)


def body_of(request: bytes) -> dict[str, object]:
    head, _, body = request.partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
    decoded: dict[str, object] = json.loads(body)
    return decoded


@pytest.mark.parametrize("number", [0, 42, 9_999_999, 10_000_000])
def test_data_is_json_of_a_fixed_size(number: int) -> None:
    assert len(data_of(number)) == DATA_BYTES
    assert json.loads(data_of(number))["type"] == "resize"


@pytest.mark.parametrize("count", [1, 100])
def test_a_write_carries_the_same_records_to_every_target(count: int) -> None:
    workload = WriteWorkload("disk", count)
    records = body_of(workload.request(SERVER, 3, 2))["records"]
    assert isinstance(records, list)
    assert len(records) == count
    commands = workload.request(REDIS, 3, 2)
    assert commands.count(b"XADD") == count
    assert all(record["tag"].encode() in commands for record in records)


def test_connections_write_different_records() -> None:
    workload = WriteWorkload("disk", 1)
    requests = {workload.request(SERVER, connection, number) for connection in (0, 1) for number in (0, 1, 2)}
    assert len(requests) == 6


def test_the_deep_read_walks_from_zero_to_the_head() -> None:
    workload = DiffWorkload("disk", "deep")
    cursors = [body_of(workload.request(SERVER, 0, n))["from_seq"] for n in range(workload.script_length)]
    assert cursors == list(range(0, PRELOADED_RECORDS, READ_RECORDS))
    assert b"(1000-0" in workload.request(REDIS, 0, 1)


def test_the_tail_read_asks_for_the_last_records() -> None:
    workload = DiffWorkload("disk", "tail")
    assert body_of(workload.request(SERVER, 0, 0))["from_seq"] == PRELOADED_RECORDS - READ_RECORDS
    assert workload.script_length == 1


def test_every_word_of_the_command_line_selects_something() -> None:
    assert all(select(word, "disk") or select_measurements(word, "disk", None) for word in selections())
    assert [workload.name for workload in select("diff", "disk")] == ["diff-tail", "diff-deep"]
    assert [workload.name for workload in select("write-100", "disk")] == ["write-100"]
