"""Time. This is the only module that reads a clock; everything else is handed a `Clock`.

Wall time and monotonic time are kept apart on purpose. Wall time stamps records and may jump in
either direction; monotonic time measures durations and never steps back.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, integer milliseconds since the Unix epoch."""
        ...

    def monotonic_ns(self) -> int:
        """A clock for durations, in nanoseconds from an arbitrary start."""
        ...


def monotonic_ms(clock: Clock) -> int:
    """For durations of seconds and more."""
    return clock.monotonic_ns() // 1_000_000


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_ns = staticmethod(time.monotonic_ns)  # hot: without a call of our own around it


def pause(seconds: float) -> None:
    """For a tool that waits for a server. Nothing that serves ever calls it."""
    time.sleep(seconds)
