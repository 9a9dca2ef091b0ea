"""What is refused while it is being read: size, number, shape and smuggling tricks."""

import sys
import tracemalloc

import pytest
from fake_transport import Client, refusal, reply

from topics import limits
from topics.errors import HeadersTooLarge, InvalidRequest, UriTooLong

HEADERS_REFUSED = refusal(b"431 Request Header Fields Too Large", HeadersTooLarge)


@pytest.mark.parametrize(
    "message",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\nHost: h\n\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nA: 1\nB: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nA: 1\rB: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\n A: 1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nA : 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nA: \x00\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET / HTTP/2.0\r\nConnection: keep-alive\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"CONNECT /x HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET http://h/ HTTP/1.1\r\nA: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    ],
)
def test_malformed_or_ambiguous_http_is_a_400_and_a_polite_close(message: bytes) -> None:
    client = Client()
    assert client.send(message) == refusal(b"400 Bad Request", InvalidRequest)
    assert client.transport.eof_written
    assert not client.transport.is_closing()
    assert client.application.requests == []


def test_the_first_of_a_repeated_header_counts() -> None:
    client = Client()
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2\r\n\r\n")
    assert client.application.requests[0].headers == {b"host": b"h", b"x-a": b"1"}


def test_white_space_around_a_value_and_an_empty_value_are_fine() -> None:
    client = Client()
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\nA: \t x y \t\r\nB:\r\nC: 1\r\n\r\n")
    assert client.application.requests[0].headers == {b"host": b"h", b"a": b"x y", b"b": b"", b"c": b"1"}


def test_a_target_of_the_limit_is_read_and_one_byte_more_is_refused() -> None:
    assert (
        Client()
        .send(b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"a" * (limits.URL_BYTES_MAX - 1)))
        .startswith(b"HTTP/1.1 200")
    )
    sent = Client().send(b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"a" * limits.URL_BYTES_MAX))
    assert sent.replace(b"Request-URI Too Long", b"URI Too Long") == refusal(b"414 URI Too Long", UriTooLong)


def test_an_endless_target_is_cut_off_at_the_limit() -> None:
    client = Client()
    fed = 0
    client.send(b"GET /")
    while not client.transport.sent:
        client.send(b"a" * 100)
        fed += 100
    assert fed <= limits.URL_BYTES_MAX + 100
    assert client.transport.sent.startswith(b"HTTP/1.1 414 ")


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: ", b"a" * 1000),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX", b"a" * 1000),
        (b"GET / HTTP/1.1\r\nHost: h\r\n", b"X: aaaaaaa\r\n" * 100),
        (b"GET ", b" " * 1000),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"a" * 1000),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a" * 1000),
    ],
    ids=["value", "name", "headers", "space", "trailer", "extension"],
)
def test_an_endless_head_is_cut_off_and_holds_no_more_memory_than_it_may(start: bytes, piece: bytes) -> None:
    client = Client()
    client.send(start)
    tracemalloc.start()
    try:
        fed = 0
        while not client.transport.sent:
            client.send(piece)
            fed += len(piece)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert client.transport.sent == HEADERS_REFUSED
    assert fed <= limits.HEADER_BYTES_MAX + limits.URL_BYTES_MAX + limits.PARSE_SLICE_BYTES + len(piece)
    assert peak_bytes < 10 * limits.HEADER_BYTES_MAX


def test_after_the_cut_off_an_endless_sender_costs_no_memory_and_is_aborted() -> None:
    client = Client()
    client.send(b"nonsense")
    piece = b"a" * limits.MIB
    held = sys.getrefcount(piece)
    for _ in range(limits.LINGER_BYTES_MAX // limits.MIB):
        client.send(piece)
    assert sys.getrefcount(piece) == held
    assert not client.transport.aborted
    client.send(b"a")
    assert client.transport.aborted


def test_headers_are_refused_only_beyond_the_limit() -> None:
    start = b"GET / HTTP/1.1\r\n"
    lines = b"Host: h\r\nX: "
    fits = lines + b"a" * (limits.HEADER_BYTES_MAX - len(lines) - 2) + b"\r\n"
    too_large = lines + b"a" * (limits.HEADER_BYTES_MAX - len(lines) - 1) + b"\r\n"
    assert Client().send(start + fits + b"\r\n") == reply(b"GET /? ")
    assert Client().send(start + too_large + b"\r\n") == HEADERS_REFUSED


@pytest.mark.parametrize("name", [b"x-%d", b"x-same%.0d"])
def test_one_header_too_many_is_refused_also_when_repeated(name: bytes) -> None:
    lines = [name % number + b": 1\r\n" for number in range(limits.HEADER_COUNT_MAX)]
    start = b"GET / HTTP/1.1\r\nHost: h\r\n"
    assert Client().send(start + b"".join(lines[:-1]) + b"\r\n") == reply(b"GET /? ")
    assert Client().send(start + b"".join(lines) + b"\r\n") == HEADERS_REFUSED


def test_a_head_after_a_large_body_in_the_same_read_is_not_taken_for_too_large() -> None:
    client = Client()
    body = b"x" * 100_000
    client.send(
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%bGET / HTTP/1.1\r\nHost: h\r\nA: "
        % (len(body), body),
        b"1\r\n\r\n",
    )
    assert len(client.application.requests) == 2


def test_http_1_0_needs_no_host() -> None:
    assert Client().send(b"GET / HTTP/1.0\r\n\r\n") == reply(b"GET /? ", b"connection: close\r\n")
    keeping = Client().send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert keeping == reply(b"GET /? ", b"connection: keep-alive\r\n")
