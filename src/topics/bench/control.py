"""Plain blocking calls to a target for everything that is not measured: set-up, preloading, checks, clean-up."""

import http.client
import socket
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from topics.bench.errors import BenchError
from topics.bench.nats_wire import INBOX, publish, reply_in, subscribe
from topics.bench.resp import RespReply, encode_command

CALL_S_MAX = 60.0
RECEIVE_BYTES = 256 * 1024


class Control(ABC):
    """One connection, open for a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class HttpControl(Control):
    """One keep-alive connection to a `/v0` server."""

    def __init__(self, host: str, port: int, api_key: str | None = None) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=CALL_S_MAX)
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def close(self) -> None:
        self._connection.close()

    def is_there(self, path: str) -> bool:
        return self.read_if_there(path) is not None

    def read_if_there(self, path: str) -> bytes | None:
        """The body of a 200; None for any other answer, or for none."""
        try:
            status, content = self._exchange("GET", path)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return None
        return content if status == 200 else None

    def status(self, method: str, path: str, body: bytes = b"") -> int:
        """The status of the reply, whatever it is."""
        try:
            return self._exchange(method, path, body)[0]
        except (OSError, http.client.HTTPException) as problem:
            raise BenchError(f"{method} {path}: {problem}") from problem

    def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The body of a 2xx reply; any other ends the run."""
        try:
            status, content = self._exchange(method, path, body)
        except (OSError, http.client.HTTPException) as problem:
            raise BenchError(f"{method} {path}: {problem}") from problem
        if not 200 <= status < 300:
            shown = content[:500].decode("utf-8", "replace")
            raise BenchError(f"{method} {path} answered {status}: {shown}")
        return content

    def _exchange(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        self._connection.request(method, path, body=body or None, headers=self._headers)
        reply = self._connection.getresponse()
        return reply.status, reply.read()


class RedisControl(Control):
    """One connection to a Redis server."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=CALL_S_MAX)
        except OSError as problem:
            raise BenchError(f"redis does not answer: {problem}") from problem

    def close(self) -> None:
        self._socket.close()

    def call(self, *parts: bytes, lines: int = 1) -> bytes:
        return self.send(encode_command(*parts), lines)

    def send(self, commands: bytes, lines: int) -> bytes:
        """Sends rendered commands and returns the reply, which has `lines` lines."""
        reply = RespReply(lines)
        received = bytearray()
        try:
            self._socket.sendall(commands)
            while True:
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    raise BenchError("redis closed the connection")
                received += data
                if reply.feed(data):
                    return bytes(received)
        except OSError as problem:
            raise BenchError(f"redis: {problem}") from problem


class NatsControl(Control):
    """One connection to a NATS server."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=CALL_S_MAX)
            self._socket.sendall(subscribe(INBOX))
        except OSError as problem:
            raise BenchError(f"nats does not answer: {problem}") from problem

    def close(self) -> None:
        self._socket.close()

    def request(self, subject: bytes, payload: bytes) -> bytes:
        """The server's answer, even a refusal."""
        received = b""
        try:
            self._socket.sendall(publish(subject, payload, reply_to=INBOX))
            while (reply := reply_in(received)) is None:
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    raise BenchError("nats closed the connection")
                received += data
        except OSError as problem:
            raise BenchError(f"nats: {problem}") from problem
        return reply

    def call(self, subject: bytes, payload: bytes) -> None:
        """Sends a request; a refusal ends the run."""
        reply = self.request(subject, payload)
        if b'"error":' in reply:
            raise BenchError(f"nats refused {subject.decode()}: {reply[:500].decode('utf-8', 'replace')}")
