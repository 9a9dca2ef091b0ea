"""Answers leave at the end of the loop's turn, whatever happens to their connection in the same turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fake_transport import Client, reply

from topics.api.connections import Connections
from topics.testing.fake_clock import FakeClock

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
ANSWER = reply(b"GET /a? ")


@asynccontextmanager
async def on_a_loop() -> AsyncIterator[tuple[Client, Client]]:
    """Two clients of a server whose loop runs."""
    connections = Connections(FakeClock())
    connections.start(asyncio.get_running_loop())
    yield Client(connections=connections), Client(connections=connections)
    await connections.drained(timeout_s=0)


def test_answers_of_one_turn_leave_together_at_its_end() -> None:
    async def run() -> None:
        async with on_a_loop() as (one, other):
            assert one.send(GET) == b""
            assert other.send(GET) == b""
            await asyncio.sleep(0)
            assert (one.transport.sent, other.transport.sent) == (ANSWER, ANSWER)

    asyncio.run(run())


def test_an_answer_is_not_lost_when_the_client_shuts_its_side_in_the_same_turn() -> None:
    async def run() -> None:
        async with on_a_loop() as (one, _):
            one.send(GET)
            one.hang_up()
            assert one.transport.sent == ANSWER

    asyncio.run(run())


def test_an_answer_is_not_lost_when_the_server_stops_in_the_same_turn() -> None:
    async def run() -> None:
        async with on_a_loop() as (one, _):
            one.send(GET)
            one.connections.drain()
            assert one.transport.sent == ANSWER
            assert one.transport.is_closing()

    asyncio.run(run())


def test_nothing_is_sent_on_a_connection_that_was_aborted_meanwhile() -> None:
    async def run() -> None:
        async with on_a_loop() as (one, _):
            one.send(GET)
            one.protocol.abort()
            await asyncio.sleep(0)
            assert one.transport.sent == b""

    asyncio.run(run())
