"""Who waits for jobs: claims inside a window, and streams that jobs are pushed to, over fake connections."""

import asyncio
import json
import re
from collections.abc import Coroutine
from typing import Any

import pytest

from doubles.fake_channel import FakeChannel
from doubles.live_stage import LiveStage
from doubles.manual_journal import ManualJournal
from doubles.unreadable_block import make_unreadable
from topics import limits
from topics.delivery.claim_desk import ClaimDesk, WorkStream
from topics.engine.journal import Journal
from topics.engine.queues import Claim, Claimer
from topics.engine.topic import Topic
from topics.errors import ShuttingDown, StorageFailed, Throttled, TopicNotFound


class Stage(LiveStage):
    def __init__(self, journal: Journal | None = None, **config: object) -> None:
        super().__init__(journal)
        self.queues = self.engine.queues
        self.desk = ClaimDesk(self.queues, self.hub, self.clock, self.loop.call_later)
        self.released = 0
        self.config = config

    def queue(self) -> Topic:
        return self.configure("t", type="queue", **self.config)

    def open(self, node: str = "w", count_max: int = 2, lease_ms: int = 1_000) -> tuple[WorkStream, FakeChannel]:
        claimer = Claimer(node, count_max, lease_ms, self.desk.new_connection())
        stream = WorkStream(self.desk, self.engine.topic("t"), claimer, self.clock, self.loop.call_later, self._release)
        channel = FakeChannel()
        stream.opened(channel)
        return stream, channel

    def frames(self, channel: FakeChannel) -> list[Any]:
        """What came since the last call: jobs as their seqs, errors as their codes, heartbeats as their text."""
        self.settle()
        return [_gist(frame) for frame in channel.take().decode().split("\n\n") if frame]

    def counts(self) -> tuple[int, ...]:
        return tuple(self.queues.counts(self.engine.topic("t")))

    def ack(self, *seqs: int, node: str = "w") -> list[int]:
        return self.queues.ack("t", node, seqs, None).seqs

    def _release(self) -> None:
        self.released += 1


def _gist(frame: str) -> Any:
    if frame.startswith("event: error"):
        return "error", json.loads(frame.partition("data: ")[2])["code"]
    found = re.fullmatch(r"id: (\d+)\nevent: job\ndata: (.*)", frame)
    if found is None:
        return frame
    data = json.loads(found[2])
    assert (data["topic"], data["$seq"]) == ("t", int(found[1]))
    return data["$seq"]


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.queue()
    return stage


# Streams


def test_a_stream_begins_with_its_retry_and_a_heartbeat(stage: Stage) -> None:
    _, channel = stage.open()
    assert stage.frames(channel) == ["retry: 2000", f": hb {stage.clock.now_ms()}"]


def test_a_job_frame_is_a_claimed_job_with_its_topic(stage: Stage) -> None:
    _, channel = stage.open()
    stage.settle()
    channel.take()
    stage.write(data={"a": 1})
    stage.settle()
    now_ms = stage.clock.now_ms()
    lease_id = f"lease_{now_ms << 12:x}00000001"
    assert channel.take().decode() == (
        f'id: 1\nevent: job\ndata: {{"topic":"t","$seq":1,"lease_id":"{lease_id}","deadline":{now_ms + 1000},'
        f'"deliveries":1,"$ts":{now_ms},"data":{{"a":1}}}}\n\n'
    )


def test_no_more_than_max_jobs_are_in_flight_and_acked_ones_are_replaced(stage: Stage) -> None:
    stage.write(count=5)
    _, channel = stage.open(count_max=2)
    assert stage.frames(channel)[2:] == [1, 2]
    assert stage.ack(1) == [1]
    assert stage.frames(channel) == [3]
    stage.queues.nack("t", "w", [2], None, 50_000)
    assert stage.frames(channel) == [4]


@pytest.mark.parametrize("count_max", [1, 2])
def test_a_job_whose_lease_ran_out_is_pushed_again(stage: Stage, count_max: int) -> None:
    stage.write()
    _, channel = stage.open(lease_ms=100, count_max=count_max)
    assert stage.frames(channel)[2:] == [1]
    stage.loop.pass_time(100)
    assert stage.frames(channel) == []
    stage.loop.pass_time(1)
    assert stage.frames(channel) == [1]


def test_a_delayed_job_is_pushed_when_it_is_due(stage: Stage) -> None:
    stage.write()
    _, channel = stage.open()
    stage.frames(channel)
    stage.queues.nack("t", "w", [1], None, 500)
    stage.loop.pass_time(499)
    assert stage.frames(channel) == []
    stage.loop.pass_time(1)
    assert stage.frames(channel) == [1]


def test_a_stream_that_ends_gives_its_jobs_to_the_next_one_at_once(stage: Stage) -> None:
    stage.write(count=2)
    first, _ = stage.open("a")
    stage.settle()
    _, channel = stage.open("b")
    assert stage.frames(channel)[2:] == []
    first.closed()
    assert stage.frames(channel) == [1, 2]


def test_a_stream_that_ends_leaves_what_its_node_claimed_otherwise(stage: Stage) -> None:
    stage.write(count=2)
    stage.queues.claim(stage.engine.topic("t"), (Claimer("w", 1),))
    stream, _ = stage.open("w")
    stage.settle()
    stream.closed()
    assert [lease.seq for lease in stage.queues.leases("t", 0, 9)[1]] == [1]


def test_the_slot_of_a_stream_is_given_back_once(stage: Stage) -> None:
    stream, channel = stage.open()
    stream.closed()
    stream.fail(500, "again")
    assert (stage.released, channel.closed) == (1, False)


def test_streams_share_what_there_is(stage: Stage) -> None:
    channels = [stage.open(f"w{number}", count_max=10)[1] for number in range(5)]
    for channel in channels:
        stage.frames(channel)
    stage.write(count=25)
    assert [len(stage.frames(channel)) for channel in channels] == [5] * 5


def test_a_worker_that_does_not_read_gets_nothing_more_until_it_does(stage: Stage) -> None:
    stream, channel = stage.open()
    stage.frames(channel)
    channel.writable = False
    stage.write()
    assert stage.frames(channel) == []
    channel.writable = True
    stream.drained()
    assert stage.frames(channel) == [1]


def test_a_worker_that_does_not_read_for_long_loses_its_stream_and_its_jobs(stage: Stage) -> None:
    stage.write(count=2)
    _, channel = stage.open(count_max=2, lease_ms=10_000_000)
    stage.frames(channel)
    channel.writable = False
    stage.ack(1)
    stage.write()
    stage.loop.pass_time(limits.SLOW_CONSUMER_TIMEOUT_MS + limits.STREAM_CHECK_MS)
    assert ("error", 408) in stage.frames(channel)
    assert stage.counts() == (2, 0, 0)


def test_heartbeats_come_when_nothing_else_does(stage: Stage) -> None:
    _, channel = stage.open()
    stage.frames(channel)
    stage.loop.pass_time(limits.HEARTBEAT_MS_DEFAULT)
    assert [frame[:4] for frame in stage.frames(channel)] == [": hb"]


def test_a_deleted_queue_ends_its_streams(stage: Stage) -> None:
    _, channel = stage.open()
    stage.frames(channel)
    stage.engine.delete_topic("t")
    stage.configure("t", type="log")
    assert stage.frames(channel) == [("error", 409)]
    assert channel.closed


def test_a_server_that_stops_tells_its_streams_and_releases_their_jobs(stage: Stage) -> None:
    stage.write()
    stream, channel = stage.open()
    stage.frames(channel)
    stream.end_with(ShuttingDown("the server is shutting down"))
    assert (stage.frames(channel), stage.counts()) == ([("error", 503)], (1, 0, 0))


def test_jobs_are_pushed_only_when_their_lease_is_durable() -> None:
    journal = ManualJournal()
    stage = Stage(journal, leases_durable=True)
    stage.queue()
    journal.sync()
    stage.write()
    journal.sync()
    _, channel = stage.open()
    assert stage.frames(channel)[2:] == []
    journal.sync()
    assert stage.frames(channel) == [1]


def test_a_lease_the_disk_did_not_take_ends_the_stream_and_pushes_nothing() -> None:
    journal = ManualJournal()
    stage = Stage(journal, leases_durable=True)
    stage.queue()
    journal.sync()
    stage.write()
    journal.sync()
    _, channel = stage.open()
    stage.settle()
    journal.sync(StorageFailed("the disk is gone"))
    assert stage.frames(channel)[2:] == [("error", 503)]
    assert stage.counts() == (1, 0, 0)


def test_a_disk_that_does_not_keep_up_makes_streams_wait() -> None:
    journal = ManualJournal()
    stage = Stage(journal)
    stage.queue()
    journal.sync()
    stage.write()
    journal.sync()
    journal.refusal = Throttled("slow", retry_after_s=1)
    _, channel = stage.open()
    assert stage.frames(channel)[2:] == []
    journal.refusal = None
    stage.loop.pass_time(1_000)
    assert stage.frames(channel) == [1]


def test_a_letter_that_cannot_be_moved_does_not_keep_the_server_busy() -> None:
    """Every try used to ask for the next one."""
    stage = Stage(max_deliveries=1, dead_letter="dead")
    stage.queue()
    stage.configure("dead", cap_records=1, discard="reject")
    stage.write("dead")
    stage.write()
    _, channel = stage.open(lease_ms=100)
    stage.loop.pass_time(101)
    stage.settle()
    calls = len(stage.loop.delays_s)
    stage.loop.pass_time(10 * limits.MOVE_RETRY_MS)
    assert len(stage.loop.delays_s) - calls < 60
    assert stage.frames(channel)[2:] == [1]


# Claims that wait for others


def run(stage: Stage, ms: int, *claims: Coroutine[Any, Any, Claim]) -> list[Any]:
    """Starts the claims, lets time pass, and gives what came of them: jobs as seqs."""

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(claim) for claim in claims]
        await asyncio.sleep(0)
        stage.loop.pass_time(ms)
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(asyncio.wait_for(main(), 5))
    return [[job.seq for job in each.jobs] if isinstance(each, Claim) else each for each in results]


def test_claims_inside_the_window_share_what_there_is() -> None:
    stage = Stage(claim_jitter_ms=20)
    topic = stage.queue()
    stage.write(count=50)
    results = run(stage, 20, *(stage.desk.claim(topic, Claimer(f"w{n}", 10)) for n in range(10)))
    assert [len(seqs) for seqs in results] == [5] * 10


def test_claims_and_streams_share_what_there_is() -> None:
    stage = Stage(claim_jitter_ms=20)
    topic = stage.queue()
    _, channel = stage.open(count_max=10)
    stage.frames(channel)
    stage.loop.pass_time(20)
    stage.write(count=10)
    (seqs,) = run(stage, 20, stage.desk.claim(topic, Claimer("poll", 10)))
    assert (len(seqs), len(stage.frames(channel))) == (5, 5)


def test_a_topic_deleted_inside_the_window_is_told() -> None:
    stage = Stage(claim_jitter_ms=20)
    topic = stage.queue()
    claim = stage.desk.claim(topic, Claimer("w", 1))
    stage.loop.call_later(0.01, lambda: stage.engine.delete_topic("t") and None)
    (error,) = run(stage, 20, claim)
    assert isinstance(error, TopicNotFound)


def test_a_server_that_stops_serves_those_who_wait() -> None:
    stage = Stage(claim_jitter_ms=5_000)
    topic = stage.queue()
    stage.write()
    stage.loop.call_later(0, stage.desk.release)
    assert run(stage, 0, stage.desk.claim(topic, Claimer("w", 1))) == [[1]]


def test_a_claim_whose_client_has_gone_takes_no_job() -> None:
    stage = Stage(claim_jitter_ms=20)
    topic = stage.queue()
    stage.write()

    async def main() -> None:
        task = asyncio.ensure_future(stage.desk.claim(topic, Claimer("w", 1)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        stage.loop.pass_time(20)

    asyncio.run(main())
    assert stage.counts() == (1, 0, 0)


def test_a_job_that_cannot_be_read_is_told_once_to_streams_and_claims() -> None:
    stage = Stage(claim_jitter_ms=10)
    topic = stage.queue()
    stage.write(count=6)
    block = make_unreadable(topic.log, stage.loop)
    _, channel = stage.open()

    async def story() -> None:
        claim = asyncio.ensure_future(stage.desk.claim(topic, Claimer("w", 1, 1000)))
        await asyncio.sleep(0)
        stage.loop.pass_time(10)
        with pytest.raises(StorageFailed):
            await claim

    asyncio.run(story())
    assert stage.frames(channel)[-1] == ("error", 503)
    assert (channel.closed, block.fetches) == (True, 1)
    block.error = None
    _, channel = stage.open()
    stage.loop.pass_time(10)
    assert stage.frames(channel)[-2:] == [1, 2]
