"""The producer for asyncio: `producing.py`, and a task that sends."""

import asyncio
import os
from collections.abc import Generator, Mapping
from math import inf
from typing import Any

from topics.client.caller import Caller
from topics.client.producing import Batch, Callback, Pending, ProducerShell, call_back, record_text


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


class AsyncProducer(ProducerShell):
    """Appends records in batches, each exactly once. For the tasks of one loop; after a fork it refuses to work."""

    def __init__(self, caller: Caller, pending: Pending) -> None:
        super().__init__(caller, pending)
        self._changed = asyncio.Event()  # for the task that sends
        self._room = asyncio.Condition()
        self._task = asyncio.get_running_loop().create_task(self._work(), name=f"producer {pending.name}")

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
            self._refuse_fork()
        while not pending.has_room and pending.failure is None and not pending.closed:
            async with self._room:
                await self._room.wait()
        batch, index, news = self._add(text, sequence, callback)
        if news:
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
        except BaseException as error:  # those who wait for a write, or close, get it
            await self._settle(self._pending.fail(error))
            if not isinstance(error, Exception):
                raise

    async def _next(self) -> Batch | None:
        """The batch to send; waits for it. None when the producer is closed and everything is written."""
        while isinstance(due := self._due(), float | int):
            self._changed.clear()
            if due == inf:
                await self._changed.wait()
            else:
                await self._linger(due)
        return due

    async def _linger(self, left_s: float) -> None:
        """Until the open batch is old enough or, as `append` may have filled it, something has changed."""
        try:
            async with asyncio.timeout(left_s):
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
