"""What becomes of queues in a crash: one situation a test."""

import json
from collections.abc import Callable

import pytest

from topics.engine.queues import Claimer
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import SimulatedServer


class Crashing:
    """A server with one queue, `jobs`, that can be killed and started again."""

    def __init__(self, **config: object) -> None:
        self.disk, self.clock = FakeDisk(), FakeClock()
        self.server = self._start()
        self.server.put("jobs", {"type": "queue"} | config)

    def _start(self) -> SimulatedServer:
        server = SimulatedServer(self.disk, self.clock, segment_events_max=4, wal_shards=2)
        server.start()
        return server

    def kill(self) -> None:
        self.disk = self.disk.crash_keep_all()
        self.server = self._start()

    def cut_power(self) -> None:
        self.disk = self.disk.crash_drop_all()
        self.server = self._start()

    def restart(self) -> None:
        assert self.server.stop()
        self.server = self._start()

    def claim(self, node: str = "w", count: int = 10, lease_ms: int = 10_000) -> list[tuple[int, int]]:
        """Seqs and deliveries."""
        (claim,) = self.server.claim("jobs", Claimer(node, count, lease_ms))
        return [(job.seq, json.loads(job.text)["deliveries"]) for job in claim.jobs]

    def texts(self, topic: str) -> list[object]:
        return [json.loads(text)["data"] for text in self.server.read_all(topic).records.values()]


def test_a_crash_ends_all_leases_and_counters_go_on() -> None:
    at = Crashing()
    at.server.write("jobs", 2)
    at.claim()
    at.kill()
    assert at.claim() == [(1, 2), (2, 2)]


def test_durable_leases_hold_over_a_crash() -> None:
    at = Crashing(leases_durable=True)
    at.server.write("jobs", 2)
    at.claim("w", 1, lease_ms=500)
    at.cut_power()
    assert at.claim("other") == [(2, 1)]
    assert at.server.ack("jobs", "w", [1]).seqs == [1]


def test_a_durable_lease_ends_at_its_deadline_also_after_a_crash() -> None:
    at = Crashing(leases_durable=True)
    at.server.write("jobs", 1)
    at.claim(lease_ms=500)
    at.kill()
    at.clock.advance(501)
    assert at.claim("other") == [(1, 2)]


@pytest.mark.parametrize("end", [Crashing.restart, Crashing.kill, Crashing.cut_power])
def test_a_durable_lease_is_held_since_it_was_claimed(end: Callable[[Crashing], None]) -> None:
    at = Crashing(leases_durable=True)
    claimed_ms = at.clock.now_ms()
    at.server.write("jobs", 1)
    at.claim("w", lease_ms=500)
    at.clock.advance(100)
    at.server.extend("jobs", "w", [1], lease_ms=1_000)
    end(at)
    (held,) = at.server.queues.leases("jobs", 0, 9)[1]
    assert (held.lease.claimed_ms, held.lease.deadline_ms) == (claimed_ms, claimed_ms + 1_100)


def test_a_clean_stop_keeps_leases() -> None:
    at = Crashing()
    at.server.write("jobs", 2)
    at.claim("w", 1)
    at.restart()
    assert at.claim("other") == [(2, 1)]
    assert at.server.ack("jobs", "w", [1]).seqs == [1]


def test_no_lease_id_is_given_out_again_after_a_crash() -> None:
    at = Crashing()
    at.server.write("jobs", 1)
    (claim,) = at.server.claim("jobs", Claimer("w", 1))
    stale = json.loads(claim.jobs[0].text)["lease_id"]
    at.clock.advance(1)
    at.cut_power()
    if not at.claim():
        at.server.write("jobs", 1)
        at.claim()
    assert at.server.ack("jobs", "w", [1], [stale]).skipped == [1]


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_an_acked_job_stays_gone_and_a_delay_holds_after_a_kill(durability: str) -> None:
    at = Crashing(durability=durability)
    at.server.write("jobs", 3)
    at.claim()
    at.server.ack("jobs", "w", [2])
    at.server.nack("jobs", "w", [3], delay_ms=500)
    at.kill()
    assert at.claim() == [(1, 2)]
    at.clock.advance(500)
    assert at.claim() == [(3, 2)]


def test_jobs_that_were_claimed_and_lost_leave_their_place_to_the_next_ones() -> None:
    """The jobs were resident only; their claims, made after the class had changed, were not."""
    at = Crashing(durability="ephemeral")
    at.server.write("jobs", 3)
    at.server.put("jobs", {"durability": "memory"})
    assert len(at.claim()) == 3
    at.kill()
    at.server.write("jobs", 3)
    assert len(at.claim()) == 3


def test_a_durable_job_moved_out_of_a_queue_that_is_ephemeral_now_stays_moved() -> None:
    at = Crashing(durability="disk", max_deliveries=1, dead_letter="dead")
    at.server.put("dead", {"durability": "disk"})
    at.server.write("jobs", 1)
    at.server.put("jobs", {"durability": "ephemeral"})
    at.server.nack("jobs", "w", [seq for seq, _ in at.claim()])
    assert at.claim() == []
    at.kill()
    assert (at.texts("jobs"), at.texts("dead")) == ([], [{"n": 0}])


def test_the_count_of_dead_letters_survives() -> None:
    at = Crashing(durability="fsync", max_deliveries=1, dead_letter="dead")
    at.server.write("jobs", 3)
    at.server.nack("jobs", "w", [seq for seq, _ in at.claim()])
    at.claim()
    at.cut_power()
    at.restart()
    assert tuple(at.server.queues.counts(at.server.engine.topic("jobs"))) == (0, 0, 3)


def test_a_checkpoint_while_jobs_are_claimed_and_acked_repeats_nothing() -> None:
    at = Crashing(durability="fsync")
    at.server.write("jobs", 6)
    at.claim(count=2)

    def during(step: str) -> None:
        if step == "capture":
            at.claim(count=2)
            at.server.ack("jobs", "w", [1])
        elif step == "write":
            at.server.ack("jobs", "w", [3])
            at.claim(count=1)

    at.server.checkpoint(during=during)
    at.kill()
    assert at.claim() == [(2, 2), (4, 2), (5, 2), (6, 1)]
