"""One open SSE connection, whatever is sent over it: its heartbeats, and its end.

Ends when the client goes, when the server stops, when whoever feeds it says so, or when the client does not read for
`SLOW_CONSUMER_TIMEOUT_MS`.
"""

from collections.abc import Callable
from typing import Protocol

from topics import limits
from topics.clock import Clock, monotonic_ms
from topics.delivery import sse
from topics.delivery.hub import CallLater
from topics.delivery.slow_reader import SlowReader
from topics.errors import ShuttingDown, TopicsError


class Outlet(Protocol):
    """The connection, as far as a stream needs it."""

    @property
    def writable(self) -> bool: ...

    @property
    def written_bytes(self) -> int: ...

    @property
    def left_bytes(self) -> int: ...

    def write(self, data: bytes) -> None: ...

    def send(self, data: bytes) -> bool: ...

    def close(self) -> None: ...


class EventStream:
    """Owns a connection for as long as it lasts. `release` gives its slot back, once."""

    def __init__(self, clock: Clock, call_later: CallLater, heartbeat_ms: int, release: Callable[[], None]) -> None:
        self._clock = clock
        self._call_later = call_later
        self._heartbeat_ms = heartbeat_ms
        self._release = release
        self._outlet: Outlet | None = None
        self._last_sent_ms = 0
        self._reader = SlowReader(clock)

    # For those who feed it

    def started(self) -> None:
        """The connection is there."""
        raise NotImplementedError

    def resumed(self) -> None:
        """The connection is writable again."""
        raise NotImplementedError

    def stopped(self) -> None:
        """The connection is gone, or never came; what it knows of the bytes sent is still there. May be called
        again."""
        raise NotImplementedError

    # The connection

    def opened(self, channel: Outlet) -> None:
        self._outlet = channel
        self.write(sse.RETRY)
        self.started()
        self._later()

    def received(self, data: bytes) -> None:
        """A stream has nothing to receive."""

    def drained(self) -> None:
        self._reader.drained()
        self.resumed()

    def closed(self) -> None:
        self.stopped()
        self._outlet = None
        self._release()

    def end_with(self, error: TopicsError) -> None:
        if isinstance(error, ShuttingDown):
            self.fail(503, error.message, retry_after_ms=limits.SHUTDOWN_RETRY_AFTER_MS)
        else:
            self.fail(401, error.message)

    def fail(self, code: int, message: str, **detail: object) -> None:
        """Says why, and ends."""
        self.write(sse.error_event(code, message, **detail))
        self.end()

    def end(self) -> None:
        """Closes the connection after what was written."""
        outlet = self._outlet
        if outlet is not None:
            self.closed()
            outlet.close()

    @property
    def writable(self) -> bool:
        outlet = self._outlet
        if outlet is None:
            return False
        if outlet.writable:
            return True
        self._reader.refused(outlet.left_bytes)
        return False

    def write(self, data: bytes) -> None:
        if self._outlet is not None:
            self._last_sent_ms = monotonic_ms(self._clock)
            self._outlet.write(data)

    def _later(self) -> None:
        """Comes back when the next heartbeat may be due."""
        idle_ms = monotonic_ms(self._clock) - self._last_sent_ms
        due_ms = max(self._heartbeat_ms - idle_ms, 1)
        self._call_later(min(due_ms, limits.STREAM_CHECK_MS) / 1000, self._check)

    def _check(self) -> None:
        if self._outlet is None:
            return
        now_ms = monotonic_ms(self._clock)
        if self._reader.is_gone(self._outlet.left_bytes):
            self.fail(408, "the client did not read the stream for too long; reconnect to go on")
            return
        if now_ms - self._last_sent_ms >= self._heartbeat_ms and self.writable:
            self.write(sse.heartbeat(self._clock.now_ms()))
        self._later()
