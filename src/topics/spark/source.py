"""What Spark finds by the name `topics`: the source, which makes the readers and writers.

Spark starts processes of their own to look for sources, to make one and to plan a read, each with nothing imported. So
what a method needs is imported there: the whole is 0.4 s of CPU, and the first two need nothing of it.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from topics.spark.errors import InvalidColumns
from topics.spark.telling import tells


class DefaultSource(DataSource):
    """`spark.read.format("topics")` and its three siblings."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    @tells
    def schema(self) -> StructType | str:
        """Called when the user gave no columns: those of `schema`, inferred ones, or those the topics are configured
        with, if they agree."""
        from topics.spark.catalog import remembering  # noqa: PLC0415
        from topics.spark.default_columns import default_columns  # noqa: PLC0415
        from topics.spark.options import Mode, read_options  # noqa: PLC0415

        found = default_columns(read_options(self.options, Mode.UNKNOWN))
        return found if isinstance(found, str) else remembering(found, self.options)

    @tells
    def reader(self, schema: StructType) -> DataSourceReader:
        from topics.spark.batch_reader import batch_reader  # noqa: PLC0415
        from topics.spark.catalog import remembered  # noqa: PLC0415
        from topics.spark.options import Mode, read_options  # noqa: PLC0415
        from topics.spark.schema import table_of  # noqa: PLC0415

        wanted, given = remembered(schema, self.options)
        read = read_options(given, Mode.BATCH)
        return batch_reader(read, table_of(wanted, read))

    @tells
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from topics.spark.catalog import remembered  # noqa: PLC0415
        from topics.spark.options import Mode, read_options  # noqa: PLC0415
        from topics.spark.schema import table_of  # noqa: PLC0415
        from topics.spark.stream_reader import TopicsStreamReader  # noqa: PLC0415

        wanted, given = remembered(schema, self.options)
        read = read_options(given, Mode.STREAMING)
        return TopicsStreamReader(read, table_of(wanted, read))

    @tells
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from topics.spark.options import write_options  # noqa: PLC0415
        from topics.spark.writer import BatchWriter  # noqa: PLC0415

        if overwrite:
            raise InvalidColumns('a topic is only ever appended to; use mode("append")')
        return BatchWriter(write_options(self.options), schema)

    @tells
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from topics.spark.options import write_options  # noqa: PLC0415
        from topics.spark.writer import StreamWriter  # noqa: PLC0415

        if overwrite:
            raise InvalidColumns('a topic is only ever appended to; use outputMode("append") or outputMode("update")')
        return StreamWriter(write_options(self.options), schema)
