"""The crew of `topics work`: the client's worker, with a handler that runs a command with the job on its stdin.

The client claims, keeps leases, settles and fences. Each command runs in a separate session, so that Ctrl-C reaches
only this process.
"""

import argparse
import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from topics import limits
from topics.client.async_client import AsyncClient
from topics.client.async_worker import AsyncWorker
from topics.client.working import Counts, Job, Retry, WorkerOptions, Working
from topics.clock import SystemClock, monotonic_ms

KILL_S = 5.0


class Done(Struct, kw_only=True):
    """How a job ended. `exit_code` is below 0 for a signal; `again_ms` is when it comes again."""

    queue: str
    seq: int
    deliveries: int
    exit_code: int
    took_ms: int
    again_ms: int = 0
    lost_lease: bool = False


class Failed(Retry):
    """The command failed: its job comes again."""

    def __init__(self, done: Done) -> None:
        super().__init__(done.again_ms / 1000)


class ToldWorking(Working[Any]):
    """Reports every job once it is settled."""

    def __init__(self, client: AsyncClient, queue: str, options: WorkerOptions, told: Callable[[Done], None]) -> None:
        super().__init__(client.caller, queue, options, None)
        self._told = told
        self.done: dict[str, Done] = {}  # by lease id, until it is settled

    async def settle(self, job: Job[Any], error: BaseException | None) -> bool:
        done = self.done.pop(job.lease_id, None)
        if done is None:  # the command cannot be run at all, so no job would succeed
            await self.give_back([job])
            raise error or RuntimeError("a job is settled before its command has ended")
        held = await super().settle(job, error)
        done.lost_lease = not held
        self._told(done)
        return held


class Crew(AsyncWorker[Any]):
    """Calls `told` for every settled job, and `finishing` with how many still run when it is stopped."""

    def __init__(
        self,
        client: AsyncClient,
        args: argparse.Namespace,
        told: Callable[[Done], None],
        finishing: Callable[[int], None],
    ) -> None:
        options = WorkerOptions(
            concurrency=args.concurrency,
            node=args.node,
            stop_s=args.grace / 1000 + 3 * KILL_S,  # commands are ended before that
            drain=args.drain,
        )
        if args.lease is not None:
            options["lease_ms"] = args.lease
        self._told_working = ToldWorking(client, args.queue, options, told)
        super().__init__(self._told_working)
        self(self._do)
        self._args = args
        self._finishing = finishing
        self._clock = SystemClock()
        self._closing = False  # no more jobs
        self._killing = asyncio.Event()  # those that run are ended, too

    def stop(self) -> None:
        """The first time, running jobs may finish within the grace period; the second time they are ended."""
        if self._closing:
            self._killing.set()
            return
        self._closing = True
        super().stop()
        if self._tasks:
            self._finishing(len(self._tasks))
        asyncio.get_running_loop().call_later(self._args.grace / 1000, self._killing.set)

    async def _do(self, job: Job[Any]) -> None:
        began_ms = monotonic_ms(self._clock)
        exit_code = await self._command(job)
        done = Done(
            queue=self._args.queue,
            seq=job.seq,
            deliveries=job.deliveries,
            exit_code=exit_code,
            took_ms=monotonic_ms(self._clock) - began_ms,
        )
        self._told_working.done[job.lease_id] = done
        if exit_code:
            doubled = self._args.retry << min(job.deliveries - 1, 16)
            # A job that was ended here did not fail: it comes again at once.
            done.again_ms = 0 if self._killing.is_set() else min(doubled, limits.CLI_RETRY_MS_MAX)
            raise Failed(done)

    async def _command(self, job: Job[Any]) -> int:
        told = {"JOB_SEQ": str(job.seq), "JOB_DELIVERIES": str(job.deliveries), "JOB_TAG": job.tag or ""}
        process = await asyncio.create_subprocess_exec(
            *self._args.words,
            stdin=asyncio.subprocess.PIPE,
            stdout=2 if self._args.json else None,  # stdout is for objects then
            env=os.environ | told,
            start_new_session=True,
        )
        running = asyncio.create_task(process.communicate(bytes(job.raw) + b"\n"))
        ending = asyncio.create_task(self._end(process))
        try:
            await running
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
            if process.returncode is None:
                _signal(process, signal.SIGKILL)
        assert process.returncode is not None
        return process.returncode

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        await self._killing.wait()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            _signal(process, sign)
            await asyncio.sleep(KILL_S)


def _signal(process: asyncio.subprocess.Process, sign: signal.Signals) -> None:
    """Signals the command and all it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, sign)


def work(args: argparse.Namespace, told: Callable[[Done], None], finishing: Callable[[int], None]) -> Counts:
    """Until the crew is stopped by a signal, or has nothing left to do."""

    async def run() -> Counts:
        async with AsyncClient(args.url) as client:
            return await Crew(client, args, told, finishing).run()

    return asyncio.run(run())
