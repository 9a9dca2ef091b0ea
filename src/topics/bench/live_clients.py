"""Clients of live delivery, cheap enough for a thousand in one process: each is a protocol on the event loop.

They know how to connect, to follow the bytes and to say what came; what it means is their user's business.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from topics.bench.errors import BenchError, MalformedReply
from topics.bench.event_stream import EventStreamReader
from topics.bench.http1 import HttpReply
from topics.bench.websocket_frames import Opcode, ServerFrames, render_frame

CONNECTING_MAX = 64

OnText = Callable[[bytes], None]


class LiveClient(asyncio.Protocol):
    """What the clients have in common. `lost` tells why the connection ended, unless `close` did it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.lost: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:
            self.transport = None
            self.lost = f"connection lost: {exc or 'closed by the server'}"

    def send(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def close(self) -> None:
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.abort()

    def give_up(self, why: str) -> None:
        self.close()
        self.lost = why


class EventStreamClient(LiveClient):
    """Sends its request and hands on each event."""

    def __init__(self, request: bytes, on_event: OnText) -> None:
        super().__init__()
        self._request = request
        self._on_event = on_event
        self._reader = EventStreamReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send(self._request)

    def data_received(self, data: bytes) -> None:
        try:
            events = self._reader.feed(data)
        except MalformedReply as problem:
            self.give_up(problem.message)
            return
        for event in events:
            self._on_event(event)


class WebSocketClient(LiveClient):
    """Sends its commands once the server has switched protocols, hands on each message, and answers pings."""

    def __init__(self, handshake: bytes, commands: Iterable[bytes], on_text: OnText) -> None:
        super().__init__()
        self._handshake = handshake
        self._commands = b"".join(map(render_frame, commands))
        self._on_text = on_text
        self._frames = ServerFrames()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send(self._handshake)

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._frames.feed(data)
        except MalformedReply as problem:
            self.give_up(problem.message)
            return
        if self._commands and self._frames.open:
            self.send(self._commands)
            self._commands = b""
        for opcode, payload in frames:
            if opcode == Opcode.TEXT:
                self._on_text(payload)
            elif opcode == Opcode.PING:
                self.send(render_frame(payload, Opcode.PONG))
            elif opcode == Opcode.CLOSE:
                self.give_up(f"closed by the server: {payload!r}")


class RequestClient(LiveClient):
    """A keep-alive connection with one request under way at most: `ready` is set while there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = asyncio.Event()
        self.failure: str | None = None
        self._reply = HttpReply()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.ready.set()

    def request(self, request: bytes) -> None:
        self.ready.clear()
        self.send(request)

    def data_received(self, data: bytes) -> None:
        try:
            complete = self._reply.feed(data)
        except MalformedReply as problem:
            self.give_up(problem.message)
            complete = True
        if complete:
            if self._reply.failure is not None:
                self.failure = self._reply.failure.decode("utf-8", "replace")
            self.ready.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ready.set()


async def connect(clients: Iterable[LiveClient], host: str, port: int) -> None:
    """Connects all of them, not too many at once."""
    loop = asyncio.get_running_loop()
    waiting = iter(clients)

    async def one_after_the_other() -> None:
        for client in waiting:
            await loop.create_connection(lambda client=client: client, host, port)  # type: ignore[misc]

    await _all([one_after_the_other() for _ in range(CONNECTING_MAX)])


async def _all(work: Iterable[Awaitable[None]]) -> None:
    try:
        await asyncio.gather(*work)
    except OSError as problem:
        raise BenchError(f"could not connect: {problem}") from problem
