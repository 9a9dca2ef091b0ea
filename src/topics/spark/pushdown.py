"""Filters of a query that narrow what is read: by topic, seq, time and tag.

Narrowing never hides a loss. A loss has a topic and seqs, so bounds on those apply to it. Its time is unknown, so a
time only cuts off what is certainly outside. A tag only chooses among records.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from topics import limits
from topics.spark.log import Log
from topics.spark.offsets import SeqRange
from topics.spark.options import TableSchema

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The names of the columns, by their meaning.
_COLUMNS = {
    TableSchema.TOPICS: {"topic": "topic", "seq": "seq", "ts": "ts", "tag": "tag"},
    TableSchema.KAFKA: {"topic": "topic", "offset": "seq", "timestamp": "ts"},
}

Match = tuple[str, str, str]


def is_planning_with_filters() -> bool:
    """Whether this process plans a query with `spark.sql.python.filterPushdown.enabled`. Spark plans such a query in a
    worker of its own, and without the setting refuses readers that override `pushFilters`."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return _PUSHING_WORKER in sys.modules or (spec is not None and spec.name == _PUSHING_WORKER)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Bounds of seqs and times (ms) are inclusive, except `to_ts`."""

    topics: frozenset[str] | None = None
    from_seq: int = 1
    to_seq: int = limits.U64_MAX
    from_ts: int | None = None
    to_ts: int | None = None
    match: Match | None = None
    exact: tuple[Filter, ...] = field(default=(), compare=False)
    """Filters that every record read will satisfy."""

    def of(self, ranges: Iterable[SeqRange], log: Log) -> list[SeqRange]:
        """The part of the ranges that a query with these filters must read."""
        wanted = (self._within(piece, log) for piece in ranges if self.topics is None or piece.topic in self.topics)
        return [piece for piece in wanted if piece.size > 0]

    def _within(self, piece: SeqRange, log: Log) -> SeqRange:
        start, end = max(piece.start, self.from_seq - 1), min(piece.end, self.to_seq)
        if self.from_ts is not None and start < end:
            found = log.seq_at(piece.topic, self.from_ts)
            start = end if found is None else max(start, found - 1)
        if self.to_ts is not None and start < end:
            found = log.seq_at(piece.topic, self.to_ts, behind_losses=True)
            end = end if found is None else min(end, found - 1)
        return piece._replace(start=start, end=max(start, end))


def narrowing(filters: Sequence[Filter], schema: TableSchema | None, match: Match | None) -> Narrowing:
    """`match` is the tag filter set by the options, if any: a read can have only one."""
    found = Narrowing(match=match)
    names = _COLUMNS[schema or TableSchema.TOPICS]
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        column = names.get(path[0]) if len(path) == 1 else None
        taken = None
        match column:
            case "topic":
                taken = _by_topic(found, each)
            case "seq":
                taken = _by_seq(found, each)
            case "ts":
                taken = _by_ts(found, each)
            case "tag":
                taken = _by_tag(found, each)
        if taken is not None:
            # Times come in microseconds, so Spark filters again.
            found = taken if column == "ts" else replace(taken, exact=(*taken.exact, each))
    return found


def _by_topic(found: Narrowing, each: Filter) -> Narrowing | None:
    match each:
        case EqualTo(value=str(name)):
            names = frozenset({name})
        case In(value=values) if all(isinstance(value, str) for value in values):
            names = frozenset(values)
        case _:
            return None
    return replace(found, topics=names if found.topics is None else found.topics & names)


def _by_seq(found: Narrowing, each: Filter) -> Narrowing | None:
    value = getattr(each, "value", None)
    if type(value) is not int:
        return None
    first, last = _whole_bounds(each, value)
    if first is None and last is None:
        return None
    return replace(
        found,
        from_seq=found.from_seq if first is None else max(found.from_seq, first),
        to_seq=found.to_seq if last is None else max(min(found.to_seq, last), 0),
    )


def _whole_bounds(each: Filter, value: int) -> tuple[int | None, int | None]:
    match each:
        case EqualTo():
            return value, value
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value - 1
        case LessThanOrEqual():
            return None, value
        case _:
            return None, None


def _by_ts(found: Narrowing, each: Filter) -> Narrowing | None:
    value = getattr(each, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None or value < _EPOCH:
        return None
    first, last = _whole_bounds(each, (value - _EPOCH) // _MILLISECOND)
    if first is None and last is None:
        return None
    if isinstance(each, LessThan) and (value - _EPOCH) % _MILLISECOND:
        last = None if last is None else last + 1  # part of that millisecond is below the bound
    bound = limits.U64_MAX if found.to_ts is None else found.to_ts
    return replace(
        found,
        from_ts=found.from_ts if first is None else max(found.from_ts or 0, first),
        to_ts=found.to_ts if last is None else min(bound, last + 1),
    )


def _by_tag(found: Narrowing, each: Filter) -> Narrowing | None:
    if found.match is not None:
        return None
    match each:
        case EqualTo(value=str(text)):
            return replace(found, match=("tag", "Eq", text))
        case StringStartsWith(value=str(text)) if "*" not in text:
            return replace(found, match=("tag", "Glob", f"{text}*"))
        case _:
            return None
