"""A queue whose jobs are copies that routers make: its leases, acks and dead letters after a kill."""

import json

import pytest

from topics.engine.queues import Claimer
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import SimulatedServer

CLASSES = ("disk", "fsync")
SHARDS = (1, 2, 3)


class Routed:
    """Orders become jobs. What is on disk is what a killed process leaves."""

    def __init__(self, durability: str, shards: int, **config: object) -> None:
        self.disk, self.clock, self._shards = FakeDisk(), FakeClock(), shards
        self.server = self._start()
        self.server.put("jobs", {"type": "queue", "durability": durability, **config})
        self.server.put_router("orders->jobs", "orders", "jobs")

    def _start(self) -> SimulatedServer:
        server = SimulatedServer(self.disk, self.clock, wal_shards=self._shards)
        server.start()
        return server

    def kill(self) -> None:
        self.server.step()
        self.disk = self.disk.crash_keep_all()
        self.server = self._start()

    def claim(self, count: int) -> list[tuple[int, int]]:
        """(seq, deliveries) of each job handed out."""
        jobs = self.server.claim("jobs", Claimer("w", count))[0].jobs
        return [(record["$seq"], record["deliveries"]) for record in (json.loads(job.text) for job in jobs)]

    def seqs(self, topic: str) -> list[int]:
        return sorted(self.server.read_all(topic).records)


@pytest.mark.parametrize("durability", CLASSES)
@pytest.mark.parametrize("shards", SHARDS)
def test_an_acked_copy_stays_gone_and_the_others_keep_seqs_and_counters(durability: str, shards: int) -> None:
    routed = Routed(durability, shards)
    routed.server.write("orders", 5)
    assert routed.claim(3) == [(1, 1), (2, 1), (3, 1)]
    assert routed.server.ack("jobs", "w", [2]).seqs == [2]
    routed.server.write("orders", 1)
    assert routed.seqs("jobs") == [1, 3, 4, 5, 6]
    for _ in range(2):
        routed.kill()
        assert routed.seqs("jobs") == [1, 3, 4, 5, 6]
    assert routed.claim(9) == [(1, 2), (3, 2), (4, 1), (5, 1), (6, 1)]


@pytest.mark.parametrize("shards", SHARDS)
def test_a_durable_lease_of_a_copy_outlives_a_kill(shards: int) -> None:
    routed = Routed("disk", shards, leases_durable=True)
    routed.server.write("orders", 2)
    assert routed.claim(1) == [(1, 1)]
    routed.kill()
    assert routed.claim(9) == [(2, 1)]
    assert routed.server.ack("jobs", "w", [1, 2]).seqs == [1, 2]


@pytest.mark.parametrize("durability", CLASSES)
@pytest.mark.parametrize("shards", SHARDS)
def test_a_copy_that_became_a_dead_letter_is_in_one_place(durability: str, shards: int) -> None:
    routed = Routed(durability, shards, max_deliveries=1, dead_letter="dead")
    routed.server.write("orders", 2)
    assert routed.claim(1) == [(1, 1)]
    routed.server.nack("jobs", "w", [1])
    assert routed.claim(1) == [(2, 1)]
    for _ in range(2):
        assert (routed.seqs("jobs"), routed.seqs("dead")) == ([2], [1])
        routed.kill()


@pytest.mark.parametrize("shards", SHARDS)
def test_jobs_that_are_acked_were_forwarded_before(shards: int) -> None:
    disk, clock = FakeDisk(), FakeClock()
    server = SimulatedServer(disk, clock, wal_shards=shards)
    server.start()
    server.put("jobs", {"type": "queue"})
    server.put_router("jobs->log", "jobs", "log")
    server.write("jobs", 3)
    server.claim("jobs", Claimer("w", 3))
    server.ack("jobs", "w", [1, 3])
    assert sorted(server.read_all("log").records) == [1, 2, 3]
    server.step()
    killed = SimulatedServer(disk.crash_keep_all(), clock, wal_shards=shards)
    killed.start()
    assert sorted(killed.read_all("log").records) == [1, 2, 3]
    assert sorted(killed.read_all("jobs").records) == [2]
