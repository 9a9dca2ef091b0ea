"""Workloads: the same records for every target, and cursors that cover the preloaded topic."""

import json

import pytest

from topics.bench.diff_workload import PRELOADED_RECORDS, READ_RECORDS, DiffWorkload
from topics.bench.live_workload import FanoutWorkload, MediaRoom, MediaWorkload
from topics.bench.plan import LoadSettings
from topics.bench.records import DATA_BYTES, data_of
from topics.bench.samples import Sample
from topics.bench.targets import Target, TargetKind
from topics.bench.workloads import select, select_measurements, selections
from topics.bench.write_workload import WriteWorkload

SERVER = Target("topics", TargetKind.TOPICS, "127.0.0.1", 4000)
REDIS = Target("redis", TargetKind.REDIS, "127.0.0.1", 6379)
NATS = Target("nats", TargetKind.NATS, "127.0.0.1", 4222)


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


def test_each_connection_to_nats_hears_of_its_own_records_alone() -> None:
    """JetStream answers to the inbox a record names, and everybody who listens there hears it."""
    plan = WriteWorkload("disk", 2).plan(NATS, LoadSettings(3, 1.0))
    inboxes = [opening.split(b"SUB ")[1].split()[0] for opening in plan.openings]
    assert len(set(inboxes)) == 3
    for inbox, script in zip(inboxes, plan.scripts, strict=True):
        named = [line.split()[2] for request in script for line in request.split(b"\r\n") if line.startswith(b"HPUB ")]
        assert set(named) == {inbox}
        assert len(named) == 2 * len(script)


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
    assert all(select(word, "disk") or select_measurements(word, "disk") for word in selections())
    assert [workload.name for workload in select("diff", "disk")] == ["diff-tail", "diff-deep"]
    assert [workload.name for workload in select("write-100", "disk")] == ["write-100"]
    assert [workload.name for workload in select("media", "disk")] == ["media"]


@pytest.mark.parametrize(("watchers", "writes_per_s"), [(1, 200), (10, 200), (1000, 20)])
def test_more_watchers_get_fewer_writes(watchers: int, writes_per_s: int) -> None:
    workload = FanoutWorkload("disk", watchers)
    plan = workload.plan(SERVER, LoadSettings(16, 2.0))
    assert (plan.watchers, plan.writes_per_s) == (watchers, writes_per_s)


def test_a_wait_for_the_disk_is_not_held_against_the_delivery() -> None:
    sample = Sample(1, 1, 1.0, 1.0, 7.0, 8.0, 0, None, 0.5)
    marks = [FanoutWorkload(durability, 1).own_figures(SERVER, sample)[0] for durability in ("disk", "fsync")]
    assert [(mark.value, mark.at_most, mark.missed) for mark in marks] == [(7.0, 5.0, True), (7.0, None, False)]


def test_the_room_is_as_large_as_it_was_asked_to_be() -> None:
    plan = MediaWorkload("disk", MediaRoom(7, 11)).plan(SERVER, LoadSettings(16, 2.0))
    assert (plan.participants, plan.packets_per_s) == (7, 11)
