"""Following many topics: sessions of a bounded size, topics that join later, and nothing twice or skipped."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from msgspec import Raw

from topics import limits
from topics.cli.following import Happening, Sessions, Starts
from topics.client.events import Event, Gap, TopicDeleted


class Topics:
    """Logs in memory, and sessions over them."""

    def __init__(self) -> None:
        self.logs: dict[str, list[int]] = {}
        self.deleted: set[str] = set()
        self.opened: list[Starts] = []
        self.changed = asyncio.Condition()

    async def write(self, topic: str, *seqs: int) -> None:
        async with self.changed:
            self.logs.setdefault(topic, []).extend(seqs)
            self.changed.notify_all()

    async def delete(self, topic: str) -> None:
        async with self.changed:
            self.deleted.add(topic)
            del self.logs[topic]
            self.changed.notify_all()

    async def names(self) -> set[str]:
        return set(self.logs)

    async def session(self, starts: Starts) -> AsyncIterator[Happening]:
        self.opened.append(starts)
        places = {topic: seq or 0 for topic, seq in starts.items()}
        while places:
            for topic, place in [*places.items()]:
                if topic in self.deleted:
                    del places[topic]
                    yield TopicDeleted(topic, place)
                for seq in [seq for seq in self.logs.get(topic, ()) if seq > place]:
                    places[topic] = seq
                    yield Event(seq, 0, Raw(b"1"), topic=topic)
            async with self.changed:
                await self.changed.wait()


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLI_JOIN_S", 0.0)


def run(steps: Callable[[Topics], Coroutine[Any, Any, None]]) -> None:
    async def all_steps() -> None:
        await asyncio.wait_for(steps(Topics()), 30)

    asyncio.run(all_steps())


async def until(happenings: AsyncIterator[Happening], count: int) -> list[Happening]:
    return [await anext(happenings) for _ in range(count)]


def seqs(happenings: list[Happening]) -> list[tuple[str, int]]:
    return sorted((each.topic, each.seq) for each in happenings if isinstance(each, Event))


def test_topics_made_later_join_from_their_beginning() -> None:
    async def steps(topics: Topics) -> None:
        await topics.write("a", 1, 2)
        happenings = Sessions(topics.session, topics.names, {"a": 1}).happenings()
        assert seqs(await until(happenings, 1)) == [("a", 2)]
        await topics.write("b", 1, 2)
        assert seqs(await until(happenings, 2)) == [("b", 1), ("b", 2)]
        await topics.write("a", 3)
        assert seqs(await until(happenings, 1)) == [("a", 3)]
        await happenings.aclose()

    run(steps)


def test_a_session_has_at_most_so_many_topics_and_is_filled_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WATCH_TOPICS_MAX", 3)

    async def steps(topics: Topics) -> None:
        for name in "abcd":
            await topics.write(name, 1)
        happenings = Sessions(topics.session, topics.names, dict.fromkeys("abcd", 0)).happenings()
        assert seqs(await until(happenings, 4)) == [(name, 1) for name in "abcd"]
        assert [sorted(starts) for starts in topics.opened] == [["a", "b", "c"], ["d"]]
        await topics.write("e", 1)
        await topics.write("f", 1)
        await topics.write("g", 1)
        assert seqs(await until(happenings, 3)) == [("e", 1), ("f", 1), ("g", 1)]
        assert all(len(starts) <= 3 for starts in topics.opened)
        await happenings.aclose()

    run(steps)


def test_nothing_comes_twice_when_a_session_is_opened_anew() -> None:
    async def steps(topics: Topics) -> None:
        await topics.write("a", *range(1, 3001))
        happenings = Sessions(topics.session, topics.names, {"a": 0}).happenings()
        found = await until(happenings, 10)  # the rest is on its way
        await topics.write("b", 1)
        found += await until(happenings, 2991)
        assert seqs(found) == [*(("a", seq) for seq in range(1, 3001)), ("b", 1)]
        await happenings.aclose()

    run(steps)


def test_a_topic_that_is_deleted_and_made_anew_joins_again() -> None:
    async def steps(topics: Topics) -> None:
        await topics.write("a", 1)
        await topics.write("b", 1)
        happenings = Sessions(topics.session, topics.names, {"a": 1, "b": 1}).happenings()
        waiting = asyncio.create_task(until(happenings, 1))
        await asyncio.sleep(0)
        await topics.delete("a")
        assert await waiting == [TopicDeleted("a", 1)]
        topics.deleted.clear()
        await topics.write("a", 1, 2)
        assert seqs(await until(happenings, 2)) == [("a", 1), ("a", 2)]
        await happenings.aclose()

    run(steps)


def test_an_error_of_a_session_ends_the_following() -> None:
    async def failing(_: Starts) -> AsyncIterator[Happening]:
        yield Gap(1, 2, "cap", "a")
        raise ConnectionError("gone")

    async def steps(topics: Topics) -> None:
        happenings = Sessions(failing, topics.names, {"a": 0}).happenings()
        assert await until(happenings, 1) == [Gap(1, 2, "cap", "a")]
        with pytest.raises(ConnectionError, match="gone"):
            await anext(happenings)

    run(steps)
