"""The screen of `topics top`, made of two looks."""

import io
from typing import Any

import pytest
from msgspec import UNSET, convert, structs

from topics.cli.output import Paint, clock_time
from topics.cli.top_screen import Look, Order, lines_of, rows_of
from topics.wire.overview import CursorOverview, QueueOverview, ServerOverview, TopicOverview

PLAIN = Paint(io.StringIO())


def server(ts: int = 1_000_000, **changed: Any) -> ServerOverview:
    latency = {"count": 1, "mean_us": 900, "p50_us": 1000, "p99_us": None}
    known = {
        "version": "1.2.3", "server_id": "x", "ts": ts, "uptime_ms": 120_000, "topics": 3, "routers": 0,
        "records": 1234, "bytes": 5_000_000, "pressure": 0.1, "disk_free_bytes": 38 * 10**9, "memory_bytes": 61 * 10**6,
        "files_open": 31, "files_max": 1024, "loop": {"lag_ms": 0.4, "lag_ms_max": 2.1},
        "wal": {"queue_depth": 0, "bytes_written_total": 0, "fsync": latency}, "read_only_shards": [],
        "connections": {"open": 4, "live": 1, "long_polls": 2, "watch_sessions": 1}, "recovery": None,
        "checkpoints": {"count": 0, "failures": 0, "last_ts": None, "last_duration_ms": None},
    }  # fmt: skip
    return convert(known | changed, ServerOverview)


def topic(name: str, head_seq: int = 10, **changed: Any) -> TopicOverview:
    known = TopicOverview(
        topic=name, epoch=1, type="log", durability="disk", head_seq=head_seq, earliest_seq=1, evict_floor=1,
        count=head_seq, bytes=1200, lost=0, lost_by_reason={}, deleted=0, first_ts=None, last_ts=None,
        last_write_ts=None, last_read_ts=None, effective_priority=0, priority_band=2, watchers=0, cursors_total=0,
        cursors=[], routers_in=0, routers_out=0, queue=UNSET,
    )  # fmt: skip
    return structs.replace(known, **changed)


def look(*topics: TopicOverview, ts: int = 1_000_000, **changed: Any) -> Look:
    return Look(server(ts, **changed), {each.topic: each for each in topics})


def drawn(now: Look, before: Look | None, width: int = 120, height: int = 20, order: Order = Order.NAME) -> list[str]:
    return lines_of(now, before, "http://127.0.0.1:4000", width, height, order, PLAIN, keys=True)


def test_rates_are_what_was_written_between_two_looks() -> None:
    before = look(topic("a", 10), topic("b", 5))
    now = look(topic("a", 30), topic("b", 5), topic("new", 7), ts=1_002_000)
    assert {row.topic.topic: row.rate for row in rows_of(now, before)} == {"a": 10.0, "b": 0.0, "new": 0.0}


def test_a_topic_made_anew_has_no_rate_yet() -> None:
    now = look(topic("a", 3, epoch=2), ts=1_001_000)
    assert rows_of(now, look(topic("a", 1000)))[0].rate == 0.0


def test_the_screen_as_people_see_it() -> None:
    cursors = [CursorOverview("billing", 3, 7, 61_000)]
    before = look(topic("clicks", 100, count=50, lost=50), topic("jobs", 9), topic("orders", 10))
    now = look(
        topic("clicks", 140, count=50, lost=90),
        topic("jobs", 9, type="queue", queue=QueueOverview(5, 2, 0, 1)),
        topic("orders", 10, cursors=cursors, watchers=3),
        ts=1_002_000,
    )
    assert drawn(now, before) == [
        "topics 1.2.3  http://127.0.0.1:4000  up 2 min" + " " * 67 + clock_time(1_002_000)[:8],
        "3 topics  1,234 records  5.0 MB  20.0 writes/s  4 connections (1 live, 2 waiting)",
        "loop 0.4 ms (max 2.1)  sync p50 1.0 ms, p99 –  WAL queue 0  pressure 0.10  38 GB disk free  61 MB memory",
        "",
        "topic          records   rate/s     size   ready  leased   dead watch       lost  slowest cursor",
        "clicks              50     20.0   1.2 kB                                   +40 ✗",
        "jobs                 9            1.2 kB       5       2      1",
        "orders              10            1.2 kB                            3             billing 7 behind (61 s)",
        "q quit   s sort (by name)   p pause",
    ]


@pytest.mark.parametrize(
    ("order", "names"),
    [(Order.NAME, "abc"), (Order.RATE, "bac"), (Order.RECORDS, "cab"), (Order.LOST, "bca"), (Order.LAG, "acb")],
)
def test_rows_are_sorted_as_asked(order: Order, names: str) -> None:
    before = look(topic("a"), topic("b"), topic("c"))
    now = look(
        topic("a", 11, count=5, cursors=[CursorOverview("x", 1, 9, 0)]),
        topic("b", 20, count=1, lost=9),
        topic("c", 10, count=9, lost=3, cursors=[CursorOverview("x", 1, 2, 0)]),
        ts=1_001_000,
    )
    assert "".join(line[0] for line in drawn(now, before, order=order)[5:8]) == names


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 8), (200, 50), (40, 10)])
def test_it_never_leaves_the_screen(width: int, height: int) -> None:
    many = look(*(topic(f"topic-with-a-rather-long-name-{number:04}", lost=number) for number in range(100)))
    lines = drawn(many, None, width, height)
    assert len(lines) <= height
    fixed = 12 + 70  # the columns are not made narrower than this; a terminal cuts them
    assert all(len(line) <= max(width, fixed) for line in lines)
    assert any(line.startswith("… and ") for line in lines)


def test_a_shard_that_takes_no_writes_is_told() -> None:
    broken = look(read_only_shards=[{"shard": "shard 0", "reason": "No space left on device"}])
    assert "✗ shard 0 takes no writes: No space left on device" in drawn(broken, None)
