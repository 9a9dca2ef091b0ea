"""The worker's side of a queue: claiming, keeping leases alive, and settling jobs. Does no I/O itself.

    claim ─► handler ─► returns: ack          job done, deleted for good
                     ─► raises Retry(after):  nack, again after that time
                     ─► raises anything else: nack, again after a pause that doubles; at last the dead letter topic

Every settlement carries the lease's id: a worker that comes too late changes nothing, and counts the job as lost.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, Self, TypedDict, TypeVar
from uuid import uuid4

import msgspec
from msgspec import Struct

from topics import limits
from topics.client import calls
from topics.client.caller import Caller
from topics.client.core import Call
from topics.client.errors import ServerUnreachable
from topics.client.events import Event
from topics.errors import InvalidRequest
from topics.wire.queue_messages import ExtendResponse

D = TypeVar("D")

log = logging.getLogger("topics.client")


class Retry(Exception):
    """Raised by a handler to have its job tried again, `after` so many seconds. It counts as a delivery, not as a
    failure."""

    def __init__(self, after: float = 0.0) -> None:
        super().__init__(f"again in {after} s")
        self.after = after


class Job(Event[D], Generic[D], kw_only=True, gc=False):
    """A job as its worker has it. `deliveries` is 1 the first time. `lost`: the lease has ended, and somebody else may
    have the job by now; a handler that takes long may look at it and give up."""

    lease_id: str
    deadline: int
    deliveries: int
    lost: bool = msgspec.field(default=False, name="$lost")


class ClaimedJobs(Struct):
    claimed: list[Job[Any]]


class WorkerOptions(TypedDict, total=False):
    """How a worker works."""

    concurrency: int  # jobs at once
    node: str  # who it is; by default a name no other worker has
    lease_ms: int  # by default the queue's; extended while the handler runs
    stop_s: float  # how long jobs may still take when the worker is stopped; then they are given back
    backoff_s: float  # the pause after a first failure; it doubles
    backoff_max_s: float
    drain: bool  # ends by itself once no job is left to claim and none is under way


class Counts(Struct):
    """What a worker has done so far. `lost`: done, but the lease had ended. `dead`: failed for the last time, and on
    their way to the dead letter topic."""

    claimed: int = 0
    acked: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0
    dead: int = 0
    given_back: int = 0


class Working(Generic[D]):
    """A worker's state. Its methods may run at the same time, in threads or tasks."""

    def __init__(self, caller: Caller, queue: str, options: WorkerOptions, as_type: type[D] | None) -> None:
        if unknown := options.keys() - WorkerOptions.__annotations__.keys():
            raise TypeError(f"a worker has no option {min(unknown)!r}")
        self.concurrency = options.get("concurrency", 1)
        if not 1 <= self.concurrency <= limits.CLAIM_MAX:
            raise InvalidRequest.in_field("concurrency", f"is between 1 and {limits.CLAIM_MAX}")
        self.caller = caller
        self.queue = queue
        self.node = options.get("node") or f"{socket.gethostname()[:64]}-{os.getpid()}-{uuid4().hex[:12]}"
        self.stop_s = options.get("stop_s", limits.WORKER_STOP_S)
        self.counts = Counts()
        self._counting = threading.Lock()
        self._backoff_s = options.get("backoff_s", limits.WORKER_BACKOFF_S)
        self._backoff_max_s = options.get("backoff_max_s", limits.WORKER_BACKOFF_MAX_S)
        self._drain = options.get("drain", False)
        self._away = False  # there was no answer to the last claim
        self._lease_ms = options.get("lease_ms")
        self._reply = _claimed_as(as_type)
        self._head_seq = 0
        self._deliveries_max = 0
        self._dead_letter: str | None = None
        self._kept_ns: dict[str, int] = {}  # by lease id, when it was last known to be ours

    async def begin(self) -> None:
        """Raises `TopicNotFound` or `NotAQueue` before anything is done."""
        state = await self.caller.send(calls.topic(self.queue))
        if state.type != "queue":
            await self.caller.send(calls.claim(self.queue, node=self.node))  # the server's refusal says why
        config = state.config
        self._lease_ms = self._lease_ms or config.lease_ms
        self._deliveries_max, self._dead_letter = config.max_deliveries, config.dead_letter
        self._head_seq = state.head_seq

    @property
    def keep_alive_s(self) -> float:
        """How often leases are extended: two extensions in a row may fail."""
        return (self._lease_ms or limits.LEASE_MS_MIN) / 3000

    async def claim(self, count: int) -> list[Job[D]]:
        """Up to `count` jobs. If there are none now, or the server is away, call `wait_for_jobs`."""
        call: Call[Any] = calls.claim(self.queue, node=self.node, max=count, lease_ms=self._lease_ms)
        claiming_ns = self.caller.clock.monotonic_ns()
        try:
            jobs: list[Job[D]] = (await self.caller.send(replace(call, reply=self._reply))).claimed
        except ServerUnreachable as error:
            log.warning("worker %s of %s: %s", self.node, self.queue, error)
            self._away = True
            return []
        self._away = False
        for job in jobs:
            job.topic = self.queue
            self._kept_ns[job.lease_id] = claiming_ns
        self._count(claimed=len(jobs))
        return jobs

    def is_drained(self, free: int) -> bool:
        """Whether a worker that drains is done, after a claim that gave nothing while `free` handlers were free."""
        return self._drain and free == self.concurrency and not self._away

    async def wait_for_jobs(self) -> None:
        """Until a job is written, or for a while: jobs given back or delayed are not written again."""
        call = calls.diff(self.queue, self._head_seq, limit=1, wait_ms=limits.WORKER_POLL_MS, include_meta=False)
        try:
            self._head_seq = (await self.caller.send(call)).head_seq
        except ServerUnreachable as error:
            log.warning("worker %s of %s: %s", self.node, self.queue, error)

    async def keep_alive(self, jobs: Iterable[Job[D]]) -> None:
        """Extends the leases of the jobs under way."""
        held = [job for job in jobs if not job.lost]
        if not held or self._lease_ms is None:
            return
        asked_ns = self.caller.clock.monotonic_ns()
        try:
            call = calls.extend(self.queue, held, node=self.node, lease_ms=self._lease_ms)
            reply: ExtendResponse | None = await self.caller.send(call)
        except ServerUnreachable as error:
            log.warning("worker %s of %s cannot extend its leases: %s", self.node, self.queue, error)
            reply = None
        now_ns = self.caller.clock.monotonic_ns()
        for job in held:
            if reply is not None and job.seq not in reply.skipped:
                self._kept_ns[job.lease_id] = asked_ns
            elif reply is not None or now_ns - self._kept_ns.get(job.lease_id, 0) > self._lease_ms * 1_000_000:
                job.lost = True

    async def settle(self, job: Job[D], error: BaseException | None) -> bool:
        """The handler has returned or raised. Each job is settled once. False if the lease had ended."""
        try:
            if error is None:
                return await self._ack(job)
            if isinstance(error, Retry):
                self._count(retried=1)
                return await self._nack(job, error.after)
            return await self._failed(job, error)
        except ServerUnreachable as unreachable:
            self._count(lost=1)
            log.warning("job %d of %s will come again: %s", job.seq, self.queue, unreachable)
            return False
        finally:
            self._kept_ns.pop(job.lease_id, None)

    async def give_back(self, jobs: Iterable[Job[D]]) -> None:
        """Gives jobs that nobody will finish here to others at once."""
        left = list(jobs)
        if left:
            self._count(given_back=len(left))
            await self.caller.send(calls.nack(self.queue, left, node=self.node))

    def _count(self, **more: int) -> None:
        with self._counting:
            for name, count in more.items():
                setattr(self.counts, name, getattr(self.counts, name) + count)

    async def _ack(self, job: Job[D]) -> bool:
        reply = await self.caller.send(calls.ack(self.queue, [job], node=self.node))
        if reply.skipped:
            self._count(lost=1)
            log.warning(
                "job %d of %s was finished after its lease had ended: it may be done again", job.seq, self.queue
            )
        else:
            self._count(acked=1)
        return not reply.skipped

    async def _failed(self, job: Job[D], error: BaseException) -> bool:
        self._count(failed=1)
        last = self._dead_letter is not None and 0 < self._deliveries_max <= job.deliveries
        self._count(dead=last)
        what_next = f'goes to "{self._dead_letter}"' if last else "will be tried again"
        log.error(
            "job %d of %s failed at delivery %d and %s", job.seq, self.queue, job.deliveries, what_next, exc_info=error
        )
        doubled = self._backoff_s * 2 ** min(job.deliveries - 1, 32)
        return await self._nack(job, min(doubled, self._backoff_max_s) * self.caller.random.uniform(0.5, 1.0))

    async def _nack(self, job: Job[D], after_s: float) -> bool:
        delay_ms = min(max(round(after_s * 1000), 0), limits.NACK_DELAY_MS_MAX)
        reply = await self.caller.send(calls.nack(self.queue, [job], node=self.node, delay_ms=delay_ms))
        self._count(lost=len(reply.skipped))
        return not reply.skipped


class WorkerShell(Generic[D]):
    """What both kinds of worker share. Made by `client.worker(queue)`, which also decorates the handler."""

    def __init__(self, working: Working[D]) -> None:
        self._working = working
        self._handler: Callable[[Job[D]], Any] | None = None

    def __call__(self, handler: Callable[[Job[D]], Any]) -> Self:
        self._handler = handler
        return self

    @property
    def counts(self) -> Counts:
        return self._working.counts

    @property
    def node(self) -> str:
        return self._working.node

    def _take_handler(self, handler: Callable[[Job[D]], Any] | None) -> None:
        self._handler = handler or self._handler
        if self._handler is None:
            raise TypeError("a worker needs a handler: decorate one with it, or hand it to run()")


class JobsInHand(Generic[D]):
    """Jobs under way, whose leases have to be kept. For threads and tasks alike."""

    def __init__(self, working: Working[D]) -> None:
        self._working = working
        self._lock = threading.Lock()
        self._jobs: dict[str, Job[D]] = {}  # by lease id

    def add(self, job: Job[D]) -> None:
        with self._lock:
            self._jobs[job.lease_id] = job

    def remove(self, job: Job[D]) -> bool:
        """False when it was given back already."""
        with self._lock:
            return self._jobs.pop(job.lease_id, None) is not None

    def take_all(self) -> list[Job[D]]:
        with self._lock:
            jobs = [*self._jobs.values()]
            self._jobs.clear()
        return jobs

    async def keep_alive(self) -> None:
        with self._lock:
            jobs = [*self._jobs.values()]
        await self._working.keep_alive(jobs)


def _claimed_as(as_type: type[Any] | None) -> type[ClaimedJobs]:
    if as_type is None:
        return ClaimedJobs
    job: Any = type("Job", (Job,), {"decode": msgspec.json.Decoder(as_type).decode}, gc=False)
    made: Any = msgspec.defstruct("ClaimedJobs", [("claimed", list.__class_getitem__(job))], bases=(ClaimedJobs,))
    kind: type[ClaimedJobs] = made
    return kind
