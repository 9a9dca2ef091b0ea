"""Dead letters and their way back: a move is one batch of the log, so a job is always in one of two places."""

from typing import Any

import pytest
from msgspec import Raw
from queues_on_a_fake_clock import DEAD, QUEUE, QueuesOnAFakeClock, done, shown

from topics import limits
from topics.engine.engine import Write
from topics.engine.journal import Busy
from topics.engine.queues import Claimer
from topics.errors import StorageFailed, Throttled, TopicFull, TopicNotFound
from topics.model.config import TopicConfigPatch
from topics.model.operation import Appended, JobsDeleted, Moved, TopicCreated
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch


def worn_out(count: int = 1, **config: Any) -> QueuesOnAFakeClock:
    at = QueuesOnAFakeClock(max_deliveries=2, dead_letter=DEAD, **config)
    at.wear_out(count)
    return at


def redrive(at: QueuesOnAFakeClock, *, count: int = 100, match: TagMatch | None = None) -> int:
    head_seq = at.queues.dead_letter_head(at.topic)
    redriven = at.queues.redrive(at.topic, 0, head_seq, count, match)
    at.sync()
    assert done(redriven.commit)
    if redriven.commit is not None and redriven.commit.error is not None:
        raise redriven.commit.error
    return redriven.moving


def sources(at: QueuesOnAFakeClock) -> list[int]:
    """Which jobs are dead letters."""
    return [int(letter["meta"]["$dead_letter_src_seq"]) for letter in at.letters()]


def test_a_job_delivered_too_often_becomes_a_dead_letter() -> None:
    at = worn_out()
    assert at.claim_seqs() == []
    (letter,) = at.letters()
    assert letter["meta"] == {
        "$dead_letter_from": QUEUE,
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
    }
    assert (at.counts(), at.topic.log.count) == ((0, 0, 1), 0)


def test_a_claim_passes_over_dead_letters_to_the_jobs_behind_them() -> None:
    at = worn_out(3)
    at.produce(4)
    assert at.claim_seqs(count=3) == [4, 5, 6]
    assert len(at.letters()) == 3


def test_without_a_limit_a_job_is_delivered_for_ever() -> None:
    at = QueuesOnAFakeClock(dead_letter=DEAD)
    at.produce()
    for _ in range(20):
        at.nack(at.claim_seqs())
    assert at.claim_seqs() == [1]


def test_without_a_topic_for_them_there_are_no_dead_letters() -> None:
    at = QueuesOnAFakeClock(max_deliveries=1)
    at.wear_out()
    assert at.claim_seqs() == [1]


def test_a_topic_that_may_not_be_made_means_delivered_for_ever() -> None:
    at = worn_out(auto_create=False)
    assert at.claim_seqs() == [1]


def moves(at: QueuesOnAFakeClock) -> list[list[str]]:
    """The kinds of the operations in each batch that moved jobs."""
    return [
        [type(each).__name__ for each in batch]
        for batch, _ in at.journal.batches
        if any(isinstance(each, JobsDeleted) and each.node is None for each in batch)
    ]


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_move_is_one_batch_that_is_durable_before_anybody_sees_it(durability: str) -> None:
    at = worn_out(durability=durability)
    at.configure(DEAD, durability="memory")
    at.journal.batches.clear()
    at.auto_sync = False
    moved = at.claim().moved
    ((batch, gated),) = at.journal.batches
    joined, joined_too, deleted, appended = batch
    assert (isinstance(joined, Moved), isinstance(joined_too, Moved), gated) == (True, True, True)
    assert isinstance(deleted, JobsDeleted)
    assert (deleted.topic_id, deleted.seqs, deleted.node, deleted.dead_letters) == (at.topic.topic_id, [1], None, True)
    assert isinstance(appended, Appended)
    assert (appended.topic_id, appended.first_seq) == (at.engine.topic(DEAD).topic_id, 1)
    assert (at.letters(), at.topic.log.count, done(moved)) == ([], 1, False), "nobody sees a letter that may be lost"
    at.journal.commit()
    assert (len(at.letters()), at.topic.log.count, done(moved), at.counts()) == (1, 0, True, (0, 0, 1))


def test_topics_join_the_log_of_those_that_exchange_records_at_their_first_move() -> None:
    """Each has to be durable where it was before; until then nothing is taken for it, and the move waits."""
    at = worn_out()
    at.configure(DEAD)
    queue, dead = at.topic, at.engine.topic(DEAD)
    at.journal.lanes = {queue.topic_id: 1, dead.topic_id: 2}
    at.journal.batches.clear()
    at.auto_sync = False
    moved = at.claim().moved
    assert (at.journal.operations, queue.exchange) == ([], False), "its log is not durable yet"
    with pytest.raises(Busy):
        at.engine.append(QUEUE, Write([NewRecord(Raw(b"0"))]))
    assert at.engine.append(DEAD, Write([NewRecord(Raw(b"0"))])).first_seq == 1
    at.sync()
    assert [type(each) for each in at.journal.operations] == [Appended, Moved, Moved, JobsDeleted, Appended]
    assert (queue.exchange, dead.exchange, done(moved)) == (True, True, True)
    assert (len(at.letters()), queue.log.count) == (2, 0)
    at.journal.batches.clear()
    at.auto_sync = True
    at.wear_out()
    at.claim()
    assert moves(at) == [["JobsDeleted", "Appended"]], "once for all"


def test_a_topic_made_for_dead_letters_is_in_that_log_from_the_start() -> None:
    at = worn_out()
    at.claim()
    assert [each.exchange for each in at.journal.of(TopicCreated)] == [False, True]
    assert moves(at) == [["Moved", "JobsDeleted", "Appended"]]


def test_what_no_disk_keeps_is_moved_without_one() -> None:
    at = worn_out(durability="ephemeral")
    at.configure(DEAD, durability="ephemeral")
    at.journal.batches.clear()
    assert at.claim_seqs() == []
    assert (len(at.letters()), at.counts(), at.journal.operations) == (1, (0, 0, 1), [])


def test_nobody_gets_a_job_that_is_being_moved() -> None:
    at = worn_out(durability="fsync")
    at.auto_sync = False
    at.claim()
    assert at.claim_seqs() == []
    assert at.counts() == (0, 1, 0)


def test_a_job_deleted_while_it_is_moved_is_deleted_behind_the_move() -> None:
    """It is a dead letter by then, and counted as that alone."""
    at = worn_out(2)
    at.configure(DEAD)
    at.auto_sync = False
    at.claim()
    deleted = at.engine.delete_records(QUEUE, 2, None)
    at.sync()
    assert (deleted.count, sources(at), at.topic.log.count) == (0, [1, 2], 0)
    assert at.counts() == (0, 0, 2)


def test_a_job_deleted_while_a_move_waits_to_begin_is_counted_nowhere() -> None:
    at = worn_out(2)
    at.auto_sync = False
    at.claim()
    assert at.engine.find_topic(DEAD) is None, "it is being made"
    at.engine.delete_records(QUEUE, 2, None)
    at.sync()
    assert [letter["meta"]["$dead_letter_src_seq"] for letter in at.letters()] == ["2"]
    assert at.counts() == (0, 0, 1)


@pytest.mark.parametrize("whole", [False, True])
def test_a_move_whose_jobs_or_queue_were_deleted_before_it_began_ends(whole: bool) -> None:
    at = worn_out(2)
    at.auto_sync = False
    moved = at.claim().moved
    if whole:
        at.engine.delete_topic(QUEUE)
    else:
        at.engine.delete_records(QUEUE, 3, None)
    at.sync()
    assert (done(moved), at.letters()) == (True, [])
    assert whole or at.counts() == (0, 0, 0)


def test_of_several_letters_those_there_is_room_for_are_moved() -> None:
    at = worn_out(3)
    at.configure(DEAD, cap_records=2, discard="reject")
    assert (at.claim_seqs(), sources(at), at.counts()) == ([], [1, 2], (0, 0, 2))
    at.engine.delete_records(DEAD, 2, None)
    at.clock.advance(limits.MOVE_RETRY_MS)
    assert (at.claim_seqs(), sources(at), at.topic.log.count) == ([], [2, 3], 0)


@pytest.mark.parametrize("discard", ["reject", "old"])
def test_a_letter_too_large_for_its_topic_does_not_stop_the_others(discard: str) -> None:
    at = QueuesOnAFakeClock(max_deliveries=1, dead_letter=DEAD)
    at.engine.append(QUEUE, Write([NewRecord(Raw(b'"%b"' % (b"x" * 2000)))]))
    at.produce(2)
    at.nack(at.claim_seqs())
    at.configure(DEAD, cap_bytes=1000, discard=discard)
    for _ in range(3):
        assert (at.claim_seqs(), sources(at), at.topic.log.count) == ([], [2, 3], 1)
        at.clock.advance(limits.MOVE_RETRY_MS)


def test_a_letter_that_is_refused_is_neither_delivered_nor_tried_again_at_once() -> None:
    at = worn_out()
    at.configure(DEAD, cap_records=1, discard="reject")
    at.produce(topic=DEAD)
    assert at.claim_seqs() == []
    assert (at.claim_seqs(), at.topic.log.count) == ([], 1)
    assert moves(at) == []
    at.configure(DEAD, cap_records=0)
    at.clock.advance(limits.MOVE_RETRY_MS)
    at.claim()
    assert len(at.letters()) == 2


def test_without_room_for_another_topic_the_job_stays() -> None:
    at = worn_out(topics_max=1)
    at.claim()
    assert (at.topic.log.count, at.engine.find_topic(DEAD)) == (1, None)


def test_a_topic_recreated_during_a_move_gets_no_copy() -> None:
    """The copy goes to the topic the move was decided for, which is deleted behind it; never to another of its name."""
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    moved = at.claim().moved
    at.engine.delete_topic(DEAD)
    with pytest.raises(Busy):
        at.engine.put_topic(DEAD, TopicConfigPatch())
    at.sync()
    at.configure(DEAD)
    assert (at.letters(), at.topic.log.count, done(moved), at.counts()) == ([], 0, True, (0, 0, 1))


def test_a_topic_recreated_while_a_move_waits_to_begin_gets_the_job_once() -> None:
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    at.engine.delete_topic(DEAD)
    moved = at.claim().moved
    assert moves(at) == []
    at.sync()
    assert (len(at.letters()), at.topic.log.count, done(moved), len(moves(at))) == (1, 0, True, 1)


def test_a_disk_that_does_not_keep_up_does_not_stop_a_move_after_its_copy() -> None:
    """The deletion is in the batch of the copy: nothing has to be taken after it."""
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    at.claim()
    at.journal.refusal = Throttled("too much waits", retry_after_s=1)
    at.journal.commit()
    assert (len(at.letters()), at.topic.log.count, len(moves(at))) == (1, 0, 1)


def test_a_disk_that_does_not_keep_up_refuses_a_move_whole() -> None:
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    at.journal.refusal = Throttled("too much waits", retry_after_s=1)
    moved = at.claim().moved
    assert moved is not None
    assert isinstance(moved.error, Throttled)
    assert (at.letters(), at.topic.log.count, moves(at)) == ([], 1, [])
    at.journal.refusal = None
    assert at.claim_seqs() == [], "it is tried again after a while, and not delivered meanwhile"
    at.clock.advance(limits.MOVE_RETRY_MS)
    at.claim()
    at.sync()
    assert (len(at.letters()), at.topic.log.count) == (1, 0)


def test_a_copy_that_may_be_there_is_not_made_again() -> None:
    """What a failed disk refused may be on it nevertheless; until the next start finds out, nobody gets the job."""
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    moved = at.claim().moved
    at.journal.fail()
    at.clock.advance(limits.MOVE_RETRY_MS)
    assert (done(moved), at.claim_seqs(), at.counts()) == (True, [], (0, 1, 0))
    assert (at.letters(), at.topic.log.count, len(moves(at))) == ([], 1, 1)


def test_a_move_behind_a_write_that_failed_happens_as_little() -> None:
    at = worn_out()
    at.configure(DEAD, durability="fsync")
    at.auto_sync = False
    at.engine.append(DEAD, Write([NewRecord(Raw(b"0"))]))
    moved = at.claim().moved
    at.journal.fail()
    dead = at.engine.topic(DEAD)
    assert (done(moved), at.letters(), at.topic.log.count) == (True, [], 1)
    assert (dead.assigned_seq, dead.pending_count) == (0, 0), "the seqs are free again"


def test_a_queue_deleted_during_a_move_ends_it() -> None:
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    moved = at.claim().moved
    at.engine.delete_topic(QUEUE)
    at.sync()
    assert moved is not None
    assert moved.done


# Back again


def test_a_redriven_job_is_as_it_was_and_begins_anew() -> None:
    at = QueuesOnAFakeClock(max_deliveries=1, dead_letter=DEAD)
    at.produce(1, tag="t:1")
    at.nack(at.claim_seqs())
    at.claim()
    assert redrive(at) == 1
    (job,) = shown(at.claim())
    assert (job["data"], job["$tag"], job["deliveries"], "meta" in job) == (0, "t:1", 1, False)
    assert (at.letters(), at.counts()) == ([], (0, 1, 1))


def test_only_so_many_are_redriven_and_only_those_that_match() -> None:
    at = QueuesOnAFakeClock(max_deliveries=1, dead_letter=DEAD)
    at.produce(3, tag="a")
    at.produce(1, tag="b")
    at.nack(at.claim_seqs())
    at.claim()
    assert redrive(at, count=1, match=TagMatch("b", is_prefix=False)) == 1
    assert redrive(at, count=2) == 2
    assert len(at.letters()) == 1


def test_what_came_from_elsewhere_stays() -> None:
    at = worn_out()
    at.claim()
    at.produce(2, topic=DEAD)
    assert redrive(at) == 1
    assert [letter["data"] for letter in at.letters()] == [0, 1]


def test_two_redrives_at_once_bring_a_job_back_once() -> None:
    at = worn_out(2)
    at.claim()
    head_seq = at.queues.dead_letter_head(at.topic)
    first = at.queues.redrive(at.topic, 0, head_seq, 10, None)
    second = at.queues.redrive(at.topic, 0, head_seq, 10, None)
    at.sync()
    assert (first.moving, second.moving, at.topic.log.count) == (2, 0, 2)


def test_a_dead_letter_somebody_works_on_is_not_redriven() -> None:
    at = worn_out()
    at.configure(DEAD, type="queue")
    at.claim()
    (claim,) = at.queues.claim(at.engine.topic(DEAD), (Claimer("w", 1),))
    at.sync()
    assert (len(claim.jobs), redrive(at)) == (1, 0)


def test_a_redrive_into_a_full_queue_is_refused_and_leaves_the_letters() -> None:
    at = worn_out()
    at.claim()
    at.configure(QUEUE, cap_records=1, discard="reject")
    at.produce()
    with pytest.raises(TopicFull):
        redrive(at)
    assert len(at.letters()) == 1


def test_a_queue_without_dead_letters_has_none_to_redrive() -> None:
    at = QueuesOnAFakeClock(dead_letter=DEAD)
    assert redrive(at) == 0
    with pytest.raises(TopicNotFound):
        at.letters()


def test_a_redrive_is_one_batch_like_the_move_before_it() -> None:
    at = worn_out(2)
    at.claim()
    at.journal.batches.clear()
    at.auto_sync = False
    head_seq = at.queues.dead_letter_head(at.topic)
    redriven = at.queues.redrive(at.topic, 0, head_seq, 10, None)
    assert (moves(at), at.journal.gates(JobsDeleted)) == ([["JobsDeleted", "Appended"]], [True])
    assert (len(at.letters()), at.topic.log.count) == (2, 0)
    at.journal.commit()
    assert (len(at.letters()), at.topic.log.count, done(redriven.commit)) == (0, 2, True)


def test_a_redrive_whose_disk_failed_brings_nothing_back() -> None:
    at = worn_out()
    at.claim()
    at.auto_sync = False
    head_seq = at.queues.dead_letter_head(at.topic)
    redriven = at.queues.redrive(at.topic, 0, head_seq, 10, None)
    at.journal.fail()
    assert redriven.commit is not None
    assert isinstance(redriven.commit.error, StorageFailed)
    assert (len(at.letters()), at.topic.log.count) == (1, 0)
