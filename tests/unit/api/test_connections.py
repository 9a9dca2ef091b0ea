"""Deadlines, the bound on connections, and the end of them all at shutdown."""

import asyncio

from fake_transport import Client, reply
from test_protocol import WaitingApplication, turns

from topics import limits
from topics.api.connections import Connections
from topics.api.http import Response
from topics.testing.fake_clock import FakeClock

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"


def test_an_idle_connection_is_ended_after_its_time_and_not_before() -> None:
    client = Client()
    client.sweep_after(limits.IDLE_TIMEOUT_S)
    assert not client.transport.aborted
    client.send(GET)
    client.sweep_after(limits.IDLE_TIMEOUT_S)
    assert not client.transport.aborted
    client.sweep_after(0.001)
    assert client.transport.aborted


def test_a_head_that_trickles_in_is_cut_off() -> None:
    client = Client()
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\nA: ")
    for _ in range(int(limits.HEAD_TIMEOUT_S)):
        client.send(b"a")
        client.sweep_after(1)
        assert not client.transport.aborted
    client.send(b"a")
    client.sweep_after(1)
    assert client.transport.aborted


def test_a_body_that_goes_on_may_take_its_time_and_one_that_stalls_may_not() -> None:
    client = Client()
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n")
    for _ in range(5):
        client.sweep_after(limits.BODY_STALL_TIMEOUT_S - 1)
        assert not client.transport.aborted
        client.send(b"x")
    client.sweep_after(limits.BODY_STALL_TIMEOUT_S + 1)
    assert client.transport.aborted


def test_chunk_extensions_are_no_progress() -> None:
    client = Client()
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    for _ in range(int(limits.BODY_STALL_TIMEOUT_S)):
        client.send(b"x")
        client.sweep_after(1)
    assert not client.transport.aborted
    client.send(b"x")
    client.sweep_after(1)
    assert client.transport.aborted


def test_a_request_being_handled_has_no_deadline_and_the_next_head_gets_its_full_time() -> None:
    async def scenario() -> None:
        application = WaitingApplication()
        client = Client(application)
        client.send(WAIT + b"GET / HT")
        client.sweep_after(10_000)
        assert not client.transport.aborted
        application.release.set()
        await turns()
        client.sweep_after(limits.HEAD_TIMEOUT_S)
        assert not client.transport.aborted
        client.sweep_after(1)
        assert client.transport.aborted
        client.protocol.connection_lost(None)

    asyncio.run(scenario())


def test_a_client_that_does_not_read_is_ended_and_one_that_reads_slowly_is_not() -> None:
    client = Client()
    client.application.answer = lambda _: Response(200, b"x" * 1_000_000)
    client.transport.stuck = True
    client.send(GET)
    for _ in range(3):
        client.sweep_after(limits.DRAIN_TIMEOUT_S - 1)
        client.transport.client_reads(1000)
        client.sweep_after(2)
        assert not client.transport.aborted
    client.sweep_after(limits.DRAIN_TIMEOUT_S + 1)
    assert client.transport.aborted


def test_a_last_answer_that_is_never_read_does_not_hold_the_connection() -> None:
    client = Client()
    client.transport.stuck = True
    client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert client.transport.closed
    client.sweep_after(limits.DRAIN_TIMEOUT_S + 1)
    assert client.transport.aborted


def test_lingering_after_a_refusal_ends_with_the_client_or_with_its_time() -> None:
    client = Client()
    client.send(b"nonsense\r\n")
    client.sweep_after(limits.LINGER_TIMEOUT_S)
    assert not client.transport.aborted
    client.sweep_after(0.001)
    assert client.transport.aborted


def test_a_refused_client_that_still_sends_is_not_reset_before_it_can_read_why() -> None:
    client = Client()
    client.send(b"nonsense\r\n")
    for _ in range(int(limits.LINGER_S_MAX)):
        client.sweep_after(1)
        assert not client.transport.aborted
        client.send(b"the rest of a large body")
    client.sweep_after(0.001)
    assert client.transport.aborted


def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    connections = Connections(FakeClock(), connections_max=1)
    first = Client(connections=connections)
    second = Client(connections=connections)
    assert second.transport.aborted
    assert second.send(GET) == b""
    second.protocol.connection_lost(None)
    assert len(connections) == 1
    first.protocol.connection_lost(None)
    assert not Client(connections=connections).transport.aborted


def test_the_date_is_renewed_by_the_sweep() -> None:
    client = Client()
    client.sweep_after(1)
    assert b"date: Tue, 14 Nov 2023 22:13:21 GMT\r\n" in client.send(GET)


def test_draining_closes_idle_connections_and_lets_requests_finish() -> None:
    async def scenario() -> None:
        connections = Connections(FakeClock())
        application = WaitingApplication()
        idle = Client(application, connections)
        busy = Client(application, connections)
        reading = Client(application, connections)
        busy.send(WAIT)
        reading.send(b"GET /a HT")
        connections.drain()
        assert idle.transport.closed
        assert not busy.transport.closed
        assert reading.send(b"TP/1.1\r\nHost: h\r\n\r\n") == reply(b"GET /a? ", b"connection: close\r\n")
        assert reading.transport.closed
        waiting = asyncio.create_task(connections.drained(60))
        application.release.set()
        await turns()
        assert busy.transport.sent == reply(b"GET /wait? ", b"connection: close\r\n")
        assert busy.transport.closed
        assert not waiting.done()
        for client in (idle, busy, reading):
            client.protocol.connection_lost(None)
        assert await waiting == 0

    asyncio.run(scenario())


def test_draining_aborts_what_is_left_when_the_grace_is_over() -> None:
    async def scenario() -> None:
        connections = Connections(FakeClock())
        application = WaitingApplication()
        client = Client(application, connections)
        client.send(WAIT)
        await turns()
        connections.drain()
        assert await connections.drained(0) == 1
        assert client.transport.aborted
        client.protocol.connection_lost(None)
        await turns()
        assert application.cancelled == 1

    asyncio.run(scenario())


def test_a_draining_server_answers_new_connections_once_each() -> None:
    connections = Connections(FakeClock())
    connections.drain()
    client = Client(connections=connections)
    client.application.answer = lambda _: Response(503, b"{}")
    lines = b"connection: close\r\nx-request-id: 1-1\r\n"
    assert client.send(GET + GET) == reply(b"{}", lines, b"503 Service Unavailable")
    assert client.transport.closed


def test_connections_made_while_draining_do_not_prolong_it() -> None:
    async def scenario() -> None:
        connections = Connections(FakeClock())
        application = WaitingApplication()
        busy = Client(application, connections)
        busy.send(WAIT)
        connections.drain()
        waiting = asyncio.create_task(connections.drained(60))
        await turns()
        silent = Client(application, connections)
        reading = Client(application, connections)
        reading.send(b"GET /a HT")
        application.release.set()
        await turns()
        assert not waiting.done()
        busy.protocol.connection_lost(None)
        assert await waiting == 0
        assert silent.transport.aborted
        assert reading.transport.aborted

    asyncio.run(scenario())


def test_an_answer_begun_while_draining_is_waited_for_until_it_is_sent() -> None:
    async def scenario() -> None:
        connections = Connections(FakeClock())
        connections.drain()
        handled = Client(WaitingApplication(), connections)
        handled.send(WAIT)
        written = Client(connections=connections)
        written.transport.stuck = True
        written.send(GET)
        waiting = asyncio.create_task(connections.drained(60))
        await turns()
        later = Client(connections=connections)
        later.send(GET)
        written.protocol.connection_lost(None)
        await turns()
        assert not waiting.done()
        handled.protocol.connection_lost(None)
        assert await waiting == 0
        assert not handled.transport.aborted
        assert not written.transport.aborted

    asyncio.run(scenario())


def test_answers_begun_while_draining_are_cut_with_the_grace() -> None:
    async def scenario() -> None:
        connections = Connections(FakeClock())
        connections.drain()
        client = Client(WaitingApplication(), connections)
        client.send(WAIT)
        silent = Client(connections=connections)
        assert await connections.drained(0) == 1
        assert client.transport.aborted
        assert silent.transport.aborted
        client.protocol.connection_lost(None)
        await turns()

    asyncio.run(scenario())


def test_a_connection_that_was_waiting_for_its_reader_closes_once_drained() -> None:
    client = Client()
    client.application.answer = lambda _: Response(200, b"x" * 1_000_000)
    client.transport.stuck = True
    client.send(GET)
    client.connections.drain()
    assert not client.transport.closed
    client.transport.client_reads(10**9)
    assert client.transport.closed


def test_the_registry_sweeps_by_itself_from_start_until_drained() -> None:
    loop = asyncio.new_event_loop()
    try:
        clock = FakeClock()
        connections = Connections(clock)
        connections.start(loop)
        for second in (1, 2):
            timer = connections._timer
            assert timer is not None
            clock.advance(1000)
            connections._tick(loop)
            timer.cancel()
            assert connections.date_line == b"date: Tue, 14 Nov 2023 22:13:2%d GMT\r\n" % second
        loop.run_until_complete(connections.drained(0))
        assert connections._timer is None
    finally:
        loop.close()
