"""Many workers on one queue. Each claims some jobs, acks them, and goes on until there are none.

The claim is timed from request to reply.
"""

import re
from typing import Protocol

from topics.bench.clients import ENTRY_ID
from topics.bench.closed_loop import ClosedLoop, Connection, Reply, Tally
from topics.bench.errors import MalformedReply
from topics.bench.http1 import HttpReplyWithBody, render_request
from topics.bench.plan import QueuePlan
from topics.bench.records import FIELDS_PER_ENTRY
from topics.bench.resp import encode_command, lines_of_streams_reply
from topics.bench.samples import Counts
from topics.bench.targets import TargetKind
from topics.clock import Clock

GROUP = b"workers"
_SEQ = re.compile(rb'\{"\$seq":(\d+)')


class Dialect(Reply, Protocol):
    """How one worker sends requests and follows the replies."""

    claim: bytes

    def ack(self, jobs: list[bytes]) -> bytes: ...

    def jobs(self) -> list[bytes]:
        """The ids in the complete reply to a claim."""
        ...


class HttpDialect(HttpReplyWithBody):
    def __init__(self, plan: QueuePlan, worker: int) -> None:
        super().__init__()
        self._plan = plan
        self._worker = worker
        self.claim = self._request("claim", b'{"node":"w%d","max":%d}' % (worker, plan.jobs_per_claim))

    def ack(self, jobs: list[bytes]) -> bytes:
        return self._request("ack", b'{"node":"w%d","seqs":[%b]}' % (self._worker, b",".join(jobs)))

    def jobs(self) -> list[bytes]:
        return _SEQ.findall(self.body)

    def _request(self, action: str, body: bytes) -> bytes:
        target = self._plan.target
        path = f"/v0/topics/{self._plan.topic}/{action}"
        return render_request("POST", path, body, host=target.host, api_key=target.api_key)


class RespDialect:
    failure: bytes | None = None  # an error reply ends the connection

    def __init__(self, plan: QueuePlan, worker: int) -> None:
        self._stream = plan.topic.encode("ascii")
        group = (b"GROUP", GROUP, b"w%d" % worker)
        self.claim = encode_command(
            b"XREADGROUP", *group, b"COUNT", b"%d" % plan.jobs_per_claim, b"STREAMS", self._stream, b">"
        )
        self._received = b""
        self._complete = False

    def ack(self, jobs: list[bytes]) -> bytes:
        return encode_command(b"XACK", self._stream, GROUP, *jobs)

    def jobs(self) -> list[bytes]:
        return ENTRY_ID.findall(self._received)

    def feed(self, data: bytes) -> bool:
        """Redis answers an ack with a number, and a claim with entries, or with `*-1` if there are none."""
        self._received = data = data if self._complete else self._received + data
        if data.startswith(b"-"):
            raise MalformedReply(data[:300].decode("utf-8", "replace"))
        self._complete = data.count(b"\n") >= lines_of_streams_reply(data, FIELDS_PER_ENTRY)
        return self._complete


class Worker(Connection):
    """Claims jobs, acks them, and claims again."""

    def __init__(self, dialect: Dialect, clock: Clock) -> None:
        super().__init__([], dialect, clock)
        self._acked = 0
        self._dialect = dialect
        self._claiming = False
        self._jobs: list[bytes] = []

    def next_request(self) -> bytes | None:
        self._claiming = not self._claiming
        if self._claiming:
            return self._dialect.claim
        self._jobs = self._dialect.jobs()
        return self._dialect.ack(self._jobs) if self._jobs else None

    def note_success(self, tally: Tally, latency_ns: int) -> None:
        if self._claiming:
            tally.latencies_ns.append(latency_ns)
        else:
            self._acked += len(self._jobs)

    def take_acked(self) -> int:
        """How many jobs it has acked since the last call."""
        acked, self._acked = self._acked, 0
        return acked


class Workers(ClosedLoop):
    """Counts acked jobs as records, claims and acks as requests."""

    def __init__(self, plan: QueuePlan, clock: Clock) -> None:
        dialect = RespDialect if plan.target.kind is TargetKind.REDIS else HttpDialect
        self._workers = [Worker(dialect(plan, number), clock) for number in range(plan.workers)]
        super().__init__(self._workers, clock)

    def counts(self, tally: Tally, elapsed_ns: int) -> Counts:
        acked = tuple(worker.take_acked() for worker in self._workers)
        requests = 2 * len(tally.latencies_ns)
        return Counts(tally.latencies_ns, requests, sum(acked), elapsed_ns, tally.errors, tally.first_error, acked)
