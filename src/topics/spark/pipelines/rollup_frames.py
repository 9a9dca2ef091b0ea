"""The frames of a roll-up: which records, as which events, in which windows."""

import msgspec
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from topics.spark.pipelines.rollup_spec import Aggregate, Function, RollupSpec, field_name

PERCENTILE_ACCURACY = 10_000


def stream_options(spark: SparkSession, spec: RollupSpec) -> dict[str, str]:
    """From the very first seq on, so that what is lost before the oldest record is counted, too."""
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
        "schema": "topics",
    }
    if spec.server.api_key is not None:
        options["apiKey"] = spec.server.api_key.reveal()
    return options


def events(rows: DataFrame, spec: RollupSpec) -> DataFrame:
    """The columns `time`, one for each `by`, and one for each path that is aggregated."""
    if spec.time is None:
        time: Column = sf.col("ts")
    else:
        text = sf.get_json_object("data", spec.time)
        millis = sf.timestamp_millis(text.try_cast("bigint"))
        time = sf.when(text.rlike("^-?[0-9]+$"), millis).otherwise(text.try_cast("timestamp"))
    columns = [time.alias("time")]
    columns += [sf.get_json_object("data", path).alias(field_name(path)) for path in spec.by]
    columns += [sf.get_json_object("data", path).alias(path) for path in aggregated_paths(spec)]
    is_lost = sf.col("kind") == "tombstone"
    lost = sf.when(is_lost, sf.coalesce(sf.expr("gap_to - gap_from + 1"), sf.lit(1)))
    return rows.select(*columns, is_lost.alias("is_lost"), lost.alias("lost"))


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
    """In the same order as the counts of their values that were not numbers."""
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
