"""The hand-over on the event loop and the transports that the server uses, which no fake can vouch for."""

import asyncio
import socket

import uvloop
from handing_over import CHUNKED_HEAD, OFFER, STREAM, SWITCHING, HandingOver, Owner

from topics import limits
from topics.api.connections import Connections
from topics.api.protocol import HttpProtocol
from topics.testing.fake_clock import FakeClock


class AwaitedOwner(Owner):
    """Lets a test wait for the calls it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.news = asyncio.Event()

    def _note(self, call: str) -> None:
        super()._note(call)
        self.news.set()

    async def told(self, call: str) -> None:
        while call not in self.calls:
            self.news.clear()
            await self.news.wait()


async def connect(owner: Owner) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    clock = FakeClock()
    application, connections = HandingOver(owner), Connections(clock)
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: HttpProtocol(application, connections, clock), ours)
    return await asyncio.open_connection(sock=theirs)


def test_a_stream_is_read_to_its_end() -> None:
    async def scenario() -> None:
        owner = AwaitedOwner()
        reader, writer = await connect(owner)
        writer.write(STREAM)
        await owner.told("opened")
        owner.channel.write(b"a")
        assert await reader.readexactly(len(CHUNKED_HEAD) + 6) == CHUNKED_HEAD + b"1\r\na\r\n"
        owner.channel.write(b"b" * 20_000)
        owner.channel.write(b"c")
        owner.channel.close()
        expected = b"4e20\r\n" + b"b" * 20_000 + b"\r\n1\r\nc\r\n0\r\n\r\n"
        assert await reader.read(-1) == expected
        writer.close()
        await owner.told("closed")

    uvloop.run(scenario())


def test_a_reader_that_falls_behind_and_catches_up_is_noticed_both_times() -> None:
    async def scenario() -> None:
        owner = AwaitedOwner()
        reader, writer = await connect(owner)
        writer.write(OFFER)
        await owner.told("opened")
        written = 0
        while owner.channel.writable:
            owner.channel.write(b"x" * 10_000)
            written += 10_000
            await asyncio.sleep(0)
        assert written < limits.STREAM_BUFFER_BYTES_MAX
        assert len(await reader.readexactly(len(SWITCHING) + written)) == len(SWITCHING) + written
        await owner.told("drained")
        assert owner.channel.writable
        writer.close()
        await owner.told("closed")
        assert owner.calls == ["opened", "drained", "closed"]

    uvloop.run(scenario())


def test_an_upgraded_connection_carries_bytes_both_ways_and_closes_politely() -> None:
    async def scenario() -> None:
        owner = AwaitedOwner()
        owner.reactions["received"] = lambda: owner.channel.write(owner.input[::-1])
        reader, writer = await connect(owner)
        writer.write(OFFER + b"abc")
        assert await reader.readexactly(len(SWITCHING) + 3) == SWITCHING + b"cba"
        owner.channel.write(b"bye")
        owner.channel.close()
        writer.write(b"still talking")
        assert await reader.read(-1) == b"bye"
        writer.close()
        await owner.told("closed")
        owner.channel.write(b"late")
        await asyncio.sleep(0)
        assert owner.calls == ["opened", "received", "closed"]

    uvloop.run(scenario())


def test_an_abort_ends_the_connection_and_later_writes_are_harmless() -> None:
    async def scenario() -> None:
        owner = AwaitedOwner()
        reader, writer = await connect(owner)
        writer.write(STREAM)
        await owner.told("opened")
        owner.channel.abort()
        owner.channel.write(b"late")
        await owner.told("closed")
        owner.channel.abort()
        assert (await reader.read(-1)) == CHUNKED_HEAD
        writer.close()

    uvloop.run(scenario())
