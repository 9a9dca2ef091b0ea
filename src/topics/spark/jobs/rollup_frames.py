"""The DataFrames of a roll-up: which records it reads, as which events, in which windows."""

from collections.abc import Iterable

import msgspec
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from topics.spark.jobs.json_paths import steps_of
from topics.spark.jobs.rollup_spec import Aggregate, Function, RollupSpec, field_name

PERCENTILE_ACCURACY = 10_000
SOURCE = "ts timestamp, data string, kind string, gap_from bigint, gap_to bigint, reason string"
PARSED = "_parsed"


def stream_options(spark: SparkSession, spec: RollupSpec) -> dict[str, str]:
    """Reads from seq 1, so that what was lost before the oldest record is counted, too."""
    return _options(spec, 1) | {
        "maxOffsetsPerTrigger": str(spec.batch_records_max),
        "minPartitions": str(spark.sparkContext.defaultParallelism),
    }


def range_options(spec: RollupSpec, first: int, last: int) -> dict[str, str]:
    return _options(spec, first) | {"endingOffsets": msgspec.json.encode({spec.topic: last + 1}).decode()}


def _options(spec: RollupSpec, first: int) -> dict[str, str]:
    options = {
        "url": spec.server.url,
        "subscribe": spec.topic,
        "startingOffsets": msgspec.json.encode({spec.topic: first}).decode(),
        "onDataLoss": "rows",
    }
    if spec.server.api_key is not None:
        options["apiKey"] = spec.server.api_key.reveal()
    return options


def events(rows: DataFrame, spec: RollupSpec) -> DataFrame:
    """Rows with the columns of `SOURCE` become `time`, one column for each `by`, and one for each aggregated path."""
    fields = _fields(spec)
    # A separate column: Spark would parse the payload again for each field taken out of it.
    parsed = rows.withColumn(PARSED, sf.from_json("data", _texts(fields.values()))) if fields else rows

    def text_of(path: str) -> Column:
        name = fields.get(path)
        return sf.get_json_object("data", path) if name is None else sf.col(PARSED)[name]

    if spec.time is None:
        time: Column = sf.col("ts")
    else:
        text = text_of(spec.time)
        millis = sf.timestamp_millis(text.try_cast("bigint"))
        time = sf.when(text.rlike("^-?[0-9]+$"), millis).otherwise(text.try_cast("timestamp"))
    columns = [time.alias("time")]
    columns += [text_of(path).alias(field_name(path)) for path in spec.by]
    columns += [text_of(path).alias(path) for path in aggregated_paths(spec)]
    is_lost = sf.col("kind") == "tombstone"
    lost = sf.when(is_lost, sf.coalesce(sf.expr("gap_to - gap_from + 1"), sf.lit(1)))
    return parsed.select(*columns, is_lost.alias("is_lost"), lost.alias("lost"))


def _fields(spec: RollupSpec) -> dict[str, str]:
    """The paths that are fields of the payload itself, and the fields' names. One pass over the payload finds all of
    them in the time `get_json_object` takes for one. Spark's columns ignore case, so `a` and `A` together go the long
    way."""
    paths = {*spec.by, *aggregated_paths(spec), *([spec.time] if spec.time is not None else [])}
    named = {path: steps[0] for path in sorted(paths) if len(steps := steps_of(path)) == 1}
    folded = [str(name).lower() for name in named.values()]
    return {path: name for path, name in named.items() if isinstance(name, str) and folded.count(name.lower()) == 1}


def _texts(names: Iterable[str]) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


def results(rows: DataFrame, spec: RollupSpec) -> DataFrame:
    named = {path: _quoted(path) for path in aggregated_paths(spec)}
    bad = [sf.col(name).isNotNull() & sf.col(name).try_cast("double").isNull() for name in named.values()]
    observed = rows.observe(
        "input",
        sf.count_if(~sf.col("is_lost")).alias("records"),
        sf.count_if(~sf.col("is_lost") & sf.col("time").isNull()).alias("without_time"),
        sf.sum("lost").alias("lost_seqs"),
        *(sf.count_if(condition).alias(f"bad_{number}") for number, condition in enumerate(bad)),
    )
    slide_ms = spec.slide_ms or spec.window_ms
    window = sf.window("time", f"{spec.window_ms} milliseconds", f"{slide_ms} milliseconds")
    grouped = (
        observed.where("time is not null and not is_lost")
        .withWatermark("time", f"{spec.watermark_ms} milliseconds")
        .groupBy(window, *(sf.col(_quoted(field_name(path))) for path in spec.by))
        .agg(*(_aggregated(aggregate) for aggregate in spec.aggregates))
    )
    names = [*(field_name(path) for path in spec.by), *(aggregate.name for aggregate in spec.aggregates)]
    start, end = sf.col("window.start").alias("window_start"), sf.col("window.end").alias("window_end")
    return grouped.select(start, end, *(sf.col(_quoted(name)) for name in names))


def aggregated_paths(spec: RollupSpec) -> list[str]:
    """The paths that aggregates need. The counts of values that were not numbers have the same order."""
    return sorted({aggregate.path for aggregate in spec.aggregates if aggregate.path is not None})


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _aggregated(aggregate: Aggregate) -> Column:
    if aggregate.path is None:
        return sf.count("*").alias(aggregate.name)
    value = sf.col(_quoted(aggregate.path)).try_cast("double")
    match aggregate.function:
        case Function.SUM:
            column = sf.sum(value)
        case Function.AVG:
            column = sf.avg(value)
        case Function.MIN:
            column = sf.min(value)
        case Function.MAX:
            column = sf.max(value)
        case Function.PERCENTILE:
            column = sf.percentile_approx(value, aggregate.percent or 0.5, PERCENTILE_ACCURACY)
        case Function.COUNT:
            column = sf.count(value)
    return column.alias(aggregate.name)
