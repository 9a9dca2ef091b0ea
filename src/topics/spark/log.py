"""A log as the readers use it: a running server, or the files of one. Only this module knows which."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from topics.client.replies import RecordReply
from topics.errors import TopicNotFound
from topics.spark import http_reader
from topics.spark.errors import InvalidOption
from topics.spark.offsets import Offsets, SeqRange, TopicRange, pieces_of
from topics.spark.options import ReadOptions, Server
from topics.spark.rows import Gap

Planned = SeqRange


class Log(Protocol):
    def ranges(self) -> dict[str, TopicRange]:
        """What the subscribed topics hold now; those that do not exist are left out."""
        ...

    def seq_at(self, topic: str, ts: int) -> int | None:
        """The first live record of this time or later."""
        ...

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> Sequence[Planned]: ...

    def read(self, planned: Planned) -> Iterator[list[RecordReply] | Gap]: ...

    def store_cursor(self, name: str, offsets: Offsets) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> "Log": ...

    def __exit__(self, *exc_info: object) -> None: ...


def open_log(read: ReadOptions) -> Log:
    if isinstance(read.origin, Server):
        return ServerLog(read, read.origin)
    raise InvalidOption("path", "reading from files is not part of this version; give the url of a server")


class ServerLog:
    """A running server, over one connection."""

    def __init__(self, read: ReadOptions, server: Server) -> None:
        self._options = read
        self._client = server.client()

    def ranges(self) -> dict[str, TopicRange]:
        return http_reader.topic_ranges(self._client, self._options.topics, self._options.prefix)

    def seq_at(self, topic: str, ts: int) -> int | None:
        return http_reader.seq_at(self._client, topic, ts)

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> list[SeqRange]:
        return pieces_of(ranges, pieces_min, records_max)

    def read(self, planned: SeqRange) -> Iterator[list[RecordReply] | Gap]:
        return http_reader.read_range(self._client, planned, self._options.filters)

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
