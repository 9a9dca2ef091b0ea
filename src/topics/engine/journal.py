"""The port to storage: what the engine asks to be made durable, and how it learns that it is.

The engine decides, hands the operation to the journal, and applies it: at once where the topic's class allows
it, else when the `Commit` it got back is done. Storage implements `Journal`; `NoJournal` keeps nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Raw

from topics.errors import TopicsError
from topics.model.config import TopicConfig
from topics.model.lease_event import Delayed, NumberedEvent
from topics.model.operation import RouterChanged
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


def all_of(commits: Iterable[Commit | None]) -> Commit | None:
    """Done when all of these are, with the first error any of them has; None when there is none to wait for."""
    waiting = [commit for commit in commits if commit is not None]
    if len(waiting) <= 1:
        return waiting[0] if waiting else None
    joined = Commit()

    def done(_: Commit) -> None:
        if not joined.done and all(commit.done for commit in waiting):
            errors = [commit.error for commit in waiting if commit.error is not None]
            joined.resolve(errors[0] if errors else None, max(commit.sync_ns for commit in waiting))

    for commit in waiting:
        commit.when_done(done)
    return joined


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

    def update_config(self, topic_id: int, ts: int, config: TopicConfig, version: int) -> Commit | None: ...

    def delete_topic(self, topic_id: int, ts: int, dest_ids: Sequence[int] = ()) -> Commit | None:
        """`dest_ids`: the topics that routers copied it to."""
        ...

    def change_router(self, topic_id: int, ts: int, change: RouterChanged, *, gated: bool) -> Commit | None:
        """Says what happened to routers, in the history of their dest or of their source."""
        ...

    def delete_router(self, topic_id: int, ts: int, router_id: int) -> Commit | None:
        """Ends a router into this topic. Always gated."""
        ...

    def note_forwarded(self, topic_id: int, seq: int) -> None:
        """Copies were made in this topic, up to this seq. Never waits and never fails: `admit` has been asked when
        the topic got its router."""
        ...

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
        delays: Sequence[Delayed] = (),
    ) -> Commit | None:
        """All of it is there after a crash, or nothing. `delays`: which of the records are jobs to be kept back."""
        ...

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        """One record without meta or key, that nobody waits for. False, and nothing is taken, where `admit` would raise
        or has never been asked for this topic."""
        ...

    def delete_records(
        self, topic_id: int, ts: int, before_seq: int, match: TagMatch | None, *, gated: bool
    ) -> Commit | None: ...

    def delete_jobs(
        self, topic_id: int, ts: int, seqs: list[int], *, node: str | None, move: str | None, gated: bool
    ) -> Commit | None:
        """Single records of a queue, acked by `node` or moved away."""
        ...

    def lease(self, topic_id: int, ts: int, event: NumberedEvent, *, gated: bool) -> Commit | None: ...

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

    def update_config(self, topic_id: int, ts: int, config: TopicConfig, version: int) -> None:
        return None

    def delete_topic(self, topic_id: int, ts: int, dest_ids: Sequence[int] = ()) -> None:
        return None

    def change_router(self, topic_id: int, ts: int, change: RouterChanged, *, gated: bool) -> None:
        return None

    def delete_router(self, topic_id: int, ts: int, router_id: int) -> None:
        return None

    def note_forwarded(self, topic_id: int, seq: int) -> None:
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
        delays: Sequence[Delayed] = (),
    ) -> None:
        return None

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        return True

    def delete_records(self, topic_id: int, ts: int, before_seq: int, match: TagMatch | None, *, gated: bool) -> None:
        return None

    def delete_jobs(
        self, topic_id: int, ts: int, seqs: list[int], *, node: str | None, move: str | None, gated: bool
    ) -> None:
        return None

    def lease(self, topic_id: int, ts: int, event: NumberedEvent, *, gated: bool) -> None:
        return None

    def reserve(self, topic_id: int, ts: int, ceiling: int) -> None:
        return None

    def set_cursor(self, topic_id: int, ts: int, cursor: str, seq: int | None) -> None:
        return None

    def barrier_of(self, topic_id: int) -> None:
        return None

    def watermark(self, topic_id: int, ts: int, ttl_lost_seq: int) -> None:
        return None
