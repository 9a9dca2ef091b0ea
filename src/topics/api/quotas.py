"""How many requests of a key are under way, and how many slots of anything it holds. Every slot taken is given back."""

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any

from topics import limits
from topics.api.auth import ANYBODY, Key
from topics.api.http import Response
from topics.errors import Throttled


class SlotsByKey(dict[bytes, int]):
    """How many slots each key holds, by its digest. Keys that hold none are not kept."""

    __slots__ = ()

    def take(self, key: Key) -> None:
        self[key.digest] = self.get(key.digest, 0) + 1

    def give_back(self, key: Key) -> None:
        left = self[key.digest] - 1
        if left:
            self[key.digest] = left
        else:
            del self[key.digest]


class InFlight:
    """Counts only requests that wait: one that is answered at once is over before the next begins."""

    __slots__ = ("_max", "_slots")

    def __init__(self, per_key_max: int) -> None:
        self._max = per_key_max
        self._slots = SlotsByKey()

    def check(self, key: Key) -> None:
        if self._max and self._slots and key is not ANYBODY and self._slots.get(key.digest, 0) >= self._max:
            raise Throttled(
                f"this key has {self._max} requests in flight, which is its limit",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_inflight_per_key",
                max=self._max,
            )

    def enter(self, key: Key) -> None:
        self._slots.take(key)

    def leave(self, key: Key) -> None:
        self._slots.give_back(key)

    def holding(self, key: Key, answer: Coroutine[Any, Any, Response]) -> Coroutine[Any, Any, Response]:
        """Takes a slot at once and holds it until the answer is there, has failed or was dropped."""
        self.enter(key)
        return _Holding(answer, lambda: self.leave(key))


class _Holding(Coroutine[Any, Any, Response]):
    """A coroutine whose end is always reported, even if it is closed before it ever ran."""

    __slots__ = ("_answer", "_leave")

    def __init__(self, answer: Coroutine[Any, Any, Response], leave: Callable[[], None]) -> None:
        self._answer = answer
        self._leave: Callable[[], None] | None = leave

    def send(self, value: Any) -> Any:
        try:
            return self._answer.send(value)
        except BaseException:
            self._end()
            raise

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        try:
            return self._answer.throw(typ) if isinstance(typ, BaseException) else self._answer.throw(typ, val, tb)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        self._answer.close()
        self._end()

    def __await__(self) -> Generator[Any, Any, Response]:
        return self  # it has all of a generator that `await` uses

    def __iter__(self) -> "_Holding":
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)  # what `inspect` wants to know of a coroutine

    def _end(self) -> None:
        if self._leave is not None:
            leave, self._leave = self._leave, None
            leave()
