"""A hundred workers on one queue, each claiming 8 jobs and acking them, compared with `XREADGROUP` and `XACK`."""

import time

from topics.bench.plan import LoadSettings, QueuePlan
from topics.bench.queue_workers import GROUP
from topics.bench.records import fill, fill_stream
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import Expectation, Workload

WORKERS = 100
JOBS_PER_CLAIM = 8
JOBS_PER_S_MAX = 50_000  # jobs written for each second of a round and its warm-up; the round ends when all are done
SETTLE_S = 6.0  # long enough to seal the segments, which belongs to writing and not to claiming


class QueueWorkload(Workload):
    """Every round starts with a full queue."""

    name = group = "queue"
    kinds = frozenset({TargetKind.TOPICS, TargetKind.REDIS})
    expectations = (Expectation(TargetKind.REDIS, 0.6),)

    def __init__(self, durability: str) -> None:
        super().__init__(durability)
        self.summary = (
            f"{WORKERS} workers claim {JOBS_PER_CLAIM} jobs and ack them, {durability} class; times of claims"
        )
        self.config = b'{"type":"queue","durability":"%b"}' % durability.encode("ascii")

    def set_up(self, target: Target, settings: LoadSettings) -> None:
        super().set_up(target, settings)
        jobs = int((settings.warm_up_s + settings.seconds) * JOBS_PER_S_MAX)
        if target.kind is TargetKind.REDIS:
            stream = self.topic.encode("ascii")
            with target.redis() as redis:
                redis.call(b"XGROUP", b"CREATE", stream, GROUP, b"0", b"MKSTREAM")
                fill_stream(redis, stream, jobs)
        else:
            with target.http() as control:
                fill(control, [self.topic], 0, jobs)
            time.sleep(SETTLE_S)

    def plan(self, target: Target, settings: LoadSettings) -> QueuePlan:
        return QueuePlan(
            target=target,
            settings=settings,
            topic=self.topic,
            workers=WORKERS,
            jobs_per_claim=JOBS_PER_CLAIM,
        )
