"""Iterators over what a read, a watch or a session gives, for threads."""

from typing import Self, TypeVar

from topics.client.caller import run
from topics.client.reading import Taken, TakenOfTopic

I_co = TypeVar("I_co", covariant=True)


class Items(Taken[I_co]):
    """Iterates over what a reading or a watch gives. End it with `close`, or use it in a `with`."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> I_co:
        while True:
            for item in self._items:
                self._last = item
                return item
            items = run(self._source.next_items())
            if items is None:
                raise StopIteration
            self._items = iter(items)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Reader(TakenOfTopic[I_co], Items[I_co]):
    """Iterates over a topic. `commit()` remembers the last item under the name given as `cursor`."""

    def commit(self) -> None:
        """Everything up to the last item is done: a later `read` with the same `cursor` begins after it."""
        run(self._commit())
