"""Bodies in gzip, in both directions: which are packed, and where that is done.

What is small is packed and unpacked at once, on the loop; what may take long goes to a thread. The limit on a body
counts what it unpacks to. Nothing here knows of sockets, or looks into a body.
"""

import asyncio
import zlib
from collections.abc import Coroutine
from typing import Any

from topics import limits
from topics.api.accept import quality
from topics.api.http import Application, Request, Response, Waiting
from topics.api.request_reader import payload_too_large
from topics.errors import InvalidRequest

# The header lines of a reply that could be packed, and of one that is.
VARY = b"vary: accept-encoding\r\n"
GZIPPED = b"vary: accept-encoding\r\ncontent-encoding: gzip\r\n"

_GZIP_CODINGS = frozenset((b"gzip", b"x-gzip"))

_GZIP_WBITS = 31
# One member's leftover is copied when the next begins, so members are fed a window at a time:
# millions of tiny members would otherwise copy the whole body once each.
_INFLATE_WINDOW_BYTES = 16 * limits.KIB


def handle_packed(
    application: Application, request: Request, bytes_max: int
) -> Response | Waiting | Coroutine[Any, Any, Response]:
    """Unpacks the body and calls the application; off the loop when unpacking may take long."""
    if len(request.body) > limits.GZIP_INLINE_BYTES_MAX:
        return _handle_packed_later(application, request, bytes_max)
    inline_bytes_max = min(bytes_max, limits.GZIP_UNPACKED_INLINE_BYTES_MAX)
    try:
        body = inflate(request.body, inline_bytes_max)
    except InvalidRequest as error:
        return application.refuse(error, request.request_id)
    if body is None and inline_bytes_max < bytes_max:
        return _handle_packed_later(application, request, bytes_max)
    return _handle_unpacked(application, request, body, bytes_max)


async def _handle_packed_later(application: Application, request: Request, bytes_max: int) -> Response:
    loop = asyncio.get_running_loop()
    try:
        body = await loop.run_in_executor(None, inflate, request.body, bytes_max)
    except InvalidRequest as error:
        return application.refuse(error, request.request_id)
    answer = _handle_unpacked(application, request, body, bytes_max)
    return answer if isinstance(answer, Response) else await answer


def _handle_unpacked(
    application: Application, request: Request, body: bytes | None, bytes_max: int
) -> Response | Waiting | Coroutine[Any, Any, Response]:
    if body is None:
        return application.refuse(payload_too_large(bytes_max), request.request_id)
    request.body = body
    return application.handle(request)


async def reply_body(request: Request, response: Response) -> tuple[bytes, bytes]:
    """A body large enough for gzip, packed if it is to be, and its header lines. May wait for a thread."""
    body = response.body
    if not packs_reply(request, response):
        return body, VARY
    if len(body) <= limits.GZIP_INLINE_BYTES_MAX:
        return deflate(body), GZIPPED
    return await asyncio.get_running_loop().run_in_executor(None, deflate, body), GZIPPED


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether an `Accept-Encoding` value allows gzip: by name, or else by `*`; `q=0` forbids."""
    by_star = False
    for offer in accept_encoding.lower().split(b","):
        coding, _, parameters = offer.partition(b";")
        coding = coding.strip()
        if coding in _GZIP_CODINGS:
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

    A bomb is detected after `bytes_max` + 1 bytes, whatever it claims to hold.
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
