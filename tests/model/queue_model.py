"""A queue as plainly as possible: a list of jobs, each with what became of it. Slow, and easy to believe."""

from dataclasses import dataclass, field


@dataclass
class ModelLease:
    node: str
    token: str
    deadline: int
    connection: int = 0


@dataclass
class ModelJob:
    seq: int
    data: bytes
    tag: str | None
    fresh: bool = True  # never handed out, never kept back
    deliveries: int = 0
    ready_ms: int = 0
    lease: ModelLease | None = None

    def is_leased(self, now_ms: int) -> bool:
        return self.lease is not None and now_ms <= self.lease.deadline

    def is_delayed(self, now_ms: int) -> bool:
        return now_ms < self.ready_ms

    def is_ready(self, now_ms: int) -> bool:
        return not (self.is_leased(now_ms) or self.is_delayed(now_ms))


@dataclass
class ModelQueue:
    max_deliveries: int
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    dead: list[tuple[bytes, str | None]] = field(default_factory=list)
    dead_lettered: int = 0
    head: int = 0

    def append(self, data: bytes, tag: str | None, ready_ms: int = 0) -> None:
        self.head += 1
        self.jobs[self.head] = ModelJob(self.head, data, tag, fresh=not ready_ms, ready_ms=ready_ms)

    def claim(self, wanted: int, now_ms: int) -> list[int]:
        """The jobs to be handed out; those delivered too often go to the dead letters."""
        ready = [job for job in self.jobs.values() if job.is_ready(now_ms)]
        ready.sort(key=lambda job: (job.fresh, job.seq))
        claimed: list[int] = []
        for job in ready:
            if len(claimed) == wanted:
                break
            if self.max_deliveries and job.deliveries >= self.max_deliveries:
                del self.jobs[job.seq]
                self.dead.append((job.data, job.tag))
                self.dead_lettered += 1
            else:
                claimed.append(job.seq)
        return claimed

    def hand_out(self, seq: int, lease: ModelLease) -> None:
        job = self.jobs[seq]
        job.lease, job.fresh, job.ready_ms = lease, False, 0
        job.deliveries += 1

    def held(self, node: str, seqs: list[int], now_ms: int | None = None) -> list[int]:
        """Those of the jobs that the node was the last to get; with `now_ms`, only while the lease holds."""
        found = []
        for seq in dict.fromkeys(seqs):
            job = self.jobs.get(seq)
            if job is None or job.lease is None or job.lease.node != node:
                continue
            if now_ms is None or job.is_leased(now_ms):
                found.append(seq)
        return found

    def release(self, seqs: list[int], ready_ms: int = 0) -> None:
        for seq in seqs:
            self.jobs[seq].lease, self.jobs[seq].ready_ms = None, ready_ms

    def redrive(self) -> int:
        letters, self.dead = self.dead, []
        for data, tag in letters:
            self.append(data, tag)
        return len(letters)

    def counts(self, now_ms: int) -> tuple[int, int, int]:
        jobs = self.jobs.values()
        in_flight = sum(job.is_leased(now_ms) for job in jobs)
        return sum(job.is_ready(now_ms) for job in jobs), in_flight, self.dead_lettered
