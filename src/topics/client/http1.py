"""HTTP/1.1 as bytes: a call becomes a request, and the bytes of a connection become answers. No sockets here.

llhttp, through httptools, is the only judge of what a response is.
"""

from collections.abc import Mapping
from typing import Any

import httptools

from topics import limits
from topics.client.core import JSON, Address, Answer, Call


class Malformed(Exception):
    """What the other side sent is not an HTTP response, or one beyond our bounds."""


class Requests:
    """Renders requests to one server. The head of a call is the same bytes every time: the server knows it again."""

    def __init__(self, address: Address, api_key: str | None) -> None:
        self._prefix = address.prefix
        self._fixed = f"host: {address.authority}\r\nuser-agent: topics-python\r\n"
        if api_key is not None:
            self._fixed += f"authorization: Bearer {api_key}\r\n"

    def render(self, call: Call[Any], headers: Mapping[str, str] | None = None) -> bytes:
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items()) if headers else ""
        head = f"{call.method} {self._prefix}{call.path} HTTP/1.1\r\n{self._fixed}accept: {call.accept}\r\n{more}"
        body = call.body
        if body is None:
            length = "content-length: 0\r\n" if call.method in {"POST", "PUT"} else ""
            return f"{head}{length}\r\n".encode("latin-1")
        return f"{head}content-type: {JSON}\r\ncontent-length: {len(body)}\r\n\r\n".encode("latin-1") + body


class ResponseReader:
    """One connection's incoming side, one response at a time."""

    __slots__ = (
        "_head_bytes",
        "_parser",
        "body",
        "buffered",
        "complete",
        "headers",
        "headers_complete",
        "keep_alive",
        "status",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.expect()

    def expect(self) -> None:
        """A request goes out: what comes now is its response."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.headers_complete = False
        self.body: list[bytes] = []
        self.complete = False
        self.keep_alive = False
        self.buffered = 0
        self._head_bytes = 0

    def feed(self, data: bytes) -> None:
        if self.complete:
            raise Malformed("it sent more than its answer")
        if not self.headers_complete:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise Malformed(f"it does not speak HTTP: {error}") from None
        if not self.headers_complete and self._head_bytes > limits.CLIENT_HEAD_BYTES_MAX:
            raise Malformed("the head of its answer is too long")
        if self.buffered > limits.CLIENT_REPLY_BYTES_MAX:
            raise Malformed("its answer is too long")

    def answer(self) -> Answer:
        body = self.body[0] if len(self.body) == 1 else b"".join(self.body)
        return Answer(self.status, self.headers, body)

    def take_body(self) -> bytes:
        """What has come of the body since last time."""
        taken = b"".join(self.body)
        self.body.clear()
        self.buffered = 0
        return taken

    # Called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.headers_complete = self.status >= 200

    def on_body(self, body: bytes) -> None:
        self.buffered += len(body)
        self.body.append(body)

    def on_message_complete(self) -> None:
        if self.headers_complete:  # else it was a 1xx, and the response is still to come
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()
