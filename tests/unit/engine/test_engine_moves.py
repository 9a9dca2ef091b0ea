"""Dead letters and their way back: each step waits for the one before, and a job is always in one of two places."""

from typing import Any

import pytest
from msgspec import Raw
from queues_on_a_fake_clock import DEAD, QUEUE, QueuesOnAFakeClock, done, shown

from topics import limits
from topics.engine.engine import Write
from topics.engine.queues import Claimer
from topics.errors import StorageFailed, Throttled, TopicFull, TopicNotFound
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


def test_the_steps_wait_for_each_other() -> None:
    at = worn_out(durability="fsync")
    at.configure(DEAD, durability="memory")
    at.journal.operations.clear()
    at.auto_sync = False
    moved = at.claim().moved
    assert [name for name, _, _ in at.journal.operations] == ["lease"]
    at.journal.commit()
    assert [name for name, _, _ in at.journal.operations] == ["lease", "append"]
    assert at.letters() == [], "nobody sees a letter that may be taken back"
    at.journal.commit()
    assert at.journal.operations[2][0] == "delete_jobs"
    assert (len(at.letters()), at.topic.log.count, done(moved)) == (1, 1, False)
    at.journal.commit()
    assert (at.topic.log.count, done(moved), at.counts()) == (0, True, (0, 0, 1))


def test_nobody_gets_a_job_that_is_being_moved() -> None:
    at = worn_out(durability="fsync")
    at.auto_sync = False
    at.claim()
    assert at.claim_seqs() == []
    assert at.counts() == (0, 1, 0)


def test_a_job_deleted_while_it_is_moved_is_not_copied() -> None:
    at = worn_out(2)
    at.configure(DEAD)
    at.auto_sync = False
    at.claim()
    at.engine.delete_records(QUEUE, 2, None)
    at.sync()
    assert [letter["meta"]["$dead_letter_src_seq"] for letter in at.letters()] == ["2"]
    assert at.counts() == (0, 0, 1)


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


def sources(at: QueuesOnAFakeClock) -> list[int]:
    """Which jobs are dead letters."""
    return [int(letter["meta"]["$dead_letter_src_seq"]) for letter in at.letters()]


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
    events = len(at.journal.named("lease"))
    assert at.claim_seqs() == []
    assert (len(at.journal.named("lease")), at.topic.log.count) == (events, 1)
    at.configure(DEAD, cap_records=0)
    at.clock.advance(limits.MOVE_RETRY_MS)
    at.claim()
    assert len(at.letters()) == 2


def test_without_room_for_another_topic_the_job_stays() -> None:
    at = worn_out(topics_max=1)
    at.claim()
    assert (at.topic.log.count, at.engine.find_topic(DEAD)) == (1, None)


def test_a_topic_recreated_during_a_move_gets_no_copy() -> None:
    """After a crash nobody would find the copy there, and the job would be in both."""
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    at.claim()
    at.engine.delete_topic(DEAD)
    # The deletion is durable first: it is on another disk.
    held = at.journal._held
    held.append(held.pop(0))
    at.journal.commit(1)
    at.configure(DEAD)
    assert (at.letters(), at.topic.log.count) == ([], 1)


def test_a_disk_that_does_not_keep_up_does_not_stop_a_move_after_its_copy() -> None:
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    at.claim()
    at.journal.commit()
    at.journal.refusal = Throttled("too much waits", retry_after_s=1)
    at.journal.commit()
    assert (len(at.letters()), at.topic.log.count) == (1, 0)


def test_a_job_that_was_copied_and_cannot_be_deleted_is_not_copied_again() -> None:
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    moved = at.claim().moved
    at.journal.commit()
    at.journal.refusal = StorageFailed("the disk is gone")
    at.journal.commit()
    assert (done(moved), len(at.letters())) == (True, 1)
    at.journal.refusal = None
    at.clock.advance(limits.MOVE_RETRY_MS)
    assert (at.claim_seqs(), len(at.letters())) == ([], 1)


def test_a_copy_that_may_be_there_is_not_made_again() -> None:
    """What a failed disk refused may be on it nevertheless; the next start finds out."""
    at = worn_out()
    at.configure(DEAD)
    at.auto_sync = False
    moved = at.claim().moved
    at.journal.commit()
    events = len(at.journal.named("lease"))
    at.journal.fail()
    at.clock.advance(limits.MOVE_RETRY_MS)
    assert (done(moved), at.claim_seqs(), at.counts()) == (True, [], (0, 1, 0))
    assert len(at.journal.named("lease")) == events


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
