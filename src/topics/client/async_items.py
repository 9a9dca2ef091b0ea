"""Iterators over what a read, a watch or a session gives, for asyncio."""

from typing import Self, TypeVar

from topics.client.reading import Taken, TakenOfTopic

I_co = TypeVar("I_co", covariant=True)


class AsyncItems(Taken[I_co]):
    """Iterates over what a reading or a watch gives. End it with `close`, or use it in an `async with`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> I_co:
        while True:
            for item in self._items:
                self._last = item
                return item
            items = await self._source.next_items()
            if items is None:
                raise StopAsyncIteration
            self._items = iter(items)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()


class AsyncReader(TakenOfTopic[I_co], AsyncItems[I_co]):
    """Iterates over a topic. `commit()` remembers the last item under the name given as `cursor`."""

    async def commit(self) -> None:
        """Everything up to the last item is done: a later `read` with the same `cursor` begins after it."""
        await self._commit()
