"""The long poll: a diff that finds nothing waits for the next append instead of answering at once."""

import asyncio

from topics.clock import Clock
from topics.delivery.commits import committed
from topics.delivery.hub import Hub
from topics.delivery.shared_batches import SharedBatches
from topics.engine.engine import Engine
from topics.engine.journal import Busy
from topics.engine.log_reading import ReadBatch
from topics.engine.topic import Topic
from topics.errors import TopicNotFound
from topics.model.read_options import ReadOptions


class _Waiter:
    """Watches a topic for one poll."""

    __slots__ = ("_woken",)

    def __init__(self, woken: asyncio.Event) -> None:
        self._woken = woken

    def serve(self, topic: Topic, shared: SharedBatches) -> int:
        self._woken.set()
        return 0

    def pace(self, topics: list[str], retry_after_ms: int) -> None:
        """Does nothing: a poll ends by itself."""


class LongPolls:
    def __init__(self, engine: Engine, clock: Clock, hub: Hub) -> None:
        self._engine = engine
        self._hub = hub
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()
        self._released = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def release(self) -> None:
        """Ends every wait, now and from now on: the server is stopping."""
        self._released = True
        for woken in self._waiting:
            woken.set()

    async def read(self, topic: Topic, from_seq: int, options: ReadOptions, wait_ms: int) -> ReadBatch:
        """Reads from `topic` until there is something to show or `wait_ms` have passed.

        The wait ends at once when the topic is deleted, also if one of the same name follows it.
        """
        deadline_ns = self._clock.monotonic_ns() + wait_ms * 1_000_000
        woken = asyncio.Event()
        waiter = _Waiter(woken)
        self._hub.watch(topic, waiter)
        self._waiting.add(woken)
        scanned = 0
        try:
            while True:
                if topic.deleted:
                    raise TopicNotFound(topic.name)
                try:
                    _, batch = self._engine.read(topic.name, from_seq, options)
                except Busy as busy:
                    await committed(busy.commit)
                    continue
                scanned += batch.scanned
                batch = batch._replace(scanned=scanned)
                remaining_ns = deadline_ns - self._clock.monotonic_ns()
                if batch.fragments or batch.gap is not None or remaining_ns <= 0 or self._released:
                    return batch
                if batch.next_from_seq >= options.to_seq:
                    return batch  # there is nothing left for it, now or later
                moved, from_seq = batch.next_from_seq > from_seq, batch.next_from_seq
                if moved and from_seq < topic.log.head_seq:
                    # The window held only the reader's own records: look on, but let others in first.
                    await asyncio.sleep(0)
                    continue
                woken.clear()
                try:
                    await asyncio.wait_for(woken.wait(), remaining_ns / 1e9)
                except TimeoutError:
                    return batch
        finally:
            self._hub.unwatch(topic, waiter)
            self._waiting.discard(woken)
