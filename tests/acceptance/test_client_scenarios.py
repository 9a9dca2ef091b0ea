"""Both clients through what networks and servers do: nothing is lost, nothing comes twice, and no loss is hidden.

Every scenario runs with either shell against a real server, most of them through a proxy that misbehaves.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from acceptance.client_shells import awaited, blocking, settled
from acceptance.faulty_proxy import FaultyProxy
from topics import testing
from topics.client.errors import LossMet, OutcomeUnknown, ProducerFailed, ServerUnreachable
from topics.client.events import CaughtUp, Event, Gap, TopicDeleted
from topics.client.working import Retry
from topics.clock import SystemClock
from topics.errors import TopicFull, TopicNotFound
from topics.testing import RunningServer

SHELLS = {"blocking": blocking, "asyncio": awaited}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with testing.server() as running:
        yield running


@pytest.fixture
def proxy(server: RunningServer) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(int(server.url.rpartition(":")[2]))
    yield proxy
    proxy.close()


class Stage:
    """A scenario's server, its proxy, its topic, and new clients over the proxy."""

    def __init__(self, shell: str, server: RunningServer, proxy: FaultyProxy, topic: str) -> None:
        self._new = SHELLS[shell]
        self.shell = shell
        self.server = server
        self.proxy = proxy
        self.topic = topic
        self._closing: list[Callable[[], Awaitable[None]]] = []

    def client(self, **options: Any) -> Any:
        client, close = self._new(self.proxy.url, **options)
        self._closing.append(close)
        return client

    async def close(self) -> None:
        for close in self._closing:
            await close()


class Account:
    """Holds what a reader gets against what a log is: every seq once, as an event or inside a told loss."""

    def __init__(self) -> None:
        self.next_seq = 1
        self.data: list[Any] = []
        self.lost: list[tuple[int, int, str]] = []

    def take(self, item: object) -> None:
        match item:
            case Event():
                assert item.seq == self.next_seq, f"{item} is not the next one, {self.next_seq}"
                self.data.append(item.data)
                self.next_seq += 1
            case Gap():
                assert item.first == self.next_seq, f"{item} does not begin at {self.next_seq}"
                self.lost.append((item.first, item.last, item.reason))
                self.next_seq = item.last + 1


async def read_until(reader: Any, last: Any) -> Account:
    account = Account()
    async for item in reader:
        account.take(item)
        if account.data and account.data[-1] == last:
            break
    return account


Scenario = Callable[[Stage], Awaitable[None]]


async def an_append_whose_answers_are_lost_is_written_once(stage: Stage) -> None:
    client = stage.client()
    await client.append(stage.topic, "first")
    stage.proxy.lose_answers(3)
    await client.append(stage.topic, "second")
    await client.append(stage.topic, "third")
    assert [event.data async for event in client.read(stage.topic)] == ["first", "second", "third"]


async def a_busy_server_is_waited_for(stage: Stage) -> None:
    client = stage.client()
    stage.proxy.refuse(429, 503, 429)
    assert (await client.append(stage.topic, 1)).first_seq == 1


async def a_slow_answer_is_given_up_and_the_append_is_written_once(stage: Stage) -> None:
    client = stage.client(timeout_s=0.3)
    await client.append(stage.topic, "first")
    stage.proxy.delay_one_answer(1.0)
    await client.append(stage.topic, "second")
    assert (await client.topic(stage.topic)).head_seq == 2


async def a_total_deadline_ends_the_waiting(stage: Stage) -> None:
    client = stage.client(deadline_s=0.2)
    stage.proxy.lose_answers(1000)
    with pytest.raises(ServerUnreachable):
        await client.append(stage.topic, 1)
    stage.proxy.lose_answers(0)


async def what_must_not_be_repeated_is_not(stage: Stage) -> None:
    client = stage.client()
    await client.append(stage.topic, 1, tag="a")
    stage.proxy.lose_answers(1)
    with pytest.raises(OutcomeUnknown, match="check before you repeat"):
        await client.delete(stage.topic, match="a")
    assert (await client.topic(stage.topic)).count == 0


async def a_reader_that_follows_gets_everything_over_cuts_and_restarts(stage: Stage) -> None:
    writer, reader = stage.client(), stage.client()
    await writer.create(stage.topic, durability="fsync")
    reading = asyncio.create_task(read_until(reader.read(stage.topic, follow=True), "end"))
    for number in range(30):
        await writer.append(stage.topic, number)
        match number:
            case 5 | 15 | 25:
                stage.proxy.cut()
            case 10:
                await asyncio.to_thread(stage.server.restart)
            case 20:
                stage.server.kill()
                await asyncio.to_thread(stage.server.start)
    await writer.append(stage.topic, "end")
    assert (await reading).data == [*range(30), "end"]


async def a_watch_gets_everything_over_cuts_and_restarts(stage: Stage) -> None:
    writer, watcher = stage.client(), stage.client()
    names = [f"{stage.topic}.{letter}" for letter in "abc"]
    for name in names:
        await writer.create(name, durability="fsync")
    accounts = {name: Account() for name in names}

    async def watch() -> None:
        async with watcher.watch(names) as items:
            async for item in items:
                accounts[item.topic].take(item)
                if all(account.data and account.data[-1] == "end" for account in accounts.values()):
                    return

    watching = asyncio.create_task(watch())
    for number in range(12):
        for name in names:
            await writer.append(name, number)
        if number in {3, 9}:
            stage.proxy.cut()
        if number == 6:
            await asyncio.to_thread(stage.server.restart)
    for name in names:
        await writer.append(name, "end")
    await watching
    assert [account.data for account in accounts.values()] == [[*range(12), "end"]] * 3


async def a_session_goes_on_over_cuts_and_restarts(stage: Stage) -> None:
    client = stage.client()
    await client.create(stage.topic, durability="fsync")
    account = Account()
    async with client.session() as session:
        await session.subscribe(stage.topic)
        for number in range(9):
            await session.publish(stage.topic, number)
            if number in {2, 5}:
                stage.proxy.cut()
            if number == 7:
                await asyncio.to_thread(stage.server.restart)
        async for item in session:
            account.take(item)
            if len(account.data) == 9:
                break
    assert account.data == [*range(9)]


async def a_loss_is_told_where_it_is_met(stage: Stage) -> None:
    client = stage.client()
    await client.create(stage.topic, cap_records=10)
    await client.append_many(stage.topic, range(25))
    account = Account()
    async for item in client.read(stage.topic):
        account.take(item)
    assert account.lost == [(1, 15, "cap")]
    assert account.data == [*range(15, 25)]
    assert [event.data async for event in client.read(stage.topic, losses="hide")] == account.data
    with pytest.raises(LossMet) as met:
        [event async for event in client.read(stage.topic, losses="raise")]
    assert met.value.detail["last"] == 15


async def another_topic_of_the_name_is_told_and_read_from_its_beginning(stage: Stage) -> None:
    client = stage.client()
    await client.append_many(stage.topic, range(3))
    items: list[object] = []
    async with client.read(stage.topic, follow=True, page_records=2) as reader:
        async for item in reader:
            items.append(item)
            if len(items) == 2:
                await client.delete_topic(stage.topic)
                await client.append_many(stage.topic, "abcde")
            if isinstance(item, Event) and item.data == "e":
                break
    told = [item.reason if isinstance(item, Gap) else item.data for item in items if isinstance(item, Gap | Event)]
    assert told == [0, 1, "recreated", *"abcde"]


async def a_watch_tells_of_another_topic_of_the_name(stage: Stage) -> None:
    client = stage.client()
    other = f"{stage.topic}.other"
    await client.append_many(stage.topic, range(3))
    await client.append(other, 1)
    told: list[object] = []
    async with client.watch({stage.topic: 0, other: 0}) as items:
        async for item in items:
            if item.topic == stage.topic:
                told.append(item.data if isinstance(item, Event) else item._replace(topic=""))
            if told == [0, 1, 2]:
                stage.server.kill()  # the session is forgotten with it
                await asyncio.to_thread(stage.server.start)
                second, close = SHELLS[stage.shell](stage.server.url)
                await second.delete_topic(stage.topic)
                await second.append_many(stage.topic, "abcde")
                await close()
            if told and told[-1] == "e":
                break
    assert told == [0, 1, 2, Gap(1, 5, "recreated"), *"abcde"]


async def a_deleted_topic_ends_its_reader_and_not_the_watch_of_others(stage: Stage) -> None:
    client = stage.client()
    other = f"{stage.topic}.other"
    for name in (stage.topic, other):
        await client.append(name, 1)
    seen: list[object] = []

    async def follow() -> None:
        async for _ in client.read(stage.topic, follow=True):
            await client.delete_topic(stage.topic)

    with pytest.raises(TopicNotFound):
        await follow()
    await client.append(stage.topic, 1)
    async with client.watch([stage.topic, other], caught_up=True) as items:
        async for item in items:
            seen.append(type(item))
            if seen.count(CaughtUp) == 2:
                await client.delete_topic(stage.topic)
            if seen.count(TopicDeleted) == 1:
                await client.append(other, "on")
            if isinstance(item, Event) and item.data == "on":
                break
    assert TopicDeleted in seen


async def a_named_cursor_is_where_the_next_reader_begins(stage: Stage) -> None:
    client = stage.client()
    await client.append_many(stage.topic, range(10))
    async with client.read(stage.topic, cursor="billing") as reader:
        async for event in reader:
            if event.data == 6:
                await reader.commit()
                break
    stage.proxy.cut()
    again = stage.client()
    assert [event.data async for event in again.read(stage.topic, cursor="billing")] == [7, 8, 9]


async def a_cancelled_reader_leaves_the_client_in_order(stage: Stage) -> None:
    client = stage.client()
    await client.append(stage.topic, "begin")

    async def follow() -> None:
        async for event in client.read(stage.topic, follow=True):
            if event.data == "end":
                return

    following = [asyncio.create_task(follow()) for _ in range(4)]
    appending = [asyncio.create_task(asyncio.wait_for(client.append(stage.topic, n), 10)) for n in range(20)]
    await asyncio.sleep(0)
    for task in following[:2] + appending[::4]:
        task.cancel()
    await asyncio.gather(*appending, return_exceptions=True)
    replies = [await client.append(stage.topic, "end") for _ in range(3)]
    assert [reply.count for reply in replies] == [1, 1, 1]
    await asyncio.gather(*following, return_exceptions=True)
    account = Account()
    async for item in client.read(stage.topic):
        account.take(item)
    assert len(account.data) == len({repr(data) for data in account.data if data != "end"}) + account.data.count("end")


class JumpingClock(SystemClock):
    """Wall time that jumps by a day each time somebody looks."""

    jumps = 0

    def now_ms(self) -> int:
        self.jumps += 1
        return super().now_ms() + (86_400_000 if self.jumps % 2 else -86_400_000)


async def a_wall_clock_that_jumps_changes_nothing(stage: Stage) -> None:
    client = stage.client(clock=JumpingClock(), deadline_s=5)
    stage.proxy.refuse(503, 429)
    async with client.producer(stage.topic, linger_s=0.001) as producer:
        for number in range(50):
            await producer.append(number)
        stage.proxy.cut()
        await producer.flush()
    assert [event.data async for event in client.read(stage.topic)] == [*range(50)]


async def a_producer_writes_exactly_once_over_kills_and_cuts(stage: Stage) -> None:
    client = stage.client()
    options: dict[str, Any] = {"config": {"durability": "fsync"}, "batch_records": 7, "linger_s": 0.001}
    deliveries = []
    async with client.producer(stage.topic, "source", **options) as producer:
        for number in range(200):
            deliveries.append(await producer.append(number, sequence=number))
            if number in {40, 120}:
                stage.proxy.lose_answers(2)
            if number in {80, 160}:
                stage.server.kill()
                await asyncio.to_thread(stage.server.start)
        await producer.flush()
        assert [await settled(delivery) for delivery in deliveries] == [*range(1, 201)]
    async with client.producer(stage.topic, "source", **options) as again:
        assert again.next_sequence == 200
    account = Account()
    async for item in client.read(stage.topic):
        account.take(item)
    assert (account.data, account.lost) == ([*range(200)], [])


async def what_a_crash_took_of_a_disk_topic_comes_as_a_gap(stage: Stage) -> None:
    client = stage.client()
    acknowledged: dict[int, int] = {}
    async with client.producer(stage.topic, config={"durability": "disk"}, batch_records=5, linger_s=0) as producer:
        for number in range(100):
            delivery = await producer.append(number)
            if number % 50 == 49:
                acknowledged[await settled(delivery)] = number
                stage.server.kill()
                await asyncio.to_thread(stage.server.start)
    account = Account()
    seen: dict[int, int] = {}
    async for item in client.read(stage.topic):
        account.take(item)
        if isinstance(item, Event):
            assert item.data not in seen.values(), "a record came twice"
            seen[item.seq] = item.data
    lost = {seq for first, last, _ in account.lost for seq in range(first, last + 1)}
    for seq, number in acknowledged.items():
        assert seen.get(seq) == number or seq in lost
    assert {reason for _, _, reason in account.lost} <= {"crash"}


async def a_producer_that_cannot_go_on_says_so(stage: Stage) -> None:
    client = stage.client()
    await client.create(stage.topic, cap_records=10, discard="reject")
    told: list[object] = []

    async def produce() -> None:
        async with client.producer(stage.topic, batch_records=4, linger_s=60) as producer:
            for number in range(40):
                await producer.append(number, callback=lambda seq, error: told.append(seq or type(error)))

    with pytest.raises(ProducerFailed) as failed:
        await produce()
    assert isinstance(failed.value.__cause__, TopicFull)
    assert told[:8] == [*range(1, 9)]
    assert set(told[8:]) == {ProducerFailed}


WORKER = """
import sys, threading
from topics import Client

client = Client(sys.argv[1])

@client.worker(sys.argv[2], concurrency=2, stop_s=20)
def work(job):
    sys.stdout.write(f"{job.data}\\n")  # in one piece: two jobs run at once
    sys.stdout.flush()
    threading.Event().wait(float(sys.argv[3]))

work.run()
"""


def start_worker(stage: Stage, takes_s: float) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-c", WORKER, stage.server.url, stage.topic, str(takes_s)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


async def a_job_of_a_killed_worker_is_delivered_once_more(stage: Stage) -> None:
    client = stage.client()
    await client.create(stage.topic, type="queue", lease_ms=400, max_deliveries=3, dead_letter=f"{stage.topic}.dead")
    await client.append(stage.topic, "job")
    killed = await asyncio.to_thread(start_worker, stage, 60.0)
    assert killed.stdout is not None
    assert await asyncio.to_thread(killed.stdout.readline) == "job\n"
    killed.kill()
    await asyncio.to_thread(killed.communicate)
    got: list[int] = []
    worker = await client.worker(stage.topic) if stage.shell == "blocking" else client.worker(stage.topic)

    def work(job: Any) -> None:
        got.append(job.deliveries)
        worker.stop()

    await (asyncio.to_thread(worker.run, work) if stage.shell == "blocking" else worker.run(work))
    assert got == [2]
    assert (await client.topic(stage.topic)).count == 0


async def a_worker_that_drains_ends_when_nothing_is_left(stage: Stage) -> None:
    client = stage.client()
    await client.create(stage.topic, type="queue")
    await client.append_many(stage.topic, ["a", "b", "c", "a delayed one"])
    made = client.worker(stage.topic, concurrency=2, drain=True)
    worker = await made if stage.shell == "blocking" else made

    def work(job: Any) -> None:
        if job.data == "a delayed one":
            raise Retry(after=3600)

    counts = await (asyncio.to_thread(worker.run, work) if stage.shell == "blocking" else worker.run(work))
    assert (counts.acked, counts.retried) == (3, 1)


async def a_worker_told_to_stop_finishes_its_jobs(stage: Stage) -> None:
    client = stage.client()
    await client.create(stage.topic, type="queue", lease_ms=300)
    await client.append_many(stage.topic, ["a", "b", "c"])
    worker = await asyncio.to_thread(start_worker, stage, 0.9)  # three leases long
    assert worker.stdout is not None
    assert {await asyncio.to_thread(worker.stdout.readline) for _ in "ab"} == {"a\n", "b\n"}
    worker.send_signal(signal.SIGTERM)
    await asyncio.to_thread(worker.communicate)
    assert worker.returncode == 0
    left = (await client.claim(stage.topic, node="w", max=3)).claimed
    assert [(bytes(job.data), job.deliveries) for job in left] == [(b'"c"', 1)]


SCENARIOS: list[Scenario] = [
    an_append_whose_answers_are_lost_is_written_once,
    a_busy_server_is_waited_for,
    a_slow_answer_is_given_up_and_the_append_is_written_once,
    a_total_deadline_ends_the_waiting,
    what_must_not_be_repeated_is_not,
    a_reader_that_follows_gets_everything_over_cuts_and_restarts,
    a_watch_gets_everything_over_cuts_and_restarts,
    a_session_goes_on_over_cuts_and_restarts,
    a_loss_is_told_where_it_is_met,
    another_topic_of_the_name_is_told_and_read_from_its_beginning,
    a_watch_tells_of_another_topic_of_the_name,
    a_deleted_topic_ends_its_reader_and_not_the_watch_of_others,
    a_named_cursor_is_where_the_next_reader_begins,
    a_cancelled_reader_leaves_the_client_in_order,
    a_wall_clock_that_jumps_changes_nothing,
    a_producer_writes_exactly_once_over_kills_and_cuts,
    what_a_crash_took_of_a_disk_topic_comes_as_a_gap,
    a_producer_that_cannot_go_on_says_so,
    a_job_of_a_killed_worker_is_delivered_once_more,
    a_worker_told_to_stop_finishes_its_jobs,
    a_worker_that_drains_ends_when_nothing_is_left,
]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Scenario, shell: str, server: RunningServer, proxy: FaultyProxy) -> None:
    async def play() -> None:
        stage = Stage(shell, server, proxy, f"{scenario.__name__}.{shell}")
        try:
            async with asyncio.timeout(60):
                await scenario(stage)
        finally:
            await stage.close()

    asyncio.run(play())
