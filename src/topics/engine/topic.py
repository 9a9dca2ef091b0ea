"""One topic: its identity, configuration, log, remembered keys, recency clocks and waiters."""

from collections.abc import Callable

from topics.engine.idempotency import IdempotencyKeys
from topics.engine.priority import effective_priority
from topics.engine.topic_log import TopicLog
from topics.model.config import TopicConfig

Wake = Callable[[], None]


class Topic:
    """`epoch` tells this instance from an earlier one of the same name."""

    __slots__ = (
        "_waiting",
        "config",
        "deleted",
        "epoch",
        "keys",
        "last_read_ts",
        "last_write_ts",
        "log",
        "name",
    )

    def __init__(self, name: str, epoch: int, config: TopicConfig) -> None:
        self.name = name
        self.epoch = epoch
        self.log = TopicLog()
        self.keys = IdempotencyKeys()
        self.last_write_ts: int | None = None
        self.last_read_ts: int | None = None
        self.deleted = False
        self._waiting: set[Wake] = set()
        self.config = config

    def expire(self, now_ms: int) -> None:
        """Lets the clock take what the TTL says is gone."""
        if self.config.ttl_ms:
            # Expired: now - ts > ttl.
            self.log.expire(now_ms - self.config.ttl_ms)

    def effective_priority(self, now_ms: int) -> int:
        return effective_priority(self.config, now_ms, self.last_read_ts)

    def wait(self, wake: Wake) -> None:
        """`wake` is called at every append and at deletion, until `stop_waiting`."""
        self._waiting.add(wake)

    def stop_waiting(self, wake: Wake) -> None:
        self._waiting.discard(wake)

    def wake_all(self) -> None:
        for wake in tuple(self._waiting):
            wake()
