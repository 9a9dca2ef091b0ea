"""Query strings: decoded once, read by type. The first of a repeated parameter counts."""

from topics import limits
from topics.errors import InvalidRequest

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class Query:
    __slots__ = ("_values",)

    def __init__(self, text: bytes) -> None:
        self._values: dict[str, str] = {}
        if text:
            from urllib.parse import parse_qsl  # noqa: PLC0415 - with the first query

            try:
                pairs = parse_qsl(text.decode(), keep_blank_values=True, errors="strict")
            except (UnicodeDecodeError, ValueError):
                raise InvalidRequest("the query string is not valid UTF-8 form encoding") from None
            for name, value in pairs:
                self._values.setdefault(name, value)

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def boolean(self, name: str, default: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if value not in _BOOLEANS:
            raise InvalidRequest.in_field(name, f"must be true or false, not {value[:40]!r}")
        return _BOOLEANS[value]

    def seq(self, name: str, default: int) -> int:
        """A seq. Here 0 means 0."""
        value = self._values.get(name)
        return default if value is None else min(_whole(name, value), limits.U64_MAX)

    def number(self, name: str, default: int, maximum: int) -> int:
        """A number; 0 means the default, and anything beyond the maximum means the maximum."""
        value = self._values.get(name)
        if value is None:
            return default
        return min(_whole(name, value), maximum) or default


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > 20:
        raise InvalidRequest.in_field(name, f"must be a whole number, not {value[:40]!r}")
    return int(value)
