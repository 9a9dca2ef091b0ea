"""Paths into JSON, as people write them: `total`, `order.total`, `$.order.items[0].sku`, `$['a name']`."""

import re
from functools import lru_cache

from topics.spark.errors import InvalidOption

_STEP = r"\.(?P<{0}name>[^.\[\]'\s]+)|\[(?P<{0}index>[0-9]{{1,9}})\]|\['(?P<{0}quoted>[^']+)'\]"
_PATH = re.compile(rf"\$({_STEP.format('any_')})+")
_ONE_STEP = re.compile(_STEP.format(""))

Step = str | int


def json_path(text: str, option: str) -> str:
    """The path as Spark reads it, from `total`, `order.total` or `$.order.total`."""
    path = _rooted(text.strip())
    if _PATH.fullmatch(path) is None:
        raise InvalidOption(option, f"{text!r} is not a JSON path; write it as total, $.order.total or $.items[0].sku")
    return path


def column_or_path(text: str, option: str) -> None:
    """Checks a name of a column or a path. A column may have any name; text that begins like a path must be one, and
    must begin with a name, because a row is an object."""
    if text.startswith(("$.", "$[")) or not text:
        json_path(text, option)
        if isinstance(steps_of(text)[0], int):
            raise InvalidOption(option, f"{text!r} begins with an index, and a row is an object; begin with a name")


@lru_cache(maxsize=64)
def steps_of(text: str) -> tuple[Step, ...]:
    """The names and indexes along the path; empty if it is not a path."""
    path = _rooted(text)
    if _PATH.fullmatch(path) is None:
        return ()
    steps = _ONE_STEP.finditer(path, 1)
    return tuple(int(step["index"]) if step["index"] is not None else step["name"] or step["quoted"] for step in steps)


def _rooted(text: str) -> str:
    return text if text.startswith("$") else f"$.{text}"
