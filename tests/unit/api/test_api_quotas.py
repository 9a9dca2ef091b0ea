"""Requests in flight, counted by key."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from topics.api.auth import ANYBODY, Key, Scope
from topics.api.http import Response
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


# Answers that wait


async def answer(waits_for: asyncio.Event | None = None, error: Exception | None = None) -> Response:
    if waits_for is not None:
        await waits_for.wait()
    if error is not None:
        raise error
    return Response(200, b"{}")


def hold(in_flight: InFlight, coroutine: Coroutine[Any, Any, Response]) -> Coroutine[Any, Any, Response]:
    held = in_flight.holding(ONE, coroutine)
    assert is_throttled(in_flight, ONE)  # from this moment, not from the first step
    return held


def test_an_answer_gives_its_slot_back_when_it_is_there() -> None:
    in_flight = InFlight(1)
    assert asyncio.run(asyncio.wait_for(hold(in_flight, answer()), 10)).status == 200
    assert not is_throttled(in_flight, ONE)


def test_an_answer_holds_its_slot_while_it_waits() -> None:
    in_flight = InFlight(1)

    async def scenario() -> None:
        waits_for = asyncio.Event()
        task = asyncio.get_running_loop().create_task(hold(in_flight, answer(waits_for)))
        await asyncio.sleep(0)
        assert is_throttled(in_flight, ONE)
        waits_for.set()
        assert (await task).status == 200
        assert not is_throttled(in_flight, ONE)

    asyncio.run(scenario())


def test_an_answer_that_fails_gives_its_slot_back() -> None:
    in_flight = InFlight(1)

    async def scenario() -> None:
        with pytest.raises(ValueError, match="broken"):
            await hold(in_flight, answer(error=ValueError("broken")))

    asyncio.run(scenario())
    assert not is_throttled(in_flight, ONE)


@pytest.mark.parametrize("steps", [0, 1])
def test_an_answer_that_is_cancelled_gives_its_slot_back(steps: int) -> None:
    in_flight = InFlight(1)

    async def scenario() -> None:
        held = hold(in_flight, answer(asyncio.Event()))
        task = asyncio.get_running_loop().create_task(held)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held.close()

    asyncio.run(scenario())
    assert not is_throttled(in_flight, ONE)


def test_an_answer_that_never_began_gives_its_slot_back() -> None:
    in_flight = InFlight(1)
    held = hold(in_flight, answer())
    assert inspect.getcoroutinestate(held) == inspect.CORO_CREATED  # what the protocol asks
    held.close()
    held.close()
    assert not is_throttled(in_flight, ONE)


def test_slots_are_given_back_once() -> None:
    in_flight = InFlight(2)
    first, second = in_flight.holding(ONE, answer()), in_flight.holding(ONE, answer())
    first.close()
    first.close()
    assert not is_throttled(in_flight, ONE)
    in_flight.enter(ONE)
    assert is_throttled(in_flight, ONE)
    second.close()
