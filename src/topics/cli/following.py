"""Following many topics at once: watch sessions of at most 256 topics each, and topics made later join.

The names are looked up again every second. New topics go into the session that has room, which is reopened from the
places reached. An item counts as reached once it was passed on, so none is skipped and none comes twice.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from topics import limits
from topics.cli.places import is_pattern
from topics.client.async_client import AsyncClient
from topics.client.events import CaughtUp, Event, Gap, TopicDeleted
from topics.client.watching import WatchOptions
from topics.errors import TopicNotFound

Happening = Event[Any] | Gap | CaughtUp | TopicDeleted
Starts = Mapping[str, int | None]  # None: from now on
Open = Callable[[Starts], AsyncIterator[Happening]]
HAPPENINGS_WAITING_MAX = 1000


def follow(
    url: str,
    names: Sequence[str],
    starts: Starts,
    tag: str | None,
    show: Callable[[Happening], None],
    *,
    caught_up: bool = False,
) -> None:
    """Shows what happens, until Ctrl-C. If the server restarts, waits for it for up to a minute."""
    options: WatchOptions = {"lenient": True, "caught_up": caught_up}
    if tag is not None:
        options["tag"] = tag

    async def run() -> None:
        async with AsyncClient(url) as client:
            sessions = Sessions(lambda begin: client.watch(begin, **options), lambda: looked_up(client, names), starts)
            async with aclosing(sessions.happenings()) as happenings:
                async for happening in happenings:
                    show(happening)

    asyncio.run(run())


class Sessions:
    def __init__(self, open_session: Open, look_up: Callable[[], Awaitable[set[str]]], starts: Starts) -> None:
        self._open = open_session
        self._look_up = look_up
        self.places: dict[str, int | None] = dict(starts)
        self._waiting: asyncio.Queue[Happening | Exception] = asyncio.Queue(HAPPENINGS_WAITING_MAX)
        self._sessions: list[Session] = []

    async def happenings(self) -> AsyncGenerator[Happening, None]:
        await self._add(self.places)
        joining = asyncio.create_task(self._join_later())
        try:
            while True:
                happening = await self._waiting.get()
                if isinstance(happening, Exception):
                    raise happening
                yield happening
        finally:
            tasks = [joining, *(session.task for session in self._sessions)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def pump(self, topics: set[str]) -> None:
        """One session, for as long as it has topics. A deleted topic leaves it, and joins again when it is made
        again."""
        try:
            async for happening in self._open({name: self.places[name] for name in sorted(topics)}):
                await self._waiting.put(happening)
                # No await from here on: what was passed on counts as reached, even if this task is cancelled now.
                match happening:
                    case Event():
                        self.places[happening.topic] = happening.seq
                    case Gap():
                        self.places[happening.topic] = 0 if happening.reason == "recreated" else happening.last
                    case CaughtUp():
                        self.places[happening.topic] = happening.head_seq
                    case TopicDeleted():
                        topics.discard(happening.topic)
                        self.places.pop(happening.topic, None)
        except Exception as error:  # of this task; whoever waits for its lines raises it
            await self._waiting.put(error)

    async def _join_later(self) -> None:
        try:
            while True:
                await asyncio.sleep(limits.CLI_JOIN_S)
                new = await self._look_up() - self.places.keys()
                self.places |= dict.fromkeys(new, 0)
                await self._add(sorted(new))
        except Exception as error:  # of this task; whoever waits for its lines raises it
            await self._waiting.put(error)

    async def _add(self, names: Iterable[str]) -> None:
        """Into the session that has room, which is reopened; then into new ones."""
        left = list(names)
        while left:
            last = self._sessions[-1] if self._sessions else None
            if last is not None and len(last.topics) < limits.WATCH_TOPICS_MAX:
                await last.end()
                self._sessions.pop()
                left = [*last.topics, *left]
            self._sessions.append(Session(self, left[: limits.WATCH_TOPICS_MAX]))
            left = left[limits.WATCH_TOPICS_MAX :]


class Session:
    def __init__(self, owner: Sessions, names: Iterable[str]) -> None:
        self.topics = set(names)
        self.task = asyncio.create_task(owner.pump(self.topics))

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def looked_up(client: AsyncClient, names: Sequence[str]) -> set[str]:
    """The topics that these names stand for right now."""
    found: set[str] = set()
    for name in names:
        if is_pattern(name):
            found |= {topic.topic async for topic in client.topics(name.removesuffix("*"))}
        else:
            with suppress(TopicNotFound):
                found.add((await client.topic(name)).topic)
    return found
