"""A transport without a socket, and an application that says what it was asked."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from topics.api.connections import Connections
from topics.api.http import Request, Response, Waiting
from topics.api.protocol import HttpProtocol
from topics.errors import (
    HeadersTooLarge,
    InvalidRequest,
    PayloadTooLarge,
    TopicsError,
    Unauthorized,
    UnsupportedMediaType,
    UriTooLong,
)
from topics.testing.fake_clock import FakeClock

DATE = b"date: Tue, 14 Nov 2023 22:13:20 GMT\r\n"
STATUS: dict[type[TopicsError], int] = {
    InvalidRequest: 400,
    Unauthorized: 401,
    PayloadTooLarge: 413,
    UriTooLong: 414,
    UnsupportedMediaType: 415,
    HeadersTooLarge: 431,
}


class FakeTransport(asyncio.Transport):
    """Keeps what is written. While `stuck`, the client reads nothing and the buffer fills up."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.Protocol | None = None
        self.writes: list[bytes] = []
        self.stuck = False
        self.buffered = 0
        self.high = 64 * 1024
        self.low = 16 * 1024
        self.paused_protocol = False
        self.reading = True
        self.eof_written = False
        self.closed = False
        self.aborted = False

    @property
    def sent(self) -> bytes:
        return b"".join(self.writes)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = 64 * 1024 if high is None else high
        self.low = self.high // 4 if low is None else low
        self._pause_if_full()

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        assert not self.eof_written
        self.writes.append(bytes(data))
        if self.stuck:
            self.buffered += len(data)
            self._pause_if_full()

    def _pause_if_full(self) -> None:
        if self.buffered > self.high and not self.paused_protocol:
            self.paused_protocol = True
            assert self.protocol is not None
            self.protocol.pause_writing()

    def client_reads(self, size: int) -> None:
        self.buffered = max(0, self.buffered - size)
        if self.paused_protocol and self.buffered <= self.low:
            self.paused_protocol = False
            assert self.protocol is not None
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof_written = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


Answer = Response | Waiting | Coroutine[Any, Any, Response]


class RecordingApplication:
    """Answers every request with its method and target; `answer` and `refusal` change that."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.admissions: list[Request] = []
        self.refusal: Response | None = None
        self.answer: Callable[[Request], Answer] = lambda request: Response(200, echo(request))

    def admit(self, request: Request) -> Response | None:
        self.admissions.append(request)
        return self.refusal

    def handle(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.answer(request)

    def refuse(self, error: TopicsError, request_id: str) -> Response:
        return Response(STATUS[type(error)], type(error).__name__.encode())


def echo(request: Request) -> bytes:
    return b"%b %b?%b %b" % (request.method, request.path, request.query, request.body)


def reply(body: bytes, lines: bytes = b"", status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % (status, len(body))
    return head + DATE + lines + b"\r\n" + body


def refusal(status: bytes, error: type[TopicsError], request_id: bytes = b"1-1") -> bytes:
    lines = b"connection: close\r\nx-request-id: " + request_id + b"\r\n"
    return reply(error.__name__.encode(), lines, status)


class Client:
    """One connection to a protocol under test, from the client's end."""

    def __init__(
        self,
        application: RecordingApplication | None = None,
        connections: Connections | None = None,
        body_bytes_max: int = 1024 * 1024,
    ) -> None:
        self.clock = FakeClock()
        self.application = application if application is not None else RecordingApplication()
        # An empty registry is falsy: it has a length.
        self.connections = connections if connections is not None else Connections(self.clock)
        self.protocol = HttpProtocol(self.application, self.connections, self.clock, body_bytes_max=body_bytes_max)
        self.transport = FakeTransport()
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)

    def send(self, *pieces: bytes) -> bytes:
        """Delivers each piece in a read of its own; returns everything answered so far."""
        for piece in pieces:
            self._receiver.data_received(piece)
        return self.transport.sent

    def shut_its_side(self) -> bool:
        """Sends no more. Returns whether the transport is to stay open."""
        return bool(self._receiver.eof_received())

    def hang_up(self) -> None:
        """Closes from this end; the transport on the other side notices and closes, too."""
        self._receiver.eof_received()
        self._receiver.connection_lost(None)

    def lose(self) -> None:
        """The connection breaks."""
        self._receiver.connection_lost(ConnectionResetError())

    @property
    def _receiver(self) -> asyncio.Protocol:
        """The protocol under test, or whatever it has handed the connection over to."""
        assert self.transport.protocol is not None
        return self.transport.protocol

    def sweep_after(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1000))
        self.connections.sweep(self.clock.monotonic_ns())
