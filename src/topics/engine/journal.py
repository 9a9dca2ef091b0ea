"""The port to storage: what the engine asks to be made durable, and how it learns that it is.

The engine decides, hands the operation to the journal, and applies it: at once where the topic's class allows
it, else when the `Commit` it got back is done. Storage implements `Journal`; `NoJournal` keeps nothing.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Raw

from topics.errors import TopicsError
from topics.model.operation import Operation


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
    """The answer depends on something that is not durable yet, or not at hand. Wait for `commit`, then call again. If
    the commit failed, another call would only find the same: tell whoever waits."""

    def __init__(self, commit: Commit) -> None:
        super().__init__()
        self.commit = commit

    def when_over(self, again: Callable[[], None], failed: Callable[[TopicsError], None]) -> None:
        """For callers that cannot wait: makes one of the calls when it is over."""

        def over(commit: Commit) -> None:
            if commit.error is None:
                again()
            else:
                failed(commit.error)

        self.commit.when_done(over)


class Journal(Protocol):
    """Takes operations, in the order they happen to each topic. The operations of a topic are all in one log."""

    def admit(self, topic_id: int) -> None:
        """Has to be asked first. Raises if operations of this topic cannot be taken now: its disk failed, or too much
        is waiting. What is handed over later in the same turn is taken."""
        ...

    def require_room(self, size: int) -> None:
        """Asked before anything that adds records, of so many bytes, or topics. Raises while there is too little room
        on the disk; what frees it is taken all the same."""
        ...

    def submit(self, operations: Sequence[Operation], *, gated: bool) -> Commit | None:
        """Hands over one batch: after a crash all of it is there, or nothing. With `gated`, the commit is done when it
        (and all before it in its log) is durable; without, there is none to wait for."""
        ...

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        """An `Appended` of one record without meta or key, not gated. False, and nothing is taken, where `admit` would
        raise or has never been asked for this topic. Most writes are such, and this costs half."""
        ...

    def seen(self, topic_id: int, seq: int) -> None:
        """Readers can see the topic up to this seq. Kept where a killed process leaves it."""
        ...

    def lane(self, topic_id: int) -> int:
        """Which log has the operations of the topic. Topics that exchange records share number 0."""
        ...

    def id_among(self, first_id: int) -> int:
        """The next id, from this one on, for a topic that is made while others are. Those made at the same time share a
        log, and with it each sync."""
        ...

    def barrier_of(self, topic_id: int) -> Commit | None:
        """Done when everything in the topic's log so far is durable."""
        ...


class NoJournal:
    """Nothing is durable, and nobody waits."""

    __slots__ = ()

    def admit(self, topic_id: int) -> None:
        return None

    def require_room(self, size: int) -> None:
        return None

    def submit(self, operations: Sequence[Operation], *, gated: bool) -> None:
        return None

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        return True

    def seen(self, topic_id: int, seq: int) -> None:
        return None

    def lane(self, topic_id: int) -> int:
        return 0

    def id_among(self, first_id: int) -> int:
        return first_id

    def barrier_of(self, topic_id: int) -> None:
        return None
