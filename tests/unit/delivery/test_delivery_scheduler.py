"""The ready set: once in it, fair between bands, oldest first within one, nobody forgotten."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import limits
from topics.delivery.scheduler import Scheduler
from topics.testing.fake_clock import FakeClock

BAND_PRIORITIES = {"B4": 750, "B3": 500, "B2": 250, "B1": 0, "B0": -1}


class Ready:
    """A scheduler of names whose priorities a test may set, and its clock."""

    def __init__(self, **priorities: int) -> None:
        self.priorities = priorities
        self.clock = FakeClock()
        self.scheduler = Scheduler[str](lambda name, _: self.priorities.get(name.split("/")[0], 0))

    def mark(self, *names: str) -> None:
        for name in names:
            self.scheduler.mark(name, self.clock.now_ms())

    def take(self) -> str | None:
        return self.scheduler.take(self.clock.now_ms())

    def take_all(self) -> list[str]:
        taken = []
        while (name := self.take()) is not None:
            taken.append(name)
        return taken

    def busy_until(self, name: str, load: Callable[[], None], *, ms_max: int) -> int | None:
        """Serves one a millisecond, with `load` marking more each time. Returns how long `name` waited."""
        for waited_ms in range(ms_max + 1):
            load()
            if self.take() == name:
                return waited_ms
            self.clock.advance(1)
        return None


def test_nothing_is_taken_from_an_empty_set() -> None:
    assert Ready().take() is None


def test_an_entity_marked_many_times_is_taken_once() -> None:
    ready = Ready()
    ready.mark("a", "a", "a")
    assert len(ready.scheduler) == 1
    assert "a" in ready.scheduler
    assert ready.take_all() == ["a"]
    assert len(ready.scheduler) == 0


def test_an_entity_marked_after_it_was_taken_waits_again() -> None:
    ready = Ready()
    ready.mark("a")
    assert ready.take() == "a"
    ready.mark("a")
    assert ready.take_all() == ["a"]


def test_within_a_band_the_first_marked_is_taken_first_whatever_the_exact_priority() -> None:
    ready = Ready(a=0, b=249, c=100)
    ready.mark("a", "b", "c")
    assert ready.take_all() == ["a", "b", "c"]


def test_marking_again_does_not_send_an_entity_to_the_back() -> None:
    ready = Ready()
    ready.mark("a")
    ready.clock.advance(10)
    ready.mark("b", "a")
    assert ready.take_all() == ["a", "b"]


@pytest.mark.parametrize(("higher", "lower"), [(750, 749), (500, 499), (250, 249), (0, -1), (1000, -1000)], ids=str)
def test_each_band_begins_at_its_floor_and_a_higher_one_goes_first(higher: int, lower: int) -> None:
    ready = Ready(higher=higher, lower=lower)
    ready.mark("lower", "higher")
    assert ready.take_all() == ["higher", "lower"]


def test_when_all_bands_are_full_their_turns_are_as_8_to_4_to_2_to_1_to_1() -> None:
    ready = Ready(**BAND_PRIORITIES)
    rounds = 500
    for band in BAND_PRIORITIES:
        ready.mark(*(f"{band}/{i}" for i in range(20)))
    turns: Counter[str] = Counter()
    for _ in range(16 * rounds):
        name = ready.take()
        assert name is not None
        turns[name.split("/")[0]] += 1
        ready.mark(name)
    assert turns == {"B4": 8 * rounds, "B3": 4 * rounds, "B2": 2 * rounds, "B1": rounds, "B0": rounds}


def test_turns_of_empty_bands_are_not_saved_up() -> None:
    ready = Ready(**BAND_PRIORITIES)
    ready.mark(*(f"B1/{i}" for i in range(100)))
    for _ in range(50):
        ready.take()
    ready.mark(*(f"B4/{i}" for i in range(100)))
    bands = [name[:2] for name in (ready.take() for _ in range(18)) if name]
    assert bands == [*["B4"] * 16, "B1", "B4"]  # what is left of a round in which B1 has had its turn; the next one


def test_a_waiting_entity_rises_into_the_next_band_with_the_aging_tick() -> None:
    ready = Ready(low=200, high=250)
    ready.mark("low")
    ready.clock.advance(500)  # +50: now it is worth 250
    ready.mark("high")
    assert ready.take_all() == ["low", "high"]


def test_a_waiting_entity_does_not_rise_before_its_time() -> None:
    ready = Ready(low=200, high=250)
    ready.mark("low")
    ready.clock.advance(499)
    ready.mark("high")
    assert ready.take_all() == ["high", "low"]


def test_the_waiting_are_looked_at_only_every_50_ms() -> None:
    looked_at: list[str] = []

    def priority_of(name: str, _: int) -> int:
        looked_at.append(name)
        return 0

    clock = FakeClock()
    scheduler = Scheduler[str](priority_of)
    for i in range(100):
        scheduler.mark(f"{i}", clock.now_ms())
    for _ in range(20):  # the first take ticks, and these look at all
        scheduler.take(clock.now_ms())
    looked_at.clear()
    clock.advance(limits.AGING_TICK_MS - 1)
    scheduler.take(clock.now_ms())
    assert looked_at == []
    clock.advance(1)
    scheduler.take(clock.now_ms())
    assert len(looked_at) == limits.REBANDED_PER_TAKE_MAX


def test_a_risen_entity_keeps_its_place_among_those_it_joins() -> None:
    ready = Ready(old=0, young=200, high=250)
    ready.mark("old")
    ready.clock.advance(1000)
    ready.mark("young")
    ready.clock.advance(1500)  # both are in B2 now; the one that came into it last has waited longest
    ready.mark("high")
    assert ready.take_all() == ["old", "young", "high"]


def test_an_entity_marked_all_the_time_still_ages() -> None:
    ready = Ready(low=0, high=750)
    for _ in range(750):
        ready.mark("low")
        ready.clock.advance(10)
    ready.mark("high")
    assert ready.take_all() == ["low", "high"]


def test_a_priority_raised_while_waiting_counts_from_the_next_tick() -> None:
    ready = Ready(changed=0, high=750)
    ready.mark("changed")
    ready.mark(*(f"high/{i}" for i in range(5)))
    assert ready.take() == "high/0"
    ready.priorities["changed"] = 1000
    ready.clock.advance(limits.AGING_TICK_MS)
    assert ready.take() == "changed"


def test_a_priority_lowered_while_waiting_takes_no_place_away() -> None:
    ready = Ready(changed=500, high=500)
    ready.mark("changed", "high")
    ready.priorities["changed"] = -1000
    ready.clock.advance(limits.AGING_TICK_MS)
    assert ready.take() == "changed"


@pytest.mark.parametrize("priority", [0, -1, -250, -251, -1000])
def test_nobody_waits_longer_than_10_s_for_the_top_band_however_many_are_before_it(priority: int) -> None:
    """Its own band holds far more than 10 s of work, and the top band is never empty."""
    ready = Ready(low=priority, high=1000)
    ready.mark(*(f"low/{i}" for i in range(2000)))
    ready.clock.advance(1)
    ready.mark("low/last")
    count = 0

    def load() -> None:
        nonlocal count
        count += 1
        ready.mark(f"high/{count}")

    # In the top band the older ones of its kind come first: one a millisecond, 2000 of them.
    waited_ms = ready.busy_until("low/last", load, ms_max=20_000)
    assert waited_ms is not None
    assert waited_ms <= 10_000 + 2000 + 10 * limits.AGING_TICK_MS


def test_a_lone_low_one_waits_one_round_under_constant_top_load() -> None:
    ready = Ready(low=-1000, high=1000)
    ready.mark("low")
    count = 0

    def load() -> None:
        nonlocal count
        count += 1
        ready.mark(f"high/{count}")

    assert ready.busy_until("low", load, ms_max=10_000) == 8


def test_a_crowd_is_looked_at_a_few_at_a_time_and_all_rise() -> None:
    ready = Ready(low=200, high=250)
    ready.mark(*(f"low/{i}" for i in range(1000)))
    ready.clock.advance(500)
    assert ready.take() == "low/0"
    for _ in range(1000 // limits.REBANDED_PER_TAKE_MAX):
        ready.take()
    ready.mark("high")  # of their band now, and younger
    assert ready.take_all()[-1] == "high"


def test_a_clock_set_back_stops_nobody_from_ageing() -> None:
    ready = Ready(low=200, high=250)
    ready.mark(*(f"low/{i}" for i in range(3)))
    assert ready.take() == "low/0"
    ready.clock.set_wall(ready.clock.now_ms() - 3_600_000)
    assert ready.take() == "low/1"
    ready.clock.advance(500)
    ready.mark("high")
    assert ready.take() == "low/2"


def test_one_marked_after_the_clock_was_set_back_is_not_older_than_it_is() -> None:
    ready = Ready(low=0, high=250)
    ready.mark("a")
    assert ready.take() == "a"
    ready.clock.set_wall(ready.clock.now_ms() - 3_600_000)
    ready.mark("low")
    ready.clock.advance(100)
    ready.mark("high")
    assert ready.take() == "high"


def test_a_discarded_entity_is_not_taken() -> None:
    ready = Ready()
    ready.mark("a", "b", "c")
    ready.scheduler.discard("b")
    ready.scheduler.discard("never marked")
    assert len(ready.scheduler) == 2
    assert ready.take_all() == ["a", "c"]


def test_an_entity_discarded_and_marked_again_starts_at_the_back() -> None:
    ready = Ready()
    ready.mark("a", "b")
    ready.scheduler.discard("a")
    ready.mark("a")
    assert ready.take_all() == ["b", "a"]


def test_discards_leave_no_memory_behind_in_a_band_that_is_never_served() -> None:
    ready = Ready(low=-1)
    ready.scheduler.deferring = True
    ready.mark("low/stays", "low/too")
    for i in range(10_000):
        ready.mark(f"low/{i}")
        ready.scheduler.discard(f"low/{i}")
    assert sum(map(len, ready.scheduler._bands)) <= 2 * (2 + limits.TICKETS_LEFT_BEHIND_MIN)
    ready.scheduler.deferring = False
    assert ready.take_all() == ["low/stays", "low/too"]


def test_while_deferring_negative_priorities_wait_and_others_do_not() -> None:
    ready = Ready(low=-1, zero=0)
    ready.scheduler.deferring = True
    ready.mark("low", "zero")
    assert ready.take_all() == ["zero"]
    assert len(ready.scheduler) == 1
    ready.scheduler.deferring = False
    assert ready.take_all() == ["low"]


def test_while_deferring_no_wait_is_long_enough_for_a_negative_priority() -> None:
    ready = Ready(low=-1, zero=0)
    ready.scheduler.deferring = True
    ready.mark("low")
    for _ in range(300):
        ready.clock.advance(100)
        ready.mark("zero")
        assert ready.take_all() == ["zero"]


def test_one_that_left_b0_before_deferring_began_keeps_its_place() -> None:
    ready = Ready(low=-1, high=750)
    ready.mark("low", "high")
    ready.clock.advance(limits.AGING_TICK_MS)  # low is worth 4 now
    assert ready.take() == "high"
    ready.scheduler.deferring = True
    assert ready.take() == "low"


def test_one_whose_priority_is_raised_is_no_longer_deferred() -> None:
    ready = Ready(low=-1, zero=0)
    ready.scheduler.deferring = True
    ready.mark("low", "zero")
    assert ready.take_all() == ["zero"]
    ready.priorities["low"] = 0
    ready.clock.advance(limits.AGING_TICK_MS)
    assert ready.take_all() == ["low"]


@pytest.mark.parametrize("ms_since_tick", [0, 1, limits.AGING_TICK_MS])
def test_the_time_deferred_does_not_put_a_crowd_before_the_top_band(ms_since_tick: int) -> None:
    ready = Ready(low=-1, zero=0, high=1000)
    ready.scheduler.deferring = True
    ready.mark(*(f"low/{i}" for i in range(100)))
    ready.clock.advance(60_000)
    ready.mark("zero")
    assert ready.take_all() == ["zero"]
    ready.clock.advance(ms_since_tick)
    ready.scheduler.deferring = False
    ready.mark(*(f"high/{i}" for i in range(100)))
    kinds = Counter(name.split("/")[0] for name in (ready.take() for _ in range(90)) if name)
    assert kinds == {"high": 80, "low": 10}


def test_others_age_while_negative_priorities_are_deferred() -> None:
    ready = Ready(zero=0, high=750)
    ready.mark("zero")
    ready.scheduler.deferring = True
    ready.clock.advance(7_500)
    ready.scheduler.deferring = False
    ready.mark("high")
    assert ready.take_all() == ["zero", "high"]


def test_the_deferred_are_in_the_top_band_10_s_after_deferring_ended() -> None:
    ready = Ready(low=-1000, high=1000)
    ready.scheduler.deferring = True
    ready.mark("low/0", "low/1")
    ready.clock.advance(60_000)
    ready.scheduler.deferring = False
    assert ready.take() == "low/0"  # and so begins the age of the other
    ready.clock.advance(9_999)
    ready.mark("high/0", "high/1")
    assert ready.take() == "high/0"
    ready.clock.advance(limits.AGING_TICK_MS)
    assert ready.take() == "low/1"


def test_the_ready_depth_leaves_out_the_deferred() -> None:
    ready = Ready(low=-1, zero=0)
    ready.mark("low/0", "low/1", "low/2", "zero")
    assert ready.scheduler.ready_depth == 4
    ready.scheduler.deferring = True
    assert ready.scheduler.ready_depth == 1
    ready.scheduler.discard("low/1")
    assert ready.scheduler.ready_depth == 1
    assert ready.take_all() == ["zero"]
    assert ready.scheduler.ready_depth == 0
    ready.scheduler.deferring = False
    assert ready.scheduler.ready_depth == 2
    assert ready.take() == "low/0"
    ready.scheduler.deferring = True
    assert ready.scheduler.ready_depth == 0


names = st.sampled_from([f"{band}/{i}" for band in BAND_PRIORITIES for i in range(4)])
steps = st.one_of(
    st.tuples(st.just("mark"), names),
    st.tuples(st.just("mark"), names),
    st.tuples(st.just("take"), st.integers(1, 4)),
    st.tuples(st.just("discard"), names),
    st.tuples(st.just("advance"), st.integers(0, 3000)),
    st.tuples(st.just("set back"), st.integers(1, 5000)),
    st.tuples(st.just("defer"), st.booleans()),
)


@given(st.lists(steps, max_size=120))
def test_whatever_happens_each_marked_entity_is_taken_exactly_once(history: list[tuple[str, str | int]]) -> None:
    ready = Ready(**BAND_PRIORITIES)
    waiting: set[str] = set()

    def taken(name: str) -> None:
        assert name in waiting
        waiting.remove(name)

    for step in history:
        match step:
            case ("mark", str(name)):
                ready.mark(name)
                waiting.add(name)
            case ("discard", str(name)):
                ready.scheduler.discard(name)
                waiting.discard(name)
            case ("take", int(count)):
                for _ in range(count):
                    name_or_none = ready.take()
                    if name_or_none is not None:
                        taken(name_or_none)
                    else:
                        assert not waiting or ready.scheduler.deferring
            case ("advance", int(ms)):
                ready.clock.advance(ms)
            case ("set back", int(ms)):
                ready.clock.set_wall(ready.clock.now_ms() - ms)
            case ("defer", bool(deferring)):
                ready.scheduler.deferring = deferring
        assert len(ready.scheduler) == len(waiting)
        in_b0 = sum(ticket[2] == 0 for ticket in ready.scheduler._waiting.values())
        assert ready.scheduler.ready_depth == len(waiting) - in_b0 * ready.scheduler.deferring
    ready.scheduler.deferring = False
    for name in ready.take_all():
        taken(name)
    assert not waiting
