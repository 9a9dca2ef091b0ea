"""Claim, ack, nack, extend: what is decided, what is journalled, and what waits for the disk."""

from typing import Any

import pytest
from queues_on_a_fake_clock import QUEUE, QueuesOnAFakeClock, done, shown

from topics.engine import log_reading
from topics.engine.journal import Busy
from topics.engine.queues import Claimer
from topics.errors import NotAQueue, StorageFailed, TopicNotFound
from topics.model.operation import Appended, Claimed, JobsDelayed, JobsDeleted
from topics.model.tag_match import TagMatch


def test_a_claimed_job_shows_its_record_and_its_lease() -> None:
    at = QueuesOnAFakeClock()
    at.produce(tag="t:1")
    (job,) = shown(at.claim(lease_ms=500))
    now_ms = at.clock.now_ms()
    lease_id = job.pop("lease_id")
    assert lease_id.startswith("lease_")
    int(lease_id.removeprefix("lease_"), 16)
    assert job == {"$seq": 1, "deadline": now_ms + 500, "deliveries": 1, "$ts": now_ms, "data": 0, "$tag": "t:1"}


def test_jobs_claimed_together_have_lease_ids_of_their_own() -> None:
    at = QueuesOnAFakeClock()
    at.produce(3)
    assert len({job["lease_id"] for job in shown(at.claim())}) == 3


def test_the_topic_has_the_lease_time_of_those_who_do_not_say() -> None:
    at = QueuesOnAFakeClock(lease_ms=700)
    at.produce()
    (claim,) = at.queues.claim(at.topic, (Claimer("w", 1),))
    assert shown(claim)[0]["deadline"] == at.clock.now_ms() + 700


def test_claimers_of_one_pass_share_what_there_is() -> None:
    at = QueuesOnAFakeClock()
    at.produce(50)
    claims = at.queues.claim(at.topic, [Claimer(f"w{number}", 10) for number in range(10)])
    assert [len(claim.jobs) for claim in claims] == [5] * 10
    assert sorted(job.seq for claim in claims for job in claim.jobs) == list(range(1, 51))


def test_one_pass_is_one_event() -> None:
    at = QueuesOnAFakeClock()
    at.produce(5)
    at.queues.claim(at.topic, [Claimer("a", 2), Claimer("b", 2)])
    assert at.journal.gates(Claimed) == [False]


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_delay_is_part_of_its_write(durability: str) -> None:
    """Else the delay of a write that was lost would hold for the next job with its seq."""
    at = QueuesOnAFakeClock(durability=durability)
    at.journal.batches.clear()
    at.produce(2, delay_ms=50)
    ((batch, gated),) = at.journal.batches
    delayed, appended = batch
    assert isinstance(delayed, JobsDelayed)
    assert (delayed.seqs, delayed.ready_ms) == ([1, 2], at.clock.now_ms() + 50)
    assert isinstance(appended, Appended)
    assert (appended.first_seq, gated) == (1, durability == "fsync")


def test_a_claim_of_an_empty_queue_is_no_event() -> None:
    at = QueuesOnAFakeClock()
    assert at.claim_seqs() == []
    assert at.journal.of(Claimed) == []


def test_ready_in_flight_and_delayed_are_all_jobs() -> None:
    at = QueuesOnAFakeClock()
    at.produce(5)
    at.produce(1, delay_ms=500)
    at.claim(count=2)
    assert at.counts() == (3, 2, 0)
    at.clock.advance(500)
    assert at.counts() == (4, 2, 0)
    at.clock.advance(501)
    assert at.counts() == (6, 0, 0)


def test_only_a_queue_has_jobs() -> None:
    at = QueuesOnAFakeClock()
    at.configure("log")
    with pytest.raises(NotAQueue):
        at.queues.ack("log", "w", [1], None)
    with pytest.raises(TopicNotFound):
        at.queues.ack("nowhere", "w", [1], None)


# Settling


def test_an_ack_deletes_the_jobs_of_their_holder_and_skips_all_others() -> None:
    at = QueuesOnAFakeClock()
    at.produce(3)
    at.claim("w", 1)
    at.claim("other", 1)
    settled = at.ack([1, 1, 2, 3, 99])
    assert (settled.seqs, settled.skipped) == ([1], [1, 2, 3, 99])
    assert log_reading.live_from(at.topic.log, 1, 9) == [2, 3]


def test_a_job_acked_twice_in_one_request_is_skipped_the_second_time() -> None:
    at = QueuesOnAFakeClock()
    at.produce(3)
    at.claim()
    acked = at.ack([1, 2, 1, 3])
    assert (acked.seqs, acked.skipped) == ([1, 2, 3], [1])


def test_an_ack_again_is_skipped() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    at.claim()
    at.ack([1])
    assert at.ack([1]).skipped == [1]


def test_a_late_ack_counts_while_nobody_else_has_the_job() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    at.claim("slow", lease_ms=100)
    at.clock.advance(101)
    assert at.ack([1], "slow").seqs == [1]


def test_a_late_ack_is_skipped_when_somebody_else_has_the_job() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    at.claim("slow", lease_ms=100)
    at.clock.advance(101)
    at.claim("quick")
    assert at.ack([1], "slow").skipped == [1]
    assert at.ack([1], "quick").seqs == [1]


def test_a_token_of_an_earlier_lease_fences_its_holder() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    stale = [job["lease_id"] for job in shown(at.claim())]
    at.nack([1])
    current = [job["lease_id"] for job in shown(at.claim())]
    assert at.ack([1], lease_ids=stale).skipped == [1]
    assert at.ack([1], lease_ids=["no token"]).skipped == [1]
    assert at.ack([1], lease_ids=current).seqs == [1]


def test_a_token_holds_after_an_extension() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    token = [job["lease_id"] for job in shown(at.claim())]
    at.extend([1])
    assert at.ack([1], lease_ids=token).seqs == [1]


def test_a_released_job_counts_its_next_delivery() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    at.claim()
    at.nack([1])
    assert [job["deliveries"] for job in shown(at.claim())] == [2]


def test_a_job_released_with_a_delay_is_kept_back() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    at.claim()
    at.nack([1], delay_ms=50)
    assert (at.counts(), at.claim_seqs()) == ((0, 0, 0), [])
    at.clock.advance(50)
    assert at.claim_seqs() == [1]


def test_an_extension_sets_the_deadline_from_now() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    at.claim(lease_ms=1_000)
    at.clock.advance(900)
    settled = at.extend([1], lease_ms=300)
    assert (settled.seqs, settled.deadline_ms) == ([1], at.clock.now_ms() + 300)
    at.clock.advance(300)
    assert at.counts() == (0, 1, 0)


def test_an_expired_lease_is_not_extended() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    at.claim(lease_ms=100)
    at.clock.advance(101)
    assert at.extend([1]).skipped == [1]


def test_a_wall_clock_that_steps_back_gives_no_job_twice() -> None:
    at = QueuesOnAFakeClock()
    at.produce(2)
    first = shown(at.claim(count=1, lease_ms=100))[0]
    at.clock.set_wall(at.clock.now_ms() - 60_000)
    second = shown(at.claim(count=2, lease_ms=100))
    assert [job["$seq"] for job in second] == [2]
    assert second[0]["lease_id"][:-8] > first["lease_id"][:-8]


# Jobs that go another way


@pytest.mark.parametrize("match", [None, TagMatch("x", is_prefix=False)], ids=["by-seq", "by-tag"])
def test_a_deleted_job_leaves_its_lease_and_its_delay(match: TagMatch | None) -> None:
    at = QueuesOnAFakeClock()
    at.produce(2, tag="x")
    at.produce(1, delay_ms=50, tag="x")
    at.claim(count=1)
    at.engine.delete_records(QUEUE, None, match)
    assert at.counts() == (0, 0, 0)
    assert at.ack([1]).skipped == [1]


def test_an_evicted_job_leaves_its_lease() -> None:
    at = QueuesOnAFakeClock(cap_records=2)
    at.produce(2)
    at.claim()
    at.produce(1)
    assert (at.counts(), at.ack([1, 2]).seqs) == ((1, 1, 0), [2])


def test_an_expired_record_leaves_its_lease() -> None:
    at = QueuesOnAFakeClock(ttl_ms=100)
    at.produce(2)
    at.claim(lease_ms=5_000)
    at.clock.advance(101)
    assert (at.counts(), at.claim_seqs()) == ((0, 0, 0), [])


# Waiting for the disk


def test_claims_of_a_class_that_does_not_wait_do_not_wait() -> None:
    at = QueuesOnAFakeClock(durability="disk", auto_sync=False)
    at.produce()
    assert at.claim().commit is None


@pytest.mark.parametrize("config", [{"durability": "fsync"}, {"durability": "disk", "leases_durable": True}])
def test_a_claim_that_has_to_be_durable_waits(config: dict[str, Any]) -> None:
    at = QueuesOnAFakeClock(auto_sync=False, **config)
    at.produce()
    claim = at.claim()
    assert not done(claim.commit)
    assert at.claim_seqs("other") == []
    at.sync()
    assert done(claim.commit)


def test_a_claim_the_disk_did_not_take_leases_nothing() -> None:
    at = QueuesOnAFakeClock(auto_sync=False, leases_durable=True)
    at.produce()
    claim = at.claim()
    at.journal.fail()
    assert claim.commit is not None
    assert isinstance(claim.commit.error, StorageFailed)
    assert (at.counts(), at.topic.queue is not None and at.topic.queue.deliveries) == ((1, 0, 0), {})


def test_a_refused_claim_changes_nothing() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    at.journal.refusal = StorageFailed("the disk is gone")
    with pytest.raises(StorageFailed):
        at.claim()
    assert at.counts() == (1, 0, 0)


def test_an_ack_of_class_fsync_waits_and_hides_the_job_meanwhile() -> None:
    at = QueuesOnAFakeClock(durability="fsync")
    at.produce()
    at.claim()
    at.auto_sync = False
    settled = at.ack([1])
    assert (done(settled.commit), at.counts()) == (False, (0, 1, 0))
    at.clock.advance(5_000)
    assert at.claim_seqs() == []
    at.sync()
    assert (done(settled.commit), at.counts()) == (True, (0, 0, 0))


def test_a_job_whose_ack_failed_can_be_claimed_again() -> None:
    at = QueuesOnAFakeClock(durability="fsync")
    at.produce()
    at.claim()
    at.auto_sync = False
    at.ack([1])
    at.journal.fail()
    assert at.counts() == (1, 0, 0)


@pytest.mark.parametrize("leases_durable", [False, True])
def test_releases_and_extensions_wait_where_leases_are_durable(leases_durable: bool) -> None:
    at = QueuesOnAFakeClock(leases_durable=leases_durable)
    at.produce()
    at.claim()
    at.auto_sync = False
    assert done(at.extend([1]).commit) is not leases_durable
    assert done(at.nack([1]).commit) is not leases_durable


def test_an_ephemeral_queue_journals_nothing() -> None:
    at = QueuesOnAFakeClock(durability="ephemeral", leases_durable=True)
    at.journal.batches.clear()
    at.produce(2)
    at.claim()
    at.extend([1])
    at.nack([1])
    at.ack([2])
    assert at.journal.operations == []


def test_durable_jobs_of_a_queue_that_is_ephemeral_now_are_still_journalled() -> None:
    at = QueuesOnAFakeClock(durability="disk")
    at.produce()
    at.configure(QUEUE, durability="ephemeral")
    at.claim()
    at.ack([1])
    assert (at.journal.gates(Claimed), at.journal.gates(JobsDeleted)) == ([False], [False])


def test_nothing_is_handed_out_while_the_topic_is_being_deleted() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    topic = at.topic
    at.engine.delete_topic(QUEUE)
    with pytest.raises(Busy):
        at.queues.claim(topic, (Claimer("w", 1),))
    with pytest.raises(Busy):
        at.queues.ack(QUEUE, "w", [1], None)


# Streams and lists


def test_a_stream_that_ends_gives_back_what_it_holds_and_nothing_else() -> None:
    at = QueuesOnAFakeClock()
    at.produce(3)
    at.claim(count=1, connection=5)
    at.claim(count=1, connection=6)
    at.claim(count=1)
    at.queues.release(at.topic, 5)
    assert [lease.seq for lease in at.queues.leases(QUEUE, 0, 9)[1]] == [2, 3]


def test_a_stream_that_ends_on_a_failed_disk_gives_its_jobs_back_all_the_same() -> None:
    at = QueuesOnAFakeClock()
    at.produce()
    at.claim(connection=5)
    at.journal.refusal = StorageFailed("the disk is gone")
    at.queues.release(at.topic, 5)
    assert at.counts() == (1, 0, 0)


def test_leases_are_listed_in_order_from_a_seq_on() -> None:
    at = QueuesOnAFakeClock()
    at.produce(4)
    at.claim("a", 2)
    at.claim("b", 2)
    _, held = at.queues.leases(QUEUE, 1, 2)
    assert [(lease.seq, lease.lease.node, lease.deliveries) for lease in held] == [(2, "a", 1), (3, "b", 1)]
