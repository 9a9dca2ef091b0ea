"""What commands print: JSON lines for pipes, tables and colours for people.

Colour only on a terminal that can, and never with NO_COLOR. Text that came from outside is made harmless first: a tag
may hold escape sequences, and a terminal would act upon them.
"""

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO

from topics.cli.table import aligned

MILLISECONDS_MAX = 253_402_300_799_999  # the last of the year 9999
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


class Style(StrEnum):
    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"


class Paint:
    """Colours text where the stream shows colours."""

    def __init__(self, stream: TextIO) -> None:
        self.colours = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, text: str, style: Style) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colours and text else text


def print_json(value: Any) -> None:
    """One object, one line. Structs, and payloads that are still text, come out as they are on the wire."""
    import msgspec  # noqa: PLC0415 (a command that prints for people may do without)

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]], to_right: Sequence[bool] | None = None) -> None:
    for line in aligned([heading, *rows], to_right):
        print(line)


def harmless(text: str) -> str:
    """The text without anything a terminal would act upon."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def clipped(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def byte_count(count: int) -> str:
    """As people say it: 0 B, 999 B, 1.2 kB, 34 MB."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {BYTE_UNITS[unit]}" if unit and value < 9.95 else f"{value:.0f} {BYTE_UNITS[unit]}"


def time_of(ts: int) -> str:
    """A record's time in this machine's zone, to the millisecond."""
    if ts > MILLISECONDS_MAX:
        return "beyond the year 9999"
    return datetime.fromtimestamp(ts / 1000, UTC).astimezone().isoformat(" ", "milliseconds")


def clock_time(ts: int) -> str:
    """The time of day alone, for lines that come one after the other."""
    return time_of(ts)[11:23]


def duration(duration_ms: int) -> str:
    """0 is `0 ms`; otherwise the largest unit that gives at least 2, or an exact number."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if duration_ms >= 2 * size or (duration_ms and duration_ms % size == 0):
            value = duration_ms / size
            return f"{value:.0f} {unit}" if value == int(value) or value >= 10 else f"{value:.1f} {unit}"
    return f"{duration_ms} ms"
