"""Cold segments fetched off the loop: one fetch for all who wait, and a failed one is told to them."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from topics.engine.journal import Busy, Commit
from topics.errors import StorageFailed, TopicsError
from topics.server.cold_fetches import ColdFetches
from topics.storage import paths
from topics.storage.errors import CorruptFile
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_writer import encode_files, write_segment
from topics.storage.segments import Segments
from topics.testing.fake_disk import FakeDisk

TOPIC_ID = 7


class Cold:
    """Two segments on the cold tier."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        for first_seq in (1, 2):
            files = encode_files(first_seq, [(1000, None, None, b"0")])
            write_segment(self.disk, paths.topic_dir("/cold", TOPIC_ID), first_seq, files)
        self.segments = Segments(self.disk, "/hot", "/cold", 10, 1 << 20)

    def start(self) -> None:
        """Within a running loop."""
        self.segments.on_miss = ColdFetches(self.segments, asyncio.get_running_loop()).fetch

    def miss(self, first_seq: int = 1) -> Commit:
        with pytest.raises(Busy) as busy:
            self.segments.require_loaded(TOPIC_ID, first_seq)
        return busy.value.commit

    async def miss_later(self) -> Commit:
        """Asks until it is fetched again."""
        while True:
            try:
                self.segments.require_loaded(TOPIC_ID, 1)
            except Busy as busy:
                return busy.commit
            except TopicsError:
                await asyncio.sleep(0)

    def damage(self) -> None:
        file = self.disk.open_append(f"{paths.topic_dir('/cold', TOPIC_ID)}/{'seg-' + '1'.zfill(16)}.data")
        file.write_at(0, b"\xff\xff\xff\xff")


async def done(commit: Commit) -> TopicsError | None:
    finished = asyncio.Event()
    commit.when_done(lambda _: finished.set())
    await finished.wait()
    return commit.error


@pytest.fixture
def at() -> Cold:
    return Cold()


def test_a_fetched_segment_is_at_hand(at: Cold) -> None:
    async def story() -> None:
        at.start()
        assert await done(at.miss()) is None
        at.segments.require_loaded(TOPIC_ID, 1)

    asyncio.run(story())
    assert at.segments.is_loaded(TOPIC_ID, 1)


def test_who_comes_while_a_segment_is_fetched_waits_for_the_same_fetch(at: Cold) -> None:
    async def story() -> None:
        at.start()
        first, second, other = at.miss(1), at.miss(1), at.miss(2)
        assert first is second
        assert first is not other
        assert await done(first) is None
        assert await done(other) is None

    asyncio.run(story())


def test_a_fetch_runs_on_a_thread_of_its_own_and_is_told_on_the_loop(at: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    read = at.disk.read

    def noting_read(path: str) -> bytes:
        threads.append(threading.current_thread().name)
        return read(path)

    monkeypatch.setattr(at.disk, "read", noting_read)

    async def story() -> None:
        at.start()
        commit = at.miss()
        commit.when_done(lambda _: threads.append(threading.current_thread().name))
        await done(commit)

    asyncio.run(story())
    assert {name.partition("_")[0] for name in threads[:-1]} == {"cold"}
    assert threads[-1] == threading.current_thread().name


@pytest.mark.parametrize(
    ("fail", "error"),
    [(lambda at: at.disk.remove_tree("/cold"), StorageFailed), (Cold.damage, CorruptFile)],
    ids=["gone", "damaged"],
)
def test_a_fetch_that_failed_is_told_logged_and_tried_again(
    at: Cold,
    fail: Callable[[Cold], None],
    error: type[TopicsError],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail(at)

    async def story() -> None:
        at.start()
        first = at.miss()
        assert isinstance(await done(first), error)
        assert not at.segments.is_loaded(TOPIC_ID, 1)
        for _ in range(10):  # whoever comes soon after is told the same, and nothing is read for it
            with pytest.raises(error):
                at.segments.require_loaded(TOPIC_ID, 1)
        again = await at.miss_later()
        assert again is not first
        await done(again)

    monkeypatch.setattr("topics.limits.COLD_RETRY_S", 0.001)
    asyncio.run(story())
    assert len([entry for entry in caplog.records if entry.levelname == "ERROR"]) == 2


def test_a_bug_in_a_fetch_does_not_leave_its_waiters_waiting(at: Cold) -> None:
    def buggy() -> SegmentReader:
        raise ZeroDivisionError

    async def story() -> None:
        at.start()
        loop = asyncio.get_running_loop()
        unhandled: list[object] = []
        loop.set_exception_handler(lambda _, context: unhandled.append(context["exception"]))
        with pytest.raises(Busy) as busy:
            ColdFetches(at.segments, loop).fetch((TOPIC_ID, 1), buggy)
        async with asyncio.timeout(10):
            assert await done(busy.value.commit) is not None
        assert unhandled, "the loop reports it"

    asyncio.run(story())
