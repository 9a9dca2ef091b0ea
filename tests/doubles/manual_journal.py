"""A journal whose syncs come when a test says so."""

from collections.abc import Sequence

from msgspec import Raw

from topics.engine.journal import Commit
from topics.errors import TopicsError
from topics.model.config import TopicConfig
from topics.model.lease_event import Delayed, NumberedEvent
from topics.model.operation import RouterChanged
from topics.model.tag_match import TagMatch


class ManualJournal:
    """Implements `topics.engine.journal.Journal`. What is handed over is durable with the next `sync`."""

    def __init__(self) -> None:
        self._unsynced: list[Commit] = []
        self.refusal: TopicsError | None = None

    def sync(self, error: TopicsError | None = None) -> None:
        """Everything handed over so far is durable now, or failed."""
        while self._unsynced:
            self._unsynced.pop(0).resolve(error, 1_000_000)

    def _commit(self, *, gated: bool) -> Commit | None:
        if not gated:
            return None
        commit = Commit()
        self._unsynced.append(commit)
        return commit

    def admit(self, topic_id: int) -> None:
        if self.refusal is not None:
            raise self.refusal

    def create_topic(
        self, topic_id: int, ts: int, name: str, config: TopicConfig, ceiling: int, *, gated: bool
    ) -> Commit | None:
        return self._commit(gated=gated)

    def update_config(self, topic_id: int, ts: int, config: TopicConfig, version: int) -> Commit | None:
        return self._commit(gated=True)

    def delete_topic(self, topic_id: int, ts: int, dest_ids: Sequence[int] = ()) -> Commit | None:
        return self._commit(gated=True)

    def change_router(self, topic_id: int, ts: int, change: RouterChanged, *, gated: bool) -> Commit | None:
        return self._commit(gated=gated)

    def delete_router(self, topic_id: int, ts: int, router_id: int) -> Commit | None:
        return self._commit(gated=True)

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
    ) -> Commit | None:
        return self._commit(gated=gated)

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        return self.refusal is None

    def delete_records(
        self, topic_id: int, ts: int, before_seq: int, match: TagMatch | None, *, gated: bool
    ) -> Commit | None:
        return self._commit(gated=gated)

    def delete_jobs(
        self, topic_id: int, ts: int, seqs: list[int], *, node: str | None, move: str | None, gated: bool
    ) -> Commit | None:
        return self._commit(gated=gated)

    def lease(self, topic_id: int, ts: int, event: NumberedEvent, *, gated: bool) -> Commit | None:
        return self._commit(gated=gated)

    def reserve(self, topic_id: int, ts: int, ceiling: int) -> Commit | None:
        return self._commit(gated=True)

    def barrier_of(self, topic_id: int) -> Commit | None:
        return self._commit(gated=True)

    def set_cursor(self, topic_id: int, ts: int, cursor: str, seq: int | None) -> Commit | None:
        return self._commit(gated=True)

    def watermark(self, topic_id: int, ts: int, ttl_lost_seq: int) -> None:
        return None
