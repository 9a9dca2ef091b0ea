"""Class disk: seqs reserved ahead, and readers who want only what is durable."""

import pytest
from engine_on_a_fake_clock import EngineOnAFakeClock, record
from journalled_engine import Journalled, waited

from topics import limits
from topics.engine.engine import Write
from topics.model.config import Durability, TopicConfigPatch
from topics.model.operation import SeqsReserved


@pytest.fixture
def at() -> Journalled:
    return Journalled()


# Seqs reserved ahead (class disk)


def disk_topic() -> Journalled:
    return Journalled(TopicConfigPatch(durability=Durability.DISK))


def test_a_new_disk_topic_has_seqs_reserved_from_the_start() -> None:
    at = disk_topic()
    assert at.created_with == at.topic.ceiling >= limits.SEQ_RESERVATION_MIN
    assert at.write(record()).commit is None


def test_a_write_that_creates_a_disk_topic_waits_for_its_reservation(at: Journalled) -> None:
    appended = at.engine.append("new", Write([record()]))
    assert not waited(appended).done
    assert at.engine.find_topic("new") is None
    at.journal.commit()
    assert at.engine.topic("new").log.head_seq == 1
    assert at.write(record(), topic="new").commit is None


def test_a_write_beyond_what_is_reserved_waits_for_more() -> None:
    at = disk_topic()
    beyond = at.write(*[record()] * (at.topic.ceiling + 1))
    assert not waited(beyond).done
    assert at.topic.log.head_seq == 0
    at.journal.commit()
    assert at.topic.log.head_seq == beyond.record_count
    assert at.topic.ceiling > at.topic.log.head_seq


def test_a_write_behind_a_staged_one_is_staged_too() -> None:
    at = disk_topic()
    at.write(*[record()] * (at.topic.ceiling + 1))
    behind = at.write(record())
    assert not waited(behind).done
    at.journal.commit()
    assert at.topic.log.head_seq == behind.first_seq


def test_a_steady_writer_never_waits_for_a_reservation() -> None:
    at = disk_topic()
    for _ in range(5 * limits.SEQ_RESERVATION_MIN):
        assert at.write(record()).commit is None
        at.journal.commit()
    assert len(at.journal.of(SeqsReserved)) >= 2


# Readers who want only what is durable


def test_a_strong_reader_sees_a_disk_record_once_it_is_durable() -> None:
    at = disk_topic()
    at.write(record())
    at.engine.add_strong_reader(at.topic)
    assert at.engine.durable_seq(at.topic) == 0
    at.journal.commit()
    assert at.engine.durable_seq(at.topic) == 1
    told: list[int] = []
    at.engine.state.on_change = lambda topic: told.append(at.engine.durable_seq(topic))
    assert at.write(record()).commit is None, "its writer does not wait for it"
    assert (at.seqs(), told) == ([1, 2], [1])
    at.journal.commit()
    assert told == [1, 2]


def test_what_could_not_be_made_durable_is_never_shown_to_a_strong_reader() -> None:
    at = disk_topic()
    at.engine.add_strong_reader(at.topic)
    at.journal.commit()
    at.write(record())
    at.journal.fail()
    assert at.engine.durable_seq(at.topic) == 0


@pytest.mark.parametrize("durability", [Durability.EPHEMERAL, Durability.FSYNC])
def test_in_other_classes_what_is_published_is_what_a_strong_reader_sees(durability: Durability) -> None:
    at = Journalled(TopicConfigPatch(durability=durability))
    at.write(record())
    at.journal.commit()
    assert at.engine.durable_seq(at.topic) == 1


def test_without_a_journal_a_strong_reader_sees_everything() -> None:
    at = EngineOnAFakeClock()
    at.fill(2)
    at.engine.add_strong_reader(at.topic)
    at.fill(1)
    assert at.engine.durable_seq(at.topic) >= 3
