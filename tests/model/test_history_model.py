"""Promises of the log, checked on its model: after every step, and for every crash that could happen right then.

`HISTORY_MODEL_EXAMPLES=20000 ./test tests/model/test_history_model.py` looks at that many random histories.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import fields

import pytest
from history_model import Appended, Deleted, Forwarded, Loss, Reason, Record, State, apply, fold
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from live_log_model import LiveLog, PromiseBroken, Rules

EXAMPLES = os.environ.get("HISTORY_MODEL_EXAMPLES")
TOPICS = ("a", "b", "c")
GRAPHS = {
    "chain": ("a>b", "b>c"),
    "fan-out": ("a>b", "a>c"),
    "cycle of two": ("a>b", "b>a", "a>c"),
    "cycle of three": ("a>b", "b>c", "c>a"),
    "two routers with the same ends": ("a>b", "a>b", "b>c"),
    "none": (),
}


class Promises:
    """What clients of a log may count on."""

    def __init__(self, log: LiveLog) -> None:
        self.log = log
        self.restarts: dict[tuple[object, ...], State] = {}

    def check(self) -> None:
        self.check_the_log_says_what_is_seen()
        for frames in range(self.log.durable, len(self.log.frames) + 1):
            for power_cut in (False, True):
                case = f"{'power cut' if power_cut else 'kill'} with {frames} of {len(self.log.frames)} frames left"
                logged, state = self.log.states[frames], self.after_a_crash(frames, power_cut, case)
                self.check_nothing_seen_has_changed(state, case)
                self.check_nothing_durable_is_undone(state, case)
                if not power_cut:
                    self.check_no_loss_is_invented(logged, state, case)
                    if frames == len(self.log.frames):
                        assert state.topics == self.log.planned.topics, f"{case}: it is not as it was"

    def check_the_log_says_what_is_seen(self) -> None:
        log = self.log
        applied = [frame.operation for frame in log.frames if frame.applied]
        assert fold([*applied, *log.pending]) == log.live, "what is seen is not what the log says"
        assert fold(log.pending, log.states[-1]) == log.planned or log.failed, "what is decided is not in the log"

    def after_a_crash(self, frames: int, power_cut: bool, case: str) -> State:
        """The state after a restart, and after every crash during that restart and another one."""
        key = (frames, None if power_cut else tuple(self.log.heads.items()))
        if key not in self.restarts:
            logged = self.log.states[frames]
            self.restarts[key], found = self.log.recovered(logged, power_cut=power_cut)
            for operation in found:
                logged = apply(logged, operation)
                again, _ = self.log.recovered(logged, power_cut=power_cut)
                assert again == self.restarts[key], f"{case}: the second restart finds something else"
        return self.restarts[key]

    def check_nothing_seen_has_changed(self, state: State, case: str) -> None:
        for name, seen in self.log.seen.items():
            topic = state.topics[name]
            assert topic.head >= self.log.live.topics[name].head, f"{case}: the head of {name} went back"
            for seq, record in seen.items():
                if seq in topic.records:
                    assert topic.records[seq] == record, f"{case}: {name}/{seq} was another record"
                elif seq not in topic.lost:
                    assert (name, seq) in self.log.deletes_asked, f"{case}: {name}/{seq} is gone without a word"

    def check_nothing_durable_is_undone(self, state: State, case: str) -> None:
        for name, before in self.log.states[self.log.durable].topics.items():
            for seq in before.records.keys() & state.topics[name].lost.keys():
                assert state.topics[name].lost[seq].reason is Reason.CAP, (
                    f"{case}: {name}/{seq} was durable, and is lost"
                )
        for frame in self.log.frames[: self.log.durable]:
            if isinstance(frame.operation, Deleted):
                name, seqs = frame.operation.topic, frame.operation.seqs
                assert not seqs & state.topics[name].records.keys(), f"{case}: deleted records are back in {name}"

    def check_no_loss_is_invented(self, logged: State, state: State, case: str) -> None:
        """After a kill only what was seen can be lost, and no copy is whose original is there."""
        for name, topic in state.topics.items():
            originals = [record for each in logged.upstream(name) for record in logged.topics[each].records.values()]
            there = {record.number for record in originals}
            for seq in topic.lost.keys() - logged.topics[name].lost.keys():
                if topic.lost[seq].reason is Reason.CRASH:
                    assert seq <= self.log.live.topics[name].head, f"{case}: nobody had {name}/{seq}, and it is lost"
                    record = self.log.seen[name].get(seq)
                    assert record is None or record.number not in there, f"{case}: {name}/{seq} could be copied again"


# Random histories


class Histories(RuleBasedStateMachine):
    following = Rules()

    def __init__(self) -> None:
        super().__init__()
        self.log = LiveLog(self.following)
        self.promises = Promises(self.log)
        self.number = 0

    @initialize(data=st.data(), graph=st.sampled_from(sorted(GRAPHS)))
    def begin(self, data: st.DataObject, graph: str) -> None:
        for name in TOPICS:
            cap, reject = data.draw(st.sampled_from([(0, False), (2, False), (3, False), (2, True)]))
            self.log.create(name, waits=data.draw(st.sampled_from([False, False, True])), cap=cap, reject=reject)
            self.log.reserve(name, data.draw(st.sampled_from([8, 4, 0])))
        for number, edge in enumerate(GRAPHS[graph]):
            self.log.put_router(f"r{number}", edge[0], edge[2], data.draw(st.sampled_from([None, None, "x"])))
        self.log.sync(len(self.log.frames))

    @rule(name=st.sampled_from(TOPICS), tags=st.lists(st.sampled_from("xxy"), min_size=1, max_size=3))
    def write(self, name: str, tags: list[str]) -> None:
        self.log.append(name, [(self.number + at, tag) for at, tag in enumerate(tags)])
        self.number += len(tags)

    @precondition(lambda self: any(topic.records for topic in self.log.planned.topics.values()))
    @rule(data=st.data(), several=st.booleans())
    def delete(self, data: st.DataObject, several: bool) -> None:
        topics = self.log.planned.topics
        name = data.draw(st.sampled_from([name for name in TOPICS if topics[name].records]))
        seq = data.draw(st.sampled_from(sorted(topics[name].records)))
        self.log.delete(name, range(1, seq + 1) if several else [seq])

    @precondition(lambda self: self.log.planned.routers)
    @rule(data=st.data(), copies_max=st.sampled_from([1, 2, 100]))
    def forward(self, data: st.DataObject, copies_max: int) -> None:
        dests = {router.dest for router in self.log.planned.routers.values()}
        self.log.forward(data.draw(st.sampled_from(sorted(dests))), copies_max)

    @precondition(lambda self: self.log.planned.routers)
    @rule()
    def forward_everything(self) -> None:
        while any(self.log.forward(dest) for dest in TOPICS):
            pass

    @rule(data=st.data(), all_of_it=st.booleans())
    def sync(self, data: st.DataObject, all_of_it: bool) -> None:
        end = len(self.log.frames)
        self.log.sync(end if all_of_it else data.draw(st.integers(self.log.durable, end)))

    @rule(name=st.sampled_from(TOPICS), data=st.data())
    def something_rare_happens(self, name: str, data: st.DataObject) -> None:
        """One rule for all of it, or histories would be about nothing else."""
        happens = data.draw(st.sampled_from(["time", "reserve", "configure", "route", "change", "unroute"]))
        routers = sorted(self.log.planned.routers)
        if happens == "time":
            self.log.now += data.draw(st.sampled_from([5, 1]))
        elif happens == "reserve":
            self.log.reserve(name, self.log.planned.topics[name].head + 4)
        elif happens == "configure":
            self.log.configure(name, data.draw(st.integers(0, 3)), reject=data.draw(st.booleans()))
        elif happens == "route" and "s" not in routers:
            source = data.draw(st.sampled_from(TOPICS))
            cursor = data.draw(st.sampled_from([0, self.log.live.topics[source].head]))
            self.log.put_router("s", source, name, None, cursor)
        elif happens == "change" and routers:
            changed = data.draw(st.sampled_from(routers))
            router = self.log.planned.routers[changed]
            self.log.put_router(changed, router.source, router.dest, data.draw(st.sampled_from([None, "x", "y"])))
        elif happens == "unroute" and routers:
            self.log.delete_router(data.draw(st.sampled_from(routers)))

    @precondition(lambda self: len(self.log.frames) > self.log.durable)
    @rule(data=st.data(), happens=st.sampled_from(["kill", "power cut", "failed disk"]))
    def something_breaks(self, data: st.DataObject, happens: str) -> None:
        if happens == "failed disk":
            self.log.fail()
            return
        frames = data.draw(st.integers(self.log.durable, len(self.log.frames)))
        self.log = self.log.crash(frames, power_cut=happens == "power cut")
        self.promises = Promises(self.log)

    @invariant()
    def promises_are_kept(self) -> None:
        self.promises.check()


Histories.TestCase.settings = settings(
    max_examples=int(EXAMPLES or 120),
    stateful_step_count=25,
    derandomize=EXAMPLES is None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestHistories = Histories.TestCase


# Histories with a name: each is about one rule, and breaks a promise without it

History = Callable[[LiveLog], Iterator[None]]


def begin(log: LiveLog, *routers: str, waits: str = "", reserved: str = "abc", **caps: int) -> None:
    """Topics a, b and c, those in `waits` of class `fsync`, and routers like `a>b`."""
    for name in TOPICS:
        log.create(name, waits=name in waits, cap=caps.get(name, 0))
        log.reserve(name, 8 if name in reserved else 0)
    for router in routers:
        log.put_router(router, router[0], router[2])
    log.sync(len(log.frames))


def live_seqs(log: LiveLog, name: str) -> list[int]:
    return sorted(log.live.topics[name].records)


def numbers(log: LiveLog, name: str) -> list[int]:
    return [record.number for _, record in sorted(log.live.topics[name].records.items())]


def a_delete_behind_a_waiting_write_into_a_full_topic(log: LiveLog) -> Iterator[None]:
    """The write evicts 1 and the delete takes 3. The other way round, the write would find room and 1 would stay."""
    begin(log, a=3)
    log.append("a", [(1, "x"), (2, "x"), (3, "x")])
    log.sync(len(log.frames))
    log.configure("a", 3, reject=False)  # waits, and everything behind it
    log.append("a", [(4, "x")])
    log.delete("a", [3])
    yield
    log.sync(len(log.frames))
    yield
    assert live_seqs(log, "a") == [2, 4]


def a_delete_in_a_dest_comes_behind_the_copies_it_takes(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b")
    log.append("a", [(1, "x")])
    log.forward("b")
    yield
    log.delete("b", [1])
    yield


def a_delete_in_a_source_comes_behind_the_copies_of_what_it_takes(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b")
    log.append("a", [(1, "x")])
    log.forward("b")
    yield
    log.delete("a", [1])
    yield


def deletes_in_source_and_dest_that_a_kill_loses_leave_every_seq_its_record(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b", b=3)
    log.append("a", [(1, "x"), (2, "x"), (3, "x"), (4, "x")])
    log.forward("b", 2)
    yield
    log.delete("b", [2])
    yield
    log.delete("a", [1, 3])
    yield
    log.forward("b")  # goes over 3, which the log may still lose the delete of
    yield
    assert numbers(log, "b") == [1]
    log.sync(len(log.frames))
    yield
    assert numbers(log, "b") == [1, 4]
    log.append("a", [(5, "x")])
    log.forward("b")
    yield
    assert numbers(log, "b") == [1, 4, 5]
    log.delete("b", [1, 3])
    log.delete("a", [4, 5])
    yield


def copies_of_copies_are_logged_behind_the_copies(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b", "b>c")
    log.append("a", [(1, "x")])
    log.forward("b")
    log.forward("c")
    yield
    log.delete("c", [1])
    yield


def a_copy_behind_a_record_deleted_uncopied_waits(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b")
    log.append("a", [(1, "x"), (2, "x")])
    log.delete("a", [1])
    log.forward("b")
    yield
    assert not numbers(log, "b")
    log.sync(len(log.frames))
    yield
    assert numbers(log, "b") == [2]


def what_a_delete_in_flight_takes_is_not_copied(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b", waits="a")
    log.append("a", [(1, "x"), (2, "x")])
    log.sync(len(log.frames))
    log.delete("a", [1])
    yield
    log.forward("b")
    yield
    log.sync(len(log.frames))
    yield
    assert numbers(log, "b") == [2]


def a_delete_waits_for_copies_in_flight_of_what_it_takes(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b", reserved="a")
    log.append("a", [(1, "x")])
    log.forward("b")  # beyond what is reserved: it waits
    log.delete("a", [1])
    yield
    log.sync(len(log.frames))
    yield
    assert (numbers(log, "a"), numbers(log, "b")) == ([], [1])


def a_write_to_a_dest_that_a_crash_loses_leaves_its_seq_to_nobody(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b")
    log.append("a", [(1, "x")])
    log.append("b", [(2, "x")])
    yield
    log.sync(len(log.frames))
    log.forward("b")
    yield
    assert numbers(log, "b") == [2, 1]


def a_write_beyond_the_reserved_seqs_waits(log: LiveLog) -> Iterator[None]:
    begin(log, reserved="")
    log.append("a", [(1, "x")])
    yield
    assert not numbers(log, "a")


def a_skip_over_what_the_source_lost_waits(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b", a=1)
    log.append("a", [(1, "x")])
    log.append("a", [(2, "x")])
    log.forward("b")
    yield
    log.forward("b")
    yield
    log.sync(len(log.frames))
    yield
    assert log.live.topics["b"].lost == {1: Loss(Reason.SOURCE_TRIM)}
    assert live_seqs(log, "b") == [2]


def a_late_copy_waits(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b")
    log.append("a", [(1, "x")])
    log.now += 5
    log.forward("b")
    yield
    log.sync(len(log.frames))
    yield
    assert log.live.topics["b"].records == {1: Record(1, "x", 5)}


def no_copy_takes_the_seq_of_a_write_that_a_failed_disk_dropped(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b")
    log.append("a", [(1, "x")])
    log.sync(len(log.frames))
    log.append("b", [(2, "x")])
    log.fail()
    yield
    log.forward("b")
    yield
    assert not numbers(log, "b")


def a_write_in_flight_that_a_kill_loses_is_no_loss(log: LiveLog) -> Iterator[None]:
    begin(log, waits="a")
    log.append("a", [(1, "x")])
    yield


def a_restart_copies_from_a_capped_topic_before_it_copies_to_it(log: LiveLog) -> Iterator[None]:
    begin(log, "a>b", "b>c", b=1)
    log.append("a", [(1, "x"), (2, "x")])
    log.forward("b", 1)
    log.forward("c")
    yield
    log.forward("b")
    yield
    assert (numbers(log, "b"), numbers(log, "c")) == ([2], [1])


NAMED: list[tuple[str, History]] = [
    ("operations_of_a_topic_keep_their_order", a_delete_behind_a_waiting_write_into_a_full_topic),
    ("cursors_are_logged_before_the_dest_changes", a_delete_in_a_dest_comes_behind_the_copies_it_takes),
    ("cursors_are_logged_before_the_source_loses", a_delete_in_a_source_comes_behind_the_copies_of_what_it_takes),
    ("cursors_are_logged_from_the_first_source_on", copies_of_copies_are_logged_behind_the_copies),
    ("copies_behind_uncopied_deletes_wait", a_copy_behind_a_record_deleted_uncopied_waits),
    (
        "copies_behind_uncopied_deletes_wait",
        deletes_in_source_and_dest_that_a_kill_loses_leave_every_seq_its_record,
    ),
    ("what_is_in_flight_is_looked_at", what_a_delete_in_flight_takes_is_not_copied),
    ("takers_wait_for_copies_in_flight", a_delete_waits_for_copies_in_flight_of_what_it_takes),
    ("direct_writes_to_a_dest_wait", a_write_to_a_dest_that_a_crash_loses_leaves_its_seq_to_nobody),
    ("seqs_are_reserved", a_write_beyond_the_reserved_seqs_waits),
    ("skips_wait", a_skip_over_what_the_source_lost_waits),
    ("late_copies_wait", a_late_copy_waits),
    ("seqs_of_dropped_writes_stay_taken", no_copy_takes_the_seq_of_a_write_that_a_failed_disk_dropped),
    ("heads_are_noted_when_seen", a_write_in_flight_that_a_kill_loses_is_no_loss),
    ("restarts_evict_last_what_is_to_be_copied", a_restart_copies_from_a_capped_topic_before_it_copies_to_it),
]


def run(history: History, rules: Rules) -> None:
    log = LiveLog(rules)
    promises = Promises(log)
    for _ in history(log):
        try:
            promises.check()
        except AssertionError as broken:
            raise PromiseBroken(str(broken)) from broken


@pytest.mark.parametrize("history", [history for _, history in NAMED])
def test_a_named_history_keeps_every_promise(history: History) -> None:
    run(history, Rules())


@pytest.mark.parametrize(("rule_name", "history"), NAMED)
def test_without_its_rule_a_named_history_breaks_a_promise(rule_name: str, history: History) -> None:
    with pytest.raises(PromiseBroken):
        run(history, Rules(**{rule_name: False}))


def test_every_rule_has_a_history() -> None:
    assert {each.name for each in fields(Rules)} == {rule_name for rule_name, _ in NAMED}


@pytest.mark.parametrize("rule_name", ["heads_are_noted_when_seen", "direct_writes_to_a_dest_wait"])
def test_random_histories_find_out_that_a_rule_is_missing(rule_name: str) -> None:
    class WithoutIt(Histories):
        following = Rules(**{rule_name: False})

    found = settings(
        max_examples=500,
        stateful_step_count=25,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(WithoutIt, settings=found)


# What single operations do


def test_seqs_before_a_write_that_the_log_does_not_have_are_told_as_lost() -> None:
    log = LiveLog()
    begin(log)
    topic = apply(log.live, Appended("a", 3, (Record(1, "x", 0),))).topics["a"]
    assert (topic.head, sorted(topic.records), sorted(topic.lost)) == (3, [3], [1, 2])


def test_a_topic_that_rejects_evicts_nothing_when_it_is_overfull() -> None:
    log = LiveLog()
    begin(log, "a>b")
    log.configure("b", 1, reject=True)
    log.append("a", [(1, "x"), (2, "x")])
    log.sync(len(log.frames))
    overfull = apply(log.planned, Forwarded("b", (("a>b", 2),)))
    assert sorted(overfull.topics["b"].records) == [1, 2]
    log.forward("b")
    log.forward("b")
    assert numbers(log, "b") == [1]


@pytest.mark.parametrize(("routers", "hops"), [(("a>b", "b>a"), [0, 1]), (("a>b", "b>c", "c>a"), [0, 1, 2])])
def test_a_record_comes_to_every_topic_of_its_cycle_once(routers: tuple[str, ...], hops: list[int]) -> None:
    log = LiveLog()
    begin(log, *routers)
    log.append("a", [(1, "x")])
    log.sync(len(log.frames))
    for _ in range(5):
        for dest in TOPICS:
            log.forward(dest)
    records = [log.live.topics[name].records for name in TOPICS]
    assert [list(each.values()) for each in records if each] == [[Record(1, "x", 0, count)] for count in hops]
