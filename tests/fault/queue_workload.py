"""A seeded series of operations on queues, and what their users were told: whether a recovered server keeps to it.

Every job is a number, so that it is known again wherever a crash has left it.
"""

import json
import random
from dataclasses import dataclass, field

from msgspec import Raw

from fault.workload import SHARD_COUNTS, STAGES, WorkloadEnded, new_server
from topics.engine.queues import Claimer, lease_token
from topics.model.record import NewRecord
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import SimulatedServer

MAX_DELIVERIES = 2
LEASES_MS = (100, 250, 2_000)
QUEUES: dict[str, dict[str, object]] = {
    "safe": {"durability": "fsync", "leases_durable": True},
    "counted": {"durability": "fsync", "leases_durable": False},
    "quick": {"durability": "disk", "leases_durable": False},
}


@dataclass
class Job:
    number: int
    produced: bool = False  # told so
    going: bool = False  # an ack or a delete was asked for
    gone: bool = False  # told so
    claims: int = 0  # told, since it was last produced or redriven
    settled: int = 0  # how many nacks and extends were asked for since its last claim
    ready_ms: int = 0
    lease: tuple[str, str, int] | None = None  # (node, token, deadline)


@dataclass
class Story:
    """What the users of one queue know."""

    name: str
    jobs: dict[int, Job] = field(default_factory=dict)

    @property
    def dead(self) -> str:
        return f"dead-{self.name}"


class QueueWorkload:
    def __init__(self, disk: FakeDisk, seed: int) -> None:
        self.disk = disk
        self.clock = FakeClock()
        self.shards = SHARD_COUNTS[seed % len(SHARD_COUNTS)]
        self.stories = [Story(name) for name in QUEUES]
        self.made = False
        self.under_way = ""
        self._choice = random.Random(seed)
        self._numbers = 0
        self.server = new_server(disk, self.clock, self.shards)

    def run(self, operations: int) -> None:
        self.server.start()
        for story in self.stories:
            config = {"type": "queue", "max_deliveries": MAX_DELIVERIES, "dead_letter": story.dead}
            self.server.put(story.name, config | QUEUES[story.name])
        self.made = True
        for _ in range(operations):
            self.one()
        self.under_way = "restart"
        self.server.stop()

    def one(self, *, nested: bool = False) -> None:
        choice = self._choice
        story = choice.choice(self.stories)
        kind = choice.random()
        node = choice.choice(("a", "b"))
        if kind < 0.25:
            self.produce(story)
        elif kind < 0.50:
            self.claim(story, node)
        elif kind < 0.62:
            self.ack(story, node)
        elif kind < 0.70:
            self.nack(story, node)
        elif kind < 0.75:
            self.extend(story, node)
        elif kind < 0.80:
            self.clock.advance(choice.choice((10, 101, 300)))
        elif kind < 0.84:
            self.redrive(story)
        elif kind < 0.86:
            self.delete(story)
        elif nested:
            return
        elif kind < 0.97:
            self.checkpoint()
        else:
            self.restart()

    # Operations

    def produce(self, story: Story) -> None:
        delay_ms = self._choice.choice((0, 0, 0, 400))
        jobs = []
        for _ in range(self._choice.randrange(1, 5)):
            self._numbers += 1
            jobs.append(Job(self._numbers, ready_ms=self.clock.now_ms() + delay_ms if delay_ms else 0))
            story.jobs[self._numbers] = jobs[-1]
        self.under_way = "produce"
        self.server.write(story.name, [NewRecord(Raw(b"%d" % job.number), delay_ms=delay_ms) for job in jobs])
        for job in jobs:
            job.produced = True

    def claim(self, story: Story, node: str) -> None:
        lease_ms = self._choice.choice(LEASES_MS)
        self.under_way = "claim"
        for job in story.jobs.values():
            if job.lease is not None and job.lease[2] < self.clock.now_ms():
                job.lease = None  # somebody else may have it by the next crash
        (claim,) = self.server.claim(story.name, Claimer(node, self._choice.randrange(1, 4), lease_ms))
        for found in claim.jobs:
            shown = json.loads(found.text)
            job = story.jobs[shown["data"]]
            assert job.lease is None or job.lease[2] < self.clock.now_ms(), f"two leases on job {job.number}"
            assert self.clock.now_ms() >= job.ready_ms, f"job {job.number} came too early"
            job.claims, job.settled, job.ready_ms = job.claims + 1, 0, 0
            job.lease = (node, shown["lease_id"], shown["deadline"])

    def ack(self, story: Story, node: str) -> None:
        jobs, seqs = self._held(story, node)
        self.under_way = "ack"
        for job in jobs:
            job.going = True
        if seqs and self.server.ack(story.name, node, seqs).seqs == seqs:
            for job in jobs:
                job.gone = True

    def nack(self, story: Story, node: str) -> None:
        jobs, seqs = self._held(story, node)
        self.under_way = "nack"
        for job in jobs:
            job.settled, job.lease = job.settled + 1, None
        if seqs:
            self.server.nack(story.name, node, seqs, delay_ms=self._choice.choice((0, 50)))

    def extend(self, story: Story, node: str) -> None:
        jobs, seqs = self._held(story, node)
        self.under_way = "extend"
        for job in jobs:
            job.settled += 1
        if seqs:
            extended = self.server.extend(story.name, node, seqs, lease_ms=500)
            for job, seq in zip(jobs, seqs, strict=True):
                if seq in extended.seqs and job.lease is not None:
                    job.settled -= 1
                    job.lease = (*job.lease[:2], extended.deadline_ms)

    def redrive(self, story: Story) -> None:
        self.under_way = "redrive"
        dead = self._found(self.server, story.dead)
        self.server.redrive(story.name)
        for number in dead:
            story.jobs[number].claims, story.jobs[number].lease = 0, None

    def delete(self, story: Story) -> None:
        self.under_way = "delete"
        found = self._found(self.server, story.name)
        first = min(found, key=found.__getitem__, default=None)
        if first is not None:
            story.jobs[first].going = True
            self.server.delete_records(story.name, before_seq=found[first] + 1)
            story.jobs[first].gone = True

    def checkpoint(self) -> None:
        stage = self._choice.choice(STAGES)

        def during(step: str) -> None:
            if step == stage:
                for _ in range(2):
                    self.one(nested=True)

        self.under_way = "checkpoint"
        if not self.server.checkpoint(during=during):
            raise WorkloadEnded

    def restart(self) -> None:
        self.under_way = "restart"
        if not self.server.stop():
            raise WorkloadEnded
        self.shards = self._choice.choice(SHARD_COUNTS)
        self.server = new_server(self.disk, self.clock, self.shards)
        self.server.start()

    def _held(self, story: Story, node: str) -> tuple[list[Job], list[int]]:
        found = self._found(self.server, story.name)
        jobs = [
            job for job in story.jobs.values() if job.lease is not None and job.lease[0] == node and job.number in found
        ][:3]
        return jobs, [found[job.number] for job in jobs]

    @staticmethod
    def _found(server: SimulatedServer, topic: str) -> dict[int, int]:
        """The jobs in a topic, by their numbers, with their seqs."""
        if server.engine.find_topic(topic) is None:
            return {}
        shown = [json.loads(text) for text in server.read_all(topic).records.values()]
        found = {each["data"]: each["$seq"] for each in shown}
        assert len(found) == len(shown), f"{topic}: a job is there twice"
        return found

    # Checking

    def check(self, server: SimulatedServer, *, all_written: bool) -> None:
        """`all_written`: nothing that was handed to the operating system is missing."""
        if not self.made:
            return
        for story in self.stories:
            self._check_queue(story, server, exact=all_written or QUEUES[story.name]["durability"] == "fsync")

    def _check_queue(self, story: Story, server: SimulatedServer, *, exact: bool) -> None:
        found, dead = self._found(server, story.name), self._found(server, story.dead)
        assert not found.keys() & dead.keys(), f"{story.name}: jobs in both places"
        topic, queue = server.queues.queue(story.name)
        ready, in_flight, _ = server.queues.counts(topic)
        assert ready + in_flight + len(queue.delayed) == topic.log.count == len(found)
        assert not queue.leaving
        now_ms = self.clock.now_ms()
        for job in story.jobs.values() if exact else ():
            label = f"{story.name}: job {job.number} ({self.under_way} under way)"
            seq = found.get(job.number)
            if job.gone:
                assert seq is None, f"{label} is back"
                assert job.number not in dead, f"{label} is back as a dead letter"
            elif job.produced and not job.going:
                assert seq is not None or job.number in dead, f"{label} is lost"
            if seq is None or not job.produced:
                continue
            if job.ready_ms > now_ms:
                assert queue.delayed.get(seq) == job.ready_ms, f"{label} is not kept back any more"
            if self.under_way not in {"claim", "redrive", "checkpoint"}:
                assert queue.deliveries.get(seq, 0) == job.claims, f"{label}: {queue.deliveries.get(seq)}"
            lease = queue.leases.by_seq.get(seq)
            if not topic.config.leases_durable:
                # They are kept over a clean stop, which may have been done when the crash came.
                assert lease is None or self.under_way == "restart", f"{label} is leased by nobody"
            elif job.lease is not None and job.lease[2] >= now_ms and not job.settled and not job.going:
                assert lease is not None, f"{label} has lost its lease"
                held = (lease.node, lease_token(lease.lease_id, seq), lease.deadline_ms)
                assert held == job.lease, f"{label} is held by {held}"


def queues_of(server: SimulatedServer) -> dict[str, object]:
    """Everything a recovery can give back of the queues, to compare two of them."""
    states: dict[str, object] = {}
    for topic in server.engine.topics:
        if topic.queue is not None:
            queue = server.queues.swept(topic)
            leases = {
                seq: (lease.node, lease.lease_id, lease.deadline_ms) for seq, lease in queue.leases.by_seq.items()
            }
            reclaimable = queue.reclaimable - queue.leases.expired
            states[topic.name] = (leases, queue.deliveries, queue.delayed, reclaimable, queue.dead_lettered)
    return states
