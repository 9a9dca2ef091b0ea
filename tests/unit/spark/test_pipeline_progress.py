"""What a job tells while it works: a bar on a terminal, plain lines elsewhere."""

import io

from topics.spark.jobs.progress import Shown, Silent
from topics.testing.fake_clock import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_with_rows_a_second_and_lag_that_is_wiped_at_the_end() -> None:
    stream, clock = Terminal(), FakeClock()
    shown = Shown(stream, clock)
    shown.begin("archiving", 1000)
    clock.advance(2000)
    shown.advance(500, lag=500)
    bar = "█" * 12 + "░" * 12
    assert stream.getvalue() == f"\r\x1b[Karchiving: {bar}  50% 500 rows, 250 rows/s (lag 500)"
    shown.end()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_elsewhere_there_is_a_plain_line_every_ten_seconds_and_one_for_the_end() -> None:
    stream, clock = io.StringIO(), FakeClock()
    shown = Shown(stream, clock)
    shown.begin("checking", unit="bytes")
    for _ in range(12):
        clock.advance(1000)
        shown.advance(100)
    shown.end()
    shown.end()
    assert stream.getvalue().splitlines() == [
        "checking: 100 bytes, 100 bytes/s",
        "checking: 1,100 bytes, 100 bytes/s",
        "checking: 1,200 bytes, 100 bytes/s",
    ]


def test_a_library_hears_nothing() -> None:
    silent = Silent()
    silent.begin("x", 1)
    silent.advance(1)
    silent.end()
