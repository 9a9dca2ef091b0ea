"""A line on stderr that says how far a long command is. Short commands never show it."""

import sys
from typing import TextIO

from topics.clock import Clock, SystemClock

QUIET_NS = 1_000_000_000
STEP_NS = 200_000_000
STEP_NS_WITHOUT_TERMINAL = 10_000_000_000


class ProgressLine:
    """Overwrites itself on a terminal; elsewhere it is a plain line now and then."""

    def __init__(self, verb: str, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        self._verb = verb
        self._stream = stream = stream or sys.stderr
        self._clock = clock or SystemClock()
        self._overwrites = stream.isatty()
        self._due_ns = self._clock.monotonic_ns() + QUIET_NS
        self._shown = False

    def show(self, done_bytes: int, total_bytes: int) -> None:
        share = done_bytes / total_bytes if total_bytes else 1.0
        self.tell(f"{share:4.0%} of {total_bytes / 1e6:.1f} MB")

    def tell(self, how_far: str) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + (STEP_NS if self._overwrites else STEP_NS_WITHOUT_TERMINAL)
        self._shown = True
        text = f"{self._verb}: {how_far}"
        self._stream.write(f"\r\x1b[K{text}" if self._overwrites else f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        if self._shown and self._overwrites:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
