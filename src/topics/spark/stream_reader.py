"""A streaming query: how far it can read, what a batch contains, and what it does when records or topics disappear."""

import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from topics.clock import Clock, SystemClock
from topics.errors import Forbidden, StorageFailed, Throttled
from topics.model.gap import GapReason
from topics.spark import offsets
from topics.spark.errors import DataLoss
from topics.spark.log import Log
from topics.spark.offsets import Position
from topics.spark.options import Files, OnDataLoss, ReadOptions
from topics.spark.origin import open_log
from topics.spark.reading import heads_of, plan, read_partition, require_topics, resolve
from topics.spark.schema import Table
from topics.spark.telling import tells

LOGGER = logging.getLogger("topics.spark")

JsonOffsets = dict[str, dict[str, int]]


class TopicsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query. Reading between two offsets gives the same rows at any time."""

    def __init__(self, read: ReadOptions, table: Table, clock: Clock | None = None) -> None:
        self._options = read
        self._table = table
        self._clock = clock or SystemClock()
        self._began_batch_ms: int | None = None
        self._log: Log | None = None
        self._target: dict[str, Position] | None = None
        self._warned: set[str] = set()
        self._stored: dict[str, Position] = {}  # under the name of `cursor`
        self._gave_cursor_up = False

    def __getstate__(self) -> dict[str, object]:
        # The log is open only on the driver.
        return self.__dict__ | {"_log": None}

    @tells
    def initialOffset(self) -> JsonOffsets:
        log = self._open_log()
        ranges = log.ranges()
        require_topics(self._options, ranges)
        return offsets.to_json(resolve(log, ranges, self._options.start, "startingOffsets"))

    def getDefaultReadLimit(self) -> ReadLimit:
        most, least = self._options.trigger_offsets_max, self._options.trigger_offsets_min
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    @tells
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = heads_of(self._open_log().ranges())

    @tells
    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        since = offsets.from_json(start)
        heads = heads_of(self._open_log().ranges())
        end = self._reachable(since, heads)
        # Trigger.Once has no limit; Trigger.AvailableNow never waits.
        if not isinstance(limit, ReadAllAvailable) and self._target is None and self._has_to_wait(since, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = offsets.limited(since, end, limit.max_rows)
        return offsets.to_json(end)

    @tells
    def reportLatestOffset(self) -> JsonOffsets:
        return offsets.to_json(heads_of(self._open_log().ranges()))

    @tells
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        ranges = offsets.ranges_between(offsets.from_json(start), offsets.from_json(end))
        LOGGER.info("a batch of %s", ", ".join(f"{piece.topic} {piece.start + 1} to {piece.end}" for piece in ranges))
        return plan(self._open_log(), self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._table, partition)

    @tells
    def commit(self, end: JsonOffsets) -> None:
        """Stores the progress as the named cursor `cursor`. Only Spark's checkpoint counts, so the query goes on if the
        key may not write or the server refuses writes."""
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

    def _has_to_wait(self, since: offsets.Offsets, end: offsets.Offsets) -> bool:
        """Whether there is too little for a batch and the maximum delay has not passed. The first batch never waits."""
        least = self._options.trigger_offsets_min
        if least is None:
            return False
        now_ms = self._clock.monotonic_ns() // 1_000_000
        waiting = sum(piece.size for piece in offsets.ranges_between(since, end))
        if (
            self._began_batch_ms is not None
            and waiting < least
            and now_ms - self._began_batch_ms < self._options.trigger_delay_ms_max
        ):
            return True
        if waiting:
            self._began_batch_ms = now_ms
        return False

    def _reachable(self, since: offsets.Offsets, heads: Mapping[str, Position]) -> dict[str, Position]:
        """How far each topic can be read now. Where records are missing, it warns or refuses."""
        end = dict(since)
        for topic, head in heads.items():
            before = since.get(topic)
            if before is not None and not offsets.is_same_log(before, head):
                if isinstance(self._options.origin, Files) and before.epoch == head.epoch:
                    continue  # files lag behind their server; a copy may lag for long
                self._topic_was_replaced(topic, before)
            end[topic] = head
        for topic, before in since.items():
            if topic not in heads:
                self._topic_was_deleted(topic, before)
        if self._target is None:
            return end
        return {topic: position for topic in end if (position := self._at_most_target(topic, end[topic], since))}

    def _at_most_target(self, topic: str, position: Position, since: offsets.Offsets) -> Position | None:
        """Trigger.AvailableNow reads neither records nor topics that came after it began."""
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
            # Once per query. If the topic is created again, its first batch reports the loss.
            self._warned.add(topic)
            LOGGER.warning('topic "%s" was deleted; it was read up to seq %d', topic, before.seq)
