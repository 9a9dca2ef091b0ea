"""Streams and upgrades: the hand-over of a connection, and what its owner and its channel tell each other."""

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fake_transport import DATE, Client, RecordingApplication, echo, reply
from test_protocol import turns

from topics import limits
from topics.api.connections import Connections
from topics.api.http import Channel, Request, Response, Streaming, Upgrade
from topics.errors import TopicsError, Unauthorized
from topics.testing.fake_clock import FakeClock

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"
OFFER = b"GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
LATER_STREAM = b"GET /later/stream HTTP/1.1\r\nHost: h\r\n\r\n"
LATER_OFFER = OFFER.replace(b"/upgrade", b"/later/upgrade")

SSE_HEADERS = ((b"cache-control", b"no-cache"), (b"connection", b"keep-alive"))
HEADER_LINES = b"cache-control: no-cache\r\nconnection: keep-alive\r\n"
CHUNKED_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    + DATE
    + HEADER_LINES
    + b"\r\n"
)
UNFRAMED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + DATE + HEADER_LINES + b"\r\n"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"


class Owner:
    """Notes what it is told. A call named in `reactions` does that besides."""

    channel: Channel

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.input = b""
        self.reactions: dict[str, Callable[[], None]] = {}

    def opened(self, channel: Channel) -> None:
        self.channel = channel
        self._note("opened")

    def received(self, data: bytes) -> None:
        self.input += data
        self._note("received")

    def drained(self) -> None:
        self._note("drained")

    def end_with(self, error: TopicsError) -> None:
        self._note("revoked" if isinstance(error, Unauthorized) else "shutting_down")

    def closed(self) -> None:
        self._note("closed")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call in self.reactions:
            self.reactions[call]()


class HandingOver(RecordingApplication):
    """Hands /stream and /upgrade to its owner, under /later only once the test says so; echoes the rest."""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self.owner = owner
        self.stream_headers: tuple[tuple[bytes, bytes], ...] = SSE_HEADERS
        self.key_digest = b""
        self.release = asyncio.Event()
        self.answer = lambda request: (
            self._later(request) if request.path.startswith(b"/later") else self._hand_over(request)
        )

    def _hand_over(self, request: Request) -> Response:
        request.key_digest = self.key_digest
        if request.path.endswith(b"/stream"):
            return Streaming(200, b"", b"text/event-stream", self.stream_headers, owner=self.owner)
        if request.path.endswith(b"/upgrade"):
            return Upgrade(101, b"", owner=self.owner, head=SWITCHING)
        return Response(200, echo(request))

    async def _later(self, request: Request) -> Response:
        await self.release.wait()
        return self._hand_over(request)


class Peer(Client):
    """A client of an application that hands over."""

    def __init__(self, connections: Connections | None = None) -> None:
        self.owner = Owner()
        self.handing_over = HandingOver(self.owner)
        super().__init__(self.handing_over, connections)

    @property
    def channel(self) -> Channel:
        return self.owner.channel

    @property
    def body(self) -> bytes:
        """What was sent behind the head."""
        return self.transport.sent.partition(b"\r\n\r\n")[2]


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test whose channels find a running loop."""

    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_a_stream_begins_with_exactly_the_headers_given_and_the_date() -> None:
    peer = Peer()
    assert peer.send(STREAM) == CHUNKED_HEAD
    assert peer.owner.calls == ["opened"]
    assert peer.channel.writable
    assert not peer.transport.is_closing()


@in_loop
async def test_what_is_written_when_opened_leaves_together_with_the_head() -> None:
    peer = Peer()
    peer.owner.reactions["opened"] = lambda: peer.channel.write(b"retry: 2000\n\n")
    peer.send(STREAM)
    assert peer.transport.writes == [CHUNKED_HEAD + b"d\r\nretry: 2000\n\n\r\n"]


@in_loop
async def test_each_write_is_a_chunk_and_those_of_one_turn_leave_together() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.write(b"a" * 26)
    peer.channel.write(b"b")
    assert peer.body == b""
    await turns(1)
    peer.channel.write(b"c")
    await turns(1)
    assert peer.transport.writes[1:] == [b"1a\r\n" + b"a" * 26 + b"\r\n1\r\nb\r\n", b"1\r\nc\r\n"]


@in_loop
async def test_an_empty_write_does_not_end_the_body() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.write(b"")
    await turns()
    assert peer.body == b""


@in_loop
async def test_large_writes_are_framed_alike() -> None:
    peer = Peer()
    peer.send(STREAM)
    data = b"x" * (limits.STREAM_JOIN_BYTES_MAX + 1)
    peer.channel.write(data)
    await turns()
    assert peer.body == b"4001\r\n" + data + b"\r\n"


@in_loop
async def test_closing_a_stream_sends_what_is_left_and_the_last_chunk_and_closes() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.write(b"bye")
    peer.channel.close()
    assert peer.body == b"3\r\nbye\r\n0\r\n\r\n"
    assert peer.transport.closed
    assert peer.owner.calls == ["opened"]
    peer.lose()
    assert peer.owner.calls == ["opened", "closed"]


@in_loop
async def test_the_last_words_of_a_stream_are_not_overtaken_by_a_reset_when_requests_came_behind_it() -> None:
    for requests in ([STREAM + GET], [STREAM, GET]):
        peer = Peer()
        for request in requests:
            peer.send(request)
        peer.channel.write(b"bye")
        peer.channel.close()
        assert peer.body == b"3\r\nbye\r\n0\r\n\r\n"
        assert (peer.transport.eof_written, peer.transport.closed) == (True, False)


@in_loop
async def test_a_stream_that_says_nothing_of_its_connection_says_that_it_is_the_last_answer() -> None:
    peer, head_only = Peer(), Peer()
    peer.handing_over.stream_headers = head_only.handing_over.stream_headers = ((b"vary", b"accept"),)
    assert b"\r\nconnection: close\r\n" in peer.send(STREAM)
    answers = head_only.send(b"HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
    assert b"connection: close" not in answers
    assert answers.endswith(reply(b"GET /a? "))


@in_loop
async def test_http_1_0_gets_a_stream_without_chunks() -> None:
    peer = Peer()
    assert peer.send(b"GET /stream HTTP/1.0\r\n\r\n") == UNFRAMED_HEAD
    peer.channel.write(b"data: 1\n\n")
    peer.channel.close()
    assert peer.body == b"data: 1\n\n"
    assert peer.transport.closed


@in_loop
async def test_a_stream_is_not_packed() -> None:
    peer = Peer()
    peer.send(STREAM.replace(b"\r\n\r\n", b"\r\nAccept-Encoding: gzip\r\n\r\n"))
    peer.channel.write(b"x" * 5000)
    await turns()
    assert peer.transport.sent == CHUNKED_HEAD + b"1388\r\n" + b"x" * 5000 + b"\r\n"


@in_loop
async def test_head_gets_the_head_of_a_stream_and_the_connection_is_kept() -> None:
    peer = Peer()
    sent = peer.send(b"HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
    assert sent == CHUNKED_HEAD + reply(b"GET /a? ")
    assert peer.owner.calls == ["closed"]


@in_loop
async def test_head_with_connection_close_is_closed() -> None:
    peer = Peer()
    assert peer.send(b"HEAD /stream HTTP/1.0\r\n\r\n") == UNFRAMED_HEAD
    assert peer.transport.closed
    assert peer.owner.calls == ["closed"]


@in_loop
async def test_a_request_before_a_stream_is_answered_first_and_one_behind_it_never() -> None:
    peer = Peer()
    peer.send(GET + STREAM + GET)
    peer.send(GET)
    assert peer.transport.sent == reply(b"GET /a? ") + CHUNKED_HEAD
    assert len(peer.application.requests) == 2


@in_loop
async def test_a_stream_waits_for_the_answers_before_it() -> None:
    peer = Peer()
    peer.send(b"GET /later HTTP/1.1\r\nHost: h\r\n\r\n" + STREAM + GET)
    assert peer.owner.calls == []
    assert not peer.transport.reading
    peer.handing_over.release.set()
    await turns()
    assert peer.transport.sent == reply(b"GET /later? ") + CHUNKED_HEAD
    assert peer.owner.calls == ["opened"]
    assert peer.transport.reading  # so that a hang-up is noticed


@in_loop
async def test_a_coroutine_may_answer_with_a_stream() -> None:
    peer = Peer()
    assert peer.send(LATER_STREAM) == b""
    peer.handing_over.release.set()
    await turns()
    assert peer.transport.sent == CHUNKED_HEAD
    peer.channel.write(b"a")
    await turns()
    assert peer.body == b"1\r\na\r\n"


@in_loop
async def test_the_owner_of_a_stream_whose_client_left_before_it_began_is_told_so() -> None:
    peer = Peer()
    peer.send(LATER_STREAM)
    await turns()
    peer.handing_over.release.set()
    peer.protocol.abort()
    await turns()
    assert peer.owner.calls == ["closed"]
    assert peer.transport.sent == b""
    peer.lose()
    assert peer.owner.calls == ["closed"]


@in_loop
async def test_what_the_client_of_a_stream_sends_is_thrown_away_within_a_bound() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.send(b"x" * limits.STREAM_INPUT_BYTES_MAX)
    assert not peer.transport.aborted
    peer.send(b"x")
    assert peer.transport.aborted
    assert peer.owner.calls == ["opened"]
    peer.lose()
    assert peer.owner.calls == ["opened", "closed"]


@in_loop
async def test_a_hang_up_is_told_once_and_the_connection_forgotten() -> None:
    for end in (Peer.hang_up, Peer.lose):
        peer = Peer()
        peer.send(STREAM)
        assert len(peer.connections) == 1
        end(peer)
        assert peer.owner.calls == ["opened", "closed"]
        assert len(peer.connections) == 0


@in_loop
async def test_after_the_end_nothing_that_the_owner_does_has_an_effect() -> None:
    for end in (Peer.hang_up, Peer.lose, lambda peer: peer.channel.close(), lambda peer: peer.channel.abort()):
        for request in (STREAM, OFFER):
            peer = Peer()
            peer.send(request)
            end(peer)
            sent = peer.transport.sent
            peer.channel.write(b"late")
            peer.channel.write(b"x" * 100_000)
            peer.channel.pause_reading()
            peer.channel.resume_reading()
            peer.channel.close()
            await turns()
            assert peer.transport.sent == sent
            assert peer.transport.reading


@in_loop
async def test_what_was_written_before_an_abort_is_dropped() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.write(b"a")
    peer.channel.abort()
    await turns()
    assert peer.transport.aborted
    assert peer.body == b""


@in_loop
async def test_a_channel_is_not_writable_above_the_high_water_mark_until_a_quarter_is_left() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    room = limits.STREAM_BUFFER_HIGH_BYTES - len(b"10000\r\n\r\n")  # its frame counts, too
    peer.channel.write(b"x" * room)
    assert peer.channel.writable
    peer.channel.write(b"x")
    assert not peer.channel.writable  # at once, not at the end of the turn
    quarter = limits.STREAM_BUFFER_HIGH_BYTES // 4
    peer.transport.client_reads(peer.transport.buffered - quarter - 1)
    assert peer.owner.calls == ["opened"]
    peer.transport.client_reads(1)
    assert peer.owner.calls == ["opened", "drained"]
    assert peer.channel.writable


@in_loop
async def test_a_stream_that_begins_behind_unread_answers_is_not_writable_at_first() -> None:
    peer = Peer()
    peer.transport.stuck = True
    peer.transport.buffered = limits.STREAM_BUFFER_HIGH_BYTES + 1
    peer.send(STREAM)
    assert not peer.channel.writable
    peer.transport.client_reads(10**9)
    assert peer.owner.calls == ["opened", "drained"]


@in_loop
async def test_a_stream_that_begins_while_writing_is_paused_is_not_writable_at_first() -> None:
    peer = Peer()
    peer.send(LATER_STREAM)
    peer.transport.stuck = True
    peer.transport.buffered = 10**6
    peer.transport.write(b"x")
    peer.handing_over.release.set()
    await turns()
    assert not peer.channel.writable
    peer.transport.client_reads(10**9)
    assert peer.owner.calls == ["opened", "drained"]


@in_loop
async def test_a_slow_reader_whose_owner_goes_on_writing_is_cut() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    written = 0
    while not peer.transport.aborted:
        peer.channel.write(b"x" * limits.STREAM_BUFFER_HIGH_BYTES)
        written += limits.STREAM_BUFFER_HIGH_BYTES
        await turns(1)
    assert written <= limits.STREAM_BUFFER_BYTES_MAX + 2 * limits.STREAM_BUFFER_HIGH_BYTES
    peer.lose()
    assert peer.owner.calls == ["opened", "closed"]


@in_loop
async def test_a_write_that_begins_while_there_is_room_may_be_of_any_size() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    peer.channel.write(b"x" * (3 * limits.STREAM_BUFFER_BYTES_MAX))
    assert not peer.channel.writable
    peer.channel.write(b"and a word behind it")
    await turns(2)
    assert not peer.transport.aborted


@in_loop
async def test_what_has_left_the_process_is_known() -> None:
    peer = Peer()
    peer.send(STREAM)
    await turns(1)
    head_bytes = peer.channel.left_bytes
    assert head_bytes == peer.channel.written_bytes == len(peer.transport.sent)
    peer.transport.stuck = True
    peer.channel.write(b"x" * 1000)
    assert peer.channel.written_bytes == head_bytes + len(b"3e8\r\n") + 1000 + len(b"\r\n")
    await turns(1)
    assert peer.channel.left_bytes == head_bytes
    peer.transport.client_reads(400)
    assert peer.channel.left_bytes == peer.channel.written_bytes - peer.transport.buffered


@in_loop
async def test_a_transport_that_throws_its_buffer_away_has_not_sent_it() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    await turns(1)
    peer.channel.write(b"x" * 1000)
    await turns(1)
    left_bytes = peer.channel.left_bytes
    assert left_bytes < peer.channel.written_bytes
    peer.transport.buffered = 0
    peer.transport.aborted = True
    assert peer.channel.left_bytes == left_bytes
    peer.lose()
    assert peer.channel.left_bytes == left_bytes


@in_loop
async def test_a_stream_has_no_deadline_until_it_is_closed() -> None:
    for request in (STREAM, OFFER):
        peer = Peer()
        peer.send(request)
        peer.transport.stuck = True
        peer.channel.write(b"x" * 100_000)
        peer.sweep_after(1_000_000)
        assert not peer.transport.aborted
        peer.channel.close()
        peer.sweep_after(limits.STREAM_CLOSE_TIMEOUT_S)
        assert not peer.transport.aborted
        peer.sweep_after(0.001)
        assert peer.transport.aborted


@in_loop
async def test_an_unread_stream_does_not_outlive_the_hang_up_of_its_client() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    peer.channel.write(b"x" * 100_000)
    assert peer.transport.protocol is not None
    peer.transport.protocol.eof_received()
    assert peer.owner.calls == ["opened", "closed"]
    peer.sweep_after(limits.STREAM_CLOSE_TIMEOUT_S + 1)
    assert peer.transport.aborted


@in_loop
async def test_an_upgrade_sends_its_head_and_then_raw_bytes_both_ways() -> None:
    peer = Peer()
    assert peer.send(OFFER) == SWITCHING
    assert peer.application.requests[0].offers_upgrade
    peer.send(b"\x81\x01a", GET)
    assert peer.owner.input == b"\x81\x01a" + GET
    peer.channel.write(b"\x81\x01")
    peer.channel.write(b"b")
    await turns()
    assert peer.transport.writes == [SWITCHING, b"\x81\x01b"]
    assert peer.owner.calls == ["opened", "received", "received"]


@in_loop
async def test_an_upgrade_hands_over_the_bytes_that_came_with_the_request() -> None:
    peer = Peer()
    peer.send(GET + OFFER + b"\x81\x01a")
    assert peer.transport.sent == reply(b"GET /a? ") + SWITCHING
    assert peer.owner.calls == ["opened", "received"]
    assert peer.owner.input == b"\x81\x01a"


@in_loop
async def test_an_upgrade_hands_over_the_bytes_that_came_while_its_answer_was_made() -> None:
    frames = bytes(range(256)) * 200
    stream = b"GET /later HTTP/1.1\r\nHost: h\r\n\r\n" + LATER_OFFER + frames
    for first in (len(stream), len(stream) - len(frames), len(stream) - 7, 40, 1):
        peer = Peer()
        peer.send(stream[:first], stream[first:] + b"!")
        assert peer.owner.calls == []
        assert not peer.transport.reading
        peer.handing_over.release.set()
        await turns(6)
        assert peer.transport.sent == reply(b"GET /later? ") + SWITCHING
        assert peer.owner.input == frames + b"!"
        assert peer.transport.reading


@in_loop
async def test_an_offer_that_is_refused_is_the_last_request_whatever_follows() -> None:
    peer = Peer()
    peer.send(OFFER.replace(b"/upgrade", b"/later") + b"\x81\x01a" * 50_000)
    peer.handing_over.release.set()
    await turns()
    assert peer.transport.sent == reply(b"GET /later? ", b"connection: close\r\n")
    assert peer.transport.closed


@in_loop
async def test_a_websocket_offer_with_a_body_or_in_http_1_0_is_declined() -> None:
    peer = Peer()
    offer = b"POST /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nab"
    assert peer.send(offer + GET) == reply(b"POST /a? ab") + reply(b"GET /a? ")
    peer = Peer()
    peer.send(b"GET /a HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert not peer.application.requests[0].offers_upgrade


@in_loop
async def test_an_upgrade_that_was_not_offered_costs_the_connection() -> None:
    peer = Peer()
    peer.send(GET.replace(b"/a", b"/upgrade") + GET)
    assert peer.transport.aborted
    assert peer.transport.sent == b""
    assert peer.owner.calls == ["closed"]


@in_loop
async def test_a_stream_may_answer_an_offer() -> None:
    peer = Peer()
    peer.send(OFFER.replace(b"/upgrade", b"/stream") + b"\x81\x01a")
    assert peer.transport.sent == CHUNKED_HEAD
    assert peer.owner.calls == ["opened"]


@in_loop
async def test_closing_an_upgraded_connection_shuts_our_side_and_ignores_what_still_comes() -> None:
    peer = Peer()
    peer.send(OFFER)
    peer.channel.write(b"\x88\x00")
    peer.channel.close()
    assert peer.body == b"\x88\x00"
    assert peer.transport.eof_written
    peer.send(b"x" * (limits.STREAM_INPUT_BYTES_MAX + 1))
    assert peer.owner.input == b""
    assert not peer.transport.is_closing()
    peer.hang_up()
    assert peer.owner.calls == ["opened", "closed"]


@in_loop
async def test_reading_pauses_and_resumes_as_the_owner_says_and_resumes_for_the_close() -> None:
    peer = Peer()
    peer.send(OFFER)
    peer.channel.pause_reading()
    peer.channel.pause_reading()
    assert not peer.transport.reading
    peer.channel.resume_reading()
    peer.channel.resume_reading()
    assert peer.transport.reading
    peer.channel.pause_reading()
    peer.channel.close()
    assert peer.transport.reading


@in_loop
async def test_a_stream_can_not_stop_reading_because_it_would_miss_the_hang_up() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.pause_reading()
    assert peer.transport.reading


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
