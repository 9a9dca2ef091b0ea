"""The columns of a frame for which nobody named any."""

from pyspark.sql.types import StructType

from topics.spark.inference import inferred_schema
from topics.spark.options import ReadOptions
from topics.spark.origin import open_log
from topics.spark.schema import SPARK, TOPICS


def default_columns(read: ReadOptions) -> StructType | str:
    """Those the option `schema` names, inferred ones, or those the topics are configured with, if they agree."""
    if read.schema is not None:
        return SPARK[read.schema]
    with open_log(read) as log:
        log.require_reachable()
        if read.infer_schema:
            return inferred_schema(log, read)
        ranges = log.ranges()
    configured = {found.schema for found in ranges.values()}
    return (configured.pop() if len(configured) == 1 else None) or TOPICS
