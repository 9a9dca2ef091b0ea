"""Both clients behind one face, so that one list of scenarios runs either: the blocking one works in threads."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

from topics import AsyncClient, Client


class InThreads:
    """Whatever is called of the thing is called in a thread, and awaited; iterators become asynchronous ones."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        if not callable(found):
            return found

        def method(*args: Any, **kwargs: Any) -> Any:
            return Later(lambda: found(*args, **kwargs))

        return method


class Later:
    """The result of a call, to be awaited, entered, or iterated over."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._it: Any = None

    def __await__(self) -> Any:
        return asyncio.to_thread(self._call).__await__()

    async def __aenter__(self) -> Any:
        self._it = await asyncio.to_thread(self._call)
        return Entered(self._it)

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self._it.close)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async with self as entered:
            async for item in entered:
                yield item


class Entered(InThreads):
    def __aiter__(self) -> "Entered":
        return self

    async def __anext__(self) -> Any:
        done = object()
        item = await asyncio.to_thread(next, self._thing, done)
        if item is done:
            raise StopAsyncIteration
        return item


def blocking(url: str, **options: Any) -> tuple[Any, Any]:
    """A client as scenarios use it, and how to close it."""
    client = Client(url, **options)
    return InThreads(client), lambda: asyncio.to_thread(client.close)


def awaited(url: str, **options: Any) -> tuple[Any, Any]:
    client = AsyncClient(url, **options)
    return client, client.close


async def settled(value: Any) -> Any:
    """A result that one shell gives at once and the other when it is awaited."""
    if inspect.isawaitable(value):
        return await value
    return await asyncio.to_thread(value.result)
