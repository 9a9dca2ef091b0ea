"""A job's progress: a bar that overwrites itself on a terminal, plain lines elsewhere, nothing when used as a
library."""

from typing import Protocol, TextIO

from topics.clock import Clock, SystemClock

STEP_NS = 200_000_000
STEP_NS_WITHOUT_TERMINAL = 10_000_000_000
BAR_CHARS = 24


class Progress(Protocol):
    """What a job reports. Each part of a job begins with `begin`."""

    def begin(self, verb: str, rows: int | None = None, unit: str = "rows") -> None:
        """A part of `rows` rows begins; None if the number is unknown. `unit`: what is counted."""
        ...

    def advance(self, rows: int, lag: int | None = None) -> None:
        """`rows` more are done; `lag` still wait."""
        ...

    def end(self) -> None:
        """Nothing more comes."""
        ...


class Silent:
    """For callers that want no reports."""

    def begin(self, verb: str, rows: int | None = None, unit: str = "rows") -> None: ...

    def advance(self, rows: int, lag: int | None = None) -> None: ...

    def end(self) -> None: ...


class Lag(Silent):
    """Remembers only the last lag."""

    def __init__(self) -> None:
        self.lag: int | None = None

    def begin(self, verb: str, rows: int | None = None, unit: str = "rows") -> None:
        if rows == 0:
            self.lag = 0

    def advance(self, rows: int, lag: int | None = None) -> None:
        self.lag = lag


class Shown:
    """For people: rows, rows a second, lag, and a bar where the end is known. The last state is always shown."""

    def __init__(self, stream: TextIO, clock: Clock | None = None) -> None:
        self._stream = stream
        self._clock = clock or SystemClock()
        self._overwrites = stream.isatty()
        self._verb = ""
        self._unit = "rows"
        self._rows: int | None = None
        self._done = 0
        self._lag: int | None = None
        self._began_ns = 0
        self._due_ns = 0
        self._shown = False
        self._held_back = False

    def begin(self, verb: str, rows: int | None = None, unit: str = "rows") -> None:
        self.end()
        self._verb, self._rows, self._done, self._lag, self._unit = verb, rows, 0, None, unit
        self._began_ns = self._clock.monotonic_ns()
        self._due_ns = 0

    def advance(self, rows: int, lag: int | None = None) -> None:
        self._done += rows
        self._lag = lag
        now_ns = self._clock.monotonic_ns()
        self._held_back = now_ns < self._due_ns
        if not self._held_back:
            self._due_ns = now_ns + (STEP_NS if self._overwrites else STEP_NS_WITHOUT_TERMINAL)
            self._show(now_ns)

    def end(self) -> None:
        if self._held_back:
            self._show(self._clock.monotonic_ns())
        if self._shown and self._overwrites:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._shown = self._held_back = False

    def _show(self, now_ns: int) -> None:
        self._shown = True
        line = self.line(now_ns)
        self._stream.write(f"\r\x1b[K{line}" if self._overwrites else f"{line}\n")
        self._stream.flush()

    def line(self, now_ns: int) -> str:
        elapsed_ns = max(now_ns - self._began_ns, 1)
        parts = [f"{self._verb}:"]
        if self._rows:
            share = min(self._done / self._rows, 1.0)
            filled = int(share * BAR_CHARS)
            parts.append(f"{'█' * filled}{'░' * (BAR_CHARS - filled)} {share:4.0%}")
        parts.append(f"{self._done:,} {self._unit}, {self._done * 1_000_000_000 // elapsed_ns:,} {self._unit}/s")
        if self._lag is not None:
            parts.append(f"(lag {self._lag:,})")
        return " ".join(parts)
