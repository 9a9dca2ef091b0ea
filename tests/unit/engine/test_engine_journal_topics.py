"""Changes of topics and deletes of records on their way to the journal, and topics whose class changes."""

from collections.abc import Callable

import pytest
from engine_on_a_fake_clock import TOPIC, record
from journalled_engine import FSYNC, Journalled, waited

from topics.engine.engine import Write
from topics.errors import (
    StorageFailed,
    Throttled,
    TopicsError,
)
from topics.model import operation
from topics.model.config import Durability, TopicConfigPatch
from topics.model.operation import RecordsDeleted
from topics.model.tag_match import TagMatch


@pytest.fixture
def at() -> Journalled:
    return Journalled()


# Control operations


@pytest.mark.parametrize(
    "control",
    [
        lambda at: at.engine.put_topic("new", TopicConfigPatch()),
        lambda at: at.engine.append("new", Write([record()], config=FSYNC)),
    ],
    ids=["put", "write"],
)
def test_a_name_is_closed_while_its_topic_is_being_made(
    at: Journalled, control: Callable[[Journalled], object]
) -> None:
    control(at)
    for busy in (
        lambda: at.engine.put_topic("new", TopicConfigPatch()),
        lambda: at.engine.append("new", Write([record()])),
        lambda: at.engine.delete_topic("new"),
        lambda: at.engine.delete_records("new", 1, None),
    ):
        assert not at.commit_of(busy).done
    assert at.write(record()).commit is not None, "other names are open"
    at.journal.commit()
    assert not at.engine.put_topic("new", TopicConfigPatch()).created


def test_topics_made_at_the_same_time_ask_for_ids_that_share_a_log(
    at: Journalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def id_among(first_id: int) -> int:
        asked.append(first_id)
        return first_id + 10

    monkeypatch.setattr(at.journal, "id_among", id_among)
    alone = at.engine.append("alone", Write([record()], config=FSYNC)).topic.topic_id
    assert not asked, "nobody else is being made"
    second = at.engine.append("second", Write([record()], config=FSYNC)).topic.topic_id
    third = at.engine.put_topic("third", TopicConfigPatch()).topic.topic_id
    assert (second, third) == (alone + 11, alone + 22)
    at.journal.commit()
    later = at.engine.append("later", Write([record()], config=FSYNC)).topic.topic_id
    assert later == third + 1


def test_a_configuration_takes_effect_when_it_is_durable(at: Journalled) -> None:
    put = at.engine.put_topic(TOPIC, TopicConfigPatch(ttl_ms=5))
    assert put.commit is not None
    assert at.topic.config.ttl_ms == 0
    assert not at.commit_of(lambda: at.write(record())).done
    at.journal.commit()
    assert at.topic.config.ttl_ms == 5


def test_a_configuration_that_failed_was_never_there(at: Journalled) -> None:
    at.engine.put_topic(TOPIC, TopicConfigPatch(ttl_ms=5))
    at.journal.fail()
    assert at.topic.config.ttl_ms == 0
    assert at.write(record()).first_seq == 1


def test_a_configuration_that_changes_nothing_is_not_journalled(at: Journalled) -> None:
    assert at.engine.put_topic(TOPIC, FSYNC).commit is None
    assert at.journal.operations == []


def test_a_deleted_topic_is_there_until_that_is_durable(at: Journalled) -> None:
    at.write(record())
    at.journal.commit()
    told: list[bool] = []
    at.engine.state.on_change = lambda topic: told.append(topic.deleted)
    assert at.engine.delete_topic(TOPIC).deleted
    assert (at.seqs(), told) == ([1], [])
    at.journal.commit()
    assert (at.engine.find_topic(TOPIC), told) == (None, [True])
    at.check_totals()


def test_a_topic_deleted_with_staged_writes_is_gone_with_them(at: Journalled) -> None:
    at.write(record())
    at.engine.delete_topic(TOPIC)
    at.journal.commit()
    assert (at.engine.state.records_live, at.engine.state.bytes_live) == (0, 0)
    assert at.engine.find_topic(TOPIC) is None


def test_topics_that_are_being_made_count_towards_the_most_there_may_be() -> None:
    at = Journalled(topics_max=2)
    at.engine.put_topic("second", TopicConfigPatch())
    with pytest.raises(Throttled):
        at.engine.put_topic("third", TopicConfigPatch())
    at.journal.fail()
    assert at.engine.put_topic("third", TopicConfigPatch()).created


def test_ids_are_not_used_twice_though_their_topics_are_still_being_made(at: Journalled) -> None:
    ids = [at.engine.put_topic(name, TopicConfigPatch()).topic.topic_id for name in ("a", "b")]
    assert ids == [2, 3]


def test_a_journal_that_takes_nothing_leaves_everything_as_it_was(at: Journalled) -> None:
    at.write(record())
    at.journal.commit()
    at.journal.refusal = Throttled("m", retry_after_s=1)
    refused: list[Callable[[], object]] = [
        lambda: at.write(record(), key="k"),
        lambda: at.engine.append("new", Write([record()])),
        lambda: at.engine.put_topic("new", TopicConfigPatch()),
        lambda: at.engine.put_topic(TOPIC, TopicConfigPatch(ttl_ms=1)),
        lambda: at.engine.delete_records(TOPIC, 2, None),
        lambda: at.engine.delete_topic(TOPIC),
    ]
    for call in refused:
        with pytest.raises(TopicsError):
            call()
    at.journal.refusal = None
    assert (at.seqs(), at.topic.config.ttl_ms, len(at.engine.topics)) == ([1], 0, 1)
    again = at.write(record(), key="k")
    assert (again.first_seq, again.deduped, at.engine.state.next_id) == (2, False, 2)


def test_an_ephemeral_write_does_not_ask_the_journal() -> None:
    at = Journalled(TopicConfigPatch(durability=Durability.EPHEMERAL))
    at.journal.refusal = StorageFailed("m")
    assert at.write(record()).first_seq == 1
    assert at.write(record(), record()).first_seq == 2
    assert at.write(record(), key="k").first_seq == 4


# Deleting records


def test_a_delete_of_an_fsync_topic_takes_effect_when_it_is_durable(at: Journalled) -> None:
    at.write(record(), record())
    at.journal.commit()
    deleted = at.engine.delete_records(TOPIC, 2, None)
    assert deleted.commit is not None
    assert (deleted.count, at.seqs()) == (0, [1, 2])
    at.journal.commit()
    assert (deleted.count, at.seqs()) == (1, [2])
    at.check_totals()


def test_a_delete_that_failed_deletes_nothing(at: Journalled) -> None:
    at.write(record())
    at.journal.commit()
    deleted = at.engine.delete_records(TOPIC, 2, None)
    at.journal.fail()
    assert (deleted.count, at.seqs()) == (0, [1])


@pytest.mark.parametrize("match", [None, TagMatch("x", is_prefix=False)])
def test_a_delete_takes_nothing_that_was_staged_when_it_was_asked_for(at: Journalled, match: TagMatch | None) -> None:
    at.write(record(tag="x"))
    at.journal.commit()
    at.write(record(tag="x"))
    deleted = at.engine.delete_records(TOPIC, None if match else 1000, match)
    at.write(record(tag="x"))
    at.journal.commit()
    assert (deleted.count, at.seqs()) == (1, [2, 3])
    assert [each.before_seq for each in at.journal.of(RecordsDeleted)] == [2]


@pytest.mark.parametrize("durability", [Durability.MEMORY, Durability.DISK])
def test_a_delete_of_a_lower_class_is_journalled_and_takes_effect_at_once(durability: Durability) -> None:
    at = Journalled(TopicConfigPatch(durability=durability))
    at.write(record())
    assert at.engine.delete_records(TOPIC, 2, None).count == 1
    assert at.journal.gates(RecordsDeleted) == [False]


def test_a_delete_in_memory_alone_is_not_journalled() -> None:
    at = Journalled(TopicConfigPatch(durability=Durability.EPHEMERAL))
    at.write(record())
    assert at.engine.delete_records(TOPIC, 2, None).count == 1
    assert at.journal.operations == []


# A class that changes


def test_a_topic_that_becomes_durable_stages_from_then_on() -> None:
    at = Journalled(TopicConfigPatch(durability=Durability.MEMORY))
    at.write(record())
    at.reconfigure(FSYNC)
    assert not waited(at.write(record())).done
    assert at.seqs() == [1]


def test_a_topic_that_is_no_longer_durable_publishes_at_once_after_what_was_staged(at: Journalled) -> None:
    at.write(record())
    at.configure(TopicConfigPatch(durability=Durability.MEMORY))
    assert not at.commit_of(lambda: at.write(record())).done
    at.journal.commit()
    assert at.write(record()).commit is None
    assert at.seqs() == [1, 2]


def test_what_an_ephemeral_topic_holds_is_not_journalled_when_its_class_rises() -> None:
    """Those records stay what they are: the next checkpoint has them, or a crash takes them."""
    at = Journalled(TopicConfigPatch(durability=Durability.EPHEMERAL))
    at.write(record(), record())
    at.reconfigure(FSYNC)
    assert at.topic.log.resident_from is None
    assert at.journal.of(operation.Appended) == []
    at.write(record())
    assert at.journal.gates(operation.Appended) == [True]


def test_records_written_before_a_topic_became_ephemeral_are_deleted_durably() -> None:
    at = Journalled(TopicConfigPatch(durability=Durability.MEMORY))
    at.write(record())
    at.reconfigure(TopicConfigPatch(durability=Durability.EPHEMERAL))
    at.write(record())
    at.engine.delete_records(TOPIC, 2, None)
    assert at.journal.gates(RecordsDeleted) == [False]
    at.engine.delete_records(TOPIC, 3, None)
    assert at.journal.gates(RecordsDeleted) == [False]
