"""A log as the readers use it: a running server, or the files of one. Only this module knows which."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from topics.errors import TopicNotFound
from topics.spark import http_reader
from topics.spark.columns import Columns
from topics.spark.offsets import Offsets, SeqRange, TopicRange, pieces_of
from topics.spark.options import ReadOptions, Server
from topics.spark.rows import Gap, gathered
from topics.wire.responses import RecordReply


class Planned(Protocol):
    """One task's share. It is sent to the task, so it is small and holds nothing open."""

    @property
    def topic(self) -> str: ...


class Log(Protocol):
    def server_id(self) -> str:
        """Whose topics these are; empty when nobody can tell."""
        ...

    def ranges(self) -> dict[str, TopicRange]:
        """What the subscribed topics hold now; those that do not exist are left out."""
        ...

    def seq_at(self, topic: str, ts: int, *, behind_losses: bool = False) -> int | None:
        """Where the records of this time (ms) or later begin; None if there are none. Lost seqs whose time nobody knows
        count as not older, or, `behind_losses`, as older."""
        ...

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> Sequence[Planned]: ...

    def read(self, planned: Planned) -> Iterator[Columns | Gap]: ...

    def store_cursor(self, name: str, offsets: Offsets) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> "Log": ...

    def __exit__(self, *exc_info: object) -> None: ...


def open_log(read: ReadOptions) -> Log:
    if read.archive is None:
        return _open_origin(read)
    from topics.spark.stitched_log import StitchedLog  # noqa: PLC0415

    return StitchedLog(_open_origin(read), read.archive, read.filters)


def _open_origin(read: ReadOptions) -> Log:
    if isinstance(read.origin, Server):
        return ServerLog(read, read.origin)
    # Only here: the engine comes along with it, and every worker process would pay for importing that.
    from topics.spark.files import FilesLog  # noqa: PLC0415

    return FilesLog(read, read.origin)


class ServerLog:
    """A running server, over one connection."""

    def __init__(self, read: ReadOptions, server: Server) -> None:
        self._options = read
        self._client = server.client()

    def server_id(self) -> str:
        return self._client.server_id()

    def ranges(self) -> dict[str, TopicRange]:
        return http_reader.topic_ranges(self._client, self._options.topics, self._options.prefix)

    def seq_at(self, topic: str, ts: int, *, behind_losses: bool = False) -> int | None:
        return http_reader.seq_at(self._client, topic, ts, behind_losses=behind_losses)

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> list[SeqRange]:
        return pieces_of(ranges, pieces_min, records_max)

    def read(self, planned: Planned) -> Iterator[Columns | Gap]:
        assert isinstance(planned, SeqRange)
        found: Iterator[list[RecordReply] | Gap] = http_reader.read_range(self._client, planned, self._options.filters)
        return gathered(found)

    def store_cursor(self, name: str, offsets: Offsets) -> None:
        for topic, position in offsets.items():
            try:
                self._client.put_cursor(topic, name, position.seq)
            except TopicNotFound:
                # Deleted meanwhile: the next offset tells it as the loss it is.
                continue

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "ServerLog":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
