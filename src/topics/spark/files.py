"""The files of a server as a log: a data directory, a backup, or a cold directory."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from topics.model.gap import GapReason
from topics.spark.columns import Columns, filtered
from topics.spark.errors import FilesBehind
from topics.spark.file_log import BATCH_PARTITION_RECORDS, FileLog, even_share
from topics.spark.file_partition import FilePartition
from topics.spark.file_reader import read_partition
from topics.spark.log import Planned
from topics.spark.offsets import DELETED, Gap, Offsets, SeqRange, TopicRange
from topics.spark.options import Files, ReadOptions
from topics.storage.fs import RealDisk
from topics.storage.identity import read_id


@dataclass(frozen=True, slots=True)
class FileShare:
    """One task's share of a topic's files: the losses known beforehand, and what to read."""

    topic: str
    gaps: tuple[Gap, ...]
    partition: FilePartition | None

    @property
    def size(self) -> int:
        return 0 if self.partition is None else self.partition.seqs


class FilesLog:
    """A data directory, a backup or a cold directory. It is read again whenever ranges are asked for."""

    def __init__(self, read: ReadOptions, files: Files, fields: frozenset[str]) -> None:
        self._options = read
        self._files = files
        self._fields = fields
        self._seen: FileLog | None = None

    def server_id(self) -> str:
        return read_id(RealDisk(), self._files.path) or ""

    def require_reachable(self) -> None:
        """Nothing to connect to: missing files are reported when they are first read."""

    def ranges(self) -> dict[str, TopicRange]:
        self._seen = FileLog(self._files.path, self._files.cold_path)
        return {
            name: TopicRange(topic.epoch, topic.earliest_seq, topic.head_seq, topic.schema)
            for name, topic in self._seen.topics().items()
            if self._options.subscription.includes(name)
        }

    def seq_at(self, topic: str, ts: int, *, behind_losses: bool = False) -> int:
        return self._look().seq_at(topic, ts, behind_losses=behind_losses)

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> list[FileShare]:
        known = self._look().topics()
        if any(not _reaches(known.get(wanted.topic), wanted) for wanted in ranges):
            # A query that begins by repeating a batch may have offsets newer than the last look at the files.
            self._seen = FileLog(self._files.path, self._files.cold_path)
            known = self._seen.topics()
        total = sum(wanted.size for wanted in ranges)
        if records_max is None and self._options.is_batch:
            # It is planned once. A streaming batch may be planned again on another machine, and must have the same
            # partitions then.
            records_max = even_share(total, BATCH_PARTITION_RECORDS, os.cpu_count() or 1)
        shares: list[FileShare] = []
        for wanted in ranges:
            topic = wanted.topic
            lost, end = lost_of(known.get(topic), wanted)
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
        for columns in read_partition(planned.partition, fields=self._fields):
            yield from columns.gaps
            wanted = filtered(columns, self._options.filters)
            if len(wanted):
                yield wanted

    def read_all(self, shares: Sequence[Planned]) -> Iterator[tuple[str, Columns | Gap]]:
        for share in shares:
            for item in self.read(share):
                yield share.topic, item

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


class _Known(Protocol):
    @property
    def epoch(self) -> int: ...

    @property
    def head_seq(self) -> int: ...


def _reaches(known: _Known | None, wanted: SeqRange) -> bool:
    return known is not None and known.epoch == wanted.epoch and known.head_seq >= wanted.end


def lost_of(known: _Known | None, wanted: SeqRange) -> tuple[tuple[Gap, ...], int]:
    """The losses of a range that are known beforehand, and the last seq that files may have."""
    gaps = [] if wanted.lost_from is None else [Gap(wanted.lost_from, None, GapReason.RECREATED)]
    end = wanted.end
    if wanted.size and known is None:
        gaps.append(Gap(wanted.start + 1, end, DELETED))
        end = wanted.start
    elif wanted.size and known is not None and known.epoch != wanted.epoch:
        gaps.append(Gap(wanted.start + 1, end, GapReason.RECREATED))
        end = wanted.start
    elif known is not None and known.head_seq < end:
        # Not a loss: only a starting server can say what a crash took.
        raise FilesBehind(wanted.topic, known.head_seq, end)
    return tuple(gaps), end
