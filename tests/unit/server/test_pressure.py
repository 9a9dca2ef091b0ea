"""What the governor is fed, and that its ladder is followed."""

import asyncio

import pytest

from topics import limits
from topics.delivery.governor import Governor
from topics.delivery.hub import Hub
from topics.engine.journal import Commit
from topics.server.pressure import Pressure
from topics.server.vitals import LoopLag
from topics.storage.group_commit import CommitThread
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import SimulatedServer

SAMPLES = limits.DEFER_SAMPLES_MIN + 3


class Pressed:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = SimulatedServer(FakeDisk(), self.clock, wal_shards=2, lazy=True)
        self.server.start()
        self.governor = Governor()
        self.hub = Hub(self.clock, self.governor, lambda delay_s, call: None)
        self.loop_lag = LoopLag()
        self.under_test = Pressure(self.governor, self.hub, self.server.store, self.clock, self.loop_lag)

    @property
    def shards(self) -> list[CommitThread[Commit]]:
        return self.server.journal.shards

    def sample(self, latency_ms: float = 0.0, *, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(limits.PRESSURE_SAMPLE_INTERVAL_MS)
            self.under_test.sample(latency_ms)


@pytest.fixture
def at() -> Pressed:
    return Pressed()


def test_a_quiet_server_is_not_pressed(at: Pressed) -> None:
    at.sample(times=SAMPLES)
    assert at.governor.pressure == 0
    assert [shard.commit_window_ns for shard in at.shards] == [0, 0]
    assert not at.hub._ready.deferring


def test_a_late_loop_widens_commits_and_defers_pushes_until_it_is_over(at: Pressed) -> None:
    at.sample(limits.SCHEDULING_LATENCY_MS_MAX, times=SAMPLES)
    window_ns = int(at.governor.commit_window_ms * 1e6)
    assert window_ns > 0
    assert [shard.commit_window_ns for shard in at.shards] == [window_ns] * 2
    assert at.hub._ready.deferring
    at.sample(times=SAMPLES)
    assert [shard.commit_window_ns for shard in at.shards] == [0, 0]
    assert not at.hub._ready.deferring


def test_the_fullest_queue_to_the_disk_counts(at: Pressed) -> None:
    at.shards[1]._queue_writes_max = 2
    while at.shards[1].queue_depth < 2:
        at.shards[1].submit(b"", 0, False, None)
    at.sample(times=SAMPLES)
    assert at.server.store.wal_backlog_share == 1.0
    assert at.governor.pressure > limits.DEFER_PRESSURE_MIN


def test_topics_that_wait_to_be_served_count(at: Pressed) -> None:
    class Nobody:
        def serve(self, topic: object, shared: object) -> int:
            return 0

        def pace(self, topics: list[str], retry_after_ms: int) -> None: ...

    for number in range(limits.READY_DEPTH_MAX):
        topic = at.server.put(f"t{number}", {}).topic
        at.hub.watch(topic, Nobody())
        at.hub.changed(topic)
    at.sample(times=SAMPLES)
    assert at.governor.pressure > limits.DEFER_PRESSURE_MIN


def test_how_late_a_sample_comes_is_how_late_the_loop_is(at: Pressed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sleep is over late by what the clock says."""
    slept: list[float] = []
    late_ms = 4

    async def oversleep(delay_s: float) -> None:
        slept.append(delay_s)
        if len(slept) > SAMPLES:
            raise asyncio.CancelledError
        at.clock.advance(round(delay_s * 1000) + late_ms)

    monkeypatch.setattr(asyncio, "sleep", oversleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(at.under_test.run())
    assert slept == [limits.PRESSURE_SAMPLE_INTERVAL_MS / 1000] * (SAMPLES + 1)
    assert at.governor.pressure == pytest.approx(late_ms / limits.SCHEDULING_LATENCY_MS_MAX, rel=0.05)


@pytest.mark.parametrize(
    ("cpu_ms", "why"),
    [
        (100.0, "the machine was paused, overloaded, or waiting for its disk"),
        (15_900.0, "the server itself was busy"),
    ],
)
def test_a_loop_that_stood_still_is_told_with_what_it_did_meanwhile(
    at: Pressed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cpu_ms: float, why: str
) -> None:
    late_ms = iter([999, 16_000])
    computed_ms = 0.0

    async def oversleep(delay_s: float) -> None:
        nonlocal computed_ms
        late = next(late_ms, None)
        if late is None:
            raise asyncio.CancelledError
        computed_ms += cpu_ms
        at.clock.advance(round(delay_s * 1000) + late)

    monkeypatch.setattr(asyncio, "sleep", oversleep)
    monkeypatch.setattr("topics.server.pressure.thread_cpu_ms", lambda: computed_ms)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(at.under_test.run())
    (line,) = caplog.messages
    assert line.startswith(
        f"no request was answered for 16.0 s, and the server used the CPU for {cpu_ms / 1e3:.1f} s of it: {why}"
    )
