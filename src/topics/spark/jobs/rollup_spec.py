"""What a roll-up is asked to do, and how a command line says it: windows, paths, aggregates."""

import re
from dataclasses import dataclass
from enum import StrEnum

from topics.spark.errors import InvalidOption
from topics.spark.jobs.json_paths import json_path
from topics.spark.options import Server

_DURATION = re.compile(r"(?P<count>[0-9]+)\s*(?P<unit>[a-z]+)", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
# Spark's own words, with or without an s.
_WORDS = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_PERCENTILE = re.compile(r"p(?P<percent>[0-9]{1,2}(\.[0-9]+)?)")

DAY_MS = 86_400_000


class Function(StrEnum):
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    PERCENTILE = "percentile"


class Emit(StrEnum):
    """`closed` writes a window's result once, when nothing can change it any more. `changed` writes with every batch
    the new result of each window that changed; for each tag, the latest record wins."""

    CLOSED = "closed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`name` is its field in the results, such as `sum_total`; `percent` belongs to percentiles."""

    name: str
    function: Function
    path: str | None = None
    percent: float | None = None


@dataclass(frozen=True, slots=True)
class IntoTopic:
    topic: str


@dataclass(frozen=True, slots=True)
class IntoDirectory:
    """Parquet files, a directory for each batch."""

    path: str


@dataclass(frozen=True, slots=True)
class RollupSpec:
    """Durations are in milliseconds. Event time is `time`, a path into the payload, or the record's own `ts`."""

    server: Server
    topic: str
    into: IntoTopic | IntoDirectory
    checkpoint: str
    window_ms: int
    aggregates: tuple[Aggregate, ...]
    slide_ms: int | None = None
    by: tuple[str, ...] = ()
    time: str | None = None
    watermark_ms: int = 0
    emit: Emit = Emit.CLOSED
    follow: bool = False
    batch_records_max: int = 1_000_000

    @property
    def identity(self) -> dict[str, object]:
        """The options that must stay the same for a checkpoint, because its state depends on them."""
        return {
            "topic": self.topic,
            "into": self.into.topic if isinstance(self.into, IntoTopic) else self.into.path,
            "window_ms": self.window_ms,
            "slide_ms": self.slide_ms,
            "by": list(self.by),
            "agg": [aggregate.name for aggregate in self.aggregates],
            "time": self.time,
            "watermark_ms": self.watermark_ms,
            "emit": str(self.emit),
        }


def duration_ms(text: str, option: str) -> int:
    """Milliseconds of `30s`, or, as in Spark, `30 seconds`."""
    found = _DURATION.fullmatch(text.strip())
    unit = found["unit"].lower() if found is not None else ""
    unit = _WORDS.get(unit.removesuffix("s"), unit)
    if found is None or unit not in _UNITS_MS:
        raise InvalidOption(option, f"{text!r} is not a duration; write it as 500ms, 30s, 5m, 1h, 1d or '1 hour'")
    return int(found["count"]) * _UNITS_MS[unit]


def field_name(path: str) -> str:
    """The path's name in the results: `order_total` for `$.order.total`."""
    return re.sub(r"[^A-Za-z0-9]+", "_", path.removeprefix("$")).strip("_")


def aggregates_of(text: str) -> tuple[Aggregate, ...]:
    """Parses `count,sum:PATH,avg:PATH,min:PATH,max:PATH,p95:PATH`."""
    found: list[Aggregate] = []
    for part in text.split(","):
        word, colon, path = part.strip().partition(":")
        percentile = _PERCENTILE.fullmatch(word)
        if word == Function.COUNT and not colon:
            found.append(Aggregate("count", Function.COUNT))
        elif percentile is not None and path:
            inside = json_path(path, "agg")
            name = f"{word.replace('.', '_')}_{field_name(inside)}"
            found.append(Aggregate(name, Function.PERCENTILE, inside, float(percentile["percent"]) / 100))
        elif word in {"sum", "avg", "min", "max"} and path:
            inside = json_path(path, "agg")
            found.append(Aggregate(f"{word}_{field_name(inside)}", Function(word), inside))
        else:
            raise InvalidOption(
                "agg", f"{part.strip()!r} is not one of count, sum:PATH, avg:PATH, min:PATH, max:PATH, p95:PATH"
            )
    return tuple(found)


def check(spec: RollupSpec) -> None:
    """Refuses what it can before Spark starts, except for the topics themselves."""
    if spec.window_ms <= 0:
        raise InvalidOption("window", "must be longer than 0")
    if spec.slide_ms is not None and not 0 < spec.slide_ms <= spec.window_ms:
        raise InvalidOption("slide", "must be longer than 0, and at most a window")
    names = [*map(field_name, spec.by), *(aggregate.name for aggregate in spec.aggregates)]
    for name in names:
        if names.count(name) > 1 or name in {"window_start", "window_end"}:
            raise InvalidOption("agg", f"two fields of the result would be called {name}")
    if isinstance(spec.into, IntoTopic) and spec.into.topic == spec.topic:
        raise InvalidOption("into", "a roll-up into its own source would feed itself; name another topic")
    if isinstance(spec.into, IntoDirectory) and spec.emit is Emit.CHANGED:
        raise InvalidOption("emit", "files hold results that do not change any more; use a topic, or --emit closed")
    if spec.batch_records_max < 1:
        raise InvalidOption("batch", "must be at least 1")
