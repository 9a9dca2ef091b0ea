"""What `topics top` shows, as lines of text: computed from two looks at the server, and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from topics.cli.output import Paint, Style, byte_count, clipped, clock_time, duration
from topics.cli.table import counted

if TYPE_CHECKING:
    from topics.wire.overview import ServerOverview, TopicOverview

LOOP_LAG_MS_HIGH = 20.0
DISK_FREE_BYTES_LOW = 1 << 30
PRESSURE_HIGH = 0.5
NAME_WIDTH_MIN = 12
CURSOR_WIDTH = 16


class Order(StrEnum):
    RATE = "rate"
    NAME = "name"
    RECORDS = "records"
    SIZE = "size"
    LAG = "lag"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the server: how it is, and its topics by name."""

    server: "ServerOverview"
    topics: "dict[str, TopicOverview]"


@dataclass(frozen=True, slots=True)
class Row:
    """A topic, and what happened to it since the look before."""

    topic: "TopicOverview"
    rate: float
    lost_since: int

    @property
    def lag(self) -> int:
        return max((cursor.lag for cursor in self.topic.cursors), default=0)


def rows_of(now: Look, before: Look | None) -> list[Row]:
    elapsed_s = (now.server.ts - before.server.ts) / 1000 if before else 0.0
    rows = []
    for topic in now.topics.values():
        was = before.topics.get(topic.topic) if before else None
        if was is None or was.epoch != topic.epoch or elapsed_s <= 0:
            rows.append(Row(topic, 0.0, 0))
        else:
            rows.append(Row(topic, (topic.head_seq - was.head_seq) / elapsed_s, topic.lost - was.lost))
    return rows


ORDERS: dict[Order, Callable[[Row], tuple[float | str, ...]]] = {
    Order.RATE: lambda row: (-row.rate, row.topic.topic),
    Order.NAME: lambda row: (row.topic.topic,),
    Order.RECORDS: lambda row: (-row.topic.count, row.topic.topic),
    Order.SIZE: lambda row: (-row.topic.bytes, row.topic.topic),
    Order.LAG: lambda row: (-row.lag, row.topic.topic),
    Order.LOST: lambda row: (-row.topic.lost, row.topic.topic),
}

Cell = tuple[str, Style | None]
# Heading, width, and whether it is set to the right. The name takes what is left of the line.
COLUMNS = (
    ("records", 9),
    ("rate/s", 8),
    ("size", 8),
    ("ready", 7),
    ("leased", 7),
    ("dead", 6),
    ("watch", 5),
    ("lost", 10),
)


def lines_of(
    now: Look, before: Look | None, url: str, width: int, height: int, order: Order, paint: Paint, *, keys: bool
) -> list[str]:
    """At most `height` lines of at most `width` characters."""
    rows = sorted(rows_of(now, before), key=ORDERS[order])
    head = [*_server_lines(now.server, url, sum(row.rate for row in rows), width, paint), ""]
    foot = [paint(clipped(f"q quit   s sort (by {order})   p pause", width), Style.DIM)] if keys else []
    room = max(height - len(head) - len(foot) - 1, 1)
    names = max([NAME_WIDTH_MIN, *(len(row.topic.topic) for row in rows[:room])])
    fixed = sum(w + 1 for _, w in COLUMNS) + CURSOR_WIDTH + 2
    name_width = max(min(names, width - fixed), NAME_WIDTH_MIN)
    heading = "topic".ljust(name_width) + "".join(f" {title:>{w}}" for title, w in COLUMNS) + "  slowest cursor"
    shown = [_row_line(row, name_width, width, paint) for row in rows[:room]]
    if len(rows) > room:
        shown[-1] = paint(clipped(f"… and {len(rows) - room + 1:,} more", width), Style.DIM)
    return [*head, paint(clipped(heading, width), Style.BOLD), *shown, *foot]


def _server_lines(server: "ServerOverview", url: str, rate: float, width: int, paint: Paint) -> list[str]:
    first = f"topics {server.version}  {url}  up {duration(server.uptime_ms)}"
    clock = clock_time(server.ts)[:8]
    title = clipped(first, width - len(clock) - 2)
    loop, wal, connections = server.loop, server.wal, server.connections
    live = f"{connections.live:,} live, {connections.long_polls:,} waiting"
    parts: list[list[Cell]] = [
        [
            (f"{server.topics:,} topics", None),
            (f"{server.records:,} records", None),
            (byte_count(server.bytes), None),
            (f"{rate:,.1f} writes/s", Style.GREEN if rate else None),
            (f"{counted(connections.open, 'connection')} ({live})", None),
        ],
        [
            (f"loop {loop.lag_ms:.1f} ms (max {loop.lag_ms_max:.1f})", _alarm(loop.lag_ms_max > LOOP_LAG_MS_HIGH)),
            (f"sync p50 {_micros(wal.fsync.p50_us)}, p99 {_micros(wal.fsync.p99_us)}", None),
            (f"WAL queue {wal.queue_depth:,}", None),
            (f"pressure {server.pressure:.2f}", _alarm(server.pressure > PRESSURE_HIGH)),
            *_machine(server),
        ],
    ]
    lines = [
        f"{paint(title, Style.BOLD)}{clock:>{width - len(title)}}",
        *(_joined(cells, width, paint) for cells in parts),
    ]
    for shard in server.read_only_shards:
        lines.append(paint(clipped(f"✗ {shard.shard} takes no writes: {shard.reason}", width), Style.RED))
    return lines


def _machine(server: "ServerOverview") -> list[Cell]:
    cells: list[Cell] = []
    if server.disk_free_bytes is not None:
        cells.append(
            (f"{byte_count(server.disk_free_bytes)} disk free", _alarm(server.disk_free_bytes < DISK_FREE_BYTES_LOW))
        )
    if server.memory_bytes is not None:
        cells.append((f"{byte_count(server.memory_bytes)} memory", None))
    if server.files_open is not None and server.files_max is not None:
        cells.append(
            (f"{server.files_open:,} of {server.files_max:,} files", _alarm(server.files_open > 0.8 * server.files_max))
        )
    return cells


def _row_line(row: Row, name_width: int, width: int, paint: Paint) -> str:
    topic, queue = row.topic, row.topic.queue
    lost = f"{topic.lost:,}" if topic.lost else ""
    if row.lost_since > 0:
        lost = f"+{row.lost_since:,} ✗"
    # A queue that is not one has nothing in its columns.
    cells: Sequence[Cell] = (
        (f"{topic.count:,}", None),
        (f"{row.rate:,.1f}" if row.rate else "", Style.GREEN),
        (byte_count(topic.bytes), None),
        (f"{queue.ready:,}" if queue else "", None),
        (f"{queue.in_flight:,}" if queue else "", None),
        (f"{queue.dead_lettered:,}" if queue and queue.dead_lettered else "", Style.YELLOW),
        (f"{topic.watchers:,}" if topic.watchers else "", None),
        (lost, Style.RED),
    )
    line = clipped(topic.topic, name_width).ljust(name_width)
    for (text, style), (_, column) in zip(cells, COLUMNS, strict=True):
        padded = f" {text:>{column}}"
        line += paint(padded, style) if style and text else padded
    if topic.cursors:
        slowest = max(topic.cursors, key=lambda cursor: cursor.lag)
        left = width - name_width - sum(w + 1 for _, w in COLUMNS) - 2
        told = (
            f"{slowest.name} {slowest.lag:,} behind ({duration(slowest.lag_ms)})"
            if slowest.lag
            else f"{slowest.name} at the head"
        )
        if left > 0:
            line += "  " + paint(clipped(told, left), Style.YELLOW if slowest.lag else Style.DIM)
    return line.rstrip()


def _joined(cells: Sequence[Cell], width: int, paint: Paint) -> str:
    """As many as there is room for."""
    line, length = "", 0
    for text, style in cells:
        extra = len(text) + (2 if length else 0)
        if length + extra > width:
            break
        line += ("  " if length else "") + (paint(text, style) if style else text)
        length += extra
    return line


def _alarm(bad: bool) -> Style | None:
    return Style.RED if bad else None


def _micros(value: int | None) -> str:
    return "–" if value is None else f"{value / 1000:.1f} ms"
