"""A log as the readers use it: a running server, the files of one, or either with an archive before it."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from topics.spark.columns import Columns
from topics.spark.offsets import Gap, Offsets, SeqRange, TopicRange


class Planned(Protocol):
    """One task's share. It travels to the task, so it is small and holds nothing open."""

    @property
    def topic(self) -> str: ...

    @property
    def size(self) -> int:
        """How many seqs it covers."""
        ...


class Log(Protocol):
    def server_id(self) -> str:
        """Whose topics these are; empty if unknown."""
        ...

    def require_reachable(self) -> None:
        """Raises an error if there is nothing to read from."""
        ...

    def ranges(self) -> dict[str, TopicRange]:
        """What the subscribed topics hold now; those that do not exist are left out."""
        ...

    def seq_at(self, topic: str, ts: int, *, behind_losses: bool = False) -> int | None:
        """The first seq with a time of `ts` (ms) or later, None if there is none. Lost seqs, whose time is unknown,
        count as later, or, with `behind_losses`, as older."""
        ...

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> Sequence[Planned]: ...

    def read(self, planned: Planned) -> Iterator[Columns | Gap]: ...

    def read_all(self, shares: Sequence[Planned]) -> Iterator[tuple[str, Columns | Gap]]:
        """Everything a task reads, each batch with its topic."""
        ...

    def store_cursor(self, name: str, offsets: Offsets) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> "Log": ...

    def __exit__(self, *exc_info: object) -> None: ...
