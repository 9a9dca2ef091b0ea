"""A log as the readers use it: a running server, or the files of one. Only this module knows which."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from topics.client.replies import RecordReply
from topics.errors import TopicNotFound
from topics.model.gap import GapReason
from topics.spark import http_reader
from topics.spark.file_log import FileLog
from topics.spark.file_partition import FilePartition
from topics.spark.file_reader import Columns, read_partition
from topics.spark.offsets import Offsets, SeqRange, TopicRange, pieces_of
from topics.spark.options import Files, Filters, ReadOptions, Server
from topics.spark.rows import Gap, gathered


@dataclass(frozen=True, slots=True)
class FileShare:
    """One task's share of a topic's files: what is known to be lost before anything is read, and what to read."""

    topic: str
    gaps: tuple[Gap, ...]
    partition: FilePartition | None


Planned = SeqRange | FileShare


class Log(Protocol):
    def ranges(self) -> dict[str, TopicRange]:
        """What the subscribed topics hold now; those that do not exist are left out."""
        ...

    def seq_at(self, topic: str, ts: int) -> int | None:
        """Where the records of this time (ms) or later begin; None if there are none."""
        ...

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> Sequence[Planned]: ...

    def read(self, planned: Planned) -> Iterator[Columns | Gap]: ...

    def store_cursor(self, name: str, offsets: Offsets) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> "Log": ...

    def __exit__(self, *exc_info: object) -> None: ...


def open_log(read: ReadOptions) -> Log:
    if isinstance(read.origin, Server):
        return ServerLog(read, read.origin)
    return FilesLog(read, read.origin)


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


class FilesLog:
    """A data directory, a backup or a cold directory. It is looked at anew whenever ranges are asked for."""

    def __init__(self, read: ReadOptions, files: Files) -> None:
        self._options = read
        self._files = files
        self._seen: FileLog | None = None

    def ranges(self) -> dict[str, TopicRange]:
        self._seen = FileLog(self._files.path, self._files.cold_path)
        return {
            name: TopicRange(topic.epoch, topic.earliest_seq, topic.head_seq)
            for name, topic in self._seen.topics().items()
            if self._is_subscribed(name)
        }

    def seq_at(self, topic: str, ts: int) -> int:
        return self._look().seq_at(topic, ts)

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> list[FileShare]:
        known = self._look().topics()
        if any(not _reaches(known.get(wanted.topic), wanted) for wanted in ranges):
            # An offset may be newer than what was seen last, when a query begins with a batch it has to repeat.
            self._seen = FileLog(self._files.path, self._files.cold_path)
            known = self._seen.topics()
        total = sum(wanted.size for wanted in ranges)
        shares: list[FileShare] = []
        for wanted in ranges:
            topic = wanted.topic
            lost, end = _lost(known.get(topic), wanted)
            if lost:
                shares.append(FileShare(topic, lost, None))
            if wanted.start < end:
                least = -(-pieces_min * wanted.size // total)
                found = self._look().partitions(topic, wanted.start + 1, end, least, records_max or 0)
                shares += [FileShare(topic, (), partition) for partition in found]
        return shares

    def read(self, planned: Planned) -> Iterator[Columns | Gap]:
        assert isinstance(planned, FileShare)
        yield from planned.gaps
        if planned.partition is None:
            return
        for columns in read_partition(planned.partition):
            for gap in columns.gaps:
                yield Gap(gap.gap_from, gap.gap_to, gap.reason)
            wanted = filtered(columns, self._options.filters)
            if len(wanted):
                yield wanted

    def store_cursor(self, name: str, offsets: Offsets) -> None:
        raise AssertionError("the options refuse a cursor with files")

    def close(self) -> None:
        self._seen = None

    def __enter__(self) -> "FilesLog":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _look(self) -> FileLog:
        if self._seen is None:
            self._seen = FileLog(self._files.path, self._files.cold_path)
        return self._seen

    def _is_subscribed(self, name: str) -> bool:
        prefix = self._options.prefix
        return name in self._options.topics if prefix is None else name.startswith(prefix)


class _Known(Protocol):
    @property
    def epoch(self) -> int: ...

    @property
    def head_seq(self) -> int: ...


def _reaches(known: _Known | None, wanted: SeqRange) -> bool:
    return known is not None and known.epoch == wanted.epoch and known.head_seq >= wanted.end


def _lost(known: _Known | None, wanted: SeqRange) -> tuple[tuple[Gap, ...], int]:
    """What of a range no file can have, and up to where there may be some."""
    gaps = [] if wanted.lost_from is None else [Gap(wanted.lost_from, None, GapReason.RECREATED)]
    end = wanted.end
    if wanted.size and known is None:
        gaps.append(Gap(wanted.start + 1, end, http_reader.DELETED))
        end = wanted.start
    elif wanted.size and known is not None and known.epoch != wanted.epoch:
        gaps.append(Gap(wanted.start + 1, end, GapReason.RECREATED))
        end = wanted.start
    elif known is not None and known.head_seq < end:
        # The head went back: the files are of a time before the offsets, or a power cut took the end.
        gaps.append(Gap(max(known.head_seq, wanted.start) + 1, end, GapReason.CRASH))
        end = max(known.head_seq, wanted.start)
    return tuple(gaps), end


def filtered(columns: Columns, filters: Filters) -> Columns:
    """Without the records the reader does not want; the server does the same for its readers."""
    keep = None
    if filters.node:
        keep = pc.fill_null(pc.invert(pc.is_in(columns.node, pa.array(filters.node, pa.string()))), True)
    if filters.match is not None:
        _, how, text = filters.match
        prefix = text.removesuffix("*")
        wanted = pc.equal(columns.tag, text) if how == "Eq" else pc.starts_with(columns.tag, prefix)
        wanted = pc.fill_null(wanted, False)
        keep = wanted if keep is None else pc.and_(keep, wanted)
    if keep is None:
        return columns
    names = ("seq", "ts", "node", "tag", "data", "meta")
    return Columns(*(getattr(columns, name).filter(keep) for name in names))
