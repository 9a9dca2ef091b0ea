"""What Spark calls to read: the data source, its batch reader and its streaming reader.

Readers are built on the driver and sent to the tasks, so they hold options and nothing open. Both work on a `Log`,
which is a server or a directory of files.
"""

from collections.abc import Iterator, Sequence
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
from pyspark.sql.types import StructType

from topics.spark import offsets, options, schema
from topics.spark.catalog import remembered, remembering
from topics.spark.errors import InvalidColumns, InvalidOption
from topics.spark.inference import inferred_schema
from topics.spark.options import Mode, OnDataLoss, ReadOptions
from topics.spark.origin import open_log
from topics.spark.pushdown import Narrowing, is_planning_with_filters, narrowing
from topics.spark.reading import plan, read_partition, require_topics, resolve, settle
from topics.spark.schema import Table, table_of
from topics.spark.stream_reader import TopicsStreamReader
from topics.spark.telling import tells
from topics.spark.writer import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """`spark.read.format("topics")` and its three siblings."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    @tells
    def schema(self) -> StructType | str:
        """Called when the user gave no columns: those of `schema`, inferred ones, or those the topics are configured
        with, if they agree."""
        read = options.read_options(self.options, Mode.UNKNOWN)
        found = self._schema(read)
        return found if isinstance(found, str) else remembering(found, self.options)

    def _schema(self, read: ReadOptions) -> StructType | str:
        if read.schema is not None:
            return schema.SPARK[read.schema]
        with open_log(read) as log:
            log.require_reachable()
            if read.infer_schema:
                return inferred_schema(log, read)
            ranges = log.ranges()
        configured = {found.schema for found in ranges.values()}
        return (configured.pop() if len(configured) == 1 else None) or schema.TOPICS

    @tells
    def reader(self, schema: StructType) -> DataSourceReader:
        kind = NarrowedReader if is_planning_with_filters() else TopicsReader
        wanted, given = remembered(schema, self.options)
        read = options.read_options(given, Mode.BATCH)
        return kind(read, table_of(wanted, read))

    @tells
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        wanted, given = remembered(schema, self.options)
        read = options.read_options(given, Mode.STREAMING)
        return TopicsStreamReader(read, table_of(wanted, read))

    @tells
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise InvalidColumns('a topic is only ever appended to; use mode("append")')
        return BatchWriter(options.write_options(self.options), schema)

    @tells
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise InvalidColumns('a topic is only ever appended to; use outputMode("append") or outputMode("update")')
        return StreamWriter(options.write_options(self.options), schema)


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
