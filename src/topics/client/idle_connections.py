"""Connections kept for the next request. For both ports: taking and keeping are single steps, safe among threads."""

from collections import deque
from typing import Generic, Protocol, TypeVar

from topics.client.http1 import ResponseReader
from topics.clock import Clock


class Kept(Protocol):
    reader: ResponseReader
    idle_since_ns: int

    def is_usable(self, now_ns: int) -> bool: ...

    def close(self) -> None: ...


K = TypeVar("K", bound=Kept)


class IdleConnections(Generic[K]):
    def __init__(self, clock: Clock, connections_max: int) -> None:
        self._clock = clock
        self._connections_max = connections_max
        self._idle: deque[K] = deque()
        self.closed = False

    def take(self) -> K | None:
        """The one used last; those that are no good any more are closed."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_usable(self._clock.monotonic_ns()):
                return connection
            connection.close()

    def give(self, connection: K) -> None:
        """Back after an answer: kept, if the server keeps it, too, and there is room."""
        if connection.reader.keep_alive and not self.closed and len(self._idle) < self._connections_max:
            connection.idle_since_ns = self._clock.monotonic_ns()
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        self.closed = True
        while self._idle:
            self._idle.pop().close()
