"""Responses rendered as bytes.

Nothing here knows of sockets or tasks, looks into a body, or knows a route. Requests are read in
`request_reader`, bodies packed in `packing`.
"""

from http import HTTPStatus

from topics.api.http import JSON, Response
from topics.clock import http_date

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# The `connection` line of a response. HTTP/1.1 keeps alive without saying so.
KEEP = b""
KEEP_EXPLICIT = b"connection: keep-alive\r\n"
CLOSE = b"connection: close\r\n"

# A chunk is its length in hexadecimal, CRLF, that many bytes, CRLF. An empty one is the end of the body.
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNK_SIZE = b"%x\r\n"
CHUNK_END = b"\r\n"
CHUNK = CHUNK_SIZE + b"%b" + CHUNK_END
LAST_CHUNK = b"0\r\n\r\n"

_PREFIXES_MAX = 256
_prefixes: dict[tuple[int, bytes], bytes] = {}


def _reason(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b"Unknown"


def _head_prefix(status: int, content_type: bytes) -> bytes:
    """Everything up to the number in `content-length`. Rendered once for each status and content type."""
    prefix = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: " % (
        status,
        _reason(status),
        content_type,
    )
    if len(_prefixes) < _PREFIXES_MAX:
        _prefixes[status, content_type] = prefix
    return prefix


_JSON_PREFIX = _head_prefix(200, JSON)


def render(response: Response, body: bytes, fields: bytes, *, head_only: bool) -> bytes:
    """The whole response in one piece: once per request, from a head that was rendered once.

    `body` is what goes on the wire (packed or not), `fields` are finished header lines. A response to
    HEAD states the length of the body it leaves out.
    """
    status = response.status
    if status == 200 and response.content_type is JSON and not response.headers and not head_only:
        return b"%b%d\r\n%b\r\n%b" % (_JSON_PREFIX, len(body), fields, body)  # most are such
    if response.headers:
        fields += b"".join([b"%b: %b\r\n" % header for header in response.headers])
    if status in (204, 304):
        return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, _reason(status), fields)
    prefix = _prefixes.get((status, response.content_type)) or _head_prefix(status, response.content_type)
    return b"%b%d\r\n%b\r\n%b" % (prefix, len(body), fields, b"" if head_only else body)


def render_stream_head(response: Response, fields: bytes, *, chunked: bool) -> bytes:
    """The head of a body without a known length: it ends with the connection, or is `chunked`. `fields` are finished
    header lines."""
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\n%b%b%b\r\n" % (
        response.status,
        _reason(response.status),
        response.content_type,
        CHUNKED if chunked else b"",
        fields,
        b"".join([b"%b: %b\r\n" % header for header in response.headers]),
    )


def date_line(now_ms: int) -> bytes:
    return b"date: %b\r\n" % http_date(now_ms)
