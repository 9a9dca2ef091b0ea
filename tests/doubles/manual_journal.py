"""A journal whose syncs come when a test says so."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Raw

from topics.engine.journal import Commit
from topics.errors import StorageFailed, TopicsError
from topics.model.operation import Appended, ClockReached, Forwarded, Moved, Operation, SeqsReserved

Kind = TypeVar("Kind")

_UNASKED = SeqsReserved | Moved | Forwarded | ClockReached
"""These go before what was asked for."""


class ManualJournal:
    """Implements `topics.engine.journal.Journal`. What is handed over is durable with the next `sync`.

    Notes every batch, and whether it was gated.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[tuple[Operation, ...], bool]] = []
        self.heads: dict[int, int] = {}
        self.lanes: dict[int, int] = {}
        self.refusal: TopicsError | None = None
        self.full: TopicsError | None = None
        self._asked: list[int] = []
        self._held: list[Commit] = []

    # For tests

    @property
    def held(self) -> int:
        """How many commits wait."""
        return len(self._held)

    @property
    def operations(self) -> list[Operation]:
        """Everything handed over, but for single records that nobody waits for."""
        return [operation for batch, _ in self.batches for operation in batch]

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [operation for operation in self.operations if isinstance(operation, kind)]

    def gates(self, kind: type[object]) -> list[bool]:
        """Whether each batch that has such an operation was gated."""
        return [gated for batch, gated in self.batches if any(isinstance(each, kind) for each in batch)]

    def sync(self, error: TopicsError | None = None) -> None:
        """Everything handed over so far is durable now, or failed, and so is what that leads to."""
        while self._held:
            self._held.pop(0).resolve(error, 1_000_000)

    def commit(self, count: int | None = None, *, error: TopicsError | None = None) -> None:
        """Ends the first `count` commits that wait, or all of them."""
        count = len(self._held) if count is None else count
        done, self._held = self._held[:count], self._held[count:]
        for commit in done:
            commit.resolve(error, 0)

    def fail(self, count: int | None = None) -> None:
        self.commit(count, error=StorageFailed("the disk is gone"))

    # Journal

    def admit(self, topic_id: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self._asked.append(topic_id)

    def require_room(self, size: int) -> None:
        if self.full is not None:
            raise self.full

    def submit(self, operations: Sequence[Operation], *, gated: bool) -> Commit | None:
        assert not any(isinstance(each, Appended) for each in operations[:-1]), "records end their batch"
        for operation in operations:
            # A batch may be about a few topics.
            assert not gated or isinstance(operation, _UNASKED) or operation.topic_id in self._asked[-4:], "admit first"
        self.batches.append((tuple(operations), gated))
        return self._commit() if gated else None

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        if self.refusal is not None or self.full is not None:
            return False
        self.seen(topic_id, seq)
        return True

    def seen(self, topic_id: int, seq: int) -> None:
        self.heads[topic_id] = seq

    def lane(self, topic_id: int) -> int:
        return self.lanes.get(topic_id, 0)

    def id_among(self, first_id: int) -> int:
        return first_id

    def barrier_of(self, topic_id: int) -> Commit | None:
        return self._commit()

    def _commit(self) -> Commit:
        commit = Commit()
        self._held.append(commit)
        return commit
