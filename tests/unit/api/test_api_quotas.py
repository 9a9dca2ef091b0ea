"""Requests in flight, counted by key."""

import asyncio
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


# Held for as long as an answer takes


class Answer:
    """An answer that waits for `gate`, and notes whether it was ever begun and how it ended."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = self.cleaned_up = False

    async def wait(self, error: Exception | None = None) -> Response:
        self.begun = True
        try:
            await self.gate.wait()
        finally:
            self.cleaned_up = True
        if error is not None:
            raise error
        return Response(200, b"")


def held(in_flight: InFlight, answer: Answer, error: Exception | None = None) -> Coroutine[Any, Any, Response]:
    return in_flight.holding(ONE, answer.wait(error))


def test_a_slot_is_taken_before_the_answer_is_begun() -> None:
    in_flight, answer = InFlight(1), Answer()
    coroutine = held(in_flight, answer)
    assert not answer.begun
    assert is_throttled(in_flight, ONE)
    coroutine.close()


def test_an_answer_that_is_dropped_before_it_began_gives_its_slot_back() -> None:
    in_flight = InFlight(1)
    held(in_flight, Answer()).close()
    assert not is_throttled(in_flight, ONE)


@pytest.mark.parametrize("ending", ["answer", "error", "cancel", "close"])
def test_a_slot_is_given_back_once_however_the_answer_ends(ending: str) -> None:
    in_flight, answer = InFlight(2), Answer()
    in_flight.enter(ONE)  # another one of this key, which stays

    async def story() -> None:
        coroutine = held(in_flight, answer, ValueError("m") if ending == "error" else None)
        if ending == "close":
            coroutine.send(None)
            coroutine.close()
            coroutine.close()
            return
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)
        assert is_throttled(in_flight, ONE)
        if ending == "cancel":
            task.cancel()
        answer.gate.set()
        await asyncio.gather(task, return_exceptions=True)
        coroutine.close()

    asyncio.run(story())
    assert answer.cleaned_up
    assert not is_throttled(in_flight, ONE)
    in_flight.leave(ONE)
    assert not in_flight._by_key


def test_an_answer_can_be_awaited_as_well_as_run_as_a_task() -> None:
    in_flight, answer = InFlight(1), Answer()
    answer.gate.set()

    async def story() -> Response:
        return await held(in_flight, answer)

    assert asyncio.run(story()).status == 200
    assert not is_throttled(in_flight, ONE)
