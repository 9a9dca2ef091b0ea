"""Copies as they come: over SSE and WebSocket, with what the source lost on the way."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from conformance.client import Api, Topic, eventually, success
from conformance.sse import watching
from conformance.websocket import connected, seqs

Route = Callable[[Topic, Topic], None]


@pytest.fixture
def route(api: Api) -> Iterator[Route]:
    names: list[str] = []

    def make(source: Topic, dest: Topic) -> None:
        names.append(f"live-{uuid.uuid4().hex}")
        success(api.put(f"/v0/routers/{names[-1]}", {"source": source.name, "dest": dest.name}))

    yield make
    for name in names:
        api.delete(f"/v0/routers/{name}")


@pytest.fixture
def trimmed(new_topic: Callable[..., Topic], route: Route) -> Topic:
    """A topic with a copy, a tombstone where its source had lost eight records, and two more copies."""
    source, dest = new_topic(), new_topic()
    source.configure(cap_records=2)
    dest.configure(cap_records=1, discard="reject")
    route(source, dest)
    source.fill(1)
    assert dest.seqs() == [1]
    source.fill(10)
    dest.configure(cap_records=0)
    eventually(lambda: bool(dest.state()["head_seq"] == 4))
    return dest


def test_copies_come_over_sse_without_anybody_reading(new_topic: Callable[..., Topic], route: Route) -> None:
    source, dest = new_topic(), new_topic()
    route(source, dest)
    with watching(dest.api, {dest.name: {}}) as stream:
        stream.until("caught-up")
        source.fill(2)
        assert stream.record().seqs == [1, 2]
        source.fill(1)
        assert stream.record().seqs == [3]


def test_copies_come_over_a_websocket(api: Api, new_topic: Callable[..., Topic], route: Route) -> None:
    source, dest = new_topic(), new_topic()
    route(source, dest)
    with connected(api) as client:
        client.subscribe(topic=dest.name)
        source.fill(2)
        assert seqs(client.frame()) == [1, 2]


def test_a_long_poll_ends_with_a_copy(new_topic: Callable[..., Topic], route: Route) -> None:
    source, dest = new_topic(), new_topic()
    route(source, dest)
    source.fill(1)
    assert dest.seqs(wait_ms=10_000) == [1]


def test_sse_tells_what_the_source_lost(trimmed: Topic) -> None:
    with watching(trimmed.api, {trimmed.name: {}}) as stream:
        assert stream.record().seqs == [1]
        tombstone = stream.next()
        assert tombstone.event == "tombstone"
        assert [tombstone.json[name] for name in ("reason", "gap_from", "gap_to")] == ["source_trim", 2, 2]
        assert stream.record().seqs == [3, 4]


def test_a_websocket_tells_what_the_source_lost(api: Api, trimmed: Topic) -> None:
    with connected(api) as client:
        frames = client.subscribe(topic=trimmed.name)
    told = [frame for frame in frames if frame["op"] == "tombstone"]
    assert [(frame["reason"], frame["gap_from"], frame["gap_to"]) for frame in told] == [("source_trim", 2, 2)]


def test_an_export_of_a_dest_has_its_copies_and_its_losses(api: Api, trimmed: Topic) -> None:
    lines = api.get(f"{trimmed.path}/export").body.splitlines()
    assert len(lines) == 4
    assert b'"tombstones":[{"gap_from":2,"gap_to":2,"reason":"source_trim"}]' in lines[-1]
