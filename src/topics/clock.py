"""Time. This is the only module that reads a clock; everything else is handed a `Clock`.

Wall time and monotonic time are kept apart on purpose. Wall time stamps records and may jump in
either direction; monotonic time measures durations and never steps back.
"""

import time
from typing import Protocol

_DAYS = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")


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


def thread_cpu_ms() -> float:
    """How long the calling thread has computed, instead of waiting for others, for a disk, or for its turn."""
    return time.thread_time_ns() / 1e6


def http_date(at_ms: int) -> bytes:
    """That moment as HTTP writes it. The library's own way loads all of `email`, 4 ms of a start."""
    year, month, day, hour, minute, second, weekday, *_ = time.gmtime(at_ms // 1000)
    return b"%b, %02d %b %04d %02d:%02d:%02d GMT" % (
        _DAYS[weekday],
        day,
        _MONTHS[month - 1],
        year,
        hour,
        minute,
        second,
    )


def pause(seconds: float) -> None:
    """For a tool that waits for a server. Nothing that serves ever calls it."""
    time.sleep(seconds)
