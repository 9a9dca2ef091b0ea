"""What Spark calls to read: the data source, its batch reader and its streaming reader.

Readers are built on the driver and sent to the tasks, so they hold options and nothing open. Both work on a `Log`,
which is a server or a directory of files.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from topics.errors import Forbidden, StorageFailed, Throttled, TopicNotFound
from topics.model.gap import GapReason
from topics.spark import offsets, options, schema
from topics.spark.errors import DataLoss, InvalidColumns, InvalidOption
from topics.spark.log import Log, Planned
from topics.spark.offsets import Position, SeqRange, TopicRange
from topics.spark.options import EARLIEST, Boundary, Files, Mode, OnDataLoss, ReadOptions
from topics.spark.origin import open_log
from topics.spark.pushdown import Narrowing, is_planning_with_filters, narrowing
from topics.spark.rows import Gap, gap_batch, record_batch
from topics.spark.writer import BatchWriter, StreamWriter

LOGGER = logging.getLogger("topics.spark")

JsonOffsets = dict[str, dict[str, int]]


class DefaultSource(DataSource):
    """`spark.read.format("topics")` and its three siblings."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> StructType:
        return schema.SPARK[options.table_schema(self.options)]

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = NarrowedReader if is_planning_with_filters() else TopicsReader
        return kind(self._read_options(schema, Mode.BATCH))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopicsStreamReader(self._read_options(schema, Mode.STREAMING))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise InvalidColumns('a topic is only ever appended to; use mode("append")')
        return BatchWriter(options.write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise InvalidColumns('a topic is only ever appended to; use outputMode("append") or outputMode("update")')
        return StreamWriter(options.write_options(self.options), schema)

    def _read_options(self, wanted: StructType, mode: Mode) -> ReadOptions:
        parsed = options.read_options(self.options, mode)
        own = schema.SPARK[parsed.schema]
        if wanted != own:
            raise InvalidColumns(
                f"the columns of this source are {own.simpleString()}; leave .schema(…) out, then select and cast"
            )
        return parsed


class TopicsPartition(InputPartition):
    """One task's share."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned


class TopicsReader(DataSourceReader):
    """A batch query: what is there between two ends, resolved when the query is planned."""

    def __init__(self, read: ReadOptions) -> None:
        self._options = read
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        with open_log(self._options) as log:
            ranges = log.ranges()
            _require_topics(self._options, ranges)
            start = _resolve(log, ranges, self._options.start, "startingOffsets")
            end = _resolve(log, ranges, self._options.end, "endingOffsets")
            for topic, position in start.items():
                if position.seq > end[topic].seq:
                    # Timestamps may well name a time in which nothing was written.
                    if self._options.start.ts is None and self._options.end.ts is None:
                        raise InvalidOption("endingOffsets", f'is before startingOffsets for topic "{topic}"')
                    end[topic] = position
            ranges_wanted = self._narrowing.of(offsets.ranges_between(start, end), log)
            return _plan(log, self._options, ranges_wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class NarrowedReader(TopicsReader):
    """The same, where Spark hands over the filters of the query. It looks itself at those that are given back."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        read = self._options
        found = narrowing(filters, read.schema, read.filters.match)
        self._narrowing = found
        self._options = replace(read, filters=replace(read.filters, match=found.match))
        if read.on_data_loss is OnDataLoss.ROWS:
            # Tombstones are rows, too, and most filters take them out.
            return filters
        return [each for each in filters if not any(each is exact for exact in found.exact)]


class TopicsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query. What lies between two offsets does not depend on when it is read."""

    def __init__(self, read: ReadOptions) -> None:
        self._options = read
        self._log: Log | None = None
        self._target: dict[str, Position] | None = None
        self._warned: set[str] = set()
        self._stored: dict[str, Position] = {}  # as the cursor
        self._gave_cursor_up = False

    def __getstate__(self) -> dict[str, object]:
        # The log is open only on the driver.
        return self.__dict__ | {"_log": None}

    def initialOffset(self) -> JsonOffsets:
        log = self._open_log()
        ranges = log.ranges()
        _require_topics(self._options, ranges)
        return offsets.to_json(_resolve(log, ranges, self._options.start, "startingOffsets"))

    def getDefaultReadLimit(self) -> ReadLimit:
        bound = self._options.trigger_offsets_max
        return ReadAllAvailable() if bound is None else ReadMaxRows(bound)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _heads(self._open_log().ranges())

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        since = offsets.from_json(start)
        heads = _heads(self._open_log().ranges())
        end = self._reachable(since, heads)
        if isinstance(limit, ReadMaxRows):
            end = offsets.limited(since, end, limit.max_rows)
        return offsets.to_json(end)

    def reportLatestOffset(self) -> JsonOffsets:
        return offsets.to_json(_heads(self._open_log().ranges()))

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        ranges = offsets.ranges_between(offsets.from_json(start), offsets.from_json(end))
        return _plan(self._open_log(), self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: JsonOffsets) -> None:
        """Stores the progress under the name of `cursor`. What counts is Spark's checkpoint: a server that does not let
        this key write, or takes no more writes, is no reason to stop reading."""
        name = self._options.cursor
        if name is None or self._gave_cursor_up:
            return
        now = offsets.from_json(end)
        moved = {topic: position for topic, position in now.items() if self._stored.get(topic) != position}
        try:
            self._open_log().store_cursor(name, moved)
        except (Forbidden, Throttled, StorageFailed) as error:
            self._gave_cursor_up = True
            LOGGER.warning('the cursor "%s" is not stored any more in this run: %s', name, error.message)
        else:
            self._stored = now

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _open_log(self) -> Log:
        if self._log is None:
            self._log = open_log(self._options)
        return self._log

    def _reachable(self, since: offsets.Offsets, heads: Mapping[str, Position]) -> dict[str, Position]:
        """How far each topic can be read now. Says so, or refuses, where that means to go on without records."""
        end = dict(since)
        for topic, head in heads.items():
            before = since.get(topic)
            if before is not None and not offsets.is_same_log(before, head):
                if isinstance(self._options.origin, Files) and before.epoch == head.epoch:
                    continue  # files are behind their server for a moment, or for long if they are a copy
                self._topic_was_replaced(topic, before)
            end[topic] = head
        for topic, before in since.items():
            if topic not in heads:
                self._topic_was_deleted(topic, before)
        if self._target is None:
            return end
        return {topic: position for topic in end if (position := self._at_most_target(topic, end[topic], since))}

    def _at_most_target(self, topic: str, position: Position, since: offsets.Offsets) -> Position | None:
        """Under Trigger.AvailableNow nothing is read that came later: neither records nor topics."""
        assert self._target is not None
        target = self._target.get(topic)
        if target is None or target.epoch != position.epoch:
            return since.get(topic)
        return min(position, target)

    def _topic_was_replaced(self, topic: str, before: Position) -> None:
        if self._options.on_data_loss is OnDataLoss.FAIL:
            raise DataLoss(topic, before.seq + 1, None, GapReason.RECREATED)

    def _topic_was_deleted(self, topic: str, before: Position) -> None:
        if self._options.on_data_loss is OnDataLoss.FAIL:
            raise DataLoss(topic, before.seq + 1, None, "deleted_topic")
        if topic not in self._warned:
            # Once a query. When a topic of this name appears again, its first batch tells the loss.
            self._warned.add(topic)
            LOGGER.warning('topic "%s" was deleted; it was read up to seq %d', topic, before.seq)


def _require_topics(read: ReadOptions, ranges: Mapping[str, TopicRange]) -> None:
    for topic in read.topics:
        if topic not in ranges:
            raise TopicNotFound(topic)


def _heads(ranges: Mapping[str, TopicRange]) -> dict[str, Position]:
    return {topic: Position(now.epoch, now.head_seq) for topic, now in ranges.items()}


def _resolve(log: Log, ranges: Mapping[str, TopicRange], boundary: Boundary, option: str) -> dict[str, Position]:
    """The positions before the first record to read, or at the last one."""
    positions = {}
    for topic, now in ranges.items():
        wanted = boundary.seqs.get(topic, boundary.everywhere)
        if boundary.ts is not None:
            found = log.seq_at(topic, boundary.ts)
            seq = now.head_seq if found is None else min(found - 1, now.head_seq)
        elif wanted > 0:
            seq = wanted - 1
            if seq > now.head_seq:
                raise InvalidOption(option, f'"{topic}" has {wanted}, but its last seq is {now.head_seq}')
        else:
            seq = now.earliest_seq - 1 if wanted == EARLIEST else now.head_seq
        positions[topic] = Position(now.epoch, seq)
    if unknown := sorted(set(boundary.seqs) - set(ranges)):
        raise InvalidOption(option, f'there is no topic "{unknown[0]}"')
    return positions


def _plan(log: Log, read: ReadOptions, ranges: list[SeqRange]) -> list[InputPartition]:
    planned = log.plan(ranges, read.min_partitions, read.partition_records_max)
    return [TopicsPartition(share) for share in planned]


def _read(read: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark makes up a partition of its own when there is nothing to read.
    if not isinstance(partition, TopicsPartition):
        return
    topic = partition.planned.topic
    with open_log(read) as log:
        for item in log.read(partition.planned):
            if not isinstance(item, Gap):
                yield record_batch(topic, item, read.schema, include_data=read.include_data)
            elif read.on_data_loss is OnDataLoss.ROWS:
                yield gap_batch(topic, item)
            elif read.on_data_loss is OnDataLoss.WARN:
                LOGGER.warning("%s", DataLoss(topic, *item).message)
            else:
                raise DataLoss(topic, *item)
