"""Numbers for people: columns that line up (the first one to the left, the others to the right), and plurals."""

from collections.abc import Sequence

GAP = "  "


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first row is the heading; a line is drawn under it."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, GAP.join("─" * width for width in widths))
    return lines


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if at == 0 else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return GAP.join(cells).rstrip()
