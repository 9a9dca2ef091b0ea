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


def seen(client: Client) -> list[tuple[object, ...]]:
    return [
        (each.method, each.path, each.query, each.headers, each.body, each.http_1_0)
        for each in client.application.requests
    ]


@settings(max_examples=300)
@given(
    messages=st.lists(st.sampled_from([*MESSAGES, *ODD, *LAST_MESSAGES, b"".join(FRAGMENTS[:5])]), max_size=6),
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


def test_the_table_is_bounded() -> None:
    table = HeadTable(heads_max=2)
    for number in range(5):
        request = Request(b"GET", b"/%d" % number, b"", {b"host": b"h"})
        table.learn(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number, request)
    assert [known.path for known in table.known.values()] == [b"/3", b"/4"]
    table.learn(b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"x" * limits.HEAD_REMEMBERED_BYTES_MAX), request)
    assert len(table.known) == 2
