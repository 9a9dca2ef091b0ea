"""Pressure and its ladder: each signal alone is enough, one spike is not, and steps are not taken back too soon."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import limits
from topics.delivery.governor import Governor
from topics.testing.fake_clock import FakeClock

LATENCY_MS_MAX = limits.SCHEDULING_LATENCY_MS_MAX


class Sampled:
    """A governor that is sampled every 100 ms."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.governor = Governor()

    def sample(self, share: float = 0.0, *, depth: int = 0, wal: float = 0.0, times: int = 1) -> Governor:
        for _ in range(times):
            self.clock.advance(limits.PRESSURE_SAMPLE_INTERVAL_MS)
            self.governor.sample(self.clock.now_ms(), depth, share * LATENCY_MS_MAX, wal)
        return self.governor


def settled(share: float) -> Governor:
    return Sampled().sample(share, times=50)


def test_a_quiet_server_has_no_pressure_and_takes_no_step() -> None:
    governor = Sampled().sample(times=10)
    assert governor.pressure == 0
    assert governor.coalesce_ms == 0
    assert governor.commit_window_ms == 0
    assert not governor.deferring
    assert governor.retry_after_ms is None


def test_each_signal_alone_raises_the_pressure_to_the_full() -> None:
    assert Sampled().sample(1.0, times=50).pressure == pytest.approx(1)
    assert Sampled().sample(depth=limits.READY_DEPTH_MAX, times=50).pressure == pytest.approx(1)
    assert Sampled().sample(wal=1.0, times=50).pressure == pytest.approx(1)


def test_the_pressure_is_that_of_the_worst_signal() -> None:
    governor = Sampled().sample(0.3, depth=limits.READY_DEPTH_MAX // 2, wal=0.1, times=50)
    assert governor.pressure == pytest.approx(0.5)


def test_one_long_pause_of_a_quiet_server_is_half_pressure_and_soon_forgotten() -> None:
    sampled = Sampled()
    sampled.sample()
    assert sampled.sample(1000.0).pressure == pytest.approx(0.5)
    assert sampled.sample(times=2).pressure < limits.COALESCE_PRESSURE_MIN
    assert not sampled.governor.deferring


def test_a_late_sample_counts_for_the_time_it_stands_for() -> None:
    often, late = Sampled(), Sampled()
    often.sample(1.0, times=20)
    often.sample(times=3)
    late.sample(1.0, times=20)
    late.clock.advance(2 * limits.PRESSURE_SAMPLE_INTERVAL_MS)
    late.sample()
    assert late.governor.pressure == pytest.approx(often.governor.pressure)


def test_a_clock_set_back_counts_as_one_interval() -> None:
    sampled = Sampled()
    sampled.sample(1.0)
    sampled.clock.set_wall(0)
    assert sampled.sample(1.0).pressure == pytest.approx(0.75)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10_000),
            st.integers(0, 1_000_000),
            st.floats(-1, 1e9, allow_nan=False),
            st.floats(-1, 10, allow_nan=False),
        )
    )
)
def test_pressure_and_steps_stay_within_their_bounds(samples: list[tuple[int, int, float, float]]) -> None:
    governor = Governor()
    now_ms = 0
    for elapsed_ms, depth, latency_ms, wal in samples:
        now_ms += elapsed_ms
        governor.sample(now_ms, depth, latency_ms, wal)
        assert 0 <= governor.pressure <= 1
        assert 0 <= governor.coalesce_ms <= limits.COALESCE_MS_MAX
        assert 0 <= governor.commit_window_ms <= limits.COMMIT_WINDOW_MS_MAX


@pytest.mark.parametrize(("pressure", "coalesce_ms"), [(0.1, 0), (0.19, 0), (0.4, 5), (0.6, 10), (1.0, 20)])
def test_frames_are_coalesced_above_a_fifth_for_longer_the_higher_the_pressure(
    pressure: float, coalesce_ms: float
) -> None:
    assert settled(pressure).coalesce_ms == pytest.approx(coalesce_ms)


@pytest.mark.parametrize(("pressure", "window_ms"), [(0.0, 0), (0.39, 0), (0.5, 5.25), (0.8, 8.1), (1.0, 10)])
def test_the_commit_window_is_widened_above_two_fifths(pressure: float, window_ms: float) -> None:
    assert settled(pressure).commit_window_ms == pytest.approx(window_ms)


def test_deferring_begins_with_the_third_sample_in_a_row_above_four_fifths() -> None:
    sampled = Sampled()
    sampled.sample(1.0, times=3)
    assert sampled.governor.pressure > limits.DEFER_PRESSURE_MIN  # the first one above
    assert not sampled.sample(1.0).deferring
    assert sampled.sample(1.0).deferring


def test_a_dip_starts_the_count_again() -> None:
    sampled = Sampled()
    sampled.sample(1.0, times=4)  # two above
    sampled.sample(0.0)  # and one below
    assert not sampled.sample(1.0, times=3).deferring
    assert sampled.sample(1.0, times=2).deferring


def test_deferring_lasts_until_the_pressure_is_below_three_fifths() -> None:
    sampled = Sampled()
    assert sampled.sample(1.0, times=10).deferring
    assert sampled.sample(0.61, times=100).deferring
    assert not sampled.sample(0.59, times=100).deferring


def test_deferring_does_not_begin_again_between_its_two_bounds() -> None:
    sampled = Sampled()
    sampled.sample(1.0, times=10)
    sampled.sample(0.0, times=10)
    assert not sampled.sample(0.79, times=100).deferring


def test_writes_are_refused_only_at_full_pressure_with_a_full_queue_to_the_disk() -> None:
    assert Sampled().sample(1.0, times=50).retry_after_ms is None
    assert Sampled().sample(1.0, wal=0.99, times=50).retry_after_ms is None
    assert Sampled().sample(wal=1.0).retry_after_ms is None
    assert Sampled().sample(wal=1.0, times=50).retry_after_ms == limits.PRESSURE_RETRY_AFTER_MS


def test_writes_are_taken_again_as_soon_as_the_queue_to_the_disk_has_room() -> None:
    sampled = Sampled()
    assert sampled.sample(wal=1.0, times=50).retry_after_ms is not None
    assert sampled.sample(1.0, wal=0.99).retry_after_ms is None
