"""Any bytes in any splitting: the same answers, and never an exception."""

import asyncio
import gzip
import itertools

from fake_transport import Client
from handing_over import OFFER, STREAM, Peer
from hypothesis import given, settings
from hypothesis import strategies as st

MESSAGES = [
    b"GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello world",
    b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;e=1\r\n0123\r\n0\r\nT: x\r\n\r\n",
    b"POST /e HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"POST /h HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nbody",
    b"GET http://h/abs?q HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"POST /z HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
    % (len(gzip.compress(b"packed", mtime=0)), gzip.compress(b"packed", mtime=0)),
    b"\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: h\r\nX-Request-Id: abc\r\n\r\n",
    b"POST /big HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000,
]
LAST_MESSAGES = [
    b"",
    b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nignored",
    b"GET /last HTTP/1.0\r\n\r\nGET /ignored HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00",
    b"nonsense / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\nabc",
]
FRAGMENTS = [
    b"GET ", b"POST ", b"/", b" HTTP/1.1", b"\r\n", b"\n", b"\r", b": ", b"Content-Length", b"Transfer-Encoding",
    b"chunked", b"gzip", b"5", b"0\r\n\r\n", b"Upgrade", b"Connection", b"h2c", b"websocket", b"Expect: 100-continue",
    b"Content-Encoding", b"Host", b"\x00", b"\xff", b"a" * 5000,
]  # fmt: skip


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@settings(max_examples=200, deadline=None)
@given(
    messages=st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=6),
    last=st.sampled_from(LAST_MESSAGES),
    cuts=st.lists(st.integers(0, 100_000), max_size=12),
)
def test_answers_do_not_depend_on_how_the_stream_is_split(messages: list[bytes], last: bytes, cuts: list[int]) -> None:
    stream = b"".join(messages) + last
    whole, pieces = Client(), Client()
    whole.send(stream)
    pieces.send(*split(stream, cuts))
    assert pieces.transport.sent == whole.transport.sent
    assert len(whole.application.requests) >= len(messages)
    assert pieces.transport.closed == whole.transport.closed
    assert pieces.transport.eof_written == whole.transport.eof_written


@settings(max_examples=100, deadline=None)
@given(
    messages=st.lists(st.sampled_from(MESSAGES), max_size=3),
    last=st.sampled_from([STREAM, OFFER]),
    tail=st.one_of(st.binary(max_size=40_000), st.lists(st.sampled_from(MESSAGES), max_size=3).map(b"".join)),
    cuts=st.lists(st.integers(0, 100_000), max_size=12),
)
def test_a_hand_over_does_not_depend_on_how_the_stream_is_split(
    messages: list[bytes], last: bytes, tail: bytes, cuts: list[int]
) -> None:
    async def scenario() -> None:
        stream = b"".join(messages) + last + tail
        whole, pieces = Peer(), Peer()
        whole.send(stream)
        pieces.send(*split(stream, cuts))
        assert pieces.transport.sent == whole.transport.sent
        assert pieces.owner.input == whole.owner.input == (tail if last is OFFER else b"")
        assert len(pieces.application.requests) == len(whole.application.requests) == len(messages) + 1
        for peer in (whole, pieces):
            peer.hang_up()
            assert peer.owner.calls[0] == "opened"
            assert peer.owner.calls.count("closed") == 1
            assert len(peer.connections) == 0

    asyncio.run(scenario())


@settings(max_examples=20, deadline=None)
@given(messages=st.lists(st.sampled_from(MESSAGES[:-1]), min_size=1, max_size=4))
def test_answers_are_the_same_byte_by_byte(messages: list[bytes]) -> None:
    stream = b"".join(messages)
    whole, pieces = Client(), Client()
    whole.send(stream)
    pieces.send(*[stream[at : at + 1] for at in range(len(stream))])
    assert pieces.transport.sent == whole.transport.sent


@settings(max_examples=200, deadline=None)
@given(
    stream=st.one_of(
        st.binary(max_size=2000),
        st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=20)), max_size=60).map(b"".join),
        st.tuples(st.sampled_from(MESSAGES), st.integers(0, 500), st.binary(max_size=10)).map(
            lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 1 :]
        ),
    ),
    cuts=st.lists(st.integers(0, 100_000), max_size=8),
)
def test_random_bytes_never_raise_and_never_leave_a_connection_without_a_deadline(
    stream: bytes, cuts: list[int]
) -> None:
    client = Client()
    client.send(*split(stream, cuts))
    client.sweep_after(1000)
    assert client.transport.aborted
    client.protocol.eof_received()
    client.protocol.connection_lost(None)
