"""Packed bodies in both directions."""

import asyncio
import gzip
import random
import zlib

import pytest
from fake_transport import Client, reply

from topics import limits
from topics.api.http import Response
from topics.api.packing import accepts_gzip, deflate, inflate
from topics.errors import InvalidRequest


def post(body: bytes, coding: bytes = b"gzip") -> bytes:
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nContent-Encoding: %b\r\n\r\n" % (len(body), coding)
    return head + body


def get(accept_encoding: bytes) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: %b\r\n\r\n" % accept_encoding


@pytest.mark.parametrize("coding", [b"gzip", b"GZip", b"x-gzip"])
def test_a_packed_body_is_unpacked(coding: bytes) -> None:
    assert Client().send(post(gzip.compress(b"hello"), coding)) == reply(b"POST /p? hello")


def test_several_members_are_one_body() -> None:
    packed = b"".join(gzip.compress(part) for part in (b"one", b"", b"two" * 10_000, b"three"))
    client = Client()
    client.send(post(packed))
    assert client.application.requests[0].body == b"one" + b"two" * 10_000 + b"three"


def test_identity_is_no_coding() -> None:
    assert Client().send(post(b"hello", b"Identity")) == reply(b"POST /p? hello")


@pytest.mark.parametrize("coding", [b"br", b"deflate", b"gzip, gzip", b"zstd"])
def test_any_other_coding_is_a_415(coding: bytes) -> None:
    assert Client().send(post(b"x", coding)).startswith(b"HTTP/1.1 415 Unsupported Media Type\r\n")


@pytest.mark.parametrize(
    "packed",
    [
        b"not gzip at all",
        gzip.compress(b"hello" * 100)[:-1],
        gzip.compress(b"hello" * 100)[:20],
        gzip.compress(b"hello") + b"trailing",
        gzip.compress(b"hello")[:-8] + b"\0" * 8,
        zlib.compress(b"hello"),
    ],
)
def test_broken_gzip_is_a_400_and_the_connection_goes_on(packed: bytes) -> None:
    client = Client()
    sent = client.send(post(packed) + b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
    first = reply(b"InvalidRequest", b"x-request-id: 1-1\r\n", b"400 Bad Request")
    assert sent == first + reply(b"GET /a? ")


def test_the_limit_counts_what_gzip_unpacks() -> None:
    client = Client(body_bytes_max=1000)
    client.send(post(gzip.compress(b"x" * 1000)))
    assert len(client.application.requests[0].body) == 1000
    client.transport.writes.clear()
    client.send(post(gzip.compress(b"x" * 1001)))
    assert client.transport.sent.startswith(b"HTTP/1.1 413 ")
    assert len(client.application.requests) == 1


def test_a_bomb_is_not_unpacked_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    produced = 0
    real = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._real = real(wbits)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            nonlocal produced
            piece = self._real.decompress(data, max_length)
            produced += len(piece)
            return piece

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    assert inflate(gzip.compress(b"\0" * 50_000_000), 1_000_000) is None
    assert produced == 1_000_001


def test_a_body_of_countless_tiny_members_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        inflate(gzip.compress(b"") * (limits.GZIP_MEMBERS_MAX + 1), 1000)
    assert inflate(gzip.compress(b"") * limits.GZIP_MEMBERS_MAX, 1000) == b""


async def settled(client: Client, answers: int) -> bytes:
    """Waits, turn by turn, for work that was handed to a thread."""
    while client.transport.sent.count(b"HTTP/1.1 ") < answers:
        await asyncio.sleep(0)
    return client.transport.sent


def test_large_bodies_are_unpacked_off_the_loop_and_answers_stay_in_order() -> None:
    body = random.Random(1).randbytes(limits.GZIP_INLINE_BYTES_MAX * 2)

    async def scenario() -> None:
        client = Client()
        client.application.answer = lambda request: Response(200, b"%d" % len(request.body))
        assert client.send(post(gzip.compress(body, 1)) + b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n") == b""
        assert await settled(client, 2) == reply(b"%d" % len(body)) + reply(b"0")
        assert client.application.requests[0].body == body

    asyncio.run(scenario())


def test_small_bodies_that_unpack_to_much_are_unpacked_off_the_loop_too() -> None:
    async def scenario() -> None:
        client = Client(body_bytes_max=limits.GZIP_UNPACKED_INLINE_BYTES_MAX * 2)
        client.application.answer = lambda request: Response(200, b"%d" % len(request.body))
        size = limits.GZIP_UNPACKED_INLINE_BYTES_MAX + 1
        assert client.send(post(gzip.compress(b"x" * size))) == b""
        assert await settled(client, 1) == reply(b"%d" % size)
        client.send(post(gzip.compress(b"x" * (limits.GZIP_UNPACKED_INLINE_BYTES_MAX * 2 + 1))))
        assert b"HTTP/1.1 413 " in await settled(client, 2)

    asyncio.run(scenario())


def test_a_reply_is_packed_when_the_client_takes_it_and_it_is_worth_it() -> None:
    body = b"x" * limits.GZIP_REPLY_BYTES_MIN
    client = Client()
    client.application.answer = lambda _: Response(200, body)
    packed = deflate(body)
    assert gzip.decompress(packed) == body
    lines = b"vary: accept-encoding\r\ncontent-encoding: gzip\r\n"
    assert client.send(get(b"br, gzip;q=0.5")) == reply(packed, lines)


def test_a_reply_worth_packing_says_that_it_varies_even_when_sent_plain() -> None:
    body = b"x" * limits.GZIP_REPLY_BYTES_MIN
    client = Client()
    client.application.answer = lambda _: Response(200, body)
    assert client.send(get(b"br")) == reply(body, b"vary: accept-encoding\r\n")


def test_a_small_reply_is_never_packed() -> None:
    assert Client().send(get(b"gzip")) == reply(b"GET /? ")


def test_head_states_the_length_of_the_packed_body() -> None:
    body = b"x" * 5000
    client = Client()
    client.application.answer = lambda _: Response(200, body)
    packed = deflate(body)
    lines = b"vary: accept-encoding\r\ncontent-encoding: gzip\r\n"
    sent = client.send(b"HEAD / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n")
    assert sent == reply(packed, lines)[: -len(packed)]


def test_large_replies_are_packed_off_the_loop_and_answers_stay_in_order() -> None:
    body = b"x" * (limits.GZIP_INLINE_BYTES_MAX + 1)

    async def scenario() -> None:
        client = Client()
        client.application.answer = lambda request: Response(200, body if request.path == b"/" else b"small")
        assert client.send(get(b"gzip") + b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n") == b""
        lines = b"vary: accept-encoding\r\ncontent-encoding: gzip\r\n"
        assert await settled(client, 2) == reply(deflate(body), lines) + reply(b"small")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("accept_encoding", "allowed"),
    [
        (b"gzip", True),
        (b"GZIP", True),
        (b"deflate, gzip;q=1.0, *;q=0.5", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.0", False),
        (b"gzip ; q=0.001", True),
        (b"*", True),
        (b"*;q=0", False),
        (b"gzip;q=0, *", False),
        (b"*;q=0, gzip", True),
        (b"br, deflate", False),
        (b"", False),
        (b"gzip;q=many", False),
        (b";;,,=;q", False),
    ],
)
def test_accept_encoding_is_read_as_its_q_values_say(accept_encoding: bytes, allowed: bool) -> None:
    assert accepts_gzip(accept_encoding) is allowed
