"""Routers that lagged or were changed, or whose source or cycle was, before a kill: copies are what they were."""

import json

import pytest
from msgspec import Raw

from topics.engine.queues import Claimer
from topics.model.record import NewRecord
from topics.model.router import RouterSettings
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import Reading, SimulatedServer

CYCLIC = RouterSettings(allow_cycle=True)
ONLY_KEPT = RouterSettings(filter=TagMatch("keep", is_prefix=False))
FULL_AT_ONE = {"cap_records": 1, "discard": "reject"}


class Killable:
    """What is on disk is what a killed process leaves."""

    def __init__(self, shards: int = 3) -> None:
        self.disk, self.clock = FakeDisk(), FakeClock()
        self.server = self._start(shards)

    def _start(self, shards: int) -> SimulatedServer:
        server = SimulatedServer(self.disk, self.clock, segment_events_max=4, wal_shards=shards)
        server.start()
        return server

    def route(self, source: str, dest: str, settings: RouterSettings | None = None) -> None:
        self.server.put_router(f"{source}->{dest}", source, dest, settings)

    def write(self, topic: str, *values: str, tag: str | None = None) -> None:
        self.server.write(topic, [NewRecord(Raw(json.dumps(value).encode()), tag) for value in values])

    def data(self, topic: str) -> dict[int, str]:
        return {seq: json.loads(text)["data"] for seq, text in self.server.read_all(topic).records.items()}

    def kill(self, shards: int = 1) -> None:
        self.server.sync()
        self.disk = self.disk.crash_keep_all()
        self.server = self._start(shards)

    def readings(self, topics: str) -> dict[str, Reading]:
        for _ in topics:
            self.server.engine.forward_pending()
            self.server.sync()
        return {topic: self.server.read_all(topic) for topic in topics}


@pytest.fixture
def at() -> Killable:
    return Killable()


def test_copies_are_kept_when_cycles_were_made_of_their_topics_since(at: Killable) -> None:
    at.route("a", "b")
    at.route("b", "c")
    at.write("a", "a1", "a2")
    assert at.data("c") == {1: "a1", 2: "a2"}
    at.server.delete_router("b->c")
    at.route("b", "a", CYCLIC)
    at.route("c", "d")
    at.route("d", "c", CYCLIC)
    before = at.readings("abcd")
    at.kill()
    assert at.readings("abcd") == before


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_an_earlier_filter_left_out_stays_out(at: Killable, checkpoint: bool) -> None:
    at.route("a", "b", ONLY_KEPT)
    at.write("a", "kept", tag="keep")
    at.write("a", "left out", "left out as well", tag="no")
    at.server.read_all("b")
    if checkpoint:
        at.server.checkpoint()
    at.route("a", "b")
    at.write("a", "new")
    assert at.data("b") == {1: "kept", 2: "new"}
    for _ in range(2):
        at.kill()
        assert at.data("b") == {1: "kept", 2: "new"}


def test_what_a_filter_left_out_and_the_source_evicted_is_no_loss() -> None:
    at = Killable(shards=1)
    at.server.put("a", {"cap_records": 2})
    at.route("a", "b", ONLY_KEPT)
    at.write("a", "kept", tag="keep")
    for number in range(9):
        at.write("z", "from elsewhere")  # so that the log has one entry for each
        at.write("a", f"left out {number}", tag="no")
        at.server.read_all("b")
    before = at.server.read_all("b")
    assert (sorted(before.records), before.gaps) == ([1], [])
    at.kill()
    assert at.server.read_all("b") == before


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_job_acked_before_it_was_forwarded_is_not_copied_after_a_kill_either(at: Killable, durability: str) -> None:
    at.server.put("jobs", {"type": "queue", "durability": durability})
    at.server.put("log", FULL_AT_ONE)
    at.route("jobs", "log")
    at.write("jobs", "j1", "j2", "j3")
    at.server.claim("jobs", Claimer("w", 2))
    assert at.server.ack("jobs", "w", [1, 2]).seqs == [1, 2]
    at.server.put("log", {"cap_records": 0})
    assert at.data("log") == {1: "j1", 2: "j3"}
    at.kill()
    assert at.data("log") == {1: "j1", 2: "j3"}


def test_a_router_that_catches_up_while_records_are_deleted_leaves_them_out(at: Killable) -> None:
    """The delete waits for the disk. In the log it comes before the copies, so there are none of what it takes, and
    they are seen only once it is durable."""
    at.server.put("a", {"durability": "fsync"})
    at.server.put("b", FULL_AT_ONE)
    at.route("a", "b")
    at.write("a", "a1", "a2", "a3")
    assert at.data("b") == {1: "a1"}
    deleted = at.server.engine.delete_records("a", 3, None)
    at.server.engine.delete_records("b", 2, None)
    assert deleted.commit is not None
    assert not deleted.commit.done
    assert (at.data("b"), deleted.commit.done) == ({2: "a3"}, True)
    at.server.wait(deleted.commit)
    assert at.data("b") == {2: "a3"}
    at.kill()
    assert at.data("b") == {2: "a3"}


def test_a_router_that_catches_up_while_a_job_is_acked_leaves_it_out(at: Killable) -> None:
    at.server.put("jobs", {"type": "queue", "durability": "fsync"})
    at.server.put("log", FULL_AT_ONE)
    at.route("jobs", "log")
    at.write("jobs", "j1", "j2", "j3")
    at.server.claim("jobs", Claimer("w", 2))
    settled = at.server.queues.ack("jobs", "w", [2], None)
    at.server.engine.delete_records("log", 2, None)
    assert at.data("log") == {2: "j3"}
    at.server.wait(settled.commit)
    at.kill()
    assert at.data("log") == {2: "j3"}


def ring(at: Killable, names: str) -> None:
    for source, dest in zip(names, names[1:] + names[0], strict=True):
        at.route(source, dest, CYCLIC)


def write_to_each(at: Killable, names: str, suffix: str) -> None:
    for name in names:
        at.write(name, name + suffix)
        at.readings(names)


@pytest.mark.parametrize("shards", [1, 3])
def test_copies_made_before_a_chain_was_closed_to_a_cycle_count_no_hops(at: Killable, shards: int) -> None:
    """They are in no log when the router closes it, and are folded as what they were: copies on a chain."""
    for source, dest in ("ab", "bc", "cd"):
        at.route(source, dest)
    at.write("a", "a1", "a2")
    at.readings("abcd")
    at.route("d", "a", CYCLIC)
    write_to_each(at, "abcd", "3")
    before = at.readings("abcd")
    assert [len(reading.records) for reading in before.values()] == [6, 6, 6, 6]
    at.kill(shards)
    assert at.readings("abcd") == before


@pytest.mark.parametrize("checkpoint", [False, True])
def test_copies_made_on_a_cycle_are_kept_when_it_was_opened_since(at: Killable, checkpoint: bool) -> None:
    at.route("k", "l")
    at.route("l", "k", CYCLIC)
    at.write("k", "k1")
    at.readings("kl")
    if checkpoint:
        at.server.checkpoint()
    at.write("l", "l1")
    at.readings("kl")
    at.server.delete_router("l->k")
    at.route("m", "k")
    at.write("m", "m1")
    before = at.readings("klm")
    assert at.data("k") == at.data("l") == {1: "k1", 2: "l1", 3: "m1"}
    for _ in range(2):
        at.kill()
        assert at.readings("klm") == before


@pytest.mark.parametrize("how", ["router", "topic"])
@pytest.mark.parametrize("names", ["abc", "abcd"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_cycle_may_be_opened_and_closed_again_before_a_kill(how: str, names: str, shards: int) -> None:
    at = Killable(shards)
    ring(at, names)
    write_to_each(at, names, "1")
    if how == "router":
        at.server.delete_router("b->c")
    else:
        at.server.delete_topic("b")
    write_to_each(at, names.replace("b", ""), "2")
    at.route("a", "b", CYCLIC)
    write_to_each(at, names.replace("b", ""), "3")
    at.route("b", "c", CYCLIC)
    write_to_each(at, names, "4")
    before = at.readings(names)
    for _ in range(2):
        at.kill(shards)
        assert at.readings(names) == before


def test_copies_on_a_cycle_that_were_made_late_keep_their_times(at: Killable) -> None:
    ring(at, "ab")
    at.write("b", "b1", "b2")
    at.clock.advance(1500)
    before = at.readings("ab")
    assert json.loads(before["a"].records[1])["$ts"] > json.loads(before["b"].records[1])["$ts"]
    at.kill()
    assert at.readings("ab") == before


def test_a_snapshot_made_while_the_news_of_a_loss_waits_for_the_disk_keeps_a_cycle_as_it_was() -> None:
    at = Killable(shards=1)
    at.route("b", "a", CYCLIC)
    at.route("a", "b", CYCLIC)
    at.server.put("b", {"cap_records": 3})
    at.write("a", "a1", "a2", "a3", "a4", "a5")
    at.write("b", "b1")
    at.server.checkpoint()
    before = at.readings("ab")
    at.kill()
    assert at.readings("ab") == before


def test_hops_of_a_cycle_that_was_opened_do_not_count_on_the_next(at: Killable) -> None:
    ring(at, "ac")
    at.route("a", "b")
    at.write("c", "c1", "c2")
    at.server.read_all("a")
    at.server.delete_topic("c")
    at.route("b", "a", CYCLIC)
    before = at.readings("ab")
    assert at.data("b") == {1: "c1", 2: "c2"}
    for _ in range(2):
        at.kill()
        assert at.readings("ab") == before


def test_copies_are_kept_when_their_source_got_a_second_router_and_was_deleted(at: Killable) -> None:
    at.route("a", "b", ONLY_KEPT)
    at.write("a", "kept", "kept, too", tag="keep")
    at.server.put_router("second", "a", "b", RouterSettings(filter=TagMatch("other", is_prefix=False)))
    before = at.readings("b")
    assert sorted(before["b"].records) == [1, 2]
    at.server.delete_topic("a")
    at.kill()
    assert at.readings("b") == before
