"""How channels end: at shutdown, by an owner that raises, with a key that is gone."""

import asyncio
import gc
import logging
import weakref

import pytest
from handing_over import (
    LATER_STREAM,
    OFFER,
    STREAM,
    Peer,
    in_loop,
)
from test_protocol import turns

from topics.api.connections import Connections
from topics.testing.fake_clock import FakeClock


@in_loop
async def test_at_shutdown_owners_are_told_once_and_waited_for() -> None:
    connections = Connections(FakeClock())
    stream, upgraded = Peer(connections), Peer(connections)
    for peer in (stream, upgraded):
        peer.send(STREAM if peer is stream else OFFER)
    stream.owner.reactions["shutting_down"] = stream.channel.close
    connections.drain()
    connections.drain()
    waiting = asyncio.create_task(connections.drained(60))
    await turns()
    assert stream.body == b"0\r\n\r\n"
    assert stream.transport.closed
    assert upgraded.owner.calls == ["opened", "shutting_down"]
    stream.lose()
    await turns()
    assert not waiting.done()
    upgraded.lose()
    assert await waiting == 0
    assert stream.owner.calls == ["opened", "shutting_down", "closed"]


@in_loop
async def test_an_owner_that_does_not_end_at_shutdown_is_cut_with_the_grace() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.connections.drain()
    assert await peer.connections.drained(0) == 1
    assert peer.transport.aborted


@in_loop
async def test_a_stream_that_begins_while_draining_is_told_at_once_and_waited_for() -> None:
    peer = Peer()
    peer.send(LATER_STREAM)
    await turns()
    peer.connections.drain()
    waiting = asyncio.create_task(peer.connections.drained(60))
    peer.handing_over.release.set()
    await turns()
    assert peer.owner.calls == ["opened", "shutting_down"]
    assert not waiting.done()
    peer.lose()
    assert await waiting == 0


@pytest.mark.parametrize("call", ["opened", "received", "drained", "shutting_down", "closed"])
def test_an_owner_that_raises_loses_its_own_connection_and_is_heard(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise LookupError("a bug")

    async def scenario() -> None:
        connections = Connections(FakeClock())
        other, peer = Peer(connections), Peer(connections)
        other.send(STREAM)
        peer.owner.reactions[call] = fail
        peer.send(OFFER)
        peer.send(b"x")
        peer.transport.stuck = True
        if call != "opened":
            peer.channel.write(b"x" * 100_000)
        peer.transport.client_reads(10**9)
        connections.drain()
        assert peer.transport.aborted == (call != "closed")
        peer.lose()
        assert peer.owner.calls[-2:] == [*([call] if call != "closed" else ["shutting_down"]), "closed"]
        assert not other.transport.is_closing()
        assert len(connections) == 1

    with caplog.at_level(logging.ERROR, "topics.api"):
        asyncio.run(scenario())
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_an_owner_that_raises_though_it_was_never_given_a_connection_is_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise LookupError("a bug")

    async def scenario() -> None:
        for target in (b"/stream", b"/later/stream"):
            peer = Peer()
            peer.owner.reactions["closed"] = fail
            peer.handing_over.release.set()
            peer.send(b"HEAD " + target + b" HTTP/1.0\r\n\r\n")
            await turns()
            assert peer.transport.aborted
            assert peer.owner.calls == ["closed"]

    with caplog.at_level(logging.ERROR, "topics.api"):
        asyncio.run(scenario())
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


@in_loop
async def test_a_lost_channel_is_freed_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        for request in (STREAM, OFFER):
            peer = Peer()
            peer.send(request)
            peer.channel.write(b"x")
            await turns()
            peer.lose()
            peer.transport.protocol = None
            canary = weakref.ref(peer.owner)
            del peer.handing_over.owner  # the application of this test refers to itself
            del peer
            assert canary() is None
    finally:
        gc.enable()


@in_loop
async def test_only_the_owners_of_what_a_key_that_is_gone_has_opened_are_told() -> None:
    connections = Connections(FakeClock())
    stream, upgraded, other = Peer(connections), Peer(connections), Peer(connections)
    for peer, request, digest in ((stream, STREAM, b"a"), (upgraded, OFFER, b"b"), (other, STREAM, b"")):
        peer.handing_over.key_digest = digest
        peer.send(request)
    stream.owner.reactions["revoked"] = stream.channel.close
    assert connections.revoke(frozenset((b"a", b"b", b"c"))) == 2
    assert stream.transport.closed
    assert upgraded.owner.calls == ["opened", "revoked"]
    assert other.owner.calls == ["opened"]
    assert connections.revoke(frozenset((b"a",))) == 0
