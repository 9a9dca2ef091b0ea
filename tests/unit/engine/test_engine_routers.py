"""Routers in the engine: who may be made, what they forward and when, and what waits for the journal."""

import json
from itertools import pairwise

import pytest
from engine_on_a_fake_clock import EngineOnAFakeClock, record

from doubles.manual_journal import ManualJournal
from topics import limits
from topics.engine.engine import Write
from topics.engine.forwarding import Outcome
from topics.engine.journal import Busy
from topics.engine.topic import Router
from topics.errors import RouterCycle, RouterNotFound, Throttled, TopicExistsIncompatible
from topics.model.config import Discard, Durability, TopicConfigPatch
from topics.model.gap import Gap, GapReason
from topics.model.operation import Appended, Forwarded, Moved, RouterPut, SeqsReserved, TopicCreated
from topics.model.router import RouterSettings
from topics.model.tag_match import TagMatch

PLAIN = RouterSettings()
CYCLIC = RouterSettings(allow_cycle=True)


class Routing(EngineOnAFakeClock):
    def route(self, source: str, dest: str, settings: RouterSettings = PLAIN, name: str = "") -> Router:
        name = name or f"{source}->{dest}"
        self.engine.put_router(name, source, dest, settings, create_dest=True)
        return self.engine.router(name)

    def data(self, topic: str) -> list[object]:
        return [json.loads(fragment)["data"] for fragment in self.read(topic=topic).fragments]

    def put(self, topic: str, *values: int) -> None:
        self.write(*(record(b"%d" % value) for value in values), topic=topic)

    def pending(self, router: str) -> int:
        return self.engine.router(router).lag


@pytest.fixture
def at() -> Routing:
    return Routing()


# The graph


def test_a_cycle_is_found_however_long_it_is(at: Routing) -> None:
    names = [f"t{number}" for number in range(6)]
    for source, dest in pairwise(names):
        at.route(source, dest)
    with pytest.raises(RouterCycle) as refused:
        at.route("t5", "t0")
    assert refused.value.detail["cycle"] == ["t5", *names]
    assert len(at.engine.routers) == 5


def test_a_router_on_a_cycle_cannot_stop_to_allow_it(at: Routing) -> None:
    at.route("a", "b", CYCLIC)
    at.route("b", "a", CYCLIC)
    with pytest.raises(RouterCycle):
        at.route("b", "a", PLAIN)


def test_a_router_made_before_its_cycle_may_be_put_again(at: Routing) -> None:
    """Whoever closed the cycle has allowed it."""
    router = at.route("a", "b")
    at.route("b", "a", CYCLIC)
    again = at.engine.put_router("a->b", "a", "b", PLAIN, create_dest=True)
    assert (again.router, again.created) == (router, False)
    assert at.route("a", "b", RouterSettings(preserve_tag=False)).settings.preserve_tag is False


def test_a_tree_is_no_cycle(at: Routing) -> None:
    for dest in ("b", "c", "d"):
        at.route("a", dest)
    at.route("b", "e")
    at.put("a", 1)
    assert [at.data(topic) for topic in "abcde"] == [[1]] * 5


@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_topic_of_a_ring_gets_each_record_once(at: Routing, size: int) -> None:
    names = [f"t{number}" for number in range(size)]
    for source, dest in zip(names, names[1:] + names[:1], strict=True):
        at.route(source, dest, CYCLIC)
    for number, name in enumerate(names):
        at.put(name, number)
    for _ in range(size):
        at.engine.forward_pending()
    for name in names:
        assert sorted(map(str, at.data(name))) == [str(number) for number in range(size)]
        assert at.engine.topics.get(name).hops == {}  # type: ignore[union-attr]


def test_a_ring_that_is_cut_is_a_chain(at: Routing) -> None:
    for source, dest in ("ab", "bc", "ca"):
        at.route(source, dest, CYCLIC)
    at.engine.delete_router("c->a")
    at.put("a", 1)
    assert [at.data(topic) for topic in "abc"] == [[1], [1], [1]]
    assert [router.ring for router in at.engine.routers] == [0, 0]


def test_another_source_is_refused_also_when_it_does_not_exist_yet(at: Routing) -> None:
    at.route("a", "b")
    with pytest.raises(TopicExistsIncompatible) as refused:
        at.route("c", "b")
    assert refused.value.detail["reason"] == "router_dest_fan_in"
    assert at.engine.find_topic("c") is None


# Forwarding


def test_a_write_does_not_forward_by_itself(at: Routing) -> None:
    router = at.route("a", "b")
    at.put("a", 1, 2)
    assert (router.lag, router.dest.log.head_seq) == (2, 0)
    assert at.data("b") == [1, 2]
    assert (router.lag, router.forwarded_total) == (0, 2)


def test_a_read_forwards_in_bounds(at: Routing) -> None:
    router = at.route("a", "b")
    for _ in range(3):
        at.write(*[record()] * 9000, topic="a")
    at.read(topic="b")
    assert router.lag == 27_000 - limits.ROUTER_CATCH_UP_RECORDS_MAX


def test_a_delete_in_the_source_forwards_in_bounds(at: Routing) -> None:
    routers = [at.route("a", f"d{number}") for number in range(10)]
    for _ in range(2):
        at.write(*[record()] * 5000, topic="a")
    at.engine.delete_records("a", 2, None)
    assert sum(router.forwarded_total for router in routers) == limits.ROUTER_CATCH_UP_ALL_RECORDS_MAX


def test_a_listing_does_not_forward(at: Routing) -> None:
    router = at.route("a", "b")
    at.put("a", 1)
    at.engine.page_of_topics("", ("",), 10)
    assert router.lag == 1


def test_changed_settings_are_for_what_is_forwarded_after_them(at: Routing) -> None:
    router = at.route("a", "b")
    at.write(record(b"1", tag="x"), topic="a")
    at.data("b")
    at.route("a", "b", RouterSettings(filter=TagMatch("y", is_prefix=False)))
    at.write(record(b"2", tag="x"), record(b"3", tag="y"), topic="a")
    assert at.data("b") == [1, 3]
    assert (router.lag, router.forwarded_total) == (0, 2)


def test_a_full_dest_is_filled_to_the_last_place_and_then_waits(at: Routing) -> None:
    at.configure(TopicConfigPatch(cap_records=3, discard=Discard.REJECT), "b")
    router = at.route("a", "b")
    at.put("a", 1, 2, 3, 4, 5)
    assert at.engine.forward(router.dest, 1000) is Outcome.FULL
    assert (at.data("b"), router.lag) == ([1, 2, 3], 2)
    at.engine.delete_records("b", 2, None)
    assert at.data("b") == [2, 3, 4]


def test_bytes_bound_a_dest_and_the_server_alike(at: Routing) -> None:
    at.configure(TopicConfigPatch(cap_bytes=80, discard=Discard.REJECT), "b")
    at.route("a", "b")
    at.put("a", 1, 2, 3)
    assert at.data("b") == [1, 2]
    crowded = Routing(total_bytes_max=39 * 5)
    crowded.route("a", "b")
    crowded.put("a", 1, 2, 3)
    assert (crowded.data("b"), crowded.pending("a->b")) == ([1, 2], 1)


def test_a_record_no_dest_could_hold_is_lost_by_its_cap_and_others_go_on(at: Routing) -> None:
    at.configure(TopicConfigPatch(cap_bytes=50), "b")
    at.route("a", "b")
    at.write(record(b'"%b"' % (b"x" * 100)), record(b"2"), topic="a")
    batch = at.read(topic="b")
    assert ([json.loads(fragment)["data"] for fragment in batch.fragments], batch.gap) == (
        [2],
        Gap(1, 1, GapReason.CAP),
    )


def test_a_record_too_large_for_a_dest_that_rejects_holds_up_its_router_until_the_source_evicts_it(at: Routing) -> None:
    at.configure(TopicConfigPatch(cap_bytes=50, discard=Discard.REJECT), "b")
    at.configure(TopicConfigPatch(cap_records=1), "a")
    at.route("a", "b")
    at.write(record(b'"%b"' % (b"x" * 100)), topic="a")
    assert (at.data("b"), at.pending("a->b")) == ([], 1)
    at.put("a", 2)
    assert (at.data("b"), at.read(topic="b").gap) == ([2], Gap(1, 1, GapReason.SOURCE_TRIM))


def test_what_a_cap_took_from_the_source_before_it_was_forwarded_takes_one_seq(at: Routing) -> None:
    at.configure(TopicConfigPatch(cap_records=2), "a")
    router = at.route("a", "b")
    at.put("a", *range(10))
    first = at.read(topic="b")
    assert (first.fragments, first.gap) == (
        [b'{"$seq":2,"$ts":1700000000000,"data":8}', b'{"$seq":3,"$ts":1700000000000,"data":9}'],
        Gap(1, 1, GapReason.SOURCE_TRIM),
    )
    assert [tuple(loss)[:3] for loss in router.dest.losses] == [(1, 1, GapReason.SOURCE_TRIM)]


def test_a_chain_tells_of_what_its_first_source_lost(at: Routing) -> None:
    at.configure(TopicConfigPatch(cap_records=1), "a")
    at.route("a", "b")
    at.route("b", "c")
    at.put("a", 1, 2)
    assert (at.read(topic="c").gap, at.data("c")) == (Gap(1, 1, GapReason.SOURCE_TRIM), [2])


def test_gaps_of_different_causes_side_by_side_are_told_one_after_the_other(at: Routing) -> None:
    at.configure(TopicConfigPatch(cap_records=1), "a")
    router = at.route("a", "b")
    at.put("b", 0)
    router.dest.log.lose(2, 3)
    router.dest.assigned_seq = 3
    at.put("a", 1, 2)
    reads = [at.read(0, topic="b"), at.read(1, topic="b"), at.read(3, topic="b")]
    assert [read.gap for read in reads] == [None, Gap(2, 3, GapReason.CRASH), Gap(4, 4, GapReason.SOURCE_TRIM)]
    assert [read.next_from_seq for read in reads] == [1, 3, 5]


def test_what_was_deleted_in_the_source_before_it_was_forwarded_is_passed_over(at: Routing) -> None:
    at.configure(TopicConfigPatch(cap_records=1, discard=Discard.REJECT), "b")
    at.route("a", "b")
    at.put("a", 1, 2, 3)
    at.engine.delete_records("a", 3, None)
    at.engine.delete_records("b", 2, None)
    batch = at.read(topic="b")
    assert (at.data("b"), batch.gap) == ([3], None)


def test_copies_made_late_have_the_time_they_were_made_at(at: Routing) -> None:
    at.route("a", "b")
    at.put("a", 1)
    at.clock.advance(limits.ROUTER_LATE_MS + 1)
    at.put("a", 2)
    stamps = [json.loads(fragment)["$ts"] for fragment in at.read(topic="b").fragments]
    assert stamps == [at.clock.now_ms()] * 2


def test_a_topic_that_is_deleted_takes_its_routers_along(at: Routing) -> None:
    at.route("a", "b")
    at.route("b", "c")
    removed = at.engine.delete_topic("b")
    assert removed.routers_removed == ("a->b", "b->c")
    assert (len(at.engine.routers), at.engine.find_topic("a").outbound) == (0, {})  # type: ignore[union-attr]
    at.route("x", "c")
    with pytest.raises(RouterNotFound):
        at.engine.router("a->b")


# The journal


class Journalled(Routing):
    def __init__(self) -> None:
        self.journal = ManualJournal()
        super().__init__(journal=self.journal)

    def route(self, source: str, dest: str, settings: RouterSettings = PLAIN, name: str = "") -> Router:
        name = name or f"{source}->{dest}"
        while True:
            try:
                self.engine.put_router(name, source, dest, settings, create_dest=True)
            except Busy:
                self.journal.commit()
            else:
                self.journal.commit()
                return self.engine.router(name)

    def topics(self, durability: Durability, *names: str) -> None:
        for name in names:
            self.configure(TopicConfigPatch(durability=durability), name)
        self.journal.commit()


@pytest.fixture
def held() -> Journalled:
    made = Journalled()
    made.topics(Durability.MEMORY, "a", "b")
    made.journal.batches.clear()
    return made


def test_a_router_is_there_once_the_log_says_so_durably(held: Journalled) -> None:
    """With what it needs, in one batch: both topics exchange records from now on."""
    put = held.engine.put_router("r", "a", "b", PLAIN, create_dest=True)
    ((batch, gated),) = held.journal.batches
    assert ([type(each) for each in batch], gated) == ([Moved, Moved, RouterPut], True)
    assert (put.commit is not None and put.commit.done, len(held.engine.routers)) == (False, 0)
    held.journal.commit()
    assert (put.commit is not None and put.commit.done, len(held.engine.routers)) == (True, 1)


def test_while_a_router_is_made_its_topics_and_other_routers_wait(held: Journalled) -> None:
    held.engine.put_router("r", "a", "b", PLAIN, create_dest=True)
    with pytest.raises(Busy):
        held.put("a", 1)
    with pytest.raises(Busy):
        held.engine.put_router("q", "c", "d", PLAIN, create_dest=True)
    with pytest.raises(Busy):
        held.engine.delete_topic("b")


def test_a_router_whose_disk_failed_is_not_there(held: Journalled) -> None:
    held.engine.put_router("r", "a", "b", PLAIN, create_dest=True)
    held.journal.fail()
    assert len(held.engine.routers) == 0
    held.put("a", 1)


def test_missing_topics_are_made_first_both_or_none(held: Journalled) -> None:
    with pytest.raises(Busy):
        held.engine.put_router("r", "x", "y", PLAIN, create_dest=True)
    assert [each.exchange for each in held.journal.of(TopicCreated)] == [True, True]
    assert held.journal.gates(TopicCreated) == [True, True]
    few = Routing(topics_max=1)
    with pytest.raises(Throttled):
        few.route("x", "y")
    assert len(few.engine.topics) == 0


def test_copies_are_not_journalled(held: Journalled) -> None:
    held.route("a", "b")
    held.put("a", 1, 2)
    held.journal.batches.clear()
    assert held.data("b") == [1, 2]
    assert (held.journal.operations, held.journal.heads) == ([], {1: 2, 2: 2})


def test_a_change_of_settings_holds_up_forwarding_until_it_is_durable(held: Journalled) -> None:
    held.route("a", "b")
    held.put("a", 1)
    held.engine.put_router("a->b", "a", "b", RouterSettings(preserve_tag=False), create_dest=True)
    held.write(record(b"2", tag="x"), topic="a")
    assert held.engine.forward(held.engine.router("a->b").dest, 10) is Outcome.HELD
    assert held.data("b") == [1], "by the settings it had"
    held.journal.commit()
    assert held.data("b") == [1, 2]
    assert b"$tag" not in held.read(topic="b", include_tags=True).fragments[1]


def test_copies_come_behind_writes_that_wait_for_the_disk(held: Journalled) -> None:
    held.topics(Durability.FSYNC, "b")
    held.route("a", "b")
    held.put("b", 0)
    held.put("a", 1)
    assert held.data("b") == []
    held.put("b", 2)
    held.journal.commit()
    assert held.data("b") == [0, 1, 2]


def test_copies_behind_a_write_that_failed_are_made_again(held: Journalled) -> None:
    held.topics(Durability.FSYNC, "b")
    router = held.route("a", "b")
    held.put("b", 0)
    held.put("a", 1)
    assert held.data("b") == []
    held.journal.fail()
    assert (router.cursor, router.forwarded_total) == (0, 0)
    assert held.data("b") == [1]


def test_a_jump_over_lost_records_is_durable_before_it_is_seen(held: Journalled) -> None:
    held.configure(TopicConfigPatch(cap_records=1), "a")
    held.journal.commit()
    held.route("a", "b")
    held.put("a", 1, 2)
    assert (held.read(topic="b").gap, held.data("b")) == (None, [])
    held.journal.commit()
    assert (held.read(topic="b").gap, held.data("b")) == (Gap(1, 1, GapReason.SOURCE_TRIM), [2])


def test_a_direct_write_to_a_dest_of_class_disk_waits_for_the_disk(held: Journalled) -> None:
    held.topics(Durability.DISK, "b")
    held.route("a", "b")
    appended = held.engine.append("b", held_write())
    assert appended.commit is not None


def held_write() -> Write:
    return Write([record()])


def test_a_strong_reader_sees_copies_when_their_originals_are_durable(held: Journalled) -> None:
    dest = held.route("a", "b").dest
    held.engine.add_strong_reader(dest)
    held.journal.commit()
    held.put("a", 1)
    held.data("b")
    assert (dest.log.head_seq, held.engine.durable_seq(dest)) == (1, 0)
    held.journal.commit()
    assert held.engine.durable_seq(dest) == 1


@pytest.mark.parametrize("how", ["router", "topic"])
def test_a_cycle_is_opened_and_closed_for_all_routers_on_it_at_once(held: Journalled, how: str) -> None:
    for source, dest in ("ab", "bc", "cd"):
        held.route(source, dest)
    put = held.engine.put_router("d->a", "d", "a", CYCLIC, create_dest=True)
    assert {router.ring for router in held.engine.routers} == {0}
    held.journal.commit()
    assert put.commit is not None
    assert put.commit.done
    assert [router.ring for router in held.engine.routers] == [4] * 4
    if how == "router":
        held.engine.delete_router("d->a")
    else:
        held.engine.delete_topic("a")
    assert [router.ring for router in held.engine.routers] == [4] * 4, "it is not durable yet"
    held.journal.commit()
    assert {router.ring for router in held.engine.routers} == {0}


def test_on_a_cycle_every_step_of_a_router_is_in_the_log(held: Journalled) -> None:
    """What came first there cannot be told afterwards: copies in the dest, or what was written to it."""
    held.route("a", "b", CYCLIC)
    held.route("b", "a", CYCLIC)
    held.journal.batches.clear()
    held.put("a", 1)
    held.put("b", 2)
    for _ in range(3):
        held.engine.forward_pending()
        assert all(router.logged == router.decided for router in held.engine.routers)
    assert {each.topic_id: each.through_seq for each in held.journal.of(Forwarded)} == {1: 2, 2: 2}
    assert not any(held.journal.gates(Forwarded))
    assert (sorted(map(str, held.data("a"))), sorted(map(str, held.data("b")))) == (["1", "2"], ["1", "2"])


def test_seqs_of_copies_a_crash_may_take_are_reserved_with_their_router(held: Journalled) -> None:
    held.topics(Durability.FSYNC, "f")
    held.journal.batches.clear()
    held.route("a", "f")
    assert [type(each) for each in held.journal.operations] == [Moved, Moved, SeqsReserved, RouterPut]
    held.put("a", 1)
    assert held.data("f") == [1], "nobody waits for the reservation"


def test_copies_beyond_what_is_reserved_wait_for_the_disk(held: Journalled) -> None:
    held.topics(Durability.DISK, "b")
    router = held.route("a", "b")
    ceiling = router.dest.ceiling
    held.write(*[record()] * (ceiling + 1), topic="a")
    held.journal.batches.clear()
    assert held.data("b") == []
    assert held.journal.gates(Forwarded) == [True]
    held.journal.commit()
    assert (len(held.data("b")), router.lag) == (ceiling + 1, 0)


def test_copies_made_late_are_durable_before_they_are_seen(held: Journalled) -> None:
    """They have a time of their own, which nobody could find out after a crash."""
    held.route("a", "b")
    held.put("a", 1)
    held.clock.advance(limits.ROUTER_LATE_MS + 1)
    assert held.data("b") == []
    (forwarded,) = held.journal.of(Forwarded)
    assert (forwarded.oldest_ts, held.journal.gates(Forwarded)) == (held.clock.now_ms(), [True])
    held.journal.commit()
    assert held.data("b") == [1]


def test_records_a_cap_is_about_to_take_are_not_copied_before_it_did(held: Journalled) -> None:
    """Whether they are copied or lost is decided by the log: the write that takes them is there first."""
    held.topics(Durability.FSYNC, "a")
    held.configure(TopicConfigPatch(cap_records=2), "a")
    held.journal.commit()
    router = held.route("a", "b")
    held.put("a", 1, 2)
    held.journal.commit()
    held.put("a", 3, 4)
    assert held.engine.forward(router.dest, 10) is Outcome.HELD
    held.journal.commit()
    held.journal.commit()
    assert router.dest.log.head_seq == 0
    assert held.data("b") == []
    held.journal.commit()
    assert (held.read(topic="b").gap, held.data("b")) == (Gap(1, 1, GapReason.SOURCE_TRIM), [3, 4])


def test_records_about_to_be_deleted_are_not_copied(held: Journalled) -> None:
    held.topics(Durability.FSYNC, "a")
    held.configure(TopicConfigPatch(cap_records=1, discard=Discard.REJECT), "b")
    held.journal.commit()
    held.route("a", "b")
    held.put("a", 1, 2, 3)
    held.journal.commit()
    assert held.data("b") == [1]
    held.engine.delete_records("a", 3, None)
    held.engine.delete_records("b", 2, None)
    assert held.data("b") == [], "whether 3 comes behind a delete that is lost is not known yet"
    held.journal.sync()
    assert held.data("b") == [3]


def test_a_write_between_copies_is_gated_as_its_class_says_and_comes_behind_their_cursor(held: Journalled) -> None:
    held.route("a", "b")
    held.put("a", 1)
    assert held.data("b") == [1]
    held.journal.batches.clear()
    held.put("b", 2)
    assert [type(each) for each in held.journal.operations] == [Forwarded, Appended]
    assert held.data("b") == [1, 2]


@pytest.mark.parametrize("cap_records", [3, 5])
def test_copies_into_a_topic_that_discards_old_ones_fit_into_the_bytes_of_all(cap_records: int) -> None:
    size = EngineOnAFakeClock().write(record()).topic.log.bytes
    at = Routing(total_bytes_max=(3 + cap_records) * size)
    at.configure(TopicConfigPatch(cap_records=3), "a")
    at.configure(TopicConfigPatch(cap_records=cap_records), "b")
    router = at.route("a", "b")
    for value in range(20):
        at.put("a", value % 10)
        at.engine.catch_up(router.dest)
        assert router.lag == 0
    assert at.data("b") == [value % 10 for value in range(20 - cap_records, 20)]
