"""The columns of a topic as Spark sees them, and the same for those who come from Spark's Kafka source."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from topics.spark.options import TableSchema

TOPICS = StructType(
    [
        StructField("topic", StringType()),
        StructField("seq", LongType()),
        StructField("ts", TimestampType()),
        StructField("node", StringType()),
        StructField("tag", StringType()),
        StructField("meta", MapType(StringType(), StringType())),
        StructField("data", StringType()),
        StructField("kind", StringType()),
        StructField("gap_from", LongType()),
        StructField("gap_to", LongType()),
        StructField("reason", StringType()),
    ]
)

KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField(
            "headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
    ]
)

SPARK: dict[TableSchema, StructType] = {TableSchema.TOPICS: TOPICS, TableSchema.KAFKA: KAFKA}


def arrow(schema: TableSchema) -> pa.Schema:
    """Exactly what Spark expects of a batch: order, nullability, time zone."""
    return to_arrow_schema(SPARK[schema], timezone="UTC")
