"""Requests in flight, counted by key."""

import pytest

from topics.api.auth import ANYBODY, Key, Scope
from topics.api.quotas import InFlight
from topics.errors import Throttled

ONE = Key(b"1", Scope.ALL, ("",))
OTHER = Key(b"2", Scope.ALL, ("",))


def is_throttled(in_flight: InFlight, key: Key) -> bool:
    try:
        in_flight.check(key)
    except Throttled:
        return True
    return False


def test_a_key_has_as_many_slots_as_it_may() -> None:
    in_flight = InFlight(2)
    in_flight.enter(ONE)
    assert not is_throttled(in_flight, ONE)
    in_flight.enter(ONE)
    with pytest.raises(Throttled) as refused:
        in_flight.check(ONE)
    assert refused.value.detail == {"limit": "max_inflight_per_key", "max": 2}
    assert refused.value.retry_after_s == 1


def test_keys_do_not_share_their_slots() -> None:
    in_flight = InFlight(1)
    in_flight.enter(ONE)
    assert not is_throttled(in_flight, OTHER)


def test_a_slot_given_back_can_be_taken_again() -> None:
    in_flight = InFlight(1)
    in_flight.enter(ONE)
    in_flight.leave(ONE)
    assert not is_throttled(in_flight, ONE)


@pytest.mark.parametrize("key", [ONE, ANYBODY])
def test_zero_is_no_limit(key: Key) -> None:
    in_flight = InFlight(0)
    for _ in range(5):
        in_flight.enter(key)
    assert not is_throttled(in_flight, key)


def test_without_keys_there_is_nobody_to_limit() -> None:
    in_flight = InFlight(1)
    in_flight.enter(ANYBODY)
    assert not is_throttled(in_flight, ANYBODY)
