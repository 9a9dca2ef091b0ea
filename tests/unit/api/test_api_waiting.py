"""Answers that wait until what they say is durable."""

import asyncio

import pytest

from topics.api.http import Response, Waiting
from topics.api.waiting import once_committed
from topics.engine.journal import Commit
from topics.errors import StorageFailed

REPLY = Response(200, b"")


def resolved(error: StorageFailed | None = None) -> Commit:
    commit = Commit()
    commit.resolve(error, 0)
    return commit


@pytest.mark.parametrize("commit", [None, resolved()])
def test_with_nothing_to_wait_for_the_answer_is_there_at_once(commit: Commit | None) -> None:
    assert once_committed(commit, lambda: REPLY) is REPLY


def test_an_answer_is_rendered_when_the_commit_is_done_and_not_before() -> None:
    rendered: list[str] = []

    def render() -> Response:
        rendered.append("now")
        return REPLY

    async def story() -> None:
        commit = Commit()
        answer = once_committed(commit, render)
        assert not isinstance(answer, Response)
        task = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        assert not rendered
        commit.resolve(None, 0)
        assert await task is REPLY

    asyncio.run(story())
    assert rendered == ["now"]


def test_what_could_not_be_made_durable_is_never_answered() -> None:
    async def story() -> None:
        commit = Commit()
        answer = once_committed(commit, lambda: pytest.fail("rendered"))
        assert isinstance(answer, Waiting)
        commit.resolve(StorageFailed("m"), 0)
        with pytest.raises(StorageFailed):
            await answer

    asyncio.run(story())


def test_what_failed_before_is_refused_at_once() -> None:
    with pytest.raises(StorageFailed):
        once_committed(resolved(StorageFailed("m")), lambda: pytest.fail("rendered"))


@pytest.mark.parametrize("taken", [True, False])
def test_the_end_of_an_answer_is_told_once_whether_it_is_taken_or_dropped(taken: bool) -> None:
    ends: list[str] = []
    answer = Waiting(resolved(), lambda: REPLY, lambda: ends.append("end"))
    if taken:
        assert answer.result() is REPLY
    answer.drop()
    answer.drop()
    assert ends == ["end"]


def test_a_caller_who_went_away_does_not_disturb_the_commit() -> None:
    async def story() -> None:
        commit = Commit()
        answer = once_committed(commit, lambda: REPLY)
        assert not isinstance(answer, Response)
        task = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        commit.resolve(None, 0)
        assert commit.done

    asyncio.run(story())
