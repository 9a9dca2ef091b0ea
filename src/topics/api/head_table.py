"""Heads that were read before. A keep-alive client sends the same one with every request, so most are here.

A table from the exact bytes of a head to what llhttp, which stays the only judge, made of them. It keeps only heads
whose meaning depends on their bytes alone, and none with a credential in it. One for all connections of a server.

Clients that write to many topics send the same header lines behind ever new request lines. So the lines are kept by
themselves, too: behind a request line that has one meaning only, they mean what they meant before. A new head of that
kind costs 3 µs instead of 16.
"""

import re
from collections import OrderedDict
from typing import NamedTuple

from topics import limits
from topics.api.http import Request

# Fewer methods and characters than llhttp takes, and nothing it could read differently.
_PLAIN_LINE = re.compile(rb"(GET|POST|PUT|DELETE) (/[A-Za-z0-9._~:/-]*)(?:\?([A-Za-z0-9._~:/&=%+,-]*))? HTTP/1\.1")

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
    __slots__ = ("_heads_max", "_lines", "known")

    def __init__(self, heads_max: int = limits.HEADS_REMEMBERED_MAX) -> None:
        self._heads_max = heads_max
        # Ordered: a plain dictionary takes ever longer to find its first entry when first entries are often deleted.
        self.known: OrderedDict[bytes, KnownHead] = OrderedDict()
        self._lines: OrderedDict[bytes, KnownHead] = OrderedDict()  # the same, by what follows the request line

    def join(self, head: bytes) -> KnownHead | None:
        """What a new head means, if its header lines are known and its request line leaves no doubt."""
        line_end = head.find(b"\r\n")
        lines = self._lines.get(head[line_end + 2 :])
        if lines is None or line_end > limits.HEAD_REMEMBERED_BYTES_MAX:
            return None
        plain = _PLAIN_LINE.fullmatch(head, 0, line_end)
        if plain is None:
            return None
        method, path, query = plain.groups(b"")
        if b"token=" in query:
            return None
        known = KnownHead(method, path, query, lines.headers, lines.body_bytes)
        self._keep(self.known, head, known)
        return known

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
        known = KnownHead(request.method, request.path, request.query, headers, body_bytes)
        self._keep(self.known, head, known)
        self._keep(self._lines, head[head.index(b"\r\n") + 2 :], known)

    def _keep(self, table: OrderedDict[bytes, KnownHead], key: bytes, known: KnownHead) -> None:
        if len(table) >= self._heads_max:
            table.popitem(last=False)
        table[key] = known
