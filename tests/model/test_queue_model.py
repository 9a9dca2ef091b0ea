"""Random histories of a queue on a simulated disk, against a plain model: claims, acks, expiry, crashes, restarts.

A failing run prints its steps; see `test_engine_model.py` for how to repeat one.
"""

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Raw
from queue_model import ModelLease, ModelQueue

from topics.engine.queues import Claim, Claimer
from topics.model.record import NewRecord
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import COLD_DIR, SimulatedServer

QUEUE, DEAD = "jobs", "dead"
NODES = ("a", "b")

nodes = st.sampled_from(NODES)
seqs_lists = st.lists(st.integers(1, 12), min_size=1, max_size=5)
leases_ms = st.sampled_from([100, 101, 300])


class QueueAgainstModel(RuleBasedStateMachine):
    @initialize(
        durability=st.sampled_from(["memory", "disk", "fsync"]),
        leases_durable=st.booleans(),
        max_deliveries=st.sampled_from([0, 1, 2]),
        dead_letter_is_queue=st.booleans(),
    )
    def begin(self, durability: str, leases_durable: bool, max_deliveries: int, dead_letter_is_queue: bool) -> None:
        self.clock = FakeClock()
        self.disk = FakeDisk()
        self.leases_durable = leases_durable
        self.durability = durability
        self.server = self.start()
        config: dict[str, object] = {
            "type": "queue",
            "durability": durability,
            "leases_durable": leases_durable,
            "max_deliveries": max_deliveries,
            "dead_letter": DEAD,
        }
        self.server.put(QUEUE, config)
        self.server.put(DEAD, {"type": "queue" if dead_letter_is_queue else "log", "durability": durability})
        self.model = ModelQueue(max_deliveries)
        self.numbers = 0

    def start(self) -> SimulatedServer:
        server = SimulatedServer(
            self.disk,
            self.clock,
            wal_file_bytes=1500,
            wal_shards=2,
            segment_events_max=4,
            cold_dir=COLD_DIR,
            hot_retain_segments=1,
        )
        server.start()
        return server

    # What can happen

    @rule(count=st.integers(1, 4), tag=st.sampled_from([None, "x", "y"]), delay_ms=st.sampled_from([0, 0, 50, 200]))
    def produce(self, count: int, tag: str | None, delay_ms: int) -> None:
        records = []
        ready_ms = self.clock.now_ms() + delay_ms if delay_ms else 0
        for _ in range(count):
            self.numbers += 1
            records.append(NewRecord(Raw(b"%d" % self.numbers), tag, delay_ms=delay_ms))
            self.model.append(b"%d" % self.numbers, tag, ready_ms)
        self.server.write(QUEUE, records)

    @rule(node=nodes, count=st.integers(1, 5), lease_ms=leases_ms, connection=st.sampled_from([0, 0, 1, 2]))
    def claim(self, node: str, count: int, lease_ms: int, connection: int) -> None:
        expected = self.model.claim(count, self.clock.now_ms())
        (claim,) = self.server.claim(QUEUE, Claimer(node, count, lease_ms, connection))
        assert [job.seq for job in claim.jobs] == sorted(expected)
        self.handed_out(claim, node, lease_ms, connection)

    @rule(wishes=st.lists(st.integers(1, 4), min_size=2, max_size=4))
    def claim_together(self, wishes: list[int]) -> None:
        expected = self.model.claim(sum(wishes), self.clock.now_ms())
        claims = self.server.claim(QUEUE, *(Claimer(f"n{n}", wish, 100) for n, wish in enumerate(wishes)))
        assert sorted(job.seq for claim in claims for job in claim.jobs) == sorted(expected)
        for number, (claim, wish) in enumerate(zip(claims, wishes, strict=True)):
            fair = len(expected) * wish / sum(wishes)
            assert abs(len(claim.jobs) - fair) < 2, (wishes, [len(each.jobs) for each in claims])
            self.handed_out(claim, f"n{number}", 100, 0)

    def handed_out(self, claim: Claim, node: str, lease_ms: int, connection: int) -> None:
        for job in claim.jobs:
            shown: dict[str, Any] = json.loads(job.text)
            before = self.model.jobs[job.seq]
            assert not before.is_leased(self.clock.now_ms()), "two leases on one job"
            deadline = self.clock.now_ms() + lease_ms
            self.model.hand_out(job.seq, ModelLease(node, shown["lease_id"], deadline, connection))
            assert shown["deliveries"] == before.deliveries
            assert (shown["$seq"], shown["deadline"]) == (job.seq, deadline)
            assert (b"%d" % shown["data"], shown.get("$tag")) == (before.data, before.tag)

    @rule(node=nodes, seqs=seqs_lists)
    def ack(self, node: str, seqs: list[int]) -> None:
        held = self.model.held(node, seqs)
        settled = self.server.ack(QUEUE, node, seqs)
        assert settled.seqs == held
        assert sorted(settled.skipped + held) == sorted(seqs)
        for seq in held:
            del self.model.jobs[seq]

    @rule(node=nodes)
    def ack_all(self, node: str) -> None:
        held = self.model.held(node, list(self.model.jobs))
        if held:
            tokens = [lease.token for seq in held if (lease := self.model.jobs[seq].lease) is not None]
            assert self.server.ack(QUEUE, node, held, tokens).seqs == held
            for seq in held:
                del self.model.jobs[seq]

    @rule(node=nodes, seqs=seqs_lists)
    def ack_with_stale_tokens(self, node: str, seqs: list[int]) -> None:
        assert self.server.ack(QUEUE, node, seqs, ["lease_1"] * len(seqs)).skipped == seqs

    @rule(node=nodes, seqs=seqs_lists, delay_ms=st.sampled_from([0, 0, 60]))
    def nack(self, node: str, seqs: list[int], delay_ms: int) -> None:
        held = self.model.held(node, seqs)
        assert self.server.nack(QUEUE, node, seqs, delay_ms=delay_ms).seqs == held
        self.model.release(held, self.clock.now_ms() + delay_ms if delay_ms else 0)

    @rule(node=nodes, seqs=seqs_lists, lease_ms=leases_ms)
    def extend(self, node: str, seqs: list[int], lease_ms: int) -> None:
        held = self.model.held(node, seqs, self.clock.now_ms())
        assert self.server.extend(QUEUE, node, seqs, lease_ms=lease_ms).seqs == held
        for seq in held:
            lease = self.model.jobs[seq].lease
            assert lease is not None
            lease.deadline = self.clock.now_ms() + lease_ms

    @rule(ms=st.sampled_from([1, 49, 100, 101, 400]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(connection=st.sampled_from([1, 2]))
    def a_stream_ends(self, connection: int) -> None:
        now_ms = self.clock.now_ms()
        jobs = self.model.jobs.values()
        mine = [j.seq for j in jobs if j.lease and j.lease.connection == connection and j.is_leased(now_ms)]
        self.server.disconnect(QUEUE, connection)
        self.model.release(mine)

    @rule(tag=st.sampled_from(["x", "y"]))
    def delete_by_tag(self, tag: str) -> None:
        self.server.delete_records(QUEUE, match=tag)
        self.model.jobs = {seq: job for seq, job in self.model.jobs.items() if job.tag != tag}

    @rule(count=st.integers(1, 3))
    def delete_the_oldest(self, count: int) -> None:
        before_seq = min(self.model.jobs, default=1) + count
        self.server.delete_records(QUEUE, before_seq=before_seq)
        self.model.jobs = {seq: job for seq, job in self.model.jobs.items() if seq >= before_seq}

    @rule(cap=st.integers(2, 6))
    def evict(self, cap: int) -> None:
        self.server.put(QUEUE, {"cap_records": cap})
        self.server.put(QUEUE, {"cap_records": 0})
        for seq in sorted(self.model.jobs)[:-cap]:
            del self.model.jobs[seq]

    @rule()
    def redrive(self) -> None:
        assert self.server.redrive(QUEUE) == self.model.redrive()

    @rule()
    def checkpoint(self) -> None:
        assert self.server.checkpoint()

    @rule()
    def restart(self) -> None:
        assert self.server.stop()
        self.server = self.start()
        for job in self.model.jobs.values():
            if job.lease is not None:
                job.lease.connection = 0

    @rule()
    def kill(self) -> None:
        """What was handed to the operating system is there afterwards."""
        self.disk = self.disk.crash_keep_all()
        self.server = self.start()
        self.lose_leases()

    @rule()
    def power_cut(self) -> None:
        """All that was not synced is gone. Jobs of class `fsync` and their counters are all there."""
        if self.durability != "fsync":
            return
        if self.leases_durable:
            self.server.sync()  # only what a broken stream gave back is not waited for
        self.disk = self.disk.crash_drop_all()
        self.server = self.start()
        self.lose_leases()
        queue = self.server.queues.queue(QUEUE)[1]
        for job in self.model.jobs.values():
            if job.deliveries and not self.leases_durable and job.seq not in queue.delayed:
                job.ready_ms = 0  # nobody waits for a nack

    def lose_leases(self) -> None:
        for job in self.model.jobs.values():
            if not self.leases_durable:
                job.lease = None
            elif job.lease is not None:
                job.lease.connection = 0

    # What must hold

    @invariant()
    def the_queue_is_as_the_model(self) -> None:
        now_ms = self.clock.now_ms()
        topic, queue = self.server.queues.queue(QUEUE)
        counts = tuple(self.server.queues.counts(topic))
        assert counts == self.model.counts(now_ms)
        assert counts[0] + counts[1] + len(queue.delayed) == topic.log.count
        assert sorted(self.server.read_all(QUEUE).records) == sorted(self.model.jobs)
        held = {seq: (lease.node, lease.deadline_ms) for seq, lease, _ in self.server.queues.leases(QUEUE, 0, 999)[1]}
        jobs = self.model.jobs.values()
        leased = [(j.seq, j.lease) for j in jobs if j.lease is not None and j.is_leased(now_ms)]
        assert held == {seq: (lease.node, lease.deadline) for seq, lease in leased}
        for job in jobs:
            assert queue.deliveries.get(job.seq, 0) == job.deliveries
            tracked = job.seq in queue.leases.by_seq or job.seq in queue.delayed or job.seq in queue.reclaimable
            assert tracked or job.seq >= queue.claim_cursor, f"nobody would ever get job {job.seq}"
        dead = [json.loads(text) for text in self.server.read_all(DEAD).records.values()]
        assert [(b"%d" % each["data"], each.get("$tag")) for each in dead] == self.model.dead


TestQueueAgainstModel = QueueAgainstModel.TestCase
TestQueueAgainstModel.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
