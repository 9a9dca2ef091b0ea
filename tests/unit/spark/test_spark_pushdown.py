"""Filters that narrow what is read: exactly, and without hiding a loss."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from topics.spark.batch_reader import NarrowedReader
from topics.spark.offsets import SeqRange
from topics.spark.options import Mode, TableSchema, read_options
from topics.spark.pushdown import Narrowing, is_planning_with_filters, narrowing
from topics.spark.schema import SPARK, table_of

KAFKA = TableSchema.KAFKA
TIME = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=5000)
A_BIT = timedelta(microseconds=1)


def narrowed(*filters: Filter, schema: TableSchema = TableSchema.TOPICS) -> Narrowing:
    return narrowing(filters, schema, None)


@pytest.mark.parametrize(
    ("filters", "first", "last"),
    [
        ([EqualTo(("seq",), 7)], 7, 7),
        ([GreaterThan(("seq",), 7)], 8, None),
        ([GreaterThanOrEqual(("seq",), 7)], 7, None),
        ([LessThan(("seq",), 7)], 1, 6),
        ([LessThanOrEqual(("seq",), 7)], 1, 7),
        ([LessThan(("seq",), -3)], 1, 0),
        ([GreaterThan(("seq",), -3)], 1, None),
        ([GreaterThan(("seq",), 3), LessThan(("seq",), 9), GreaterThan(("seq",), 5), LessThan(("seq",), 20)], 6, 8),
    ],
)
def test_seqs_are_bounded(filters: list[Filter], first: int, last: int | None) -> None:
    found = narrowed(*filters)
    assert (found.from_seq, found.to_seq) == (first, Narrowing().to_seq if last is None else last)
    assert list(found.exact) == filters


@pytest.mark.parametrize(
    ("filters", "from_ts", "to_ts"),
    [
        ([GreaterThanOrEqual(("ts",), TIME)], 5000, None),
        ([GreaterThan(("ts",), TIME)], 5001, None),
        ([GreaterThan(("ts",), TIME + A_BIT)], 5001, None),
        ([GreaterThan(("ts",), TIME - A_BIT)], 5000, None),
        ([LessThan(("ts",), TIME)], None, 5000),
        ([LessThan(("ts",), TIME + A_BIT)], None, 5001),
        ([LessThanOrEqual(("ts",), TIME)], None, 5001),
        ([EqualTo(("ts",), TIME)], 5000, 5001),
        ([GreaterThan(("ts",), TIME), LessThan(("ts",), TIME + timedelta(seconds=1))], 5001, 6000),
        ([LessThan(("ts",), datetime(1970, 1, 1, tzinfo=UTC)), LessThan(("ts",), TIME)], None, 0),
    ],
)
def test_times_are_bounded_and_looked_at_again_by_spark(
    filters: list[Filter], from_ts: int | None, to_ts: int | None
) -> None:
    found = narrowed(*filters)
    assert (found.from_ts, found.to_ts) == (from_ts, to_ts)
    assert found.exact == ()


def test_topics_are_chosen() -> None:
    assert narrowed(EqualTo(("topic",), "a")).topics == frozenset({"a"})
    assert narrowed(In(("topic",), ("a", "b")), In(("topic",), ("b", "c"))).topics == frozenset({"b"})


def test_one_choice_by_tag_is_made_and_the_others_are_spark_s() -> None:
    first, second = StringStartsWith(("tag",), "a"), EqualTo(("tag",), "ab")
    found = narrowed(first, second)
    assert found.match == ("tag", "Glob", "a*")
    assert found.exact == (first,)
    assert narrowed(second).match == ("tag", "Eq", "ab")
    assert narrowing([second], TableSchema.TOPICS, ("tag", "Eq", "x")).match == ("tag", "Eq", "x")


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("data",), "a"),
        EqualTo(("seq",), True),
        EqualTo(("seq",), 1.0),
        EqualTo(("meta", "topic"), "a"),
        EqualNullSafe(("topic",), "a"),
        EqualTo(("ts",), datetime(2026, 1, 1)),
        In(("topic",), ("a", None)),
        In(("seq",), (1, 2)),
        IsNotNull(("seq",)),
        Not(EqualTo(("topic",), "a")),
        StringContains(("tag",), "a"),
        StringStartsWith(("tag",), "a*"),
        StringStartsWith(("topic",), "a"),
    ],
)
def test_everything_else_is_left_to_spark(each: Filter) -> None:
    assert narrowed(each) == Narrowing()
    assert narrowed(each).exact == ()


def test_the_columns_of_kafka_have_their_own_names() -> None:
    found = narrowed(GreaterThan(("offset",), 4), EqualTo(("key",), b"a"), EqualTo(("seq",), 1), schema=KAFKA)
    assert (found.from_seq, found.match, len(found.exact)) == (5, None, 1)


class TimedLog:
    """Seqs 1 to 10 were lost, 11 to 15 are of the times 110 to 150, 16 to 19 were lost, 20 is of the time 200."""

    def seq_at(self, topic: str, ts: int, *, behind_losses: bool = False) -> int | None:
        assert topic == "t"
        if ts > 200:
            return None
        if ts > 150:
            return 20 if behind_losses else 16
        if ts <= 110:
            return 11 if behind_losses else 1
        return -(-ts // 10)


WHOLE = SeqRange("t", 1, 0, 20)


@pytest.mark.parametrize(
    ("narrow", "start", "end"),
    [
        (Narrowing(), 0, 20),
        (Narrowing(from_seq=5, to_seq=8), 4, 8),
        (Narrowing(from_ts=130), 12, 20),
        (Narrowing(from_ts=100), 0, 20),
        (Narrowing(from_ts=180), 15, 20),
        (Narrowing(to_ts=130), 0, 12),
        (Narrowing(to_ts=180), 0, 19),
        (Narrowing(to_ts=100), 0, 10),
        (Narrowing(to_ts=999), 0, 20),
        (Narrowing(from_ts=120, to_ts=140, from_seq=13), 12, 13),
    ],
)
def test_a_range_is_narrowed_but_keeps_what_may_have_been_lost_of_it(narrow: Narrowing, start: int, end: int) -> None:
    log = TimedLog()
    assert narrow.of([WHOLE], log) == [WHOLE._replace(start=start, end=end)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "narrow", [Narrowing(topics=frozenset()), Narrowing(from_seq=21), Narrowing(to_seq=0), Narrowing(from_ts=999)]
)
def test_a_range_nothing_is_wanted_of_is_not_read(narrow: Narrowing) -> None:
    log = TimedLog()
    assert narrow.of([WHOLE], log) == []  # type: ignore[arg-type]


@pytest.fixture
def new_reader() -> Callable[..., NarrowedReader]:
    def reader(**options: str) -> NarrowedReader:
        read = read_options({"url": "http://x", "subscribe": "t"} | options, Mode.BATCH)
        return NarrowedReader(read, table_of(SPARK[TableSchema.TOPICS], read))

    return reader


def test_spark_is_given_back_what_it_has_to_look_at(new_reader: Callable[..., NarrowedReader]) -> None:
    filters = [IsNotNull(("seq",)), GreaterThan(("seq",), 4), StringContains(("data",), "x")]
    assert new_reader().pushFilters(filters) == [filters[0], filters[2]]


def test_where_tombstones_are_rows_spark_looks_at_everything(new_reader: Callable[..., NarrowedReader]) -> None:
    filters: list[Filter] = [GreaterThan(("seq",), 4)]
    assert new_reader(onDataLoss="rows").pushFilters(filters) == filters


def test_this_process_plans_nothing() -> None:
    assert not is_planning_with_filters()
