"""The engine and its journal: what waits to be durable, what nobody may see before, and who is told to come again."""

from collections.abc import Callable

import pytest
from engine_on_a_fake_clock import TOPIC, EngineOnAFakeClock, record
from msgspec import Raw

from doubles.manual_journal import ManualJournal
from topics import limits
from topics.engine.engine import Appended, Write
from topics.engine.journal import Busy, Commit, Journal, NoJournal
from topics.engine.topic import Topic
from topics.errors import (
    RecordTooLarge,
    StorageFailed,
    Throttled,
    TopicFull,
    TopicNotEmpty,
    TopicNotFound,
    TopicsError,
)
from topics.model import operation
from topics.model.config import Discard, Durability, TopicConfigPatch
from topics.model.operation import ClockReached, RecordsDeleted, SeqsReserved, TopicCreated
from topics.model.producer import Producer
from topics.model.tag_match import TagMatch

FSYNC = TopicConfigPatch(durability=Durability.FSYNC)
LOW_CLASSES = [Durability.EPHEMERAL, Durability.MEMORY]


class Journalled(EngineOnAFakeClock):
    """An engine with one topic, on a journal that commits when told."""

    def __init__(self, patch: TopicConfigPatch = FSYNC, topics_max: int = 0, total_bytes_max: int = 0) -> None:
        self.journal = ManualJournal()
        super().__init__(topics_max, total_bytes_max, self.journal)
        self.configure(patch)
        self.journal.commit()
        (created,) = self.journal.of(TopicCreated)
        self.created_with = created.ceiling
        self.journal.batches.clear()

    def commit_of(self, busy_call: Callable[[], object]) -> Commit:
        """What a call that would reveal too much has to wait for."""
        with pytest.raises(Busy) as busy:
            busy_call()
        return busy.value.commit

    def reconfigure(self, patch: TopicConfigPatch) -> None:
        self.configure(patch)
        self.journal.commit()


@pytest.fixture
def at() -> Journalled:
    return Journalled()


def waited(appended: Appended) -> Commit:
    assert appended.commit is not None
    return appended.commit


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
    created = at.engine.append("new", Write([record()], config=TopicConfigPatch(durability=durability)))
    assert (created.created, created.commit) == (True, None)


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
