"""The options as the user wrote them, and how their texts become values. A value that does not fit is refused, and the
message names the option."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from topics.model.names import is_topic_name
from topics.spark.catalog import MADE_BY_CATALOG
from topics.spark.errors import InvalidOption

E = TypeVar("E", bound=StrEnum)
D = TypeVar("D")

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")
_DURATION = re.compile(r"([0-9]{1,12})\s*([a-z]*)")
_UNITS_MS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1, "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000, "h": 3_600_000, "hour": 3_600_000,
    "hours": 3_600_000, "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# Spark itself adds these to the options of a table and of a streaming query.
_OF_SPARK = frozenset(("checkpointlocation", "queryname", "serialization.format", "provider", "owner", "external"))


class Given:
    """The options given. Unknown names are refused; case does not matter, as everywhere in Spark."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for written, value in options.items():
            # CREATE TABLE passes every option twice: as it is, and with a prefix.
            name = written.lower().removeprefix(MADE_BY_CATALOG)
            if name in names:
                self._values.setdefault(names[name], value)
            elif name not in _OF_SPARK:
                raise InvalidOption(written, f"is not known; the options are {', '.join(known)}")

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def require_alone(self, first: str, second: str) -> None:
        if first in self._values and second in self._values:
            raise InvalidOption(first, f"contradicts {second}; give one of them")

    def require_without(self, names: tuple[str, ...], problem: str) -> None:
        for name in names:
            if name in self._values:
                raise InvalidOption(name, problem)


def names(given: Given, name: str) -> tuple[str, ...]:
    text = given.get(name)
    if text is None:
        return ()
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise InvalidOption(name, "has an empty name in its list")
    if len(set(found)) != len(found):
        raise InvalidOption(name, "names something twice")
    return tuple(found)


def check_topic(option: str, name: str) -> None:
    if not is_topic_name(name):
        raise InvalidOption(option, f"{name[:80]!r} is not a topic name")


def positive(given: Given, name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
        raise InvalidOption(name, f"{text!r} is not a whole number")
    if int(text) < 1:
        raise InvalidOption(name, "must be at least 1")
    return int(text)


def boolean(given: Given, name: str, default: bool) -> bool:
    text = given.get(name)
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise InvalidOption(name, f"{text!r} is neither true nor false")
    return text.lower() == "true"


def choice(given: Given, name: str, kind: type[E], default: D) -> E | D:
    text = given.get(name)
    if text is None:
        return default
    try:
        return kind(text.lower())
    except ValueError:
        raise InvalidOption(name, f"{text!r} is not one of {', '.join(kind)}") from None


def duration_ms(given: Given, name: str, default: int) -> int:
    """Milliseconds, or a number with a unit, such as `15m`."""
    text = given.get(name)
    if text is None:
        return default
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in {"", *_UNITS_MS}:
        raise InvalidOption(name, f"{text!r} is not a duration such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNITS_MS.get(found[2], 1)


def instant_ms(option: str, value: object) -> int:
    """A time: milliseconds since 1970, or ISO 8601, in UTC unless it names a zone."""
    text = str(value).strip()
    if type(value) in {int, str} and _WHOLE_NUMBER.fullmatch(text) is not None:
        if int(text) >= 0:
            return int(text)
    elif isinstance(value, str):
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            # Rounded up, to mean the first record of that time or later.
            ms = -((_EPOCH - known) // _MILLISECOND)
            if ms >= 0:
                return ms
    raise InvalidOption(
        option, f"{value!r} is not a time: give milliseconds since 1970, or ISO 8601 such as 2026-11-18T09:30:00Z"
    )
