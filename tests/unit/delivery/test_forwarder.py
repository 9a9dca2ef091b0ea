"""When routers work: soon, in slices, fairly, and again later where there was no room."""

import pytest

from doubles.live_stage import LiveStage
from doubles.unreadable_block import make_unreadable
from topics import limits
from topics.delivery.forwarder import Forwarder
from topics.model.router import RouterSettings


class Stage(LiveStage):
    def __init__(self) -> None:
        super().__init__()
        self.forwarder = Forwarder(self.engine, self.clock, self.governor, self.loop.call_later)
        self.engine.state.on_forwardable = self.forwarder.forwardable
        self.forwarder.start()

    def route(self, source: str, dest: str) -> None:
        self.engine.put_router(f"{source}->{dest}", source, dest, RouterSettings(), create_dest=True)

    def head(self, name: str) -> int:
        """Without forwarding anything for it."""
        topic = self.engine.find_topic(name)
        assert topic is not None
        return topic.log.head_seq


@pytest.fixture
def at() -> Stage:
    return Stage()


def test_a_write_is_forwarded_on_a_later_turn(at: Stage) -> None:
    at.route("a", "b")
    at.write("a", 3)
    assert at.head("b") == 0
    at.settle()
    assert at.head("b") == 3


def test_what_comes_before_the_start_is_forwarded_after_it(at: Stage) -> None:
    at.route("a", "b")
    forwarder = Forwarder(at.engine, at.clock, at.governor, at.loop.call_later)
    at.engine.state.on_forwardable = forwarder.forwardable
    at.write("a", 2)
    at.settle()
    assert at.head("b") == 0
    forwarder.start()
    at.settle()
    assert at.head("b") == 2


def test_nothing_is_forwarded_after_the_stop(at: Stage) -> None:
    at.route("a", "b")
    at.write("a", 2)
    at.forwarder.stop()
    at.settle()
    assert at.head("b") == 0


def test_many_writes_ask_for_one_turn(at: Stage) -> None:
    at.route("a", "b")
    for _ in range(5):
        at.write("a")
    assert len(at.loop.delays_s) == 1


def test_a_topic_without_routers_asks_for_none(at: Stage) -> None:
    at.write("a")
    assert at.loop.delays_s == []


def test_a_chain_is_forwarded_to_its_end(at: Stage) -> None:
    for source, dest in ("ab", "bc", "cd"):
        at.route(source, dest)
    at.write("a", 2)
    at.settle()
    assert at.head("d") == 2


def test_a_long_way_to_go_does_not_hold_up_others(at: Stage) -> None:
    at.route("a", "b")
    at.route("c", "d")
    for _ in range(3):
        at.write("a", limits.ROUTER_BATCH_RECORDS_MAX)
    at.write("c", 1)
    at.loop.turn()
    assert at.head("d") == 1


def test_a_full_topic_is_asked_again_after_longer_and_longer_pauses(at: Stage) -> None:
    at.configure("b", cap_records=1, discard="reject")
    at.route("a", "b")
    at.write("a", 2)
    at.loop.pass_time(3000)
    pauses = [delay for delay in at.loop.delays_s if delay]
    assert pauses[:4] == [0.01, 0.02, 0.04, 0.08]
    assert max(pauses) == limits.ROUTER_RETRY_MS_MAX / 1000
    assert at.head("b") == 1


def test_room_made_in_a_full_topic_is_used_at_once(at: Stage) -> None:
    at.configure("b", cap_records=1, discard="reject")
    at.route("a", "b")
    at.write("a", 2)
    at.loop.pass_time(1000)
    at.engine.delete_records("b", 2, None)
    at.settle()
    assert at.head("b") == 2


def test_a_topic_that_is_gone_is_not_asked_again(at: Stage) -> None:
    at.configure("b", cap_records=1, discard="reject")
    at.route("a", "b")
    at.write("a", 2)
    at.settle()
    at.engine.delete_topic("b")
    at.loop.pass_time(5000)
    asked = len(at.loop.delays_s)
    at.loop.pass_time(60_000)
    assert len(at.loop.delays_s) == asked


def test_under_pressure_copies_are_made_all_the_same(at: Stage) -> None:
    for number in range(20):
        at.governor.sample(at.clock.now_ms() + 100 * number, 0, 0.0, 1.0)
    assert at.governor.deferring
    at.configure("b", priority=-1000)
    at.route("a", "b")
    at.write("a")
    at.loop.pass_time(100)
    assert at.head("b") == 1


def test_a_source_that_cannot_be_read_is_tried_again_after_longer_and_longer_pauses(
    at: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    at.route("a", "b")
    at.route("c", "d")
    at.write("a", 6)
    block = make_unreadable(at.engine.topic("a").log, at.loop)
    for _ in range(60):
        at.loop.pass_time(1000)
        at.write("a")  # a write to the source asks for no fetch
        at.write("c")
    at.settle()
    assert (at.head("b"), at.head("d")) == (0, 60)
    assert block.fetches < 10
    dest = at.engine.find_topic("b")
    assert dest is not None
    stall = at.engine.router_stall(dest)
    assert stall is not None
    assert stall.reason == "the cold tier cannot be read"
    block.error = None
    at.loop.pass_time(limits.ROUTER_STALL_MS_MAX + limits.ROUTER_RETRY_MS_MAX)
    assert at.head("b") == 66
    assert at.engine.router_stall(dest) is None
    assert [entry.levelname for entry in caplog.records] == ["ERROR", "WARNING"]


def test_a_full_topic_has_one_timer_however_often_its_source_is_written_to(at: Stage) -> None:
    at.configure("b", cap_records=1, discard="reject")
    at.route("a", "b")
    for _ in range(500):
        at.write("a")
        at.loop.pass_time(10)
    asked = len(at.loop.delays_s)
    at.loop.pass_time(60_000)
    assert len(at.loop.delays_s) - asked < 3 * 60


def test_a_cap_that_reaches_into_a_tier_that_is_gone_does_not_ask_for_it_again_and_again(at: Stage) -> None:
    topic = at.configure("a", cap_records=6)
    at.write("a", 6)
    block = make_unreadable(topic.log, at.loop)
    at.write("a", 3)
    at.settle()
    assert block.fetches == 1
