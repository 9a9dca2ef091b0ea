"""From decided to applied: in the order of the log, whatever waits for the disk."""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise, product

import pytest
from engine_on_a_fake_clock import record
from logged_engine import LoggedEngine, shown

from topics.engine.engine import Write
from topics.engine.forwarding import Outcome
from topics.engine.journal import Busy, Commit
from topics.errors import StorageFailed
from topics.model.config import Discard, Durability, TopicConfigPatch
from topics.model.operation import Appended, Forwarded, Moved, RecordsDeleted, SeqsReserved
from topics.model.router import RouterSettings
from topics.model.tag_match import TagMatch

FSYNC, MEMORY, DISK = Durability.FSYNC, Durability.MEMORY, Durability.DISK


@pytest.fixture
def at() -> LoggedEngine:
    return LoggedEngine()


def failed(commit: Commit | None) -> bool:
    return commit is not None and isinstance(commit.error, StorageFailed)


# The order of the log


def test_an_operation_behind_one_in_flight_waits_and_is_applied_in_order(at: LoggedEngine) -> None:
    """Nobody would wait for the second one alone: its seqs are reserved."""
    topic = at.make("t", DISK)
    first = at.put("t", *range(topic.ceiling + 1))
    second = at.put("t", -1)
    third = at.engine.delete_records("t", 3, None)
    assert at.journal.gates(Appended) == [True, True]
    assert at.journal.gates(RecordsDeleted) == [True]
    assert (len(topic.in_flight), topic.pending_count, topic.log.head_seq) == (3, topic.ceiling + 2, 0)
    published: list[int] = []
    at.engine.state.on_change = lambda changed: published.append(changed.log.head_seq)
    at.journal.commit(2)  # the reservation, and the write it was for
    assert first is not None
    assert first.done
    assert second is not None
    assert not second.done
    at.journal.commit()
    assert published == [first_head := published[0], first_head + 1]
    assert (second.done, third.count, topic.in_flight, topic.pending_count) == (True, 0, type(topic.in_flight)(), 0)
    assert (topic.log.head_seq, topic.assigned_seq) == (first_head + 1, first_head + 1)


def test_a_delete_behind_a_waiting_write_is_applied_behind_it(at: LoggedEngine) -> None:
    """Whether a cap or the delete takes a record is what a restart would make of it."""
    topic = at.make("t", FSYNC, cap_records=3)
    at.put("t", 1, 2, 3)
    at.journal.sync()
    at.put("t", 4)
    deleted = at.engine.delete_records("t", 3, None)
    assert at.data("t") == [1, 2, 3]
    at.journal.sync()
    assert (at.data("t"), deleted.count, topic.log.cap_lost_seq) == ([3, 4], 1, 1)
    assert shown(at.folded()) == shown(at.engine.state)


def test_a_write_behind_a_waiting_delete_finds_what_the_delete_has_left(at: LoggedEngine) -> None:
    topic = at.make("t", FSYNC, cap_records=3)
    at.put("t", 1, 2, 3)
    at.journal.sync()
    at.engine.delete_records("t", 3, None)
    at.put("t", 4)
    at.journal.sync()
    assert (at.data("t"), topic.log.cap_lost_seq) == ([3, 4], 0)
    assert shown(at.folded()) == shown(at.engine.state)


def test_a_configuration_holds_for_what_is_decided_behind_it(at: LoggedEngine) -> None:
    topic = at.make("t", FSYNC)
    at.put("t", 1, 2, 3)
    at.engine.put_topic("t", TopicConfigPatch(cap_records=2))
    assert topic.log.head_seq == 0
    at.journal.sync()
    assert (at.data("t"), topic.log.cap_lost_seq) == ([2, 3], 1)
    assert shown(at.folded()) == shown(at.engine.state)


@pytest.mark.parametrize("look", ["read", "expire_due", "delete_records"])
def test_a_ttl_that_is_being_lifted_takes_nothing_any_more(at: LoggedEngine, look: str) -> None:
    """The log says that it was lifted before the clock came so far: after a restart all would be back."""
    topic = at.make("t", ttl_ms=5)
    at.put("t", 1)
    at.engine.put_topic("t", TopicConfigPatch(ttl_ms=0))
    at.clock.advance(10)
    if look == "read":
        assert at.data("t") == [1]
    elif look == "expire_due":
        at.engine.expire_due()
    else:
        at.busy(lambda: at.engine.delete_records("t", 1, None))
    at.journal.sync()
    assert (at.data("t"), topic.log.ttl_lost_seq) == ([1], 0)
    assert shown(at.folded()) == shown(at.engine.state)


def test_a_ttl_that_could_not_be_lifted_takes_what_is_too_old(at: LoggedEngine) -> None:
    topic = at.make("t", ttl_ms=5)
    at.put("t", 1)
    at.engine.put_topic("t", TopicConfigPatch(ttl_ms=0))
    at.clock.advance(10)
    at.engine.expire_due()
    at.journal.fail()
    at.engine.expire_due()
    assert (topic.log.count, topic.log.ttl_lost_seq) == (0, 1)


def test_what_is_not_logged_waits_behind_what_is(at: LoggedEngine) -> None:
    """Copies are in no log; behind a write that waits for the disk they wait for it."""
    at.make("a")
    at.make("b", FSYNC)
    at.route("a", "b")
    at.put("b", 1)
    at.put("a", 2)
    batches = len(at.journal.batches)
    assert (at.data("b"), len(at.journal.batches)) == ([], batches)
    at.journal.commit()
    assert at.data("b") == [1, 2]


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_not_logged_waits_for_all_topics_it_changes(at: LoggedEngine, turned: bool) -> None:
    first, second = at.make("a", FSYNC), at.make("b", FSYNC)
    topics = (second, first) if turned else (first, second)
    at.put("a", 1)
    at.put("b", 2)
    landed: list[int] = []
    at.engine.flow.submit([], topics, gated=False, journalled=False, landed=landed.append)
    at.journal.commit(1)
    assert (landed, at.data("a"), at.data("b")) == ([], [1], [])
    at.journal.commit(1)
    assert (landed, at.data("b")) == ([0], [2])


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_not_logged_is_dropped_with_any_it_waits_for(at: LoggedEngine, turned: bool) -> None:
    first, second = at.make("a", FSYNC), at.make("b", FSYNC)
    topics = (second, first) if turned else (first, second)
    at.put("a", 1)
    at.put("b", 2)
    landed: list[int] = []
    commit = at.engine.flow.submit([], topics, gated=False, journalled=False, landed=landed.append)
    at.journal.fail(1)
    at.journal.commit(1)
    assert failed(commit)
    assert (landed, at.data("b")) == ([], [2])


def test_reservations_and_named_cursors_do_not_queue(at: LoggedEngine) -> None:
    topic = at.make("t", DISK)
    while not at.journal.of(SeqsReserved):
        assert at.put("t", 1) is None
    assert at.put("t", 2) is None, "there are seqs left"
    assert (at.journal.held, len(topic.in_flight)) == (1, 0)
    ceiling = topic.ceiling
    at.journal.commit()
    assert topic.ceiling > ceiling
    _, commit = at.engine.put_cursor("t", "c", 1)
    assert (topic.cursors, len(topic.in_flight)) == ({}, 0)
    at.journal.commit()
    assert commit is not None
    assert topic.cursors["c"].seq == 1


# A disk that fails


def test_a_failed_commit_drops_everything_behind_it_and_gives_the_seqs_back(at: LoggedEngine) -> None:
    topic = at.make("t", FSYNC)
    at.put("t", 1)
    at.journal.sync()
    first = at.engine.append("t", Write([record()] * 2, idempotency_key="k"))
    deleted = at.engine.delete_records("t", 2, None)
    last = at.put("t", 3)
    at.journal.fail()
    assert failed(first.commit)
    assert failed(deleted.commit)
    assert failed(last)
    assert (at.data("t"), deleted.count, topic.pending_count, topic.pending_bytes) == ([1], 0, 0, 0)
    assert (topic.assigned_seq, topic.assigned_ts, len(topic.in_flight)) == (1, topic.log.last_ts, 0)
    assert topic.extras.pending_keys == {}
    assert at.engine.append("t", Write([record()], idempotency_key="k")).first_seq == 2


def test_seqs_are_not_given_back_while_something_behind_them_is_in_flight(at: LoggedEngine) -> None:
    topic = at.make("t", FSYNC)
    at.put("t", 1)
    at.put("t", 2)
    at.journal.fail(1)
    assert topic.assigned_seq == 2
    at.journal.fail()
    assert topic.assigned_seq == 0


def test_copies_behind_a_failed_write_are_made_again_with_the_seqs_it_had(at: LoggedEngine) -> None:
    at.make("a")
    at.make("b", FSYNC)
    router = at.route("a", "b")
    at.put("b", 0)
    at.put("a", 1)
    assert (at.data("b"), router.decided, router.cursor) == ([], 1, 0)
    at.journal.fail()
    assert (router.decided, router.dest.assigned_seq) == (0, 0)
    assert at.read(topic="b").fragments == [b'{"$seq":1,"$ts":1700000000000,"data":1}']


# When nothing is in flight


def test_a_call_for_a_quiet_moment_comes_at_once_where_nothing_is_in_flight(at: LoggedEngine) -> None:
    at.make("t", FSYNC)
    called: list[bool] = []
    at.engine.flow.when_quiet(lambda: called.append(True))
    assert (called, at.engine.flow.paused) == ([True], None)


def test_a_call_for_a_quiet_moment_waits_for_what_is_in_flight_and_holds_up_the_rest(at: LoggedEngine) -> None:
    at.make("t", FSYNC)
    at.make("other")
    at.put("t", 1)
    at.put("t", 2)
    heads: list[int] = []
    at.engine.flow.when_quiet(lambda: heads.append(at.engine.topic("t").log.head_seq))
    refused: list[Callable[[], object]] = [
        lambda: at.put("t", 3),
        lambda: at.put("other", 3),
        lambda: at.engine.delete_records("other", 1, None),
        lambda: at.engine.put_cursor("other", "c", 1),
        lambda: at.engine.delete_topic("other"),
        lambda: at.make("new"),
    ]
    (pause,) = {at.busy(call) for call in refused}
    at.journal.commit(1)
    assert (heads, pause.done) == ([], False)
    at.journal.commit(1)
    assert (heads, pause.done, at.engine.flow.paused) == ([2], True, None)
    at.put("t", 3)
    assert at.put("other", 4) is None


def test_a_call_for_a_quiet_moment_comes_though_the_disk_failed(at: LoggedEngine) -> None:
    at.make("t", FSYNC)
    at.put("t", 1)
    called: list[bool] = []
    at.engine.flow.when_quiet(lambda: called.append(True))
    at.journal.fail()
    assert (called, at.engine.flow.paused) == ([True], None)


def test_named_cursors_are_waited_for_before_a_quiet_moment(at: LoggedEngine) -> None:
    topic = at.make("t")
    at.engine.put_cursor("t", "c", 1)
    found: list[bool] = []
    at.engine.flow.when_quiet(lambda: found.append("c" in topic.cursors))
    assert found == []
    at.journal.commit()
    assert found == [True]


def test_routers_held_up_by_a_pause_go_on_when_it_is_over(at: LoggedEngine) -> None:
    at.make("a")
    at.make("b")
    at.make("t", FSYNC)
    router = at.route("a", "b")
    at.put("a", 1)
    at.put("t", 1)
    at.engine.flow.when_quiet(lambda: None)
    assert at.engine.forward(router.dest, 10) is Outcome.HELD
    forwardable: list[str] = []
    at.engine.state.on_forwardable = lambda topic: forwardable.append(topic.name)
    at.journal.commit()
    assert forwardable == ["a"]
    assert at.engine.forward(router.dest, 10) is Outcome.CAUGHT_UP


# Topics that exchange records


def test_a_topic_changes_its_log_behind_a_barrier(at: LoggedEngine) -> None:
    """What a crash takes is the end of its history: the log it leaves is durable before it goes on in the other one."""
    topic = at.make("t")
    at.journal.lanes[topic.topic_id] = 3
    at.put("t", 1)
    at.journal.batches.clear()
    commit = at.engine.flow.join(topic)
    assert commit is not None
    assert (at.engine.flow.join(topic), at.journal.batches, topic.exchange) == (commit, [], False)
    assert at.busy(lambda: at.put("t", 2)) is commit
    at.journal.commit(1)  # the barrier
    assert (at.kinds(), at.journal.gates(Moved), topic.exchange) == (["Moved"], [True], False)
    assert at.busy(lambda: at.put("t", 2)) is commit
    at.journal.commit(1)
    assert (commit.done, commit.error, topic.exchange) == (True, None, True)
    assert at.put("t", 2) is None
    assert at.engine.flow.joined(topic) == []


@pytest.mark.parametrize("commits", [0, 1])
def test_a_topic_whose_disk_fails_meanwhile_stays_in_its_log(at: LoggedEngine, commits: int) -> None:
    topic = at.make("t")
    at.journal.lanes[topic.topic_id] = 3
    commit = at.engine.flow.join(topic)
    at.journal.commit(commits)
    at.journal.fail()
    assert failed(commit)
    assert not topic.exchange
    assert at.put("t", 1) is None


def test_a_topic_that_changes_its_log_is_in_flight(at: LoggedEngine) -> None:
    topic = at.make("t")
    at.journal.lanes[topic.topic_id] = 3
    at.engine.flow.join(topic)
    found: list[bool] = []
    at.engine.flow.when_quiet(lambda: found.append(topic.exchange))
    at.journal.sync()
    assert found == [True]


def test_a_topic_that_is_in_that_log_anyway_joins_with_the_batch_it_joins_for(at: LoggedEngine) -> None:
    here, there = at.make("a"), at.make("b")
    at.journal.lanes[there.topic_id] = 3
    joining = at.busy(lambda: at.engine.flow.joined(here, there))
    at.journal.sync()
    assert joining.done
    assert at.engine.flow.joined(here, there) == [Moved(topic_id=here.topic_id, ts=at.clock.now_ms())]
    assert not here.exchange, "that batch says so"


# Cursors of routers


def chain(at: LoggedEngine, *names: str) -> None:
    for name in names:
        at.make(name)
    for source, dest in pairwise(names):
        at.route(source, dest)


def cursors(at: LoggedEngine) -> list[tuple[int, list[int], int, int]]:
    return [
        (each.topic_id, each.routers, each.through_seq, each.dest_seq)
        for each in at.journal.of(Forwarded)
        if each.copies is None
    ]


def test_plain_fan_out_is_in_no_log(at: LoggedEngine) -> None:
    for name in "abc":
        at.make(name)
    at.route("a", "b")
    at.route("a", "c")
    at.journal.batches.clear()
    for value in range(5):
        at.put("a", value)
        assert (len(at.data("b")), len(at.data("c"))) == (value + 1, value + 1)
    assert at.kinds() == ["Appended"] * 5


OnDest = Callable[[LoggedEngine], object]


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (lambda at: at.put("b", 9), "Appended"),
        (lambda at: at.engine.delete_records("b", 2, None), "RecordsDeleted"),
        (lambda at: at.engine.put_topic("b", TopicConfigPatch(cap_records=5)), "ConfigChanged"),
        (lambda at: at.engine.delete_router("a->b"), "RouterDeleted"),
        (lambda at: at.route("a", "b", RouterSettings(preserve_tag=False)), "RouterPut"),
    ],
)
def test_how_far_a_router_is_goes_before_any_operation_on_its_dest(
    at: LoggedEngine, operation: OnDest, kind: str
) -> None:
    chain(at, "a", "b")
    router = at.engine.router("a->b")
    at.put("a", 1, 2)
    at.data("b")
    operation(at)
    ((batch, _),) = [each for each in at.journal.batches if isinstance(each[0][0], Forwarded)]
    assert [type(each).__name__ for each in batch] == ["Forwarded", kind], "in one batch: both or none"
    assert cursors(at) == [(1, [router.router_id], 2, 2)]
    at.journal.sync()
    at.put("b", 9)
    assert len(cursors(at)) == 1, "nothing was copied since"


def test_cursors_of_a_chain_go_from_its_first_source_on(at: LoggedEngine) -> None:
    """What was copied on is a copy itself."""
    chain(at, "a", "b", "c")
    at.put("a", 1, 2)
    at.data("c")
    at.put("c", 9)
    assert [(source, through) for source, _, through, _ in cursors(at)] == [(1, 2), (2, 2)]
    assert shown(at.folded()) == shown(at.engine.state)


def test_routers_at_the_same_place_share_their_cursor_when_records_of_the_source_go(at: LoggedEngine) -> None:
    for name in "abc":
        at.make(name)
    ids = [at.route("a", "b").router_id, at.route("a", "c").router_id]
    at.journal.batches.clear()
    at.put("a", 1, 2, 3)
    at.engine.forward_pending()
    at.engine.delete_records("a", 3, None)
    assert at.kinds() == ["Appended", "Forwarded", "RecordsDeleted"]
    assert cursors(at) == [(1, ids, 3, 0)]


def test_routers_at_different_places_have_each_their_own(at: LoggedEngine) -> None:
    for name in "ab":
        at.make(name)
    full = at.make("c", cap_records=1, discard=Discard.REJECT)
    far, near = at.route("a", "b").router_id, at.route("a", "c").router_id
    at.journal.batches.clear()
    at.put("a", 1, 2, 3)
    at.engine.forward_pending()
    assert full.log.count == 1
    at.engine.delete_records("a", 2, TagMatch("x", is_prefix=False))
    assert [(routers, through) for _, routers, through, _ in cursors(at)] == [([far, near], 1), ([far], 3)]


def test_a_write_that_makes_a_cap_of_the_source_take_records_says_first_that_they_are_copied(at: LoggedEngine) -> None:
    at.make("a", cap_records=3)
    at.make("b")
    at.route("a", "b")
    at.journal.batches.clear()
    for value in range(3):
        at.put("a", value)
        at.data("b")
    assert at.kinds() == ["Appended"] * 3, "it has room"
    at.put("a", 3)
    assert (at.kinds()[3:], [cursor[2] for cursor in cursors(at)]) == (["Forwarded", "Appended"], [3])
    at.put("a", 4)
    at.put("a", 5)
    assert len(cursors(at)) == 1, "the log says of those that go that they are copied"


def test_a_clock_that_takes_records_of_the_source_says_first_that_they_are_copied(at: LoggedEngine) -> None:
    at.make("a", ttl_ms=10)
    at.make("b")
    at.route("a", "b")
    at.journal.batches.clear()
    at.put("a", 1)
    at.data("b")
    at.clock.advance(11)
    at.engine.expire_due()
    assert at.kinds() == ["Appended", "Forwarded", "ClockReached"]
    assert at.data("b") == [1]


def test_copies_of_what_no_log_has_keep_their_seqs_taken(at: LoggedEngine) -> None:
    """The originals are in memory alone, so every dest says where it ends."""
    at.make("a", Durability.EPHEMERAL)
    at.make("b")
    at.make("c")
    at.route("a", "b")
    at.route("a", "c", RouterSettings(filter=TagMatch("x", is_prefix=False)))
    at.journal.batches.clear()
    at.write(record(tag="x"), record(), topic="a")
    at.engine.forward_pending()
    at.put("b", 9)
    at.put("c", 9)
    assert [(through, dest_seq) for _, _, through, dest_seq in cursors(at)] == [(2, 2), (2, 1)]


# Deletes before routers have come to them


def lagging(at: LoggedEngine) -> None:
    """The router has copied 1 of 3 records, and its dest has no room for more."""
    at.make("a")
    at.make("b", cap_records=1, discard=Discard.REJECT)
    at.route("a", "b")
    at.put("a", 1, 2, 3)
    assert at.data("b") == [1]
    at.journal.batches.clear()


def test_copies_behind_originals_that_were_deleted_uncopied_are_seen_once_the_log_says_so(at: LoggedEngine) -> None:
    """Should a crash take the delete, the router would copy first what was deleted."""
    lagging(at)
    at.engine.delete_records("a", 3, None)
    assert at.engine.router("a->b").unsure
    at.engine.delete_records("b", 2, None)
    assert at.data("b") == []
    (forwarded,) = [each for each in at.journal.of(Forwarded) if each.copies is not None]
    assert (forwarded.through_seq, forwarded.dest_seq) == (3, 2)
    assert at.journal.gates(Forwarded)[-1]
    at.journal.sync()
    assert (at.data("b"), at.engine.router("a->b").unsure) == ([3], False)
    at.make("b", cap_records=5)
    at.put("a", 4)
    assert at.data("b") == [3, 4], "from then on nobody waits"


def test_a_delete_of_what_is_copied_leaves_nobody_unsure(at: LoggedEngine) -> None:
    chain(at, "a", "b")
    at.put("a", 1, 2)
    at.engine.delete_records("a", 3, None)
    assert (at.data("b"), at.engine.router("a->b").unsure) == ([1, 2], False)
    assert at.kinds()[-3:] == ["Appended", "Forwarded", "RecordsDeleted"], "it is copied first"


@pytest.mark.parametrize("source", list(Durability))
@pytest.mark.parametrize("dest", list(Durability))
def test_a_topic_deleted_while_something_waits_takes_all_its_bytes_along(source: Durability, dest: Durability) -> None:
    """Whatever was decided before the delete of a router's dest, in whatever order it lands."""
    for steps in product("wsdfc", repeat=4):
        at = LoggedEngine()
        at.make("a", source)
        at.make("b", dest)
        at.journal.sync()
        at.route("a", "b")
        for step in steps:
            with suppress(Busy):
                match step:
                    case "w":
                        at.put("b", 1)
                    case "s":
                        at.put("a", 1)
                    case "d":
                        at.engine.delete_topic("b")
                    case "f" if topic := at.engine.topics.get("b"):
                        at.engine.catch_up(topic)
                    case _:
                        at.journal.commit(1)
        at.journal.sync()
        state = at.engine.state
        assert state.bytes_live == sum(topic.log.bytes for topic in state.topics), steps
        assert not any(topic.pending_bytes or topic.pending_count for topic in state.topics), steps
