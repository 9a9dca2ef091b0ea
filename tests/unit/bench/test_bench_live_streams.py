"""The generator of live load reads streams the same however they are split, and counts only what it should."""

import asyncio
import itertools
from array import array
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.bench.clients import StreamReadClient
from topics.bench.errors import MalformedReply
from topics.bench.event_stream import EventStreamReader
from topics.bench.live_load import Deliveries, delivery_counts
from topics.bench.websocket_frames import Opcode, ServerFrames, render_frame
from topics.testing.fake_clock import FakeClock

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTS = [b"retry: 2000", b'id: e\nevent: record\ndata: {"t":1}', b": hb 1", b"event: caught-up\ndata: {}"]
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n"


def chunk(text: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(text), text)


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(at % (len(stream) + 1) for at in cuts)})
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@given(
    events=st.lists(st.sampled_from(EVENTS), max_size=6),
    chunk_bytes=st.integers(1, 60),
    cuts=st.lists(st.integers(0, 1000), max_size=10),
)
def test_events_come_out_whole_however_they_are_cut(events: list[bytes], chunk_bytes: int, cuts: list[int]) -> None:
    text = b"".join(event + b"\n\n" for event in events)
    chunks = [chunk(text[at : at + chunk_bytes]) for at in range(0, len(text), chunk_bytes)]
    reader = EventStreamReader()
    pieces = cut(HEAD + b"".join(chunks), cuts)
    assert [event for piece in pieces for event in reader.feed(piece)] == events


@pytest.mark.parametrize("data", [b"HTTP/1.1 404 Not Found\r\n\r\n", HEAD + b"not hex\r\n", b"x" * 100_000])
def test_what_is_no_event_stream_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedReply):
        EventStreamReader().feed(data)


@given(sizes=st.lists(st.sampled_from([0, 1, 125, 126, 65_535, 65_536]), max_size=4), cuts=st.lists(st.integers(0)))
def test_frames_come_out_whole_however_they_are_cut(sizes: list[int], cuts: list[int]) -> None:
    frames = ServerFrames()
    stream = SWITCHED + b"".join(server_frame(b"x" * size) for size in sizes)
    found = [frame for piece in cut(stream, cuts) for frame in frames.feed(piece)]
    assert found == [(Opcode.TEXT, b"x" * size) for size in sizes]
    assert frames.open


def server_frame(payload: bytes) -> bytes:
    """As a client sends it, but not masked."""
    masked = render_frame(payload)
    head_bytes = len(masked) - len(payload) - 4
    return bytes((masked[0], masked[1] & 0x7F)) + masked[2:head_bytes] + payload


def test_a_refused_handshake_is_told() -> None:
    with pytest.raises(MalformedReply, match="401"):
        ServerFrames().feed(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")


def test_only_what_was_sent_since_counting_began_is_counted() -> None:
    clock = FakeClock()
    deliveries = Deliveries(clock)
    early_ns = clock.monotonic_ns()
    deliveries.take(b'event: record\ndata: {"t":%d}' % early_ns)
    clock.advance(5)
    deliveries.begin()
    sent_ns = clock.monotonic_ns()
    clock.advance(2)
    deliveries.take(b'data: [{"t":%d},{"t":%d},{"t":%d}]' % (early_ns, sent_ns, sent_ns))
    assert list(deliveries.latencies_ns) == [2_000_000, 2_000_000]


def test_a_delivery_that_did_not_come_is_an_error() -> None:
    counts = delivery_counts(array("Q", [1_000_000]), sent=1, expected=3, elapsed_ns=1, problems=[])
    assert (counts.requests, counts.records, counts.errors) == (1, 1, 2)
    assert counts.first_error == "2 of 3 deliveries did not come"


def test_what_was_counted_before_is_forgotten_when_counting_begins_again() -> None:
    clock = FakeClock()
    deliveries = Deliveries(clock)
    deliveries.begin()
    deliveries.take(b'data: {"t":%d}' % clock.monotonic_ns())
    deliveries.begin()
    assert list(deliveries.latencies_ns) == []


def test_a_lost_connection_is_an_error_beside_the_deliveries_that_did_not_come() -> None:
    why = "connection lost: closed by the target"
    counts = delivery_counts(array("Q"), sent=1, expected=2, elapsed_ns=1, problems=[why])
    assert (counts.errors, counts.first_error) == (3, why)


class SentTo:
    """As much of a transport as a client needs."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def abort(self) -> None: ...


ENTRY = b"*2\r\n$3\r\n%b\r\n*2\r\n$4\r\ndata\r\n$7\r\n%b\r\n"


def entries(*entries: tuple[bytes, bytes]) -> bytes:
    """A reply to XREAD."""
    return b"*1\r\n*2\r\n$1\r\ns\r\n*%d\r\n" % len(entries) + b"".join(ENTRY % entry for entry in entries)


@given(cuts=st.lists(st.integers(0), max_size=10))
def test_a_blocked_reader_is_live_with_its_ping_and_goes_on_behind_each_reply(cuts: list[int]) -> None:
    taken: list[bytes] = []
    client, transport = StreamReadClient(b"s", taken.append), SentTo()
    client.connection_made(cast("asyncio.BaseTransport", transport))
    first = entries((b"1-0", b'{"t":1}'), (b"2-0", b'{"t":2}'))
    for piece in cut(b"+PONG\r\n" + first, cuts):
        client.data_received(piece)
    second = entries((b"3-0", b'{"t":3}'))
    for piece in cut(second, cuts):
        client.data_received(piece)
    assert taken == [b"caught-up", first, second]
    assert [sent.split(b"\r\n")[-2] for sent in transport.sent] == [b"$", b"2-0", b"3-0"]
    assert client.lost is None


def test_a_blocked_reader_that_is_refused_gives_up() -> None:
    client = StreamReadClient(b"s", lambda text: None)
    client.connection_made(cast("asyncio.BaseTransport", SentTo()))
    client.data_received(b"+PONG\r\n-WRONGTYPE not a stream\r\n")
    assert client.lost is not None
    assert "WRONGTYPE" in client.lost
