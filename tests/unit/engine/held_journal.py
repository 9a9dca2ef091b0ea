"""A journal whose commits are done when a test says so."""

from collections.abc import Sequence

from msgspec import Raw

from topics.engine.journal import Commit
from topics.errors import StorageFailed, TopicsError
from topics.model.config import TopicConfig
from topics.model.lease_event import Delayed, NumberedEvent
from topics.model.operation import RouterChanged
from topics.model.tag_match import TagMatch


class HeldJournal:
    """See `topics.engine.journal.Journal`. Notes every operation, by name and topic id, and whether it is gated."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, int, bool]] = []
        self.keys: list[str | None] = []
        self.ceilings: list[int] = []
        self.watermarks: list[int] = []
        self.bounds: list[int] = []
        self.changes: list[RouterChanged] = []
        self.forwarded: dict[int, int] = {}
        self.refusal: TopicsError | None = None
        self.asked: list[int] = []
        self._held: list[Commit] = []

    # For tests

    @property
    def held(self) -> int:
        """How many commits wait."""
        return len(self._held)

    def commit(self, count: int | None = None, *, error: TopicsError | None = None) -> None:
        """Ends the first `count` commits that wait, or all of them."""
        count = len(self._held) if count is None else count
        done, self._held = self._held[:count], self._held[count:]
        for commit in done:
            commit.resolve(error, 0)

    def fail(self, count: int | None = None) -> None:
        self.commit(count, error=StorageFailed("the disk is gone"))

    def named(self, operation: str) -> list[bool]:
        """Whether each operation of that name was gated."""
        return [gated for name, _, gated in self.operations if name == operation]

    def _take(self, operation: str, topic_id: int, *, gated: bool) -> Commit | None:
        asked = (
            operation == "barrier" or not gated or topic_id in self.asked[-4:]
        )  # a router has two topics, and may close a cycle
        assert asked, "admit comes first"
        self.operations.append((operation, topic_id, gated))
        if not gated:
            return None
        commit = Commit()
        self._held.append(commit)
        return commit

    # Journal

    def admit(self, topic_id: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(topic_id)

    def create_topic(
        self, topic_id: int, ts: int, name: str, config: TopicConfig, ceiling: int, *, gated: bool
    ) -> Commit | None:
        self.ceilings.append(ceiling)
        return self._take("create", topic_id, gated=gated)

    def update_config(self, topic_id: int, ts: int, config: TopicConfig, version: int) -> Commit | None:
        return self._take("configure", topic_id, gated=True)

    def set_cursor(self, topic_id: int, ts: int, cursor: str, seq: int | None) -> Commit | None:
        return self._take("cursor", topic_id, gated=True)

    def delete_topic(self, topic_id: int, ts: int, dest_ids: Sequence[int] = ()) -> Commit | None:
        return self._take("delete_topic", topic_id, gated=True)

    def change_router(self, topic_id: int, ts: int, change: RouterChanged, *, gated: bool) -> Commit | None:
        self.changes.append(change)
        return self._take("router", topic_id, gated=gated)

    def delete_router(self, topic_id: int, ts: int, router_id: int) -> Commit | None:
        return self._take("delete_router", topic_id, gated=True)

    def note_forwarded(self, topic_id: int, seq: int) -> None:
        self.forwarded[topic_id] = seq

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
        self.keys.append(key)
        return self._take("append", topic_id, gated=gated)

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        if self.refusal is not None:
            return False
        self.keys.append(None)
        self._take("append", topic_id, gated=False)
        return True

    def delete_records(
        self, topic_id: int, ts: int, before_seq: int, match: TagMatch | None, *, gated: bool
    ) -> Commit | None:
        self.bounds.append(before_seq)
        return self._take("delete_records", topic_id, gated=gated)

    def delete_jobs(
        self, topic_id: int, ts: int, seqs: list[int], *, node: str | None, move: str | None, gated: bool
    ) -> Commit | None:
        return self._take("delete_jobs", topic_id, gated=gated)

    def lease(self, topic_id: int, ts: int, event: NumberedEvent, *, gated: bool) -> Commit | None:
        return self._take("lease", topic_id, gated=gated)

    def reserve(self, topic_id: int, ts: int, ceiling: int) -> Commit | None:
        self.ceilings.append(ceiling)
        return self._take("reserve", topic_id, gated=True)

    def barrier_of(self, topic_id: int) -> Commit | None:
        return self._take("barrier", topic_id, gated=True)

    def watermark(self, topic_id: int, ts: int, ttl_lost_seq: int) -> None:
        self.watermarks.append(ttl_lost_seq)
