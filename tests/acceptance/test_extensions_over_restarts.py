"""What the extensions keep is there after a clean stop and after a kill: cursors, and the ledger of losses."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.client import Api, Topic, eventually, success
from conformance.process import ServerProcess

Start = Callable[[], ServerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ServerProcess] = []

    def start_server() -> ServerProcess:
        started.append(ServerProcess(tmp_path, {"TOPICS_SEGMENT_MAX_EVENTS": "50"}))
        return started[-1]

    yield start_server
    for process in started:
        process.kill()


def end(process: ServerProcess, how: str) -> None:
    if how == "stop":
        process.stop()
    else:
        process.kill()


def cursors(topic: Topic) -> dict[str, Any]:
    listed = success(topic.api.get(f"{topic.path}/cursors"))["cursors"]
    return {each["name"]: (each["seq"], each["updated_ts"]) for each in listed}


def losses(api: Api, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = success(api.get(f"/v0/topics/{name}/losses"))["losses"]
    return found


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_cursors_are_as_they_were_when_they_were_acknowledged(start: Start, how: str) -> None:
    process = start()
    topic = Topic(process.api, "t")
    topic.fill(5)
    for number in range(20):
        success(process.api.put(f"{topic.path}/cursors/moving", {"seq": number}))
    success(process.api.put(f"{topic.path}/cursors/gone", {"seq": 1}))
    success(process.api.put(f"{topic.path}/cursors/kept", {"seq": 3}))
    success(process.api.delete(f"{topic.path}/cursors/gone"))
    before = cursors(topic)
    assert {name: seq for name, (seq, _) in before.items()} == {"moving": 19, "kept": 3}
    end(process, how)
    again = start()
    assert cursors(Topic(again.api, "t")) == before
    end(again, how)
    assert cursors(Topic(start().api, "t")) == before


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_losses_keep_range_reason_and_time(start: Start, how: str) -> None:
    process = start()
    capped, expired = Topic(process.api, "capped"), Topic(process.api, "expired")
    capped.configure(durability="fsync", cap_records=60)
    expired.configure(durability="fsync", ttl_ms=1)
    for _ in range(20):
        capped.fill(10)
    expired.fill(7)
    eventually(lambda: expired.state()["count"] == 0)
    [cap] = losses(process.api, "capped")
    [ttl] = losses(process.api, "expired")
    assert (cap["gap_from"], cap["gap_to"], cap["reason"]) == (1, 140, "cap")
    assert (ttl["gap_from"], ttl["gap_to"], ttl["reason"]) == (1, 7, "ttl")
    end(process, how)
    again = start()
    assert [(loss["gap_from"], loss["gap_to"], loss["reason"]) for loss in losses(again.api, "capped")] == [
        (1, 140, "cap")
    ]
    assert [(loss["gap_from"], loss["gap_to"], loss["reason"]) for loss in losses(again.api, "expired")] == [
        (1, 7, "ttl")
    ]
    if how == "stop":
        assert losses(again.api, "capped") == [cap]
        assert losses(again.api, "expired") == [ttl]


def test_what_a_kill_took_is_in_the_ledger_as_readers_are_told_it(start: Start) -> None:
    process = start()
    topic = Topic(process.api, "fast")
    topic.configure(durability="disk")
    while True:
        for _ in range(50):
            topic.fill(10)
        process.kill()
        process = start()
        topic = Topic(process.api, "fast")
        noted = [(loss["gap_from"], loss["gap_to"], loss["reason"]) for loss in losses(process.api, "fast")]
        if noted:
            break
    told = []
    from_seq = 0
    while True:
        reply = topic.diff(from_seq=from_seq, limit=1000)
        if reply["tombstone"]:
            told.append(tuple(reply["tombstone"][name] for name in ("gap_from", "gap_to", "reason")))
        if reply["caught_up"]:
            break
        from_seq = reply["next_from_seq"]
    assert noted == told
    assert {reason for _, _, reason in noted} == {"crash"}
    process.kill()
    again = start()
    assert [(loss["gap_from"], loss["gap_to"], loss["reason"]) for loss in losses(again.api, "fast")] == noted
