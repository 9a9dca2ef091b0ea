"""Watch sessions: how long they live, how many there may be, and where they stand."""

import re

import pytest

from doubles.live_stage import read_options
from topics import limits
from topics.delivery.watch_session import Position, WatchOptions, WatchSession, WatchSessions
from topics.errors import Throttled
from topics.testing.fake_clock import FakeClock

OPTIONS = WatchOptions(read_options(), 15_000, strong=False)


class Stage:
    def __init__(self, sessions_max: int = 0) -> None:
        self.clock = FakeClock()
        self.sessions = WatchSessions(self.clock, sessions_max)

    def create(self, **cursors: int) -> WatchSession:
        positions = {name: Position(1, cursor) for name, cursor in cursors.items()}
        return self.sessions.create(b"key", OPTIONS, positions)


def test_an_id_is_128_random_bits() -> None:
    stage = Stage()
    wids = {stage.create().wid for _ in range(100)}
    assert len(wids) == 100
    assert all(re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", wid) for wid in wids)


def test_a_session_is_found_by_its_id() -> None:
    stage = Stage()
    session = stage.create(a=3)
    assert stage.sessions.find(session.wid) is session
    assert stage.sessions.find("wid_AAAAAAAAAAAAAAAAAAAAAA") is None
    assert (session.key_digest, session.cursors()) == (b"key", {"a": 3, "$a": 1})


def test_a_session_nobody_uses_ends_after_its_time_and_not_before() -> None:
    stage = Stage()
    session = stage.create()
    stage.clock.advance(limits.SESSION_TTL_MS)
    assert stage.sessions.find(session.wid) is session
    stage.clock.advance(1)
    assert stage.sessions.find(session.wid) is None
    assert len(stage.sessions) == 0


def test_a_session_with_an_open_stream_never_ends() -> None:
    stage = Stage()
    session = stage.create()
    session.close_stream = lambda: None
    stage.clock.advance(10 * limits.SESSION_TTL_MS)
    assert stage.sessions.find(session.wid) is session


def test_the_time_runs_from_the_end_of_the_last_stream() -> None:
    stage = Stage()
    session = stage.create()
    stage.clock.advance(limits.SESSION_TTL_MS)
    stage.sessions.touch(session)
    stage.clock.advance(limits.SESSION_TTL_MS)
    assert stage.sessions.find(session.wid) is session
    stage.clock.advance(1)
    assert stage.sessions.find(session.wid) is None


def test_looking_for_a_session_does_not_keep_it() -> None:
    stage = Stage()
    session = stage.create()
    for _ in range(3):
        stage.clock.advance(limits.SESSION_TTL_MS // 3)
        assert stage.sessions.find(session.wid) is session
    stage.clock.advance(3)
    assert stage.sessions.find(session.wid) is None


@pytest.mark.parametrize("step_ms", [-86_400_000, 86_400_000])
def test_a_wall_clock_that_is_set_ends_no_session_and_keeps_none(step_ms: int) -> None:
    stage = Stage()
    session = stage.create()
    stage.clock.set_wall(stage.clock.now_ms() + step_ms)
    assert stage.sessions.find(session.wid) is session
    stage.clock.advance(limits.SESSION_TTL_MS + 1)
    assert stage.sessions.find(session.wid) is None


def test_there_are_no_more_sessions_than_may_be() -> None:
    stage = Stage(sessions_max=2)
    stage.create()
    stage.create()
    with pytest.raises(Throttled) as refused:
        stage.create()
    assert refused.value.detail == {"limit": "max_watch_sessions", "max": 2}
    assert len(stage.sessions) == 2


def test_a_session_that_has_ended_leaves_room() -> None:
    stage = Stage(sessions_max=1)
    stage.create()
    stage.clock.advance(limits.SESSION_TTL_MS + 1)
    stage.create()
    assert len(stage.sessions) == 1


def test_no_bound_is_no_bound() -> None:
    stage = Stage(sessions_max=0)
    for _ in range(100):
        stage.create()
    assert len(stage.sessions) == 100


@pytest.mark.parametrize(
    ("cursors", "after"),
    [
        ({"a": 3}, {"a": 3, "b": 5}),
        ({"a": 0, "b": 0}, {"a": 0, "b": 0}),
        ({"a": 5, "b": 4}, {"a": 5, "b": 4}),
        ({"a": 6, "b": 2**70}, {"a": 5, "b": 5}),
        ({"a": -1}, {"a": 5, "b": 5}),
        ({"c": 1}, {"a": 5, "b": 5}),
        ({}, {"a": 5, "b": 5}),
    ],
)
def test_a_session_goes_back_and_never_forward(cursors: dict[str, int], after: dict[str, int]) -> None:
    session = Stage().create(a=5, b=5)
    session.rewind(cursors)
    assert {name: position.cursor for name, position in session.positions.items()} == after


def test_a_session_goes_back_to_an_earlier_topic_of_the_name() -> None:
    session = Stage().create(a=5)
    session.positions["a"].left(2, 3)
    session.positions["a"].begin()
    session.rewind({"a": 900, "$a": 1})
    assert (session.positions["a"].topic_id, session.positions["a"].cursor) == (1, 900)
