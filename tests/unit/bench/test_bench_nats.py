"""NATS on the wire: what is sent for a record, and acks that are followed however they are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.bench.errors import MalformedReply
from topics.bench.nats_wire import INBOX, NatsReply, publish, reply_in

INFO = b'INFO {"server_id":"x","jetstream":true}\r\n'
ACK = b'{"stream":"s","seq":%d}'
REFUSAL = b'{"error":{"code":503,"description":"no suitable peers"}}'


def message(payload: bytes) -> bytes:
    return b"MSG %b 1 %d\r\n%b\r\n" % (INBOX, len(payload), payload)


def test_a_tag_travels_in_a_header_that_is_counted() -> None:
    assert publish(b"s", b"{}", reply_to=INBOX) == b"PUB s _INBOX.bench 2\r\n{}\r\n"
    tagged = publish(b"s", b"{}", reply_to=INBOX, tag=b"a")
    head, _, rest = tagged.partition(b"\r\n")
    header_bytes, total_bytes = map(int, head.split()[-2:])
    assert rest == b"NATS/1.0\r\nTag: a\r\n\r\n{}\r\n"
    assert (header_bytes, total_bytes) == (len(rest) - 4, len(rest) - 2)


@given(cuts=st.lists(st.integers(0, 300), max_size=8))
def test_a_request_is_complete_with_its_last_ack(cuts: list[int]) -> None:
    stream = INFO + b"PING\r\n" + b"".join(message(ACK % seq) for seq in (1, 2, 3))
    edges = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    reply = NatsReply(3)
    complete = [reply.feed(stream[start:end]) for start, end in itertools.pairwise(edges)]
    assert complete == [False] * (len(complete) - 1) + [True]
    assert reply.failure is None


def test_a_refusal_among_the_acks_is_told_and_forgotten_with_the_next_request() -> None:
    reply = NatsReply(2)
    assert reply.feed(message(REFUSAL) + message(ACK % 1))
    assert reply.failure == REFUSAL
    assert reply.feed(message(ACK % 2) + message(ACK % 3))
    assert reply.failure is None


@pytest.mark.parametrize("data", [b"-ERR 'Authorization Violation'\r\n", message(ACK % 1) * 2])
def test_what_cannot_be_followed_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedReply):
        NatsReply(1).feed(data)


def test_an_answer_is_found_behind_whatever_else_the_server_says() -> None:
    whole = INFO + b"PING\r\n" + message(b"{}")
    assert reply_in(whole) == b"{}"
    assert [reply_in(whole[:end]) for end in range(len(whole))] == [None] * len(whole)
