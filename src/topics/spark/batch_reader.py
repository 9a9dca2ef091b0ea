"""What Spark calls to read a batch: planned on the driver, read in the tasks. A reader is sent to them, so it holds
options and nothing open."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from topics.spark import offsets
from topics.spark.errors import InvalidOption
from topics.spark.options import OnDataLoss, ReadOptions
from topics.spark.origin import open_log
from topics.spark.pushdown import Narrowing, is_planning_with_filters, narrowing
from topics.spark.reading import plan, read_partition, require_topics, resolve, settle
from topics.spark.schema import Table
from topics.spark.telling import tells


def batch_reader(read: ReadOptions, table: Table) -> "TopicsReader":
    kind = NarrowedReader if is_planning_with_filters() else TopicsReader
    return kind(read, table)


class TopicsReader(DataSourceReader):
    """A batch query: what is there between two ends, resolved when the query is planned."""

    def __init__(self, read: ReadOptions, table: Table) -> None:
        self._options = read
        self._table = table
        self._narrowing = Narrowing()

    @tells
    def partitions(self) -> Sequence[InputPartition]:
        with open_log(self._options) as log:
            log.require_reachable()
            ranges = log.ranges()
            require_topics(self._options, ranges)
            start = resolve(log, ranges, self._options.start, "startingOffsets")
            end = resolve(log, ranges, self._options.end, "endingOffsets")
            for topic, position in start.items():
                if position.seq > end[topic].seq:
                    # Nothing may have been written in the time that timestamps name.
                    if not self._options.start.is_by_time and not self._options.end.is_by_time:
                        raise InvalidOption("endingOffsets", f'is before startingOffsets for topic "{topic}"')
                    end[topic] = position
            settle()
            ranges_wanted = self._narrowing.of(offsets.ranges_between(start, end), log)
            return plan(log, self._options, ranges_wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._table, partition)


class NarrowedReader(TopicsReader):
    """The same, for when Spark passes the filters of the query. Spark applies those that are returned itself."""

    @tells
    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        read = self._options
        found = narrowing(filters, read.schema, read.filters.match)
        self._narrowing = found
        self._options = replace(read, filters=replace(read.filters, match=found.match))
        if read.on_data_loss is OnDataLoss.ROWS:
            # Tombstones are rows, too, and most filters would drop them.
            return filters
        return [each for each in filters if not any(each is exact for exact in found.exact)]
