"""List cursors: opaque, and refused when they are not ours."""

import base64

import pytest

from topics.api.cursor import decode_cursor, encode_cursor
from topics.errors import InvalidRequest


@pytest.mark.parametrize("name", ["a", "tenant42:jobs", "x" * 255])
def test_a_cursor_gives_back_the_name(name: str) -> None:
    assert decode_cursor(encode_cursor(name)) == name


def test_a_cursor_is_base64_as_documented() -> None:
    assert encode_cursor("jobs") == "eyJhZnRlciI6ImpvYnMifQ=="


def test_no_cursor_begins_at_the_start() -> None:
    assert decode_cursor("") == ""


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "!!!!",
        "ä",
        "eyJhZnRlciI6ImpvYnMifQ",  # padding cut off
        base64.b64encode(b"{").decode(),
        base64.b64encode(b"[]").decode(),
        base64.b64encode(b"{}").decode(),
        base64.b64encode(b'{"after":7}').decode(),
        base64.b64encode(b'{"after":"\xff"}').decode(),
        base64.b64encode(b"\xff\xff").decode(),
        base64.b64encode(b"[" * 5000).decode(),
    ],
)
def test_a_cursor_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_cursor(text)
    assert refused.value.detail == {"field": "cursor"}
