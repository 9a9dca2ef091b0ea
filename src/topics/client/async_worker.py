"""The worker for asyncio: a task for each job, one that claims, and one that keeps leases alive."""

import asyncio
import inspect
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, Self, TypeVar

from topics.client.working import Counts, Job, JobsInHand, WorkerShell, Working

D = TypeVar("D")

Handler = Callable[[Job[D]], Any]  # plain or async


class AsyncKeptLeases(JobsInHand[D]):
    """Jobs under way, whose leases a task extends."""

    def __init__(self, working: Working[D]) -> None:
        super().__init__(working)
        self._task = asyncio.get_running_loop().create_task(self._work(), name=f"leases of {working.queue}")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(self._working.keep_alive_s)
            await self.keep_alive()


class AsyncWorker(WorkerShell[D]):
    """Runs a handler for each job of a queue. Made by `client.worker(queue)`, which also decorates the handler:

        @client.worker("resize", concurrency=8)
        async def resize(job): ...

        await resize.run()    # until SIGTERM, SIGINT, stop(), or until it is cancelled

    A handler that is not async runs in a thread.
    """

    def __init__(self, working: Working[D]) -> None:
        super().__init__(working)
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Takes no further jobs. Those under way have `stop_s` to finish, then they are given back. Safe to call from
        anywhere."""
        if self._loop is None:
            self._stopping.set()
        else:
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self, handler: Handler[D] | None = None) -> Counts:
        """Works until it is stopped. On the loop of the main thread SIGTERM and SIGINT stop it."""
        self._take_handler(handler)
        self._loop = asyncio.get_running_loop()
        await self._working.begin()
        leases = AsyncKeptLeases(self._working)
        async with _stopped_by_signals(self.stop):
            try:
                await self._claim(leases)
            finally:
                await self._finish(leases)
        return self.counts

    async def _claim(self, leases: AsyncKeptLeases[D]) -> None:
        working, stopping = self._working, asyncio.ensure_future(self._stopping.wait())
        try:
            while not stopping.done():
                free = working.concurrency - len(self._tasks)
                if free == 0:
                    await asyncio.wait([*self._tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
                    self._check()
                    continue
                jobs = await working.claim(free)
                for job in jobs:
                    leases.add(job)
                    self._tasks.add(asyncio.ensure_future(self._work(job, leases)))
                if not jobs and working.is_drained(free):
                    return
                if not jobs:
                    await self._wait_for_jobs(stopping)
                self._check()
        finally:
            stopping.cancel()

    async def _wait_for_jobs(self, stopping: "asyncio.Future[Any]") -> None:
        waiting = asyncio.ensure_future(self._working.wait_for_jobs())
        try:
            await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        await asyncio.wait([waiting])
        if not waiting.cancelled():
            waiting.result()

    async def _finish(self, leases: AsyncKeptLeases[D]) -> None:
        tasks = [*self._tasks]
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=self._working.stop_s)
            left = leases.take_all()
            for task in unfinished:
                task.cancel()
            await asyncio.wait(tasks)
            await self._working.give_back(left)
        await leases.close()
        self._check()

    def _check(self) -> None:
        """Takes finished jobs off the list; raises the error if settling one failed."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _work(self, job: Job[D], leases: AsyncKeptLeases[D]) -> None:
        error: BaseException | None = None
        try:
            await self._handle(job)
        except Exception as raised:  # whatever a handler raises gives its job back; other jobs go on
            error = raised
        if leases.remove(job):  # else the worker was stopped, and others have the job
            await self._working.settle(job, error)

    async def _handle(self, job: Job[D]) -> None:
        assert self._handler is not None
        if inspect.iscoroutinefunction(self._handler):
            await self._handler(job)
        else:
            await asyncio.to_thread(self._handler, job)


class AsyncJobs(Generic[D]):
    """A queue's jobs one after the other, for a plain loop. The lease is kept until `ack` or `nack`. When the block
    ends, jobs that got neither are given back.

        async with client.jobs("resize") as jobs:
            async for job in jobs:
                await resize(job.data)
                await jobs.ack(job)
    """

    def __init__(self, working: Working[D]) -> None:
        self._working = working
        self._leases: AsyncKeptLeases[D] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Job[D]]:
        return self

    async def __anext__(self) -> Job[D]:
        """Waits for a job, until `close` is called."""
        if self._leases is None:
            await self._working.begin()
            self._leases = AsyncKeptLeases(self._working)
        while not self._closed:
            for job in await self._working.claim(1):
                self._leases.add(job)
                return job
            await self._working.wait_for_jobs()
        raise StopAsyncIteration

    @property
    def counts(self) -> Counts:
        return self._working.counts

    async def ack(self, job: Job[D]) -> None:
        """The job is done: it is deleted for good."""
        await self._settle(job, None)

    async def nack(self, job: Job[D], error: BaseException) -> None:
        """The job failed with `error`. A `Retry` only puts it off."""
        await self._settle(job, error)

    async def close(self) -> None:
        self._closed = True
        if self._leases is not None:
            await self._leases.close()
            await self._working.give_back(self._leases.take_all())

    async def _settle(self, job: Job[D], error: BaseException | None) -> None:
        if self._leases is not None and self._leases.remove(job):
            await self._working.settle(job, error)


@asynccontextmanager
async def _stopped_by_signals(stop: Callable[[], None]) -> AsyncIterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
