"""What the journal is told of the clock, and what a checkpoint has to write."""

import pytest
from engine_on_a_fake_clock import TOPIC, record
from journalled_engine import Journalled

from topics.engine.topic import Topic
from topics.model import operation
from topics.model.config import Durability, TopicConfigPatch
from topics.model.operation import ClockReached


@pytest.fixture
def at() -> Journalled:
    return Journalled()


# Expiry


def test_what_the_clock_has_taken_is_noted_once() -> None:
    at = Journalled(TopicConfigPatch(durability=Durability.MEMORY, ttl_ms=10))
    at.write(record(), record())
    at.clock.advance(11)
    at.engine.expire_due()
    at.engine.expire_due()
    (noted,) = at.journal.of(ClockReached)
    assert (noted.ts, noted.topic_ids) == (at.clock.now_ms(), [at.topic.topic_id])
    assert at.journal.gates(ClockReached) == [False]
    assert (at.topic.log.count, at.topic.log.ttl_lost_seq) == (0, 2)


def test_what_the_clock_has_taken_is_noted_also_when_a_reader_found_it_first() -> None:
    at = Journalled(TopicConfigPatch(durability=Durability.MEMORY, ttl_ms=10))
    at.write(record(), record())
    at.clock.advance(11)
    assert at.seqs() == []
    at.engine.expire_due()
    at.engine.expire_due()
    (noted,) = at.journal.of(ClockReached)
    assert (noted.ts, noted.topic_ids) == (at.clock.now_ms(), [at.topic.topic_id])


def test_what_the_clock_has_taken_from_memory_alone_is_not_noted() -> None:
    at = Journalled(TopicConfigPatch(durability=Durability.EPHEMERAL, ttl_ms=10))
    at.write(record())
    at.clock.advance(11)
    at.engine.expire_due()
    assert at.journal.of(ClockReached) == []
    assert at.topic.log.count == 0


def test_a_clock_that_is_set_back_does_not_bring_back_what_it_has_taken_and_takes_nothing_new() -> None:
    """What it has taken is noted before the next write, once: what is written from then on has its whole TTL."""
    at = Journalled(TopicConfigPatch(durability=Durability.MEMORY, ttl_ms=10))
    at.write(record())
    at.clock.advance(30)
    assert at.seqs() == []
    at.clock.set_wall(at.clock.now_ms() - 15)
    for seq in (2, 3, 4):
        assert at.write(record()).first_seq == seq
    assert [type(each) for each in at.journal.operations[1:]] == [ClockReached, *[operation.Appended] * 3]
    assert at.seqs() == [2, 3, 4]


# What a checkpoint has to write


def taken_changes(at: Journalled) -> tuple[list[Topic], list[int]]:
    changed: list[Topic] = []
    removed = at.engine.state.begin_capture(changed.append)
    while at.engine.state.capture_next():
        pass
    return changed, removed


def test_changed_and_removed_topics_are_handed_out_once(at: Journalled) -> None:
    at.engine.put_topic("other", TopicConfigPatch())
    at.journal.commit()
    taken_changes(at)
    at.write(record())
    assert taken_changes(at) == ([], []), "a staged write has changed nothing yet"
    at.journal.commit()
    other = at.engine.topic("other")
    at.engine.delete_topic("other")
    at.journal.commit()
    assert taken_changes(at) == ([at.topic], [other.topic_id])
    assert taken_changes(at) == ([], [])


def test_changes_that_could_not_be_written_are_changes_still(at: Journalled) -> None:
    at.write(record())
    at.journal.commit()
    changed, removed = taken_changes(at)
    topic = at.topic
    at.engine.delete_topic(TOPIC)
    at.journal.commit()
    at.engine.state.end_capture(changed, [*removed, 99])
    assert taken_changes(at) == ([], [99, topic.topic_id])


def test_a_topic_is_captured_before_it_changes() -> None:
    at = Journalled()
    at.write(record())
    at.journal.commit()
    captured: list[int] = []
    at.engine.state.begin_capture(lambda topic: captured.append(topic.log.head_seq))
    at.write(record())
    assert captured == [], "it waits for the disk: nothing has changed yet"
    at.journal.commit()
    assert captured == [1]
    assert not at.engine.state.capture_next()
    assert at.engine.state.has_changes, "for the next one"


def test_what_a_failed_checkpoint_had_not_captured_yet_is_still_to_be_written() -> None:
    at = Journalled()
    at.write(record())
    at.journal.commit()
    removed = at.engine.state.begin_capture(lambda topic: None)
    at.engine.state.end_capture([], removed)
    assert taken_changes(at) == ([at.topic], [])
