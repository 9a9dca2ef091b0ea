"""Who holds which job: the projection alone, with seqs and times."""

from collections.abc import Sequence

from topics.engine.lease_queue import Lease, LeaseQueue


def live(*seqs: int) -> "Live":
    return Live(seqs)


class Live:
    """What `choose` asks a log for. Counts how many records were looked at."""

    def __init__(self, seqs: Sequence[int]) -> None:
        self.seqs = seqs
        self.looked_at = 0

    def __call__(self, seq: int, count: int) -> list[int]:
        found = [each for each in self.seqs if each >= seq][:count]
        self.looked_at += len(found)
        return found


def claim(queue: LeaseQueue, seqs: list[int], *, deadline_ms: int = 100, node: str = "w", connection: int = 0) -> None:
    cursor = queue.cursor_after(seqs)
    queue.claimed(seqs, node, queue.last_lease_id + 1, 0, deadline_ms, connection)
    queue.pass_by(cursor)


def test_fresh_jobs_are_chosen_in_their_order() -> None:
    assert LeaseQueue().choose(2, live(1, 2, 3)) == [1, 2]


def test_choosing_hands_out_nothing() -> None:
    queue = LeaseQueue()
    assert queue.choose(2, live(1, 2)) == queue.choose(2, live(1, 2))


def test_a_leased_job_is_not_chosen() -> None:
    queue = LeaseQueue()
    claim(queue, [1])
    assert queue.choose(5, live(1, 2)) == [2]


def test_a_lease_holds_up_to_and_including_its_deadline() -> None:
    queue = LeaseQueue()
    claim(queue, [1], deadline_ms=100)
    queue.sweep(100)
    assert (queue.in_flight(), queue.next_change_ms()) == (1, 101)
    queue.sweep(101)
    assert (queue.in_flight(), queue.ready(1), queue.next_change_ms()) == (0, 1, None)


def test_an_expired_lease_is_remembered_until_the_job_is_handed_out_again() -> None:
    queue = LeaseQueue()
    claim(queue, [1], node="slow")
    queue.sweep(101)
    assert queue.leases.by_seq[1].node == "slow"
    claim(queue, [1], node="quick", deadline_ms=300)
    assert (queue.leases.by_seq[1].node, queue.deliveries[1], queue.leases.expired) == ("quick", 2, set())


def test_jobs_to_be_reclaimed_come_before_fresh_ones() -> None:
    queue = LeaseQueue()
    claim(queue, [1, 2, 3])
    queue.released([3, 1], 0)
    assert queue.choose(3, live(1, 2, 3, 4, 5)) == [1, 3, 4]


def test_a_job_released_twice_is_chosen_once() -> None:
    queue = LeaseQueue()
    claim(queue, [1])
    queue.released([1], 0)
    claim(queue, [1])
    queue.released([1], 0)
    assert queue.choose(3, live(1)) == [1]


def test_a_delayed_job_counts_as_neither_ready_nor_in_flight() -> None:
    queue = LeaseQueue()
    claim(queue, [1])
    queue.released([1], 50)
    assert (queue.ready(1), queue.in_flight(), queue.next_change_ms()) == (0, 0, 50)
    assert queue.choose(1, live(1)) == []
    queue.sweep(50)
    assert queue.choose(1, live(1)) == [1]


def test_a_new_deadline_replaces_the_old_one() -> None:
    queue = LeaseQueue()
    claim(queue, [1, 2], deadline_ms=100)
    queue.extended([2], 500)
    queue.sweep(101)
    assert (queue.leases.expired, queue.leases.by_seq[2].deadline_ms, queue.next_change_ms()) == ({1}, 500, 501)


def test_extending_changes_neither_the_id_nor_the_counter() -> None:
    queue = LeaseQueue()
    claim(queue, [1])
    lease_id = queue.leases.by_seq[1].lease_id
    queue.extended([1], 500)
    assert (queue.leases.by_seq[1].lease_id, queue.deliveries[1]) == (lease_id, 1)


def test_the_same_lease_extended_twice_in_a_millisecond_is_no_problem() -> None:
    queue = LeaseQueue()
    claim(queue, [1])
    queue.extended([1], 500)
    queue.extended([1], 500)
    queue.sweep(501)
    assert queue.leases.expired == {1}


def test_a_claim_taken_back_never_happened() -> None:
    queue = LeaseQueue()
    claim(queue, [1, 2])
    lease_id = queue.leases.by_seq[1].lease_id
    queue.forget([2])
    queue.unclaim([1, 2], lease_id)
    assert (queue.leases.by_seq, queue.deliveries, queue.choose(2, live(1))) == ({}, {}, [1])


def test_a_claim_taken_back_leaves_the_lease_of_the_next_holder() -> None:
    queue = LeaseQueue()
    claim(queue, [1], node="first")
    claim(queue, [1], node="next")
    queue.unclaim([1], 1)
    assert queue.leases.by_seq[1].node == "next"


def test_a_stream_holds_what_was_pushed_to_it_until_it_is_acked_released_or_expired() -> None:
    queue = LeaseQueue()
    claim(queue, [1, 2, 3, 4], connection=7, deadline_ms=100)
    queue.forget([1])
    queue.released([2], 0)
    queue.extended([3], 500)
    assert sorted(queue.leases.held_by(7)) == [3, 4]
    queue.sweep(101)
    assert sorted(queue.leases.held_by(7)) == [3]


def test_a_job_on_its_way_out_is_in_flight_and_nobody_gets_it() -> None:
    queue = LeaseQueue()
    queue.leave([1])
    assert (queue.in_flight(), queue.ready(1), queue.choose(1, live(1))) == (1, 0, [])
    queue.stay([1])
    assert (queue.in_flight(), queue.ready(1), queue.choose(1, live(1))) == (0, 1, [1])


def test_a_job_that_could_not_leave_may_have_to_wait() -> None:
    queue = LeaseQueue()
    queue.leave([1])
    queue.stay([1], 50)
    assert queue.choose(1, live(1)) == []
    queue.sweep(50)
    assert queue.choose(1, live(1)) == [1]


def test_jobs_that_are_gone_leave_nothing_behind() -> None:
    queue = LeaseQueue()
    claim(queue, [1, 2], connection=3)
    queue.delay(4, 50)
    queue.leave([5])
    queue.forget_below(6)
    queue.sweep(1_000)
    assert (queue.in_flight(), queue.ready(0), len(queue.leases.held_by(3)), list(queue.known())) == (0, 0, 0, [])


def test_what_is_above_the_floor_stays_when_a_lot_below_goes() -> None:
    queue = LeaseQueue()
    claim(queue, [1, 5_000])
    queue.forget_below(5_000)
    assert list(queue.leases.by_seq) == [5_000]


def test_only_dead_jobs_below_the_bound_are_forgotten() -> None:
    queue = LeaseQueue()
    claim(queue, [1, 2, 9])
    queue.forget_dead(lambda seq: seq == 2, 5)
    assert sorted(queue.leases.by_seq) == [2, 9]


def test_acked_jobs_cost_nothing_while_an_old_one_is_still_there() -> None:
    queue = LeaseQueue()
    claim(queue, [1], deadline_ms=1_000_000)
    for seq in range(2, 2_000):
        claim(queue, [seq], deadline_ms=1_000_000)
        queue.forget([seq])
    assert len(queue.leases._deadlines) < 100


def test_jobs_delayed_for_long_are_looked_at_once() -> None:
    queue = LeaseQueue()
    for seq in range(1, 101):
        queue.delay(seq, 1_000)
    log = live(*range(1, 102))
    for _ in range(10):
        assert queue.choose(1, log) == [101]
    assert log.looked_at == 110


def test_a_delayed_job_that_was_passed_by_is_chosen_when_it_is_due() -> None:
    queue = LeaseQueue()
    queue.delay(1, 50)
    assert queue.choose(1, live(1)) == []
    queue.sweep(50)
    assert queue.choose(2, live(1, 2)) == [1, 2]


def test_a_job_reclaimed_from_behind_fresh_ones_does_not_hide_them() -> None:
    queue = LeaseQueue()
    queue.delay(3, 50)
    queue.sweep(50)
    claim(queue, [3])
    assert queue.choose(5, live(1, 2, 3)) == [1, 2]


def test_a_job_below_the_cursor_that_nobody_knows_is_reclaimed() -> None:
    queue = LeaseQueue()
    claim(queue, [1, 4])
    queue.reclaim_strays([1, 2, 4, 5])
    assert queue.choose(5, live(1, 2, 4, 5)) == [2, 5]


def test_a_queue_from_a_snapshot_goes_on() -> None:
    queue = LeaseQueue()
    queue.deliveries = {1: 3, 2: 1}
    queue.restore({1: Lease("w", 9, 0, 100)}, {3: 40}, [2])
    queue.claim_cursor = 4
    assert (queue.in_flight(), queue.ready(4), queue.next_change_ms()) == (1, 2, 40)
    queue.sweep(101)
    assert queue.choose(9, live(1, 2, 3, 4)) == [1, 2, 3, 4]


def test_after_a_crash_every_job_can_be_claimed_and_keeps_its_counter() -> None:
    queue = LeaseQueue()
    claim(queue, [1, 2])
    queue.release_all()
    assert (queue.choose(5, live(1, 2)), queue.deliveries) == ([1, 2], {1: 1, 2: 1})
