"""When a call is tried again, and how long to wait first: bounds, growing pauses, and jitter."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from topics import limits
from topics.client.core import Answer, retry_after_s
from topics.client.errors import ServerUnreachable


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds on trying again: how many times, how long in all, and how the pauses grow."""

    attempts_max: int = limits.CLIENT_ATTEMPTS_MAX
    total_ms_max: int = limits.CLIENT_RETRY_TOTAL_MS_MAX
    pause_ms_min: int = limits.CLIENT_PAUSE_MS_MIN
    pause_ms_max: int = limits.CLIENT_PAUSE_MS_MAX


@dataclass(slots=True)
class Retries:
    """The attempts of one call. Each method gives the pause before the next attempt, or says that there is none."""

    policy: RetryPolicy
    now_ms: Callable[[], int]
    random: Random
    attempts: int = field(default=0, init=False)
    _began_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._began_ms = self.now_ms()

    def left_s(self) -> float:
        """How much of the total deadline is left."""
        return max(self.policy.total_ms_max - (self.now_ms() - self._began_ms), 0) / 1000

    def after_answer(self, answer: Answer) -> int | None:
        """None if the answer is final. A 429 or 503 is worth another attempt only if the server says when."""
        wanted_s = retry_after_s(answer)
        if answer.status not in {429, 503} or wanted_s is None:
            return None
        # The jitter comes on top, so that clients that were told the same time do not all come back at once.
        pause_ms = wanted_s * 1000 + self._pause_ms()
        return pause_ms if self._may_go_on(pause_ms) else None

    def after_failure(self, reason: str, where: str) -> int:
        pause_ms = self._pause_ms()
        if not self._may_go_on(pause_ms):
            raise ServerUnreachable(f"{where} does not answer: {reason}; tried {self.attempts} times")
        return pause_ms

    def _may_go_on(self, pause_ms: int) -> bool:
        if self.attempts >= self.policy.attempts_max:
            return False
        return self.now_ms() - self._began_ms + pause_ms <= self.policy.total_ms_max

    def _pause_ms(self) -> int:
        """A random time between half of the pause and all of it; the pause doubles up to its bound."""
        self.attempts += 1
        doubled = min(self.policy.pause_ms_min << min(self.attempts - 1, 16), self.policy.pause_ms_max)
        return self.random.randint(doubled // 2, doubled)
