"""How many requests of one key are under way. Every slot taken is given back."""

from topics import limits
from topics.api.auth import ANYBODY, Key
from topics.errors import Throttled


class InFlight:
    """Counts only requests that wait: one that is answered at once is over before the next begins."""

    __slots__ = ("_by_key", "_max")

    def __init__(self, per_key_max: int) -> None:
        self._max = per_key_max
        self._by_key: dict[bytes, int] = {}

    def check(self, key: Key) -> None:
        if self._max and self._by_key and key is not ANYBODY and self._by_key.get(key.digest, 0) >= self._max:
            raise Throttled(
                f"this key has {self._max} requests in flight, as many as it may",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_inflight_per_key",
                max=self._max,
            )

    def enter(self, key: Key) -> None:
        self._by_key[key.digest] = self._by_key.get(key.digest, 0) + 1

    def leave(self, key: Key) -> None:
        left = self._by_key[key.digest] - 1
        if left:
            self._by_key[key.digest] = left
        else:
            del self._by_key[key.digest]
