"""Arguments with a unit or a form of their own: `2h`, `10MB`, `.items.0.sku`, `key=value`."""

import argparse
import re

from topics.errors import TopicsError

DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SIZE_BYTES = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "kib": 1024,
    "m": 10**6,
    "mb": 10**6,
    "mib": 1024**2,
    "g": 10**9,
    "gb": 10**9,
    "gib": 1024**3,
    "t": 10**12,
    "tb": 10**12,
    "tib": 1024**4,
}
QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([a-zA-Z]*)", re.ASCII)
DURATION_MS_MAX = 2**63


class InvalidArguments(TopicsError):
    """The arguments contradict each other or one of them is malformed. The message names it."""


def duration_ms(text: str) -> int:
    """`500ms`, `30s`, `15m`, `2h`, `7d`; a number alone is in seconds."""
    found = QUANTITY.fullmatch(text.strip())
    unit = found[2].lower() or "s" if found else ""
    if not found or unit not in DURATION_MS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write it as 500ms, 30s, 15m, 2h or 7d")
    value = int(float(found[1]) * DURATION_MS[unit])
    if value > DURATION_MS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is too long")
    return value


def size_bytes(text: str) -> int:
    """`500`, `64kB`, `10MB`, `1GiB`."""
    found = QUANTITY.fullmatch(text.strip())
    unit = found[2].lower() if found else "?"
    if not found or unit not in SIZE_BYTES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it as 500, 64kB, 10MB or 1GiB")
    return int(float(found[1]) * SIZE_BYTES[unit])


def whole_number(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(digits)


def positive_number(text: str) -> int:
    value = whole_number(text)
    if not value:
        raise argparse.ArgumentTypeError("use 1 or more")
    return value


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: write it as key=value")
    return key, value


def json_path(text: str) -> tuple[str, ...]:
    """`.sku`, `.customer.id`, `.items.0`: the way to a value in a record's data. `.` is all of it."""
    if not text.startswith("."):
        raise argparse.ArgumentTypeError(f"{text!r} is not a path into the data; begin it with a dot, as in .sku")
    return tuple(text[1:].split(".")) if len(text) > 1 else ()


def at_path(data: object, path: tuple[str, ...]) -> object:
    """What is there, or None."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and step.isascii() and step.isdigit() and int(step) < len(data):
            data = data[int(step)]
        else:
            return None
    return data
