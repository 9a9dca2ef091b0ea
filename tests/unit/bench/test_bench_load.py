"""A connection of the load generator over a fake transport: one request out for each reply in."""

import asyncio

from topics.bench.http1 import HttpReply
from topics.bench.load import Connection, Tally
from topics.bench.resp import RespReply

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
