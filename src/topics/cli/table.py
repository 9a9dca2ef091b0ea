"""Numbers for people: columns that line up, and plurals."""

from collections.abc import Sequence
from itertools import chain, repeat

GAP = "  "


def aligned(rows: Sequence[Sequence[str]], to_right: Sequence[bool] | None = None) -> list[str]:
    """The first row is the heading; a line is drawn under it. All columns but the first are aligned right, unless
    `to_right` says which."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [False, *repeat(True, len(widths) - 1)] if to_right is None else to_right
    rule = ["─" * width for width in widths]
    return [_line(row, widths, sides) for row in chain(rows[:1], [rule], rows[1:])]


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def _line(row: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    cells = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(row, widths, to_right, strict=True)
    ]
    return GAP.join(cells).rstrip()
