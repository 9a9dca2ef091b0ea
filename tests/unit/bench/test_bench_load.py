"""The load generator: one request out for each reply in, over a fake transport, and targets that take turns."""

import asyncio
from array import array

from topics.bench.closed_loop import Connection, Tally
from topics.bench.http1 import HttpReply
from topics.bench.load import TURN_S_MIN, Round, run
from topics.bench.plan import CirclePlan, LoadSettings, QueuePlan
from topics.bench.queue_workers import HttpDialect, Worker
from topics.bench.resp import RespReply
from topics.bench.samples import Counts
from topics.bench.targets import Target, TargetKind

REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
REFUSAL = b"HTTP/1.1 422 Unprocessable Content\r\ncontent-length: 2\r\n\r\n{}"


class RecordingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True


class SteppingClock:
    """Every look at it is one microsecond later."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ms(self) -> int:
        return 0

    def monotonic_ns(self) -> int:
        self.ns += 1000
        return self.ns


def connected(reply: HttpReply | RespReply) -> tuple[Connection, RecordingTransport]:
    connection = Connection([b"one", b"two"], reply, SteppingClock())
    transport = RecordingTransport()
    connection.connection_made(transport)
    return connection, transport


def test_each_reply_releases_the_next_request_of_the_circle() -> None:
    connection, transport = connected(HttpReply())
    tally = Tally(requests_max=100)
    connection.start(tally)
    for _ in range(3):
        connection.data_received(REPLY)
    assert transport.sent == [b"one", b"two", b"one", b"two"]
    assert list(tally.latencies_ns) == [1000, 1000, 1000]


def test_half_a_reply_releases_nothing() -> None:
    connection, transport = connected(HttpReply())
    connection.start(Tally(requests_max=100))
    connection.data_received(REPLY[:20])
    assert transport.sent == [b"one"]


def test_a_refusal_is_an_error_and_not_a_latency() -> None:
    connection, transport = connected(HttpReply())
    tally = Tally(requests_max=100)
    connection.start(tally)
    connection.data_received(REFUSAL)
    assert (len(tally.latencies_ns), tally.errors) == (0, 1)
    assert tally.first_error == "HTTP/1.1 422 Unprocessable Content {}"
    assert transport.sent == [b"one", b"two"]


def test_the_largest_count_ends_the_phase() -> None:
    connection, transport = connected(HttpReply())
    tally = Tally(requests_max=2)
    connection.start(tally)
    connection.data_received(REPLY)
    connection.data_received(REPLY)
    assert transport.sent == [b"one", b"two"]
    assert tally.wake.is_set()
    assert tally.outstanding == 0


def test_a_reply_after_the_end_is_not_counted_and_the_next_phase_goes_on_in_the_circle() -> None:
    connection, transport = connected(HttpReply())
    warm_up = Tally(requests_max=100)
    connection.start(warm_up)
    warm_up.stop()
    connection.data_received(REPLY)
    counted = Tally(requests_max=100)
    connection.start(counted)
    assert (len(warm_up.latencies_ns), warm_up.outstanding, counted.outstanding) == (0, 0, 1)
    assert transport.sent == [b"one", b"two"]


def test_a_lost_connection_is_an_error_and_stays_lost() -> None:
    connection, transport = connected(HttpReply())
    tally = Tally(requests_max=100)
    connection.start(tally)
    connection.connection_lost(None)
    connection.start(tally)
    assert tally.first_error == "connection lost: closed by the target"
    assert (tally.errors, tally.outstanding, transport.sent) == (1, 0, [b"one"])


def test_a_reply_that_cannot_be_followed_ends_its_connection_with_one_error() -> None:
    connection, transport = connected(RespReply(2))
    tally = Tally(requests_max=100)
    connection.start(tally)
    connection.data_received(b"-ERR unknown command\r\n")
    connection.connection_lost(None)
    assert (tally.errors, tally.first_error) == (1, "Redis answered ERR unknown command")
    assert transport.aborted


def working(*replies: bytes) -> tuple[Worker, Tally, RecordingTransport]:
    target = Target("topics", TargetKind.TOPICS, "127.0.0.1", 1)
    plan = QueuePlan(target=target, settings=LoadSettings(1, 1.0), topic="jobs", workers=1, jobs_per_claim=2)
    worker = Worker(HttpDialect(plan, 0), SteppingClock())
    transport = RecordingTransport()
    worker.connection_made(transport)
    tally = Tally(requests_max=100)
    worker.start(tally)
    for body in replies:
        worker.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    return worker, tally, transport


def test_a_worker_acks_what_it_claimed_and_times_its_claims_only() -> None:
    worker, tally, transport = working(b'{"claimed":[{"$seq":1},{"$seq":2}]}', b"{}")
    assert [request.rpartition(b"\r\n\r\n")[2] for request in transport.sent] == [
        b'{"node":"w0","max":2}',
        b'{"node":"w0","seqs":[1,2]}',
        b'{"node":"w0","max":2}',
    ]
    assert (worker.take_acked(), len(tally.latencies_ns), tally.outstanding) == (2, 1, 1)


def test_a_worker_rests_when_there_are_no_jobs() -> None:
    worker, tally, transport = working(b'{"claimed":[]}')
    assert (worker.take_acked(), len(tally.latencies_ns), tally.outstanding, len(transport.sent)) == (0, 1, 0, 1)
    assert tally.wake.is_set()
    assert tally.errors == 0


def test_a_worker_whose_claim_is_refused_is_an_error_and_rests() -> None:
    worker, tally, transport = working()
    worker.data_received(REFUSAL)
    assert (tally.errors, tally.outstanding, len(transport.sent)) == (1, 0, 1)
    assert tally.first_error == "HTTP/1.1 422 Unprocessable Content {}"


def test_what_is_acked_after_the_end_is_not_counted() -> None:
    worker, tally, transport = working(b'{"claimed":[{"$seq":1}]}')
    tally.stop()
    worker.data_received(REPLY)
    assert (worker.take_acked(), tally.outstanding, len(transport.sent)) == (0, 0, 2)


class FakeLoad:
    """Answers a hundred requests in a second, and notes when it was pressed and for how long."""

    clients: tuple[()] = ()

    def __init__(self, name: str, pressed: list[tuple[str, float]], latency_ns: int = 1000) -> None:
        self._latency_ns = latency_ns
        self._name = name
        self._pressed = pressed

    async def settle(self) -> None:
        self._pressed.append((self._name, 0.0))

    async def press(self, seconds: float, requests_max: int) -> Counts:
        self._pressed.append((self._name, round(seconds, 3)))
        count = min(round(seconds * 100), requests_max)
        return Counts(
            array("Q", [self._latency_ns] * count), count, count, round(seconds * 1e9), 1, f"error of {self._name}"
        )


def rounds_of(
    *names: str, settings: LoadSettings, latency_ns: int = 1000
) -> tuple[list[Round], list[tuple[str, float]]]:
    pressed: list[tuple[str, float]] = []
    target = Target("topics", TargetKind.TOPICS, "127.0.0.1", 1)
    plan = CirclePlan(target=target, settings=settings, scripts=[], lines_per_reply=0, records_per_request=1)
    return [Round(plan, FakeLoad(name, pressed, latency_ns)) for name in names], pressed


def test_two_targets_take_short_turns_and_nobody_is_always_first() -> None:
    rounds, pressed = rounds_of("a", "b", settings=LoadSettings(1, 3 * TURN_S_MIN, warm_up_s=0.5))
    samples = asyncio.run(run(rounds, 3 * TURN_S_MIN))
    assert pressed == [
        *[("a", 0.0), ("a", 0.5), ("b", 0.0), ("b", 0.5)],
        *[(name, TURN_S_MIN) for name in ("a", "b", "b", "a", "a", "b")],
    ]
    assert [(sample.requests, round(sample.elapsed_s, 3), len(sample.turns)) for sample in samples] == [
        (15, 0.15, 3)
    ] * 2
    assert [turn.requests for turn in samples[0].turns] == [5, 5, 5]


def test_a_target_alone_has_one_turn_and_the_errors_of_its_warm_up() -> None:
    rounds, pressed = rounds_of("a", settings=LoadSettings(1, 2.0))
    (sample,) = asyncio.run(run(rounds, 2.0))
    assert pressed == [("a", 0.0), ("a", 0.3), ("a", 2.0)]
    assert (sample.requests, sample.errors, sample.first_error) == (200, 2, "error of a")


def test_the_most_requests_of_a_round_are_those_of_all_its_turns() -> None:
    rounds, _ = rounds_of("a", "b", settings=LoadSettings(1, 0.5, requests_max=25))
    assert [sample.requests for sample in asyncio.run(run(rounds, 0.5))] == [25, 25]


def test_turns_are_long_where_requests_take_long() -> None:
    rounds, pressed = rounds_of("a", "b", settings=LoadSettings(1, 1.0), latency_ns=50_000_000)
    asyncio.run(run(rounds, 1.0))
    assert pressed[4:] == [("a", 0.5), ("b", 0.5), ("b", 0.5), ("a", 0.5)]
