"""The open connections: how many there may be, which have run out of time, and how they end at shutdown.

There is no timer for each request. A connection keeps its own deadline and one sweep a second looks
at all of them, so a timeout is up to a second late and costs the hot path one store.
Knows nothing of HTTP but the `date` line, which it renews here because this is what runs once a second, and keeps the
heads that all connections have in common.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from topics import limits
from topics.api.encoding import date_line
from topics.api.head_table import HeadTable
from topics.clock import Clock

NEVER_NS = 2**63

log = logging.getLogger("topics.api")


class Connection(Protocol):
    """What the registry asks of a connection."""

    deadline_ns: int

    @property
    def answering(self) -> bool:
        """Whether an answer is being made, or is still on its way to the peer."""
        ...

    def expire(self, now_ns: int) -> None:
        """The deadline has passed: end, or set a later one if the peer has made progress after all."""
        ...

    def drain(self) -> None:
        """End now if idle, else after the answer in flight."""
        ...

    def revoke(self, digests: frozenset[bytes]) -> bool:
        """End if it is open, or waiting, for one of these keys, which are no longer valid. Returns whether it was."""
        ...

    def abort(self) -> None:
        """End now."""
        ...


class Flushable(Protocol):
    def flush(self) -> None:
        """Hands everything rendered so far to the transport."""
        ...


class Connections:
    """The registry every connection enters when made and leaves when lost."""

    __slots__ = (
        "_awaited",
        "_awaited_gone",
        "_call_soon",
        "_clock",
        "_connections_max",
        "_number",
        "_open",
        "_refused",
        "_timer",
        "_unflushed",
        "date_line",
        "draining",
        "heads",
        "received_bytes",
        "sent_bytes",
        "sent_chunk",
        "sent_text",
    )

    def __init__(self, clock: Clock, connections_max: int = limits.CONNECTIONS_MAX) -> None:
        self._clock = clock
        self._connections_max = connections_max
        self._open: set[Connection] = set()
        self._refused = 0  # since the last sweep
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._awaited: set[Connection] = set()
        self._awaited_gone = asyncio.Event()
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self._unflushed: list[Flushable] = []
        self.draining = False
        self.heads = HeadTable()
        self.received_bytes = 0  # on all connections since the start
        self.sent_bytes = 0
        self.sent_text = b""  # the last one that a channel sent at once, and its chunk
        self.sent_chunk = b""
        self.date_line = date_line(clock.now_ms())

    def __len__(self) -> int:
        return len(self._open)

    def register(self, connection: Connection) -> int | None:
        """A number for the new connection, or None if there is no room for it."""
        if len(self._open) >= self._connections_max:
            self._refused += 1
            return None
        self._open.add(connection)
        self._number += 1
        return self._number

    def remove(self, connection: Connection) -> None:
        """Forgets a lost connection. One that was refused was never here, which is fine."""
        self._open.discard(connection)
        self._awaited.discard(connection)
        if not self._awaited:
            self._awaited_gone.set()

    def replace(self, connection: Connection, successor: Connection) -> None:
        """`successor` has taken over the socket of `connection`: nothing is gained or lost."""
        for connections in (self._open, self._awaited):
            if connection in connections:
                connections.remove(connection)
                connections.add(successor)

    def flush(self, connection: Flushable) -> None:
        """Sends what a connection has to say, at the end of this turn of the loop, with everybody else's.

        Hot: once per request. Each send may wake a client, which may take this very core: sending in between requests
        cost a write a third more CPU time. Without a loop there is no turn to wait for.
        """
        if self._call_soon is None:
            connection.flush()
            return
        if not self._unflushed:
            self._call_soon(self._flush)
        self._unflushed.append(connection)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            connection.flush()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sweeps once a second from now on, until `drained` has returned."""
        self._call_soon = loop.call_soon
        self._timer = loop.call_later(limits.SWEEP_INTERVAL_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.start(loop)
        self.sweep(self._clock.monotonic_ns())

    def sweep(self, now_ns: int) -> None:
        """Expires every connection whose deadline lies before `now_ns`, and renews the `date` line."""
        self.date_line = date_line(self._clock.now_ms())
        if self._refused:
            log.warning("%d connections refused: %d are open, which is the limit", self._refused, len(self._open))
            self._refused = 0
        # Collected first: an expired connection may leave the set at once.
        for connection in [connection for connection in self._open if connection.deadline_ns < now_ns]:
            connection.expire(now_ns)

    def drain(self) -> None:
        """Makes every answer from now on the last on its connection, and closes idle connections.

        New connections are still taken: whoever asks is told that the server stops, a load balancer too.
        """
        self.draining = True
        self._awaited = set(self._open)
        for connection in list(self._open):
            connection.drain()

    def revoke(self, digests: frozenset[bytes]) -> int:
        """Ends what is open for keys that are no longer valid; returns how many connections that was."""
        return sum(connection.revoke(digests) for connection in list(self._open))

    async def drained(self, timeout_s: float) -> int:
        """Waits for the connections there were at `drain`, and for answers that later ones are being given.

        Aborts what is left then, or after the timeout; returns how many of the awaited were not done in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_for_awaited()
                self._awaited = {connection for connection in self._open if connection.answering}
                await self._wait_for_awaited()
        except TimeoutError:
            pass  # the ones not done are aborted, and counted, below
        unfinished = len(self._awaited)
        for connection in list(self._open):
            connection.abort()
        # One turn of the loop, in which the transports report the loss and the handlers are cancelled.
        await asyncio.sleep(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return unfinished

    async def _wait_for_awaited(self) -> None:
        if self._awaited:
            self._awaited_gone.clear()
            await self._awaited_gone.wait()
