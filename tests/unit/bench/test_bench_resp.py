"""RESP: commands as Redis reads them, replies followed by their lines."""

import pytest

from topics.bench.errors import MalformedReply
from topics.bench.resp import LINES_PER_BULK_STRING, RespReply, encode_command, lines_per_stream_entry

TWO_IDS = b"$3\r\n1-0\r\n$3\r\n1-1\r\n"
ENTRY = b"*2\r\n$3\r\n1-0\r\n*4\r\n$3\r\ntag\r\n$1\r\na\r\n$4\r\ndata\r\n$2\r\n{}\r\n"


def test_a_command_is_an_array_of_bulk_strings() -> None:
    assert encode_command(b"XADD", b"s", b"*") == b"*3\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n"


def test_a_stream_entry_has_the_lines_that_are_counted_for_it() -> None:
    assert ENTRY.count(b"\r\n") == lines_per_stream_entry(fields=2)


@pytest.mark.parametrize("at", range(1, len(TWO_IDS)))
def test_a_pipeline_is_complete_with_its_last_reply(at: int) -> None:
    reply = RespReply(2 * LINES_PER_BULK_STRING)
    assert not reply.feed(TWO_IDS[:at])
    assert reply.feed(TWO_IDS[at:])


def test_one_machine_follows_reply_after_reply() -> None:
    reply = RespReply(lines_per_stream_entry(fields=2))
    assert [reply.feed(ENTRY) for _ in range(3)] == [True, True, True]


@pytest.mark.parametrize("before", [b"", b"$3\r\n1-0\r\n"])
@pytest.mark.parametrize("at", range(1, 13))
def test_an_error_reply_is_found_across_any_split(before: bytes, at: int) -> None:
    data = before + b"-ERR no such thing\r\n"
    reply = RespReply(4)
    with pytest.raises(MalformedReply, match="Redis answered"):
        assert not any(reply.feed(part) for part in (data[:at], data[at:]))


def test_an_error_reply_is_quoted() -> None:
    with pytest.raises(MalformedReply, match=r"Redis answered ERR no such thing$"):
        RespReply(2).feed(b"-ERR no such thing\r\n")


def test_a_dash_within_a_payload_is_no_error() -> None:
    assert RespReply(2).feed(b"$3\r\n1-0\r\n")


def test_more_lines_than_expected_are_malformed() -> None:
    with pytest.raises(MalformedReply):
        RespReply(2).feed(TWO_IDS)
