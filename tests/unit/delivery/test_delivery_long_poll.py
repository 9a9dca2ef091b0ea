"""The long poll: when it answers, with what, and that nothing is left behind.

Time is virtual: when nothing can run, the event loop's clock jumps to the next timer, and the engine's clock
with it.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from msgspec import Raw

from topics.delivery.governor import Governor
from topics.delivery.hub import Hub
from topics.delivery.long_poll import LongPolls
from topics.engine.block import Block
from topics.engine.engine import Engine, Write
from topics.engine.journal import Busy, Commit
from topics.engine.log_reading import ReadBatch
from topics.engine.topic import Topic
from topics.errors import StorageFailed, TopicNotFound
from topics.model.config import TopicConfigPatch
from topics.model.gap import Gap, GapReason
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock

OPTIONS = ReadOptions(limit=2, bytes_max=1 << 20)
OWN = OPTIONS._replace(own_nodes=frozenset({"me"}))
Result = TypeVar("Result")


class JumpingSelector(selectors.SelectSelector):
    """Never waits: the time it was asked to wait has passed when it returns."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everything waits, and nothing will ever happen"
        self._clock.advance(round(timeout * 1000))
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(JumpingSelector(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.monotonic_ns() / 1e9


class Polls:
    """An engine with one topic, and long polls on it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.engine = Engine(self.clock)
        self.hub = Hub(self.clock, Governor(), self.call_later)
        self.engine.state.on_change = self.hub.changed
        self.long_polls = LongPolls(self.engine, self.clock, self.hub)
        self.engine.put_topic("t", TopicConfigPatch())

    @staticmethod
    def call_later(delay_s: float, call: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_later(delay_s, call)

    @property
    def topic(self) -> Topic:
        return self.engine.topic("t")

    def write(self, *nodes: str | None, topic: str = "t") -> None:
        self.engine.append(topic, Write([NewRecord(Raw(b"0"), node=node) for node in nodes]))

    def poll(self, from_seq: int = 0, wait_ms: int = 1000, options: ReadOptions = OPTIONS) -> "asyncio.Task[ReadBatch]":
        return asyncio.ensure_future(self.long_polls.read(self.topic, from_seq, options, wait_ms))

    def run(self, story: Coroutine[Any, Any, Result]) -> Result:
        with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(self.clock)) as runner:
            return runner.run(story)


async def until_it_waits(*polls: "asyncio.Task[ReadBatch]") -> None:
    """Gives every task that can run its turns."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(poll.done() for poll in polls)


@pytest.fixture
def at() -> Polls:
    return Polls()


def test_what_is_there_is_answered_at_once(at: Polls) -> None:
    at.write(None)
    started_ms = at.clock.now_ms()

    async def story() -> ReadBatch:
        return await at.poll()

    assert at.run(story()).next_from_seq == 1
    assert at.clock.now_ms() == started_ms


def test_an_append_ends_the_wait(at: Polls) -> None:
    started_ms = at.clock.now_ms()

    async def story() -> ReadBatch:
        poll = at.poll()
        await until_it_waits(poll)
        at.write(None)
        return await poll

    batch = at.run(story())
    assert (len(batch.fragments), batch.next_from_seq) == (1, 1)
    assert at.clock.now_ms() == started_ms


def test_without_an_append_the_wait_ends_in_time_with_nothing(at: Polls) -> None:
    started_ms = at.clock.now_ms()

    async def story() -> ReadBatch:
        return await at.poll(wait_ms=700)

    assert at.run(story()) == ReadBatch([], 0, None, 0)
    assert at.clock.now_ms() - started_ms == 700


def test_all_who_wait_get_the_same_records(at: Polls) -> None:
    async def story() -> list[ReadBatch]:
        polls = [at.poll() for _ in range(3)]
        await until_it_waits(*polls)
        at.write(None, None)
        return await asyncio.gather(*polls)

    batches = at.run(story())
    assert [batch.next_from_seq for batch in batches] == [2, 2, 2]


def test_own_records_do_not_end_the_wait(at: Polls) -> None:
    async def story() -> ReadBatch:
        poll = at.poll(options=OWN)
        await until_it_waits(poll)
        at.write("me", "me", "me")
        await until_it_waits(poll)
        at.write("you")
        return await poll

    batch = at.run(story())
    assert (len(batch.fragments), batch.next_from_seq, batch.scanned) == (1, 4, 4)


def test_own_records_move_the_cursor_of_a_wait_that_finds_nothing(at: Polls) -> None:
    async def story() -> ReadBatch:
        poll = at.poll(options=OWN)
        await until_it_waits(poll)
        at.write("me", "me", "me")
        return await poll

    assert at.run(story())[:3] == ([], 3, None)


def test_own_records_do_not_make_the_wait_longer(at: Polls) -> None:
    started_ms = at.clock.now_ms()

    async def story() -> ReadBatch:
        poll = at.poll(options=OWN, wait_ms=100)
        await asyncio.sleep(0.06)
        at.write("me")
        return await poll

    at.run(story())
    assert at.clock.now_ms() - started_ms == 100


def test_many_own_records_are_passed_before_the_wait_begins(at: Polls) -> None:
    at.write(*["me"] * 7, "you")

    async def story() -> ReadBatch:
        return await at.poll(options=OWN)

    assert at.run(story()).next_from_seq == 8


def test_a_gap_is_answered_at_once(at: Polls) -> None:
    at.write(None, None)
    at.engine.put_topic("t", TopicConfigPatch(cap_records=1))
    at.engine.delete_records("t", 3, None)

    async def story() -> ReadBatch:
        return await at.poll()

    assert at.run(story())[:3] == ([], 2, Gap(1, 2, GapReason.CAP))


def test_deletes_are_passed_in_silence(at: Polls) -> None:
    at.engine.append("t", Write([NewRecord(Raw(b"0"), tag="x")]))
    at.engine.delete_records("t", None, TagMatch("x", is_prefix=False))

    async def story() -> ReadBatch:
        return await at.poll(wait_ms=10)

    assert at.run(story())[:3] == ([], 1, None)


def test_the_deletion_of_the_topic_ends_the_wait(at: Polls) -> None:
    async def story() -> None:
        poll = at.poll()
        await until_it_waits(poll)
        at.engine.delete_topic("t")
        with pytest.raises(TopicNotFound):
            await poll

    at.run(story())


def test_a_topic_that_follows_under_the_same_name_is_not_the_one_waited_for(at: Polls) -> None:
    async def story() -> None:
        poll = at.poll()
        await until_it_waits(poll)
        at.engine.delete_topic("t")
        at.write(None)
        with pytest.raises(TopicNotFound):
            await poll

    at.run(story())


def test_a_stopping_server_ends_every_wait_with_what_there_is(at: Polls) -> None:
    started_ms = at.clock.now_ms()

    async def story() -> list[ReadBatch]:
        polls = [at.poll(), at.poll()]
        await until_it_waits(*polls)
        at.long_polls.release()
        return await asyncio.gather(*polls)

    assert [batch.fragments for batch in at.run(story())] == [[], []]
    assert at.clock.now_ms() == started_ms


def test_a_stopping_server_lets_nobody_wait_any_more(at: Polls) -> None:
    started_ms = at.clock.now_ms()
    at.long_polls.release()

    async def story() -> ReadBatch:
        return await at.poll()

    assert at.run(story()).fragments == []
    assert at.clock.now_ms() == started_ms


@pytest.mark.parametrize("ending", ["answer", "timeout", "cancel"])
def test_a_wait_leaves_no_waiter_behind(at: Polls, ending: str) -> None:
    async def story() -> None:
        poll = at.poll(wait_ms=50)
        await until_it_waits(poll)
        match ending:
            case "answer":
                at.write(None)
                await poll
            case "timeout":
                await poll
            case _:
                poll.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await poll

    at.run(story())
    assert not at.hub._watchers
    assert not at.long_polls._waiting


class FetchedBlock(Block):
    """A block whose records have to be fetched before they can be read."""

    def __init__(self, first_seq: int) -> None:
        super().__init__(first_seq)
        self.fetch: Commit | None = Commit()

    def prepare(self, removing: Sequence[int] = ()) -> None:
        if self.fetch is not None:
            raise Busy(self.fetch)


@pytest.mark.parametrize("error", [None, StorageFailed("the cold tier cannot be read")])
def test_a_poll_waits_for_records_that_have_to_be_fetched(at: Polls, error: StorageFailed | None) -> None:
    block = FetchedBlock(1)
    at.topic.log.add_block(block)
    at.write(None)

    async def story() -> ReadBatch:
        poll = at.poll()
        await until_it_waits(poll)
        fetch, block.fetch = block.fetch, None
        assert fetch is not None
        fetch.resolve(error, 0)
        return await poll

    if error is None:
        assert at.run(story()).next_from_seq == 1
    else:
        with pytest.raises(StorageFailed):
            at.run(story())
    assert not at.hub._watchers


@pytest.mark.parametrize("to_seq", [3, 4, 5])
def test_a_poll_that_has_come_to_its_last_seq_does_not_wait(at: Polls, to_seq: int) -> None:
    """Own records up to there, others behind it: nothing that could come is for this reader."""
    at.write("me", "me", "me", "me", "me", None, None)
    started_ms = at.clock.now_ms()
    reads = 0
    read = at.engine.read

    def counting(name: str, from_seq: int, options: ReadOptions) -> tuple[Topic, ReadBatch]:
        nonlocal reads
        reads += 1
        return read(name, from_seq, options)

    at.engine.read = counting

    async def story() -> ReadBatch:
        return await at.poll(options=OWN._replace(to_seq=to_seq))

    batch = at.run(story())
    assert (batch.fragments, batch.next_from_seq) == ([], to_seq)
    assert at.clock.now_ms() == started_ms
    assert reads == 3 if to_seq == 5 else 2
