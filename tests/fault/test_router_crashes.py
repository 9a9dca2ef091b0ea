"""Copies after a crash: those that can be made again are what they were, and the others are told as lost."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fault.routed_workload import (
    KINDS,
    TOPICS,
    Routed,
    Step,
    check_after_crash,
    seeded,
    server_on,
    settled,
    shown_already,
    source_trims,
)
from sampling import EXHAUSTIVE
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash

STEPS = 50
CRASHES_PER_SEED = 6
EXAMPLES = 400 if EXHAUSTIVE else 40

numbers = st.integers(0, 59)
steps = st.lists(
    st.builds(Step, st.sampled_from(KINDS), st.sampled_from(TOPICS), numbers, numbers, numbers), max_size=STEPS
)
shard_counts = st.integers(1, 3)
histories = settings(
    max_examples=EXAMPLES, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)


@histories
@given(steps=steps, shards=shard_counts, shards_after=shard_counts)
def test_after_a_kill_everything_is_as_if_nothing_had_happened(
    steps: list[Step], shards: int, shards_after: int
) -> None:
    routed = Routed(FakeDisk(), shards)
    routed.run(step for step in steps if step.kind != "lazy")
    routed.server.step()
    shown = shown_already(routed.server)
    killed = routed.disk.crash_keep_all()
    recovered = server_on(killed, routed.clock.now_ms(), shards_after)
    check_after_crash(recovered, shown)
    state = settled(recovered)
    lost_before = source_trims(routed.server)
    without_a_kill = settled(routed.server)
    if source_trims(routed.server) == lost_before:
        # Else a router that lagged has lost what its source let go of before it looked. Recovery goes through the log
        # in order and may look in time, which is fine: nobody had been told of that loss when the process was killed.
        assert state == without_a_kill
    assert settled(server_on(killed.crash_keep_all(), routed.clock.now_ms(), shards)) == state


@histories
@given(steps=steps, shards=shard_counts, shards_after=shard_counts, survivor=st.integers(0, 1000))
def test_after_a_power_cut_no_seq_has_another_record_and_none_is_gone_without_a_word(
    steps: list[Step], shards: int, shards_after: int, survivor: int
) -> None:
    routed = Routed(FakeDisk(), shards)
    routed.run(steps)
    seen = routed.seen()
    now_ms = routed.clock.now_ms()
    for disk in (routed.disk.crash_keep_all(), routed.disk.crash_drop_all(), routed.disk.crash(survivor)):
        recovered = server_on(disk, now_ms, shards_after)
        check_after_crash(recovered, seen)
        state = settled(recovered)
        assert settled(server_on(disk.crash_keep_all(), now_ms, shards)) == state


@pytest.mark.parametrize("seed", range(12 if EXHAUSTIVE else 3))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_crash_before_or_after_any_call_breaks_no_promise(seed: int, applied: bool) -> None:
    """Also one in the middle of a checkpoint, or of the recovery that follows."""
    plan = seeded(seed, STEPS)
    whole = FakeDisk()
    Routed(whole, 1 + seed % 3).run(plan)
    for number in range(whole.mutating_calls if EXHAUSTIVE else CRASHES_PER_SEED):
        call = number + 1 if EXHAUSTIVE else 20 + (whole.mutating_calls - 21) * number // (CRASHES_PER_SEED - 1)
        disk = FakeDisk()
        routed = Routed(disk, 1 + seed % 3)
        disk.stop_at(call, applied=applied)
        with suppress(SimulatedCrash):
            routed.run(plan)
        seen = routed.seen()
        for survivor in (disk.crash_keep_all(), disk.crash_drop_all(), disk.crash(call)):
            interrupted = survivor.crash_keep_all()
            interrupted.stop_at(1 + 31 * call % 60, applied=applied)
            try:
                server_on(interrupted, FakeClock(routed.clock.now_ms()), 2)
            except SimulatedCrash:
                survivor = interrupted.crash_keep_all()  # noqa: PLW2901 - what the next start finds
            check_after_crash(server_on(survivor, routed.clock.now_ms(), 1 + number % 3), seen, routed.deleting)
