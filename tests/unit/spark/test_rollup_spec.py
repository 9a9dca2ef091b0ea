"""How a roll-up is written on a command line, and what is refused."""

from dataclasses import replace

import pytest

from topics.spark.errors import InvalidOption
from topics.spark.jobs.rollup_spec import (
    Aggregate,
    Emit,
    Function,
    IntoDirectory,
    IntoTopic,
    RollupSpec,
    aggregates_of,
    check,
    duration_ms,
    field_name,
)
from topics.spark.options import Server

SPEC = RollupSpec(
    server=Server("http://127.0.0.1:1", None),
    topic="shop",
    into=IntoTopic("shop.minutes"),
    checkpoint="checkpoint",
    window_ms=60_000,
    aggregates=(Aggregate("count", Function.COUNT),),
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("1 hour", 3_600_000),
        ("10 minutes", 600_000),
        ("2 Days", 172_800_000),
        ("1w", 604_800_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text, "window") == ms


@pytest.mark.parametrize("text", ["", "1", "1 fortnight", "-1s", "1.5h", "1 hour 5 minutes", "1x"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="write it as 500ms, 30s"):
        duration_ms(text, "window")


def test_fields_of_results_are_named_after_their_paths() -> None:
    assert field_name("$.order.items[0].sku") == "order_items_0_sku"


def test_aggregates() -> None:
    assert aggregates_of("count, sum:total,p95:$.ms,p99.5:ms") == (
        Aggregate("count", Function.COUNT),
        Aggregate("sum_total", Function.SUM, "$.total"),
        Aggregate("p95_ms", Function.PERCENTILE, "$.ms", 0.95),
        Aggregate("p99_5_ms", Function.PERCENTILE, "$.ms", 0.995),
    )


@pytest.mark.parametrize("text", ["", "median:x", "sum", "count:x", "p100:x", "sum:"])
def test_what_is_no_aggregate_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="is not one of count, sum:PATH"):
        aggregates_of(text)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (replace(SPEC, window_ms=0), "option window"),
        (replace(SPEC, slide_ms=120_000), "option slide"),
        (replace(SPEC, into=IntoTopic("shop")), "would feed itself"),
        (replace(SPEC, into=IntoDirectory("out/"), emit=Emit.CHANGED), "option emit"),
        (replace(SPEC, by=("$.count",)), "would be called count"),
        (replace(SPEC, by=("$.a.b", "$.a_b")), "would be called a_b"),
        (replace(SPEC, batch_records_max=0), "option batch"),
    ],
)
def test_what_cannot_be_is_refused(spec: RollupSpec, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        check(spec)
