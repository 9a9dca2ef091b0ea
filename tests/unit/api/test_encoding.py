"""Responses as bytes."""

import pytest

from topics.api.encoding import KEEP, KEEP_EXPLICIT, render
from topics.api.http import JSON, Response

SAME_TYPE_ELSEWHERE = bytes(bytearray(JSON))
"""Equal, and not the one that the short way looks for."""


@pytest.mark.parametrize("connection", [KEEP, KEEP_EXPLICIT])
@pytest.mark.parametrize("body", [b"", b'{"seq":7}'])
def test_a_plain_answer_is_rendered_as_any_other(body: bytes, connection: bytes) -> None:
    fields = b"date: now\r\n" + connection
    plain = render(Response(200, body), body, fields, head_only=False)
    assert plain == render(Response(200, body, SAME_TYPE_ELSEWHERE), body, fields, head_only=False)
    length = b"content-length: %d\r\n" % len(body)
    assert plain == b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + length + fields + b"\r\n" + body
