"""A clock that moves only when a test says so."""


class FakeClock:
    """Implements `topics.clock.Clock`. Both clocks stand still until `advance` or `set_wall`."""

    __slots__ = ("_monotonic_ns", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ns = 1_000_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance(self, ms: int) -> None:
        """Time passes: both clocks move on."""
        self._now_ms += ms
        self._monotonic_ns += ms * 1_000_000

    def set_wall(self, ms: int) -> None:
        """An operator (or NTP) sets the wall clock; durations are not touched."""
        self._now_ms = ms
