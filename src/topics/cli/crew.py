"""The workers of `topics work`: each claims a job, runs the command with the job on its stdin, and settles it.

A lease is extended three times in its length while the command runs. A job is fenced by its lease: settled too late, it
is left to whoever has it by then. Commands run in sessions of their own, so that Ctrl-C reaches this process alone.
"""

import argparse
import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from topics import limits
from topics.client.async_client import AsyncClient
from topics.clock import SystemClock, monotonic_ms
from topics.wire.queue_messages import JobReply

IDLE_S_MIN = 0.05
IDLE_S_MAX = 1.0
KILL_S = 5.0


class Done(Struct, kw_only=True):
    """What became of a job. `exit_code` is below 0 for a signal; `again_ms` is when it comes again."""

    queue: str
    seq: int
    deliveries: int
    exit_code: int
    took_ms: int
    again_ms: int = 0
    lost_lease: bool = False


class Crew:
    """`told` hears of every job that is settled, `finishing` how many still run when it is stopped."""

    def __init__(
        self,
        args: argparse.Namespace,
        lease_ms: int,
        told: Callable[[Done], None],
        finishing: Callable[[int], None],
    ) -> None:
        self._args = args
        self._lease_ms = lease_ms
        self._told = told
        self._finishing = finishing
        self._clock = SystemClock()
        self._closing = asyncio.Event()  # no more jobs
        self._killing = asyncio.Event()  # those that run are ended, too
        self._busy = 0
        self.completed = 0
        self.failed = 0

    def stop(self) -> None:
        """The first time, what runs may finish within its grace; the second time it may not."""
        if self._closing.is_set():
            self._killing.set()
        else:
            self._closing.set()
            if self._busy:
                self._finishing(self._busy)
            asyncio.get_running_loop().call_later(self._args.grace / 1000, self._killing.set)

    async def run(self, client: AsyncClient) -> None:
        workers = [asyncio.create_task(self._worker(client)) for _ in range(self._args.concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:  # one that met an error takes the others along
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _worker(self, client: AsyncClient) -> None:
        idle_s = IDLE_S_MIN
        while not self._closing.is_set():
            reply = await client.claim(self._args.queue, node=self._args.node, max=1, lease_ms=self._args.lease)
            if reply.claimed:
                idle_s = IDLE_S_MIN
                await self._do(client, reply.claimed[0])
            elif self._args.drain and not self._busy:
                return
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), idle_s)
                idle_s = min(idle_s * 2, IDLE_S_MAX)

    async def _do(self, client: AsyncClient, job: JobReply) -> None:
        self._busy += 1
        began_ms = monotonic_ms(self._clock)
        keeping = asyncio.create_task(self._keep(client, job))
        try:
            exit_code = await self._command(job)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            self._busy -= 1
        done = Done(
            queue=self._args.queue,
            seq=job.seq,
            deliveries=job.deliveries,
            exit_code=exit_code,
            took_ms=monotonic_ms(self._clock) - began_ms,
        )
        await self._settle(client, job, done)
        self._told(done)

    async def _settle(self, client: AsyncClient, job: JobReply, done: Done) -> None:
        queue, node = self._args.queue, self._args.node
        if done.exit_code == 0:
            skipped = (await client.ack(queue, [job], node=node)).skipped
            self.completed += not skipped
        else:
            self.failed += 1
            doubled = self._args.retry << min(job.deliveries - 1, 16)
            # One that was ended here is not to blame for that: it comes again at once.
            done.again_ms = 0 if self._killing.is_set() else min(doubled, limits.CLI_RETRY_MS_MAX)
            skipped = (await client.nack(queue, [job], node=node, delay_ms=done.again_ms)).skipped
        done.lost_lease = bool(skipped)

    async def _command(self, job: JobReply) -> int:
        told = {"JOB_SEQ": str(job.seq), "JOB_DELIVERIES": str(job.deliveries), "JOB_TAG": job.tag or ""}
        process = await asyncio.create_subprocess_exec(
            *self._args.words,
            stdin=asyncio.subprocess.PIPE,
            stdout=2 if self._args.json else None,  # stdout is for objects then
            env=os.environ | told,
            start_new_session=True,
        )
        running = asyncio.create_task(process.communicate(bytes(job.data) + b"\n"))
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

    async def _keep(self, client: AsyncClient, job: JobReply) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            await client.extend(self._args.queue, [job], node=self._args.node, lease_ms=self._lease_ms)


def _signal(process: asyncio.subprocess.Process, sign: signal.Signals) -> None:
    """To the command and all it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, sign)


def work(crew: Crew, url: str) -> None:
    """Until the crew is stopped by a signal, or has nothing left to do."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, crew.stop)
        async with AsyncClient(url) as client:
            await crew.run(client)

    asyncio.run(run())
