"""The asynchronous port: connections on an event loop, and a pool of those kept alive."""

import asyncio
import ssl
from collections.abc import Callable

from topics import limits
from topics.client.caller import Broken
from topics.client.core import Address, Answer
from topics.client.errors import ClientClosed, WrongLoop
from topics.client.http1 import Malformed, ResponseReader
from topics.client.idle_connections import IdleConnections
from topics.clock import Clock


class AsyncioPort:
    """Belongs to the loop it was first used on."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, clock: Clock, connections_max: int) -> None:
        self._address = address
        self._tls = tls
        self._clock = clock
        self._idle: IdleConnections[AsyncConnection] = IdleConnections(clock, connections_max)
        self._slots = asyncio.Semaphore(connections_max)
        self._loop: asyncio.AbstractEventLoop | None = None

    def close(self) -> None:
        self._idle.close()

    async def exchange(self, request: bytes, timeout_s: float, *, fresh: bool, waits: bool) -> Answer:
        self._check()
        if waits:
            return await self._exchange(request, timeout_s, fresh)
        async with self._slots:
            return await self._exchange(request, timeout_s, fresh)

    async def stream(self, request: bytes, timeout_s: float) -> "AsyncConnection":
        self._check()
        connection = await self._connect(timeout_s)
        try:
            connection.send(request)
            await connection.receive_head(timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    async def pause(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)
        self._check()

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise WrongLoop("this AsyncClient belongs to another event loop; make one for each")
        if self._idle.closed:
            raise ClientClosed("this client was closed; make a new one")

    async def _exchange(self, request: bytes, timeout_s: float, fresh: bool) -> Answer:
        connection = None if fresh else self._idle.take()
        if connection is None:
            connection = await self._connect(timeout_s)
        try:
            connection.send(request)
            answer = await connection.receive(timeout_s)
        except BaseException:
            connection.close()  # whatever comes over it now would be the answer to something else
            raise
        self._idle.give(connection)
        return answer

    async def _connect(self, timeout_s: float) -> "AsyncConnection":
        address = self._address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(min(timeout_s, limits.CLIENT_CONNECT_S)):
                _, connection = await loop.create_connection(AsyncConnection, address.host, address.port, ssl=self._tls)
        except OSError as error:
            raise Broken(error.strerror or str(error) or "timed out", sent=False) from None
        return connection


class AsyncConnection(asyncio.Protocol):
    """One connection: a response for each request, or one that is read while it comes."""

    def __init__(self) -> None:
        self.reader = ResponseReader()
        self.idle_since_ns = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._awaited: asyncio.Future[None] | None = None
        self._failure: str | None = None
        self._streams = False
        self._reading_paused = False

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self.reader.feed(data)
        except Malformed as error:
            self._fail(str(error))
            return
        if self._streams and self.reader.buffered > limits.CLIENT_STREAM_BUFFER_BYTES:
            self._pause_reading()
        if self.reader.headers_complete:
            self._wake()

    def eof_received(self) -> None:
        self._fail("the connection was closed before the answer was whole")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the connection was closed before the answer was whole")

    # Called by the port

    def is_usable(self, now_ns: int) -> bool:
        """Whether it can be used again: not idle so long that the server is about to close it, not closed, and with
        nothing unexpected to read."""
        return self._failure is None and now_ns - self.idle_since_ns <= limits.CLIENT_IDLE_S * 1e9

    def send(self, request: bytes) -> None:
        self.reader.expect()
        if self._transport is not None and self._failure is None:
            self._transport.write(request)

    async def receive(self, timeout_s: float) -> Answer:
        """The whole answer, however slowly it comes, within `timeout_s`."""
        await self._until(lambda: self.reader.complete, timeout_s)
        return self.reader.answer()

    async def receive_head(self, timeout_s: float) -> None:
        reader = self.reader
        self._streams = True
        await self._until(lambda: reader.headers_complete and (reader.status == 200 or reader.complete), timeout_s)

    @property
    def answer(self) -> Answer:
        return self.reader.answer()

    async def read(self, timeout_s: float) -> bytes:
        reader = self.reader
        await self._until(lambda: bool(reader.body) or reader.complete, timeout_s)
        taken = reader.take_body()
        if self._reading_paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._reading_paused = False
        return taken

    def close(self) -> None:
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()

    # The parts

    async def _until(self, there: Callable[[], bool], timeout_s: float) -> None:
        if there():
            return
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                while not there():
                    if self._failure is not None:
                        raise Broken(self._failure, sent=True)
                    self._awaited = loop.create_future()
                    await self._awaited
        except TimeoutError:
            raise Broken("timed out", sent=True) from None
        finally:
            self._awaited = None

    def _pause_reading(self) -> None:
        """Nobody takes what has come: the rest waits with the server."""
        if not self._reading_paused and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._reading_paused = True

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        self._wake()
        self.close()

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)
