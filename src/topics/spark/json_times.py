"""Dates and times as Spark reads them from text: `[+-]yyyy[-m[m][-d[d][(T| )[h]h:[m]m[:[s]s[.fraction]][zone]]]]`."""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_DATE = r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
_ONLY_DATE = re.compile(_DATE + r"(?:[T ].*)?)?)?", re.DOTALL)
_TIME = re.compile(
    _DATE + r"(?:[T ](?:(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})"
    r"(?:\.(?P<fraction>[0-9]*))?)?)(?P<zone>.*)?)?)?)?)?",
    re.DOTALL,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{1,2}))?(?::?([0-9]{2}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def parse_date(text: str) -> date | None:
    found = _ONLY_DATE.fullmatch(text.strip())
    if found is None:
        return None
    try:
        return date(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))
    except ValueError:
        return None


def parse_time(text: str, time_zone: str) -> int | None:
    """Microseconds since 1970."""
    parsed = _parse(text)
    if parsed is None:
        return None
    local, zone_text = parsed
    zone = _zone(zone_text or time_zone)
    return None if zone is None else (local.replace(tzinfo=zone) - _EPOCH) // _MICROSECOND


def parse_local_time(text: str) -> datetime | None:
    parsed = _parse(text)
    return None if parsed is None or parsed[1] else parsed[0]


def _parse(text: str) -> tuple[datetime, str] | None:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    micros = int(((found["fraction"] or "") + "000000")[:6])
    try:
        local = datetime(
            int(found["year"]),
            int(found["month"] or 1),
            int(found["day"] or 1),
            int(found["hour"] or 0),
            int(found["minute"] or 0),
            int(found["second"] or 0),
            micros,
        )
    except ValueError:
        return None
    return local, (found["zone"] or "").strip()


@lru_cache(1024)
def _zone(text: str) -> tzinfo | None:
    if text in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    offset = _OFFSET.fullmatch(text)
    if offset is not None:
        sign, hours, minutes, seconds = offset.groups()
        length = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        if length > timedelta(hours=18) or int(minutes or 0) > 59:
            return None
        return timezone(length if sign == "+" else -length)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
