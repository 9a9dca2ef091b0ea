"""Requests and responses as values, between `protocol` (bytes and sockets) and `application` (meaning).

Neither side of this module knows the other: the protocol never looks into a body, the application
never sees a socket.
"""

from collections.abc import Coroutine
from typing import Any, Protocol

from topics.errors import TopicsError

JSON = b"application/json"


class Request:
    """One complete HTTP request. `headers` has lower-case names; of a repeated header the first counts."""

    __slots__ = ("body", "headers", "method", "path", "query", "received_ns", "request_id")

    def __init__(self, method: bytes, path: bytes, query: bytes, headers: dict[bytes, bytes]) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = b""
        self.received_ns = 0
        self.request_id = ""


class Response:
    """What to answer. Length, date, keep-alive and compression are the protocol's business."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes,
        content_type: bytes = JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers


class Application(Protocol):
    """What the protocol talks to. None of these may raise."""

    def admit(self, request: Request) -> Response | None:
        """Called with the headers alone, before a large body is read: a refusal, or None to read on."""
        ...

    def handle(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        """Answers at once, or with a coroutine when the answer has to wait."""
        ...

    def refuse(self, error: TopicsError, request_id: str) -> Response:
        """Renders an error the protocol found (malformed HTTP, a body or header too large)."""
        ...
