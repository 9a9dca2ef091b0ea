"""The blocking worker: threads that run the handler, one that claims, and one that keeps leases alive."""

import inspect
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, Self, TypeVar

from topics.client.caller import run
from topics.client.working import Counts, Job, JobsInHand, WorkerShell, Working

D = TypeVar("D")

Handler = Callable[[Job[D]], object]  # plain or async


class KeptLeases(JobsInHand[D]):
    """Jobs under way, whose leases a thread extends."""

    def __init__(self, working: Working[D]) -> None:
        super().__init__(working)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"leases of {working.queue}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(self._working.keep_alive_s):
            run(self.keep_alive())


class Worker(WorkerShell[D]):
    """Runs a handler for each job of a queue. Made by `client.worker(queue)`, which also decorates the handler:

    @client.worker("resize", concurrency=8)
    def resize(job): ...

    resize.run()    # until SIGTERM, SIGINT or stop()
    """

    def __init__(self, working: Working[D]) -> None:
        super().__init__(working)
        self._stopping = threading.Event()
        self._free = threading.Semaphore(working.concurrency)
        self._given: queue.SimpleQueue[Job[D] | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None

    def stop(self) -> None:
        """Takes no further jobs. Those under way have `stop_s` to finish, then they are given back. Safe to call from
        anywhere."""
        self._stopping.set()

    def run(self, handler: Handler[D] | None = None) -> Counts:
        """Works until it is stopped. In the main thread SIGTERM and SIGINT stop it."""
        self._take_handler(handler)
        working = self._working
        run(working.begin())
        leases = KeptLeases(working)
        threads = [
            threading.Thread(target=self._work, args=(leases,), name=f"worker of {working.queue}", daemon=True)
            for _ in range(working.concurrency)
        ]
        for thread in threads:
            thread.start()
        try:
            with _stopped_by_signals(self.stop):
                self._claim(leases)
                self._finish(leases, threads)
        finally:
            self._stopping.set()
            leases.close()
        if self._failure is not None:
            raise self._failure
        return self.counts

    def _claim(self, leases: KeptLeases[D]) -> None:
        """Claims as many jobs as there are free threads, again and again."""
        working = self._working
        while not self._stopping.is_set():
            if not self._free.acquire(timeout=0.1):
                continue
            count = 1
            while count < working.concurrency and self._free.acquire(blocking=False):
                count += 1
            jobs = run(working.claim(count))
            for job in jobs:
                leases.add(job)
                self._given.put(job)
            for _ in range(count - len(jobs)):
                self._free.release()
            if not jobs and working.is_drained(count):
                return
            if not jobs and not self._stopping.is_set():
                run(working.wait_for_jobs())

    def _finish(self, leases: KeptLeases[D], threads: list[threading.Thread]) -> None:
        for _ in threads:
            self._given.put(None)
        deadline_ns = self._working.caller.clock.monotonic_ns() + int(self._working.stop_s * 1e9)
        for thread in threads:
            left_s = (deadline_ns - self._working.caller.clock.monotonic_ns()) / 1e9
            thread.join(max(left_s, 0.0))
        run(self._working.give_back(leases.take_all()))

    def _work(self, leases: KeptLeases[D]) -> None:
        while (job := self._given.get()) is not None:
            error: BaseException | None = None
            try:
                self._handle(job)
            except Exception as raised:  # whatever a handler raises gives its job back; other jobs go on
                error = raised
            if leases.remove(job):  # else the worker was stopped, and others have the job
                try:
                    run(self._working.settle(job, error))
                except BaseException as raised:  # nobody looks at this thread: `run` raises it
                    self._failure = raised
                    self.stop()
            self._free.release()

    def _handle(self, job: Job[D]) -> None:
        assert self._handler is not None
        result: Any = self._handler(job)
        if inspect.iscoroutine(result):
            import asyncio  # noqa: PLC0415 - a third of what importing the client costs, and few handlers need it

            asyncio.run(result)


class Jobs(Generic[D]):
    """A queue's jobs one after the other, for a plain loop. The lease is kept until `ack` or `nack`. When the block
    ends, jobs that got neither are given back.

        with client.jobs("resize") as jobs:
            for job in jobs:
                resize(job.data)
                jobs.ack(job)
    """

    def __init__(self, working: Working[D]) -> None:
        self._working = working
        self._leases: KeptLeases[D] | None = None
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Job[D]]:
        return self

    def __next__(self) -> Job[D]:
        """Waits for a job, until `close` is called."""
        if self._leases is None:
            run(self._working.begin())
            self._leases = KeptLeases(self._working)
        while not self._closed.is_set():
            for job in run(self._working.claim(1)):
                self._leases.add(job)
                return job
            run(self._working.wait_for_jobs())
        raise StopIteration

    @property
    def counts(self) -> Counts:
        return self._working.counts

    def ack(self, job: Job[D]) -> None:
        """The job is done: it is deleted for good."""
        self._settle(job, None)

    def nack(self, job: Job[D], error: BaseException) -> None:
        """The job failed with `error`. A `Retry` only puts it off."""
        self._settle(job, error)

    def close(self) -> None:
        self._closed.set()
        if self._leases is not None:
            self._leases.close()
            run(self._working.give_back(self._leases.take_all()))

    def _settle(self, job: Job[D], error: BaseException | None) -> None:
        if self._leases is not None and self._leases.remove(job):
            run(self._working.settle(job, error))


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
