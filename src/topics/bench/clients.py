"""Connections of the load generator, cheap enough for a thousand in one process: each is a protocol on the event loop.

They connect, follow the bytes and report what came; their users decide what it means.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import cast

from topics.bench.errors import BenchError, MalformedReply
from topics.bench.event_stream import EventStreamReader
from topics.bench.http1 import HttpReply
from topics.bench.resp import RespReply, encode_command, lines_of_streams_reply
from topics.bench.websocket_frames import Opcode, ServerFrames, render_frame

CONNECTING_MAX = 64
PONG = b"+PONG\r\n"
WATCHED_FIELDS = 1  # data
ENTRY_ID = re.compile(rb"\r\n(\d+-\d+)\r\n")

OnText = Callable[[bytes], None]


class Client(asyncio.Protocol, ABC):
    """What all connections share. `lost` is the reason why a connection ended, unless `close` ended it."""

    def __init__(self, opening: bytes = b"") -> None:
        self.transport: asyncio.Transport | None = None
        self.lost: str | None = None
        self._opening = opening

    @abstractmethod
    def follow(self, data: bytes) -> None:
        """Takes the bytes that came. If they make no sense it raises MalformedReply, and the connection is given up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._opening:
            self.send(self._opening)

    def data_received(self, data: bytes) -> None:
        try:
            self.follow(data)
        except MalformedReply as problem:
            self.give_up(problem.message)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:
            self.give_up(f"connection lost: {exc or 'closed by the target'}")

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


class EventStreamClient(Client):
    """Sends its request and passes on each event."""

    def __init__(self, request: bytes, on_event: OnText) -> None:
        super().__init__(request)
        self._on_event = on_event
        self._reader = EventStreamReader()

    def follow(self, data: bytes) -> None:
        for event in self._reader.feed(data):
            self._on_event(event)


class WebSocketClient(Client):
    """Sends its commands once the server has switched protocols, passes on each message, and answers pings."""

    def __init__(self, handshake: bytes, commands: Iterable[bytes], on_text: OnText) -> None:
        super().__init__(handshake)
        self._commands = b"".join(map(render_frame, commands))
        self._on_text = on_text
        self._frames = ServerFrames()

    def follow(self, data: bytes) -> None:
        frames = self._frames.feed(data)
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


class StreamReadClient(Client):
    """Blocks in `XREAD` on a Redis stream, passes on each reply, and asks for what comes after it."""

    def __init__(self, stream: bytes, on_text: OnText) -> None:
        # The reply to a PING shows that the read sent after it is under way.
        super().__init__(encode_command(b"PING") + self._read(stream, b"$"))
        self._stream = stream
        self._on_text = on_text
        self._received = b""

    def follow(self, data: bytes) -> None:
        data = self._received + data
        if data.startswith(PONG):
            self._on_text(b"caught-up")
            data = data[len(PONG) :]
        if data.startswith(b"-"):
            raise MalformedReply(data[:300].decode("utf-8", "replace"))
        self._received = data
        if not data or data.count(b"\n") < lines_of_streams_reply(data, WATCHED_FIELDS):
            return
        self._received = b""
        self.send(self._read(self._stream, ENTRY_ID.findall(data)[-1]))
        self._on_text(data)

    @staticmethod
    def _read(stream: bytes, after: bytes) -> bytes:
        return encode_command(b"XREAD", b"BLOCK", b"0", b"STREAMS", stream, after)


class RequestClient(Client):
    """A keep-alive connection with at most one request in flight; `ready` is set while there is none."""

    def __init__(self, reply: HttpReply | RespReply | None = None) -> None:
        super().__init__()
        self.ready = asyncio.Event()
        self.failure: str | None = None
        self._reply = reply or HttpReply()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.ready.set()

    def request(self, request: bytes) -> None:
        self.ready.clear()
        self.send(request)

    def follow(self, data: bytes) -> None:
        if self._reply.feed(data):
            if self._reply.failure is not None:
                self.failure = self._reply.failure.decode("utf-8", "replace")
            self.ready.set()

    def give_up(self, why: str) -> None:
        super().give_up(why)
        self.ready.set()


async def connect(clients: Iterable[Client], host: str, port: int) -> None:
    """Connects all clients, a few at a time."""
    loop = asyncio.get_running_loop()
    waiting = iter(clients)

    async def one_after_the_other() -> None:
        for client in waiting:
            await loop.create_connection(lambda client=client: client, host, port)  # type: ignore[misc]

    try:
        await asyncio.gather(*(one_after_the_other() for _ in range(CONNECTING_MAX)))
    except OSError as problem:
        raise BenchError(f"could not connect: {problem}") from problem
