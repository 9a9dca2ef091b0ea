"""Whether the client of a live connection still reads. SSE and WebSocket share it.

Reading slowly is fine: whenever bytes leave, the time begins anew.
"""

from topics import limits
from topics.clock import Clock, monotonic_ms


class SlowReader:
    __slots__ = ("_clock", "_left_bytes", "_stuck_since_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left_bytes = 0
        self._stuck_since_ms: int | None = None

    def refused(self, left_bytes: int) -> None:
        """The connection takes no more for now; so much has left the process."""
        if self._stuck_since_ms is None:
            self._stuck_since_ms = monotonic_ms(self._clock)
            self._left_bytes = left_bytes

    def drained(self) -> None:
        self._stuck_since_ms = None

    def is_gone(self, left_bytes: int) -> bool:
        """Whether no byte has left the process for too long. Asked now and then, with how many have left so far."""
        if self._stuck_since_ms is None:
            return False
        now_ms = monotonic_ms(self._clock)
        if left_bytes != self._left_bytes:
            self._left_bytes = left_bytes
            self._stuck_since_ms = now_ms
        return now_ms - self._stuck_since_ms >= limits.SLOW_CONSUMER_TIMEOUT_MS
