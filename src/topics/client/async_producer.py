"""The producer for asyncio: `producing.py`, and a task that sends."""

import asyncio
import os
from collections.abc import Generator, Mapping
from typing import Any

from topics.client.caller import Caller
from topics.client.errors import ProducerForked
from topics.client.producing import Batch, Callback, Pending, call_back, record_text


class AsyncDelivery:
    """A record on its way. Awaited, it gives its seq once it is written as durably as its topic asks for; None if the
    topic had it already under its number. Raises `ProducerFailed` where it never will be."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def done(self) -> bool:
        return self._batch.done

    def __await__(self) -> Generator[Any, None, int | None]:
        yield from _until_done(self._batch).__await__()
        return self._batch.outcome(self._index)


async def _until_done(batch: Batch) -> None:
    if not batch.done:
        if batch.waiter is None:
            batch.waiter = asyncio.Event()
        await batch.waiter.wait()


class AsyncProducer:
    """Appends records in batches, each exactly once. For the tasks of one loop; after a fork it refuses to work."""

    def __init__(self, caller: Caller, pending: Pending) -> None:
        self._caller = caller
        self._pending = pending
        self._process = os.getpid()
        self._changed = asyncio.Event()  # for the task that sends
        self._room = asyncio.Condition()
        self._task = asyncio.get_running_loop().create_task(self._work(), name=f"producer {pending.name}")

    def __repr__(self) -> str:
        return f"AsyncProducer({self._pending.topic!r}, name={self._pending.name!r})"

    @property
    def name(self) -> str:
        return self._pending.name

    @property
    def next_sequence(self) -> int:
        """The number of the next record. When the producer is opened, the first number that it has not written yet."""
        return self._pending.next_number

    @property
    def unacknowledged(self) -> int:
        """How many records are on their way."""
        return self._pending.appended - self._pending.acknowledged

    async def append(
        self,
        data: object,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: Mapping[str, str] | None = None,
        delay_ms: int = 0,
        sequence: int | None = None,
        callback: Callback | None = None,
    ) -> AsyncDelivery:
        """Puts a record on its way; waits only while the buffer is full. `sequence` is its number, if the records have
        numbers of their own, such as lines of a file; it rises from record to record. `callback(seq, error)` is called
        once the record is written or given up."""
        text = record_text(data, tag, node, meta, delay_ms)
        pending = self._pending
        if os.getpid() != self._process:
            raise ProducerForked("this producer belongs to the process before the fork; make one in each process")
        while not pending.has_room and pending.failure is None and not pending.closed:
            async with self._room:
                await self._room.wait()
        if pending.closed or pending.failure is not None:
            pending.check()
        now_ns = self._caller.clock.monotonic_ns() if pending.open is None else pending.open.opened_ns
        batch, index = pending.add(text, sequence, now_ns)
        if callback is not None:
            batch.callbacks.append((index, callback))
        if index == 0 or batch is not pending.open:  # the task has something to wait for, or to send
            self._changed.set()
        return AsyncDelivery(batch, index)

    async def flush(self) -> None:
        """Waits until everything appended so far is written. Raises `ProducerFailed` if that is not possible."""
        self._pending.close_batch()
        self._changed.set()
        if self._pending.full:
            await _until_done(self._pending.full[-1])
        if self._pending.failure is not None:
            raise self._pending.failure

    async def close(self) -> None:
        """Writes what is left and ends. Raises `ProducerFailed` if that is not possible; called again, it does
        nothing."""
        if self._pending.closed:
            return
        self._pending.closed = True
        self._pending.close_batch()
        self._changed.set()
        await self._task
        if self._pending.failure is not None:
            raise self._pending.failure

    # The task

    async def _work(self) -> None:
        try:
            while (batch := await self._next()) is not None:
                reply = await self._caller.send(self._pending.call(batch))
                await self._settle(self._pending.acknowledge(batch, reply))
        except BaseException as error:
            await self._settle(self._pending.fail(error))
            if not isinstance(error, Exception):
                raise

    async def _next(self) -> Batch | None:
        """The batch to send; waits for it. None when the producer is closed and everything is written."""
        pending = self._pending
        while not pending.full:
            self._changed.clear()
            left_s = pending.linger_left_s(self._caller.clock.monotonic_ns())
            if left_s is None:
                if pending.closed:
                    return None
                await self._changed.wait()
            elif left_s == 0:
                pending.close_batch()
            else:
                await self._linger(left_s)
        return pending.full[0]

    async def _linger(self, left_s: float) -> None:
        """Until the open batch is old enough or, as `append` may have filled it, something has changed."""
        try:
            async with asyncio.timeout(left_s):
                while not self._pending.full and not self._pending.closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    async def _settle(self, done: list[Batch]) -> None:
        for batch in done:
            if batch.waiter is not None:
                batch.waiter.set()
            call_back(batch)
        async with self._room:
            self._room.notify_all()
