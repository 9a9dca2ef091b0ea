"""Heads that were read before. A keep-alive client sends the same one with every request, so most are here.

A table from the exact bytes of a head to what llhttp, which stays the only judge, made of them. It keeps only heads
whose meaning depends on their bytes alone, and none with a credential in it. One for all connections of a server.
"""

from typing import NamedTuple

from topics import limits
from topics.api.http import Request

_NOT_REMEMBERED = frozenset(
    (
        b"authorization",
        b"cookie",
        b"proxy-authorization",
        b"expect",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
    )
)


class KnownHead(NamedTuple):
    """`headers` is shared by all requests with this head: nobody may change it."""

    method: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    body_bytes: int


class HeadTable:
    __slots__ = ("_heads_max", "known")

    def __init__(self, heads_max: int = limits.HEADS_REMEMBERED_MAX) -> None:
        self._heads_max = heads_max
        self.known: dict[bytes, KnownHead] = {}

    def learn(self, head: bytes, request: Request) -> None:
        """Keeps the head of a request that was read and accepted, and after which the connection stays as it is."""
        headers = request.headers
        if (
            len(head) > limits.HEAD_REMEMBERED_BYTES_MAX
            or not self._heads_max
            or not _NOT_REMEMBERED.isdisjoint(headers)
            or b"token=" in request.query
            or request.http_1_0
            or request.offers_upgrade
        ):
            return
        # What llhttp is lenient about (an empty line first, a bare line feed, a folded or repeated header) could end a
        # head elsewhere than these bytes do. In one that is known, every line is one header.
        lines = head.count(b"\r\n")
        if (
            lines != len(headers) + 2
            or head.count(b"\n") != lines
            or head.count(b"\r") != lines
            or not head.startswith(request.method + b" ")
        ):
            return
        body_bytes = int(headers.get(b"content-length", b"0"))
        if body_bytes > limits.EARLY_ADMISSION_BODY_BYTES_MIN:
            return  # looked at before its body is read
        if len(self.known) >= self._heads_max:
            del self.known[next(iter(self.known))]
        self.known[head] = KnownHead(request.method, request.path, request.query, headers, body_bytes)
