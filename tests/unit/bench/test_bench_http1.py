"""The reply machine of the load generator: any split of the bytes gives the same answer."""

import pytest

from topics.bench.errors import MalformedReply
from topics.bench.http1 import HEAD_BYTES_MAX, HttpReply, render_request

BODY = b'{"seqs":[1]}'
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n" + BODY
REFUSAL = b'HTTP/1.1 429 Too Many Requests\r\ncontent-length: 9\r\nretry-after: 1\r\n\r\n{"error"}'


def test_a_whole_reply_is_complete_at_once() -> None:
    reply = HttpReply()
    assert reply.feed(REPLY)
    assert reply.failure is None


@pytest.mark.parametrize("at", range(1, len(REPLY)))
def test_a_reply_split_in_two_is_complete_with_its_second_part(at: int) -> None:
    reply = HttpReply()
    assert not reply.feed(REPLY[:at])
    assert reply.feed(REPLY[at:])


@pytest.mark.parametrize("reply_bytes", [REPLY, REFUSAL])
def test_a_reply_in_single_bytes_is_complete_with_the_last(reply_bytes: bytes) -> None:
    reply = HttpReply()
    complete = [reply.feed(reply_bytes[at : at + 1]) for at in range(len(reply_bytes))]
    assert complete == [False] * (len(reply_bytes) - 1) + [True]


def test_one_machine_follows_reply_after_reply() -> None:
    reply = HttpReply()
    assert [reply.feed(REPLY) for _ in range(3)] == [True, True, True]


def test_a_reply_without_a_body_ends_with_its_head() -> None:
    assert HttpReply().feed(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.parametrize("at", [10, 60, len(REFUSAL) - 3, len(REFUSAL)])
def test_a_refusal_is_kept_with_its_status_and_body(at: int) -> None:
    reply = HttpReply()
    reply.feed(REFUSAL[:at])
    if at < len(REFUSAL):
        assert reply.feed(REFUSAL[at:])
    assert reply.failure == b'HTTP/1.1 429 Too Many Requests {"error"}'


def test_a_success_after_a_refusal_is_a_success() -> None:
    reply = HttpReply()
    assert reply.feed(REFUSAL)
    assert reply.feed(REPLY)
    assert reply.failure is None


@pytest.mark.parametrize(
    "wrong",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\ncontent-length: 0\r\n\r\n",
        REPLY + b"x",
    ],
)
def test_a_reply_that_cannot_be_followed_is_malformed(wrong: bytes) -> None:
    with pytest.raises(MalformedReply):
        HttpReply().feed(wrong)


def test_a_head_without_end_is_given_up() -> None:
    reply = HttpReply()
    assert not reply.feed(b"HTTP/1.1 200 OK\r\nx-header: ")
    with pytest.raises(MalformedReply):
        reply.feed(b"y" * HEAD_BYTES_MAX)


def test_a_request_says_its_length_and_type() -> None:
    assert render_request("POST", "/v0/topics/a", b"{}") == (
        b"POST /v0/topics/a HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )


def test_a_request_carries_the_key() -> None:
    assert b"\r\nAuthorization: Bearer secret\r\n" in render_request("GET", "/", b"", api_key="secret")
