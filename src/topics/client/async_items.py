"""Iterators over what a read, a watch or a session gives, for asyncio."""

from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar

from topics.client.reading import Reading, Source

I_co = TypeVar("I_co", covariant=True)


class AsyncItems(Generic[I_co]):
    """Iterates over what a reading or a watch gives. End it with `close`, or use it in an `async with`."""

    def __init__(self, source: Source[I_co]) -> None:
        self._source = source
        self._items: Iterator[I_co] = iter(())
        self._last: Any = None

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

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration, also one that waits in another task: as soon as its answer has come."""
        self._source.close()
        self._items = iter(())


class AsyncReader(AsyncItems[I_co]):
    """Iterates over a topic. `commit()` remembers the last item under the name given as `cursor`."""

    def __init__(self, reading: Reading[I_co]) -> None:
        super().__init__(reading)
        self._reading = reading

    @property
    def position(self) -> int | None:
        """The seq of the last item, or the end of the range if that was a loss. None before the first."""
        return self._reading.seq_of(self._last)

    async def commit(self) -> None:
        """Everything up to the last item is done: a later `read` with the same `cursor` begins after it."""
        if (seq := self.position) is not None:
            await self._reading.commit(seq)
