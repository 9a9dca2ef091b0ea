"""A head that is known is read as one that is not: the same requests, whatever came before and however it is split."""

import pytest
from fake_transport import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fuzz import FRAGMENTS, LAST_MESSAGES, MESSAGES, split

from topics import limits
from topics.api.head_table import HeadTable
from topics.api.http import Request

PLAIN = b"POST /p?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"
ODD = [
    PLAIN,
    PLAIN + PLAIN,
    PLAIN[:-1],
    b"\r\n" + PLAIN,
    b"\r\n\r\n" + PLAIN,
    b"GET /folded HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
    b"GET /twice HTTP/1.1\r\nHost: h\r\nX: a\r\nX: b\r\n\r\n",
    b"GET /bare HTTP/1.1\nHost: h\n\n",
    b"GET /bare HTTP/1.1\r\nHost: h\nX: y\r\n\r\n",
    b"GET /id HTTP/1.1\r\nHost: h\r\nX-Request-Id: mine\r\n\r\n",
    b"GET /key HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\n\r\n",
    b"GET /old HTTP/1.0\r\nHost: h\r\n\r\n",
]
# The header lines of `PLAIN` behind other request lines.
LINES = [
    b"POST /q HTTP/1.1",
    b"PUT /p?a=b&c=%20 HTTP/1.1",
    b"DELETE /v0/topics/a.b:c-d_e~ HTTP/1.1",
    b"GET /p? HTTP/1.1",
    b"GET //p?x?y HTTP/1.1",
    b"GET /p#fragment HTTP/1.1",
    b"GET /p?token=secret HTTP/1.1",
    b"GET http://h/p HTTP/1.1",
    b"GET * HTTP/1.1",
    b"GET  /p HTTP/1.1",
    b"GET /p  HTTP/1.1",
    b"GET /p q HTTP/1.1",
    b"GET /p\xc3\xa9 HTTP/1.1",
    b"GET /p\nX: y HTTP/1.1",
    b"GET /p HTTP/1.0",
    b"GET /p HTTP/2.0",
    b"get /p HTTP/1.1",
    b"CONNECT h:1 HTTP/1.1",
    b"HEAD /p HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"GET /p",
    b"",
]
JOINED = [line + PLAIN[PLAIN.index(b"\r\n") :] for line in LINES]


def seen(client: Client) -> list[tuple[object, ...]]:
    return [
        (each.method, each.path, each.query, each.headers, each.body, each.http_1_0)
        for each in client.application.requests
    ]


@settings(max_examples=300)
@given(
    messages=st.lists(st.sampled_from([*MESSAGES, *ODD, *JOINED, *LAST_MESSAGES, b"".join(FRAGMENTS[:5])]), max_size=6),
    cuts=st.lists(st.integers(0, 100_000), max_size=4),
)
def test_it_does_not_matter_whether_a_head_is_known(messages: list[bytes], cuts: list[int]) -> None:
    knowing = Client().connections
    for message in (*MESSAGES, *ODD, *messages):
        Client(connections=knowing).send(message)
    unknowing = Client().connections
    unknowing.heads = HeadTable(heads_max=0)
    warm, cold = Client(connections=knowing), Client(connections=unknowing)
    pieces = [*messages, *split(b"".join(messages), cuts)]
    for client in (warm, cold):
        for piece in pieces:
            if not client.transport.is_closing() and not client.transport.eof_written:
                client.send(piece)
    assert seen(warm) == seen(cold)
    assert (warm.transport.closed, warm.transport.eof_written) == (cold.transport.closed, cold.transport.eof_written)


def test_the_second_request_with_a_head_is_known() -> None:
    client = Client()
    client.send(PLAIN)
    client.send(PLAIN[:-2] + b"ho")
    assert list(client.connections.heads.known) == [PLAIN[:-2]]
    assert [request.body for request in client.application.requests] == [b"hi", b"ho"]
    assert [request.request_id for request in client.application.requests] == ["1-1", "1-2"]


@pytest.mark.parametrize("message", ODD[4:], ids=lambda message: message[:12].decode())
def test_a_head_with_a_credential_or_a_line_of_two_meanings_is_not_kept(message: bytes) -> None:
    client = Client()
    client.send(message)
    assert client.connections.heads.known.keys() <= {PLAIN[:-2]}


@pytest.mark.parametrize("message", JOINED, ids=lambda message: message[:12].decode("latin-1"))
def test_known_header_lines_mean_the_same_behind_another_request_line(message: bytes) -> None:
    knowing = Client()
    knowing.send(PLAIN)
    warm, cold = Client(connections=knowing.connections), Client()
    cold.connections.heads = HeadTable(heads_max=0)
    for client in (warm, cold):
        client.application.requests.clear()
        client.send(message)
    assert seen(warm) == seen(cold)
    assert warm.transport.sent.partition(b"\r\n")[0] == cold.transport.sent.partition(b"\r\n")[0]


def test_a_plain_request_line_before_known_header_lines_is_not_parsed() -> None:
    table = HeadTable()
    lines = b"\r\nHost: h\r\nContent-Length: 2\r\n\r\n"
    table.learn(b"GET /a HTTP/1.1" + lines, Request(b"GET", b"/a", b"", {b"host": b"h", b"content-length": b"2"}))
    joined = table.join(b"POST /b?x=1 HTTP/1.1" + lines)
    assert joined is not None
    assert (joined.method, joined.path, joined.query, joined.body_bytes) == (b"POST", b"/b", b"x=1", 2)
    assert table.known[b"POST /b?x=1 HTTP/1.1" + lines] is joined
    assert table.join(b"POST /b?token=x HTTP/1.1" + lines) is None
    assert table.join(b"POST /b HTTP/1.1\r\nHost: other\r\n\r\n") is None


def test_the_table_is_bounded() -> None:
    table = HeadTable(heads_max=2)
    for number in range(5):
        request = Request(b"GET", b"/%d" % number, b"", {b"host": b"h"})
        table.learn(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number, request)
    assert [known.path for known in table.known.values()] == [b"/3", b"/4"]
    for number in range(5, 9):
        assert table.join(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number) is not None
    assert [known.path for known in table.known.values()] == [b"/7", b"/8"]
    table.learn(b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"x" * limits.HEAD_REMEMBERED_BYTES_MAX), request)
    assert len(table.known) == 2
