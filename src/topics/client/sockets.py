"""The blocking port: sockets that threads wait for, and a pool of connections kept alive."""

import os
import select
import socket
import ssl
import threading

from topics import limits
from topics.client.caller import Broken
from topics.client.core import Address, Answer
from topics.client.errors import ClientClosed
from topics.client.http1 import Malformed, ResponseReader
from topics.client.idle_connections import IdleConnections
from topics.clock import Clock

RECEIVE_BYTES = 256 * 1024


class SocketPort:
    """May be used by any number of threads. After a fork the child begins without connections of its own."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, clock: Clock, connections_max: int) -> None:
        self._address = address
        self._tls = tls
        self._clock = clock
        self._connections_max = connections_max
        self._waiting = threading.Event()
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._idle: IdleConnections[Connection] = IdleConnections(self._clock, self._connections_max)
        self._slots = threading.BoundedSemaphore(self._connections_max)

    def close(self) -> None:
        self._waiting.set()
        self._idle.close()

    async def exchange(self, request: bytes, timeout_s: float, *, fresh: bool, waits: bool) -> Answer:
        self._check()
        if waits:
            return self._exchange(request, timeout_s, fresh)
        slots = self._slots
        if not slots.acquire(timeout=timeout_s):
            raise Broken(f"all {self._connections_max} connections of this client are in use", sent=False)
        try:
            return self._exchange(request, timeout_s, fresh)
        finally:
            slots.release()

    async def stream(self, request: bytes, timeout_s: float) -> "Connection":
        self._check()
        connection = self._connect(timeout_s)
        try:
            connection.send(request, timeout_s)
            connection.receive_head(timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    async def pause(self, duration_s: float) -> None:
        self._waiting.wait(duration_s)
        self._check()

    def _check(self) -> None:
        if os.getpid() != self._process:
            self._idle.close()  # the parent has its own copies of these
            self._begin()
        if self._idle.closed:
            raise ClientClosed("this client was closed; make a new one")

    def _exchange(self, request: bytes, timeout_s: float, fresh: bool) -> Answer:
        connection = None if fresh else self._idle.take()
        if connection is None:
            connection = self._connect(timeout_s)
        try:
            connection.send(request, timeout_s)
            answer = connection.receive(timeout_s)
        except BaseException:
            connection.close()  # whatever comes over it now would be the answer to something else
            raise
        self._idle.give(connection)
        return answer

    def _connect(self, timeout_s: float) -> "Connection":
        address = self._address
        try:
            plain = socket.create_connection((address.host, address.port), min(timeout_s, limits.CLIENT_CONNECT_S))
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is None:
                    return Connection(plain, self._clock)
                return Connection(self._tls.wrap_socket(plain, server_hostname=address.host), self._clock)
            except BaseException:
                plain.close()
                raise
        except OSError as error:
            raise Broken(_reason(error), sent=False) from None


class Connection:
    """One connection: a response for each request, or one that is read while it comes."""

    def __init__(self, plain: socket.socket, clock: Clock) -> None:
        self._socket = plain
        self._clock = clock
        self.reader = ResponseReader()
        self.idle_since_ns = 0

    def is_usable(self, now_ns: int) -> bool:
        """Whether it can be used again: not idle so long that the server is about to close it, not closed, and with
        nothing unexpected to read."""
        if now_ns - self.idle_since_ns > limits.CLIENT_IDLE_S * 1e9:
            return False
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        return not readable.poll(0)

    def send(self, request: bytes, timeout_s: float) -> None:
        self.reader.expect()
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            return  # refused before all of it was read; the answer says why, if there is one
        except OSError as error:
            raise Broken(_reason(error), sent=True) from None

    def receive(self, timeout_s: float) -> Answer:
        """The whole answer, however slowly it comes, within `timeout_s`."""
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        while not self.reader.complete:
            self._receive_some(deadline_ns)
        return self.reader.answer()

    def receive_head(self, timeout_s: float) -> None:
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        while not self.reader.headers_complete or (self.reader.status != 200 and not self.reader.complete):
            self._receive_some(deadline_ns)

    @property
    def answer(self) -> Answer:
        return self.reader.answer()

    async def read(self, timeout_s: float) -> bytes:
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        while not self.reader.body:
            if self.reader.complete:
                return b""
            self._receive_some(deadline_ns)
        return self.reader.take_body()

    def close(self) -> None:
        self._socket.close()

    def _receive_some(self, deadline_ns: int) -> None:
        left_s = (deadline_ns - self._clock.monotonic_ns()) / 1e9
        try:
            if left_s <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left_s)
            data = self._socket.recv(RECEIVE_BYTES)
        except OSError as error:
            raise Broken(_reason(error), sent=True) from None
        if not data:
            raise Broken("the connection was closed before the answer was whole", sent=True)
        try:
            self.reader.feed(data)
        except Malformed as error:
            raise Broken(str(error), sent=True) from None


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def listens(host: str, port: int) -> bool:
    """Whether anybody accepts connections on the port."""
    try:
        socket.create_connection((host, port), limits.CLIENT_PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True
