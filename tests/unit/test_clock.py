"""The two clocks: the machine's, and the one that moves only when told."""

from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st

from topics.clock import Clock, SystemClock, http_date
from topics.testing.fake_clock import FakeClock


def test_the_machines_wall_clock_is_in_milliseconds_of_this_age() -> None:
    year_2020_ms, year_2100_ms = 1_577_836_800_000, 4_102_444_800_000
    assert year_2020_ms < SystemClock().now_ms() < year_2100_ms


def test_the_machines_monotonic_clock_never_steps_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ns() for _ in range(1000)]
    assert readings == sorted(readings)


def test_a_fake_clock_stands_still() -> None:
    clock: Clock = FakeClock(now_ms=7)
    assert (clock.now_ms(), clock.now_ms()) == (7, 7)
    assert clock.monotonic_ns() == clock.monotonic_ns()


def test_time_that_passes_moves_both_clocks() -> None:
    clock = FakeClock(now_ms=7)
    before_ns = clock.monotonic_ns()
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ns() - before_ns) == (12, 5_000_000)


def test_setting_the_wall_clock_leaves_durations_alone() -> None:
    clock = FakeClock(now_ms=7)
    before_ns = clock.monotonic_ns()
    clock.set_wall(3)
    assert (clock.now_ms(), clock.monotonic_ns()) == (3, before_ns)


@given(st.integers(0, 253_402_300_799_999))
def test_a_date_of_http_is_the_one_the_library_writes(at_ms: int) -> None:
    assert http_date(at_ms) == formatdate(at_ms // 1000, usegmt=True).encode()
