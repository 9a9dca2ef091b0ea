"""A hundred workers on one queue, each claiming 8 jobs and acking them, against `XREADGROUP` and `XACK`."""

import secrets
import time
from array import array

import msgspec

from topics.bench.plan import LoadSettings, run_generator
from topics.bench.queue_load import GROUP, QueuePlan, QueueResult
from topics.bench.records import data_of, tag_of, write_body
from topics.bench.resp import LINES_PER_BULK_STRING, encode_command
from topics.bench.samples import Sample, percentile
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import Expectation, Workload

WORKERS = 100
JOBS_PER_CLAIM = 8
JOBS_PER_S_MAX = 50_000  # that many are written for every second of a round; it ends when they are done
SETTLE_S = 6.0  # then the segments of what was written are sealed: that is part of writing, not of claiming
PRELOAD_BATCH_RECORDS = 1000
FIELDS_PER_ENTRY = 2


class QueueWorkload(Workload):
    """Every round has a queue of its own, full at the start."""

    name = group = "queue"
    kinds = frozenset({TargetKind.TOPICS, TargetKind.REDIS})
    expectations = (Expectation(TargetKind.REDIS, 1.0),)

    def __init__(self, durability: str) -> None:
        super().__init__()
        self.summary = (
            f"{WORKERS} workers claim {JOBS_PER_CLAIM} jobs and ack them, {durability} class; times of claims"
        )
        self._config = b'{"type":"queue","durability":"%b"}' % durability.encode("ascii")
        self._topic = f"bench-queue-{secrets.token_hex(4)}"

    def prepare(self, target: Target) -> None:
        """Nothing lasts longer than a round."""

    def run_round(self, target: Target, settings: LoadSettings) -> Sample:
        jobs = int(settings.seconds * JOBS_PER_S_MAX)
        try:
            if target.kind is TargetKind.REDIS:
                self._fill_redis(target, jobs)
            else:
                self._fill_topics(target, jobs)
            plan = QueuePlan(
                host=target.host,
                port=target.port,
                speaks="resp" if target.kind is TargetKind.REDIS else "http",
                api_key=target.api_key,
                topic=self._topic,
                workers=WORKERS,
                jobs_per_claim=JOBS_PER_CLAIM,
                fields_per_entry=FIELDS_PER_ENTRY,
                seconds=settings.seconds,
            )
            output = run_generator("topics.bench.queue_load", msgspec.msgpack.encode(plan), settings.seconds)
            return queue_sample(msgspec.msgpack.decode(output, type=QueueResult))
        finally:
            self.clean_up(target)

    def clean_up(self, target: Target) -> None:
        if target.kind is TargetKind.REDIS:
            with target.redis() as control:
                control.call(b"DEL", self._topic.encode("ascii"))
        else:
            with target.http() as control:
                control.call("DELETE", f"/v0/topics/{self._topic}")

    def _fill_topics(self, target: Target, jobs: int) -> None:
        with target.http() as control:
            control.call("PUT", f"/v0/topics/{self._topic}", self._config)
            for first in range(0, jobs, PRELOAD_BATCH_RECORDS):
                control.call("POST", f"/v0/topics/{self._topic}", write_body(first, PRELOAD_BATCH_RECORDS))
        time.sleep(SETTLE_S)

    def _fill_redis(self, target: Target, jobs: int) -> None:
        stream = self._topic.encode("ascii")
        with target.redis() as control:
            control.call(b"XGROUP", b"CREATE", stream, GROUP, b"0", b"MKSTREAM")
            for first in range(0, jobs, PRELOAD_BATCH_RECORDS):
                commands = b"".join(
                    encode_command(b"XADD", stream, b"*", b"tag", tag_of(number), b"data", data_of(number))
                    for number in range(first, first + PRELOAD_BATCH_RECORDS)
                )
                control.send(commands, LINES_PER_BULK_STRING * PRELOAD_BATCH_RECORDS)


def queue_sample(result: QueueResult) -> Sample:
    """Records are jobs acked; requests are claims and acks."""
    latencies_ns = array("Q")
    latencies_ns.frombytes(result.latencies)
    ascending = sorted(latencies_ns)
    acked = sum(result.acked)
    return Sample(
        requests=2 * len(ascending),
        records=acked,
        elapsed_s=result.elapsed_ns / 1e9,
        p50_ms=percentile(ascending, 500) / 1e6,
        p99_ms=percentile(ascending, 990) / 1e6,
        p999_ms=percentile(ascending, 999) / 1e6,
        errors=result.errors,
        first_error=result.first_error,
        generator_busy=result.cpu_ns / result.elapsed_ns if ascending else 0.0,
        unevenness=max(result.acked) * len(result.acked) / acked if acked else None,
    )
