"""An event loop's `call_later` that runs calls only when a test says so."""

from collections.abc import Callable
from heapq import heappop, heappush

from topics.testing.fake_clock import FakeClock

_CALLS_MAX = 10_000


class FakeLoop:
    """Calls run in the order they are due; between them the clock stands still."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._serial = 0
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self.delays_s: list[float] = []  # asked for, ever

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._serial += 1
        self.delays_s.append(delay_s)
        heappush(self._calls, (self._clock.monotonic_ns() + round(delay_s * 1e9), self._serial, call))

    @property
    def is_due(self) -> bool:
        """Whether anything is to be run now."""
        return bool(self._calls) and self._calls[0][0] <= self._clock.monotonic_ns()

    def turn(self) -> None:
        """Runs what is due now, but not what that asks for."""
        due, self._calls = self._calls, []
        now_ns = self._clock.monotonic_ns()
        ready = sorted(call for call in due if call[0] <= now_ns)
        for call in due:
            if call[0] > now_ns:
                heappush(self._calls, call)
        for _, _, run in ready:
            run()

    def settle(self) -> None:
        """Runs everything that is due now, and what that asks for to be done now."""
        for _ in range(_CALLS_MAX):
            if not self.is_due:
                return
            heappop(self._calls)[2]()
        raise AssertionError("the loop does not come to rest")

    def pass_time(self, ms: int) -> None:
        """Time passes, millisecond by millisecond as far as anything is due, and everything due is run."""
        end_ns = self._clock.monotonic_ns() + ms * 1_000_000
        self.settle()
        while self._calls and self._calls[0][0] <= end_ns:
            # Not less than a millisecond, which is what the clock can do.
            missing_ns = max(self._calls[0][0] - self._clock.monotonic_ns(), 1)
            self._clock.advance(-(-missing_ns // 1_000_000))
            self.settle()
        left_ns = end_ns - self._clock.monotonic_ns()
        if left_ns > 0:
            self._clock.advance(left_ns // 1_000_000)
