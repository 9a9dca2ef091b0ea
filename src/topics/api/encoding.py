"""What goes over the wire beside requests: responses rendered as bytes, and gzip in both directions.

Nothing here knows of sockets or tasks, looks into a body, or knows a route. Requests are read in
`request_reader`.
"""

import zlib
from email.utils import formatdate
from http import HTTPStatus

from topics import limits
from topics.api.accept import quality
from topics.api.http import Request, Response
from topics.errors import InvalidRequest

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# The `connection` line of a response. HTTP/1.1 keeps alive without saying so.
KEEP = b""
KEEP_EXPLICIT = b"connection: keep-alive\r\n"
CLOSE = b"connection: close\r\n"

# A chunk is its length in hexadecimal, CRLF, that many bytes, CRLF. An empty one is the end of the body.
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNK_SIZE = b"%x\r\n"
CHUNK_END = b"\r\n"
LAST_CHUNK = b"0\r\n\r\n"

VARY = b"vary: accept-encoding\r\n"
GZIPPED = b"vary: accept-encoding\r\ncontent-encoding: gzip\r\n"

_GZIP_CODINGS = frozenset((b"gzip", b"x-gzip"))

_GZIP_WBITS = 31
# One member's leftover is copied when the next begins, so members are fed a window at a time:
# millions of tiny members would otherwise copy the whole body once each.
_INFLATE_WINDOW_BYTES = 16 * limits.KIB

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


def render(response: Response, body: bytes, fields: bytes, *, head_only: bool) -> bytes:
    """The whole response in one piece. Hot.

    `body` is what goes on the wire (packed or not), `fields` are finished header lines. A response to
    HEAD states the length of the body it leaves out.
    """
    status = response.status
    if response.headers:
        fields += b"".join([b"%b: %b\r\n" % header for header in response.headers])
    if status in (204, 304):
        return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, _reason(status), fields)
    prefix = _prefixes.get((status, response.content_type)) or _head_prefix(status, response.content_type)
    return b"%b%d\r\n%b\r\n%b" % (prefix, len(body), fields, b"" if head_only else body)


def render_stream_head(response: Response, date_line: bytes, *, chunked: bool) -> bytes:
    """The head of a body without a known length: it ends with the connection, or is `chunked`."""
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\n%b%b%b\r\n" % (
        response.status,
        _reason(response.status),
        response.content_type,
        CHUNKED if chunked else b"",
        date_line,
        b"".join([b"%b: %b\r\n" % header for header in response.headers]),
    )


def date_line(now_ms: int) -> bytes:
    return b"date: %b\r\n" % formatdate(now_ms / 1000, usegmt=True).encode()


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether an `Accept-Encoding` value allows gzip: by name, or else by `*`; `q=0` forbids."""
    by_star = False
    for offer in accept_encoding.lower().split(b","):
        coding, _, parameters = offer.partition(b";")
        coding = coding.strip()
        if coding in (b"gzip", b"x-gzip"):
            return quality(parameters) > 0
        if coding == b"*":
            by_star = quality(parameters) > 0
    return by_star


def is_packed(request: Request) -> bool:
    """Whether the body is gzip. Any other coding was refused before the body was read."""
    return bool(request.body) and request.headers.get(b"content-encoding", b"").lower() in _GZIP_CODINGS


def packs_reply(request: Request, response: Response) -> bool:
    """Whether a body large enough for gzip is to be sent packed."""
    accept_encoding = request.headers.get(b"accept-encoding")
    if accept_encoding is None or not accepts_gzip(accept_encoding):
        return False
    return all(name != b"content-encoding" for name, _ in response.headers)


def deflate(body: bytes) -> bytes:
    """Level 1: most of the saving for a fraction of the time."""
    return zlib.compress(body, 1, wbits=_GZIP_WBITS)


def inflate(packed: bytes, bytes_max: int) -> bytes | None:
    """The body that one or more gzip members hold, or None when it is larger than `bytes_max`.

    A bomb is found out after `bytes_max` + 1 bytes, whatever it claims to hold.
    """
    source = memoryview(packed)
    unpacked: list[bytes] = []
    room = bytes_max + 1
    members = 1
    position = 0
    member = zlib.decompressobj(_GZIP_WBITS)
    pending: bytes | memoryview = b""
    try:
        while True:
            if not pending:
                if position == len(packed):
                    break
                pending = source[position : position + _INFLATE_WINDOW_BYTES]
                position += len(pending)
            if member.eof:
                members += 1
                if members > limits.GZIP_MEMBERS_MAX:
                    raise InvalidRequest("the gzip body has too many members")
                member = zlib.decompressobj(_GZIP_WBITS)
            piece = member.decompress(pending, room)
            unpacked.append(piece)
            room -= len(piece)
            if room == 0:
                return None
            # With room left, all input was taken up to the end of this member.
            pending = member.unused_data
    except zlib.error as error:
        raise InvalidRequest("the body is not valid gzip") from error
    if not member.eof:
        raise InvalidRequest("the gzip body ends too early")
    return b"".join(unpacked)
