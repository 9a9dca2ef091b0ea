"""The port to storage: what the engine asks to be made durable, and how it learns that it is.

The engine decides, hands the operation to the journal, and applies it: at once where the topic's class allows
it, else when the `Commit` it got back is done. Storage implements `Journal`; `NoJournal` keeps nothing.
"""

from collections.abc import Callable
from typing import Protocol

from topics.errors import TopicsError
from topics.model.config import TopicConfig
from topics.model.tag_match import TagMatch


class Commit:
    """Done once, with or without an error. Callbacks run in the order they were given, on the loop's thread."""

    __slots__ = ("_callbacks", "done", "error", "sync_ns")

    def __init__(self) -> None:
        self.done = False
        self.error: TopicsError | None = None
        self.sync_ns = 0
        self._callbacks: list[Callable[[Commit], None]] = []

    def when_done(self, callback: Callable[["Commit"], None]) -> None:
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def resolve(self, error: TopicsError | None, sync_ns: int) -> None:
        self.done = True
        self.error = error
        self.sync_ns = sync_ns
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


class Busy(Exception):
    """The answer depends on something that is not durable yet. Wait for `commit`, then call again."""

    def __init__(self, commit: Commit) -> None:
        super().__init__()
        self.commit = commit


class Journal(Protocol):
    """Every call hands over one operation, in the order of the topic's history.

    `admit` is asked first and may raise; the calls that follow it in the same turn do not. With `gated`, the
    commit returned is done when the operation (and all before it) is durable; without, there is none to wait for.
    """

    def admit(self, topic_id: int) -> None:
        """Raises when operations of this topic cannot be taken now: its disk failed, or too much waits already."""
        ...

    def create_topic(
        self, topic_id: int, ts: int, name: str, config: TopicConfig, ceiling: int, *, gated: bool
    ) -> Commit | None: ...

    def update_config(self, topic_id: int, ts: int, config: TopicConfig) -> Commit | None: ...

    def delete_topic(self, topic_id: int, ts: int) -> Commit | None: ...

    def append(
        self,
        topic_id: int,
        first_seq: int,
        ts: int,
        fragments: list[bytes],
        meta_at: list[int],
        nodes: list[str | None],
        tags: list[str | None],
        key: str | None,
        *,
        gated: bool,
    ) -> Commit | None: ...

    def delete_records(
        self, topic_id: int, ts: int, before_seq: int, match: TagMatch | None, *, gated: bool
    ) -> Commit | None: ...

    def reserve(self, topic_id: int, ts: int, ceiling: int) -> Commit | None:
        """Makes sure no seq up to `ceiling` is given out again, whatever is lost. Always gated."""
        ...

    def set_cursor(self, topic_id: int, ts: int, cursor: str, seq: int | None) -> Commit | None:
        """Keeps a named cursor; None forgets it. Always gated."""
        ...

    def barrier_of(self, topic_id: int) -> Commit | None:
        """Done when everything this topic has handed over so far is durable."""
        ...

    def watermark(self, topic_id: int, ts: int, ttl_lost_seq: int) -> None:
        """Notes what the clock has taken, so that a clock that steps back cannot return it."""
        ...


class NoJournal:
    """Nothing is durable, and nobody waits."""

    __slots__ = ()

    def admit(self, topic_id: int) -> None:
        return None

    def create_topic(
        self, topic_id: int, ts: int, name: str, config: TopicConfig, ceiling: int, *, gated: bool
    ) -> None:
        return None

    def update_config(self, topic_id: int, ts: int, config: TopicConfig) -> None:
        return None

    def delete_topic(self, topic_id: int, ts: int) -> None:
        return None

    def append(
        self,
        topic_id: int,
        first_seq: int,
        ts: int,
        fragments: list[bytes],
        meta_at: list[int],
        nodes: list[str | None],
        tags: list[str | None],
        key: str | None,
        *,
        gated: bool,
    ) -> None:
        return None

    def delete_records(self, topic_id: int, ts: int, before_seq: int, match: TagMatch | None, *, gated: bool) -> None:
        return None

    def reserve(self, topic_id: int, ts: int, ceiling: int) -> None:
        return None

    def set_cursor(self, topic_id: int, ts: int, cursor: str, seq: int | None) -> None:
        return None

    def barrier_of(self, topic_id: int) -> None:
        return None

    def watermark(self, topic_id: int, ts: int, ttl_lost_seq: int) -> None:
        return None
