"""The DataFrames of a roll-up: which records it reads, as which events, in which windows."""

from collections.abc import Iterable

import msgspec
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from topics.spark.jobs.json_paths import steps_of
from topics.spark.jobs.rollup_source import OPTION, Parts, RollupSource, bucket_us
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


def parts_of(spec: RollupSpec) -> Parts | None:
    """What tasks sum up before Spark sees it; None if there is nothing for them: percentiles are no sums of parts, and
    they know fields of the payload only."""
    fields = _fields(spec)
    paths = [*spec.by, *aggregated_paths(spec), *([] if spec.time is None else [spec.time])]
    if any(path not in fields for path in paths):
        return None
    if any(aggregate.function is Function.PERCENTILE for aggregate in spec.aggregates):
        return None
    return Parts(
        bucket_us(spec.window_ms, spec.slide_ms or spec.window_ms),
        None if spec.time is None else fields[spec.time],
        tuple(fields[path] for path in spec.by),
        tuple(fields[path] for path in aggregated_paths(spec)),
    )


def stream(spark: SparkSession, spec: RollupSpec) -> DataFrame:
    """The rows of the query: records and losses as `SOURCE` has them, or sums of records in the columns behind."""
    options, parts = stream_options(spark, spec), parts_of(spec)
    if parts is None:
        return spark.readStream.format("topics").schema(SOURCE).options(**options).load()
    spark.dataSource.register(RollupSource)
    wanted = f"{SOURCE}, {parts.columns}"
    options[OPTION] = msgspec.json.encode(parts).decode()
    return spark.readStream.format(RollupSource.name()).schema(wanted).options(**options).load()


def events(rows: DataFrame, spec: RollupSpec) -> DataFrame:
    """Rows with the columns of `SOURCE` become `time`, one column for each `by`, and one for each aggregated path.
    Parts stay as they are."""
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
    parts = [name for name in rows.columns if name.startswith("_part_")]
    columns = [(sf.coalesce("_part_time", time) if parts else time).alias("time")]
    for number, path in enumerate(spec.by):
        text = text_of(path)
        if parts:
            text = sf.when(sf.col("_part_records").isNotNull(), sf.col(f"_part_by_{number}")).otherwise(text)
        columns.append(text.alias(field_name(path)))
    columns += [text_of(path).alias(path) for path in aggregated_paths(spec)]
    is_lost = sf.col("kind") == "tombstone"
    lost = sf.when(is_lost, sf.coalesce(sf.expr("gap_to - gap_from + 1"), sf.lit(1)))
    return parsed.select(*columns, is_lost.alias("is_lost"), lost.alias("lost"), *parts)


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
    has_parts = "_part_records" in rows.columns
    # Null where a row is a loss.
    records = sf.when(~sf.col("is_lost"), sf.coalesce("_part_records", sf.lit(1)) if has_parts else sf.lit(1))
    bad = [sf.col(name).isNotNull() & sf.col(name).try_cast("double").isNull() for name in named.values()]
    observed = rows.observe(
        "input",
        sf.sum(records).alias("records"),
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
        .agg(*(_summed(aggregate, spec) if has_parts else _aggregated(aggregate) for aggregate in spec.aggregates))
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


def _summed(aggregate: Aggregate, spec: RollupSpec) -> Column:
    """The same of rows some of which are sums. What it keeps of a window has the types that `_aggregated` keeps, in the
    same order, so a checkpoint serves both."""
    if aggregate.path is None:
        return sf.sum(sf.coalesce("_part_records", sf.lit(1))).alias(aggregate.name)
    number = aggregated_paths(spec).index(aggregate.path)
    value = sf.col(_quoted(aggregate.path)).try_cast("double")
    match aggregate.function:
        case Function.SUM:
            column = sf.sum(sf.coalesce(f"_part_sum_{number}", value))
        case Function.AVG:
            # Not in the order of SUM: Spark would keep one sum for both, where an average has its own.
            total = sf.sum(sf.coalesce(value, f"_part_sum_{number}"))
            column = sf.try_divide(
                total, sf.sum(sf.coalesce(f"_part_count_{number}", value.isNotNull().cast("bigint")))
            )
        case Function.MIN:
            column = sf.min(sf.coalesce(f"_part_min_{number}", value))
        case Function.MAX:
            column = sf.max(sf.coalesce(f"_part_max_{number}", value))
        case Function.COUNT | Function.PERCENTILE:
            raise AssertionError("neither is a sum over a path")
    return column.alias(aggregate.name)
