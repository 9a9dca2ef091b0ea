"""The engine and its journal: what waits to be durable, what nobody may see before, and who is told to come again."""

import pytest
from engine_on_a_fake_clock import TOPIC, EngineOnAFakeClock, record
from journalled_engine import FSYNC, LOW_CLASSES, Journalled, waited
from msgspec import Raw

from topics.engine.engine import Write
from topics.engine.journal import Commit, Journal, NoJournal
from topics.errors import (
    RecordTooLarge,
    StorageFailed,
    Throttled,
    TopicFull,
    TopicNotEmpty,
    TopicNotFound,
)
from topics.model import operation
from topics.model.config import Discard, Durability, TopicConfigPatch
from topics.model.operation import SeqsReserved, TopicCreated
from topics.model.producer import Producer


@pytest.fixture
def at() -> Journalled:
    return Journalled()


# A commit


def test_a_commit_tells_everybody_once_in_the_order_they_asked() -> None:
    commit = Commit()
    told: list[int] = []
    commit.when_done(lambda _: told.append(1))
    commit.when_done(lambda _: told.append(2))
    commit.resolve(None, 7)
    commit.when_done(lambda _: told.append(3))
    assert (told, commit.done, commit.error, commit.sync_ns) == ([1, 2, 3], True, None, 7)


def test_a_commit_that_failed_says_why() -> None:
    commit = Commit()
    commit.resolve(StorageFailed("m"), 0)
    assert commit.done
    assert isinstance(commit.error, StorageFailed)


def test_without_a_journal_nobody_waits() -> None:
    journal: Journal = NoJournal()
    journal.admit(1)
    journal.seen(1, 5)
    assert journal.submit([SeqsReserved(topic_id=1, ts=0, ceiling=64)], gated=True) is None
    assert journal.append_single(1, 1, 0, None, None, Raw(b"0"))
    assert (journal.barrier_of(1), journal.lane(1)) == (None, 0)


# Staging


def test_a_write_of_an_fsync_topic_is_invisible_until_it_is_durable(at: Journalled) -> None:
    told: list[int] = []
    at.engine.state.on_change = lambda topic: told.append(topic.log.head_seq)
    appended = at.write(record(), record())
    log = at.topic.log
    assert (appended.first_seq, appended.record_count, waited(appended).done) == (1, 2, False)
    assert (log.head_seq, log.count, log.bytes, at.seqs(), at.topic.last_write_ts, told) == (0, 0, 0, [], None, [])
    at.journal.commit()
    assert (log.head_seq, at.seqs(), at.topic.last_write_ts, told) == (2, [1, 2], at.clock.now_ms(), [2])
    at.check_totals()


def test_staged_writes_have_their_seqs_and_are_published_in_order(at: Journalled) -> None:
    assert [at.write(record()).first_seq for _ in range(3)] == [1, 2, 3]
    at.journal.commit(2)
    assert at.seqs() == [1, 2]
    assert at.write(record()).first_seq == 4
    at.journal.commit()
    assert at.seqs() == [1, 2, 3, 4]


def test_time_never_runs_back_between_a_staged_write_and_the_next(at: Journalled) -> None:
    at.write(record())
    at.clock.set_wall(at.clock.now_ms() - 1000)
    at.write(record())
    at.journal.commit()
    first, second = (fragment.split(b",")[1] for fragment in at.read().fragments)
    assert first == second


def test_writes_that_fail_leave_nothing_behind(at: Journalled) -> None:
    at.write(record())
    at.journal.commit()
    lost = at.write(record(b'"lost"'), key="k")
    at.write(record(b'"lost too"'))
    at.journal.fail()
    assert isinstance(waited(lost).error, StorageFailed)
    assert (at.seqs(), at.topic.pending_count, at.topic.pending_bytes) == ([1], 0, 0)
    at.check_totals()
    again = at.write(record(b'"new"'), key="k")
    assert (again.first_seq, again.deduped) == (2, False)


def test_a_topic_created_by_an_fsync_write_is_not_there_until_it_is_durable(at: Journalled) -> None:
    appended = at.engine.append("new", Write([record()], config=FSYNC))
    assert appended.created
    assert at.engine.find_topic("new") is None
    with pytest.raises(TopicNotFound):
        at.read(topic="new")
    at.journal.commit()
    assert at.read(topic="new").next_from_seq == 1
    at.check_totals()


@pytest.mark.parametrize("sequence", [0, 100])
def test_a_producer_whose_write_failed_makes_it_again_whole(at: Journalled, sequence: int) -> None:
    write = Write([record() for _ in range(10)], producer=Producer("p", sequence))
    at.engine.append(TOPIC, write)
    at.journal.fail()
    part = at.engine.append(TOPIC, Write(write.records[:2], producer=Producer("p", sequence)))
    assert (part.deduped, part.record_count) == (False, 2)
    at.journal.commit()
    rest = at.engine.append(TOPIC, write)
    assert (rest.deduped, rest.record_count, rest.next_number) == (False, 8, sequence + 10)


def test_a_repeated_write_of_a_producer_waits_for_the_first_one(at: Journalled) -> None:
    write = Write([record()], producer=Producer("p", 0))
    first = at.engine.append(TOPIC, write)
    again = at.engine.append(TOPIC, write)
    assert again.deduped
    assert again.commit is waited(first)


def test_a_topic_whose_creation_failed_never_was(at: Journalled) -> None:
    at.engine.append("new", Write([record()], config=FSYNC))
    at.engine.put_topic("other", TopicConfigPatch())
    at.journal.fail()
    assert [topic.name for topic in at.engine.topics] == [TOPIC]
    at.check_totals()
    at.journal.batches.clear()
    assert at.engine.append("new", Write([record()], config=FSYNC)).created
    assert len(at.journal.of(TopicCreated)) == 1


@pytest.mark.parametrize("durability", LOW_CLASSES)
def test_a_write_of_a_lower_class_waits_for_nothing(durability: Durability) -> None:
    at = Journalled(TopicConfigPatch(durability=durability))
    assert at.write(record()).commit is None
    assert at.seqs() == [1]


@pytest.mark.parametrize("durability", LOW_CLASSES)
def test_a_topic_is_durable_before_anybody_is_told_of_it_whatever_its_class(durability: Durability) -> None:
    at = Journalled(TopicConfigPatch(durability=durability))
    created = at.engine.append("new", Write([record()], config=TopicConfigPatch(durability=durability)))
    assert created.created
    assert waited(created).done is False
    assert at.engine.find_topic("new") is None
    at.journal.commit()
    assert at.engine.topic("new").log.head_seq == 1


@pytest.mark.parametrize(
    ("durability", "appends"),
    [(Durability.EPHEMERAL, []), (Durability.MEMORY, [False]), (Durability.DISK, [False]), (Durability.FSYNC, [True])],
)
def test_the_journal_gets_what_the_class_says(durability: Durability, appends: list[bool]) -> None:
    at = Journalled(TopicConfigPatch(durability=durability))
    at.write(record(), record())
    assert at.journal.gates(operation.Appended) == appends


def test_the_key_of_a_write_goes_with_it(at: Journalled) -> None:
    at.write(record(), key="k")
    at.write(record())
    keys = [write.key for each in at.journal.of(operation.Appended) for write in each.writes]
    assert keys == ["k", None]


# Idempotency


def test_a_repeated_key_of_a_staged_write_waits_for_the_same_commit(at: Journalled) -> None:
    first = at.write(record(), record(), key="k")
    again = at.write(record(), record(), key="k")
    assert (again.first_seq, again.record_count, again.deduped) == (1, 2, True)
    assert again.commit is first.commit
    assert at.journal.gates(operation.Appended) == [True]
    at.journal.commit()
    assert (at.write(record(), key="k").commit, at.seqs()) == (None, [1, 2])


def test_a_repeated_key_is_answered_not_before_its_write_is_durable(at: Journalled) -> None:
    """Later writes may be staged behind it; their commit comes no sooner."""
    at.write(record(), key="k")
    at.write(record())
    again = at.write(record(), key="k")
    at.journal.commit(1)
    assert at.topic.log.head_seq == 1
    at.journal.commit()
    assert waited(again).done


# What would reveal too much


def test_a_refusal_because_of_staged_writes_waits_for_them() -> None:
    patch = TopicConfigPatch(durability=Durability.FSYNC, cap_records=2, discard=Discard.REJECT)
    at = Journalled(patch)
    at.write(record(), record())
    assert not at.commit_of(lambda: at.write(record())).done
    at.journal.commit()
    with pytest.raises(TopicFull):
        at.write(record())


def test_a_refusal_because_of_writes_that_failed_is_no_refusal() -> None:
    patch = TopicConfigPatch(durability=Durability.FSYNC, cap_records=2, discard=Discard.REJECT)
    at = Journalled(patch)
    at.write(record(), record())
    assert not at.commit_of(lambda: at.write(record())).done
    at.journal.fail()
    assert at.write(record()).first_seq == 1


def test_what_can_never_fit_is_refused_without_waiting() -> None:
    at = Journalled(TopicConfigPatch(durability=Durability.FSYNC, cap_records=2, discard=Discard.REJECT))
    at.write(record())
    with pytest.raises(RecordTooLarge):
        at.write(*[record()] * 3)


def test_a_cap_on_all_bytes_counts_what_is_staged() -> None:
    size = EngineOnAFakeClock().write(record()).topic.log.bytes
    at = Journalled(total_bytes_max=size)
    at.write(record())
    assert not at.commit_of(lambda: at.write(record())).done
    at.journal.commit()
    with pytest.raises(Throttled):
        at.write(record())


def test_whether_a_topic_is_empty_waits_for_what_is_staged(at: Journalled) -> None:
    at.write(record())
    assert not at.commit_of(lambda: at.engine.delete_topic(TOPIC, if_empty=True)).done
    at.journal.commit()
    with pytest.raises(TopicNotEmpty):
        at.engine.delete_topic(TOPIC, if_empty=True)
