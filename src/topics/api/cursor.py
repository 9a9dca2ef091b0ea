"""Lists page by page. Cursors are opaque: base64 of a small JSON object that clients pass back and never look into."""

import base64
import binascii

import msgspec
from msgspec import Struct

from topics import limits
from topics.api.query import Query
from topics.errors import InvalidRequest


class _Position(Struct):
    after: str


_SEQ_DIGITS_MAX = len(str(limits.U64_MAX))
_decode = msgspec.json.Decoder(_Position).decode


def encode_cursor(after: str) -> str:
    return base64.b64encode(msgspec.json.encode(_Position(after))).decode()


def decode_cursor(text: str) -> str:
    """The name to continue after; empty without a cursor."""
    if not text:
        return ""
    try:
        return _decode(base64.b64decode(text, validate=True)).after
    except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
        raise _foreign() from None


def page_asked_for(
    query: Query, default: int = limits.PAGE_SIZE_DEFAULT, maximum: int = limits.PAGE_SIZE_MAX
) -> tuple[str, int]:
    """The name to continue after, and the page size."""
    page_size = query.number("page_size", default, maximum)
    return decode_cursor(query.text("cursor")), page_size


def page_of_seqs_asked_for(query: Query) -> tuple[int, int]:
    """The seq to continue after, and the page size."""
    after, page_size = page_asked_for(query)
    if not after:
        return 0, page_size
    if not (after.isascii() and after.isdigit() and len(after) <= _SEQ_DIGITS_MAX and int(after) <= limits.U64_MAX):
        raise _foreign()
    return int(after), page_size


def _foreign() -> InvalidRequest:
    return InvalidRequest.in_field("cursor", "is not one this server gave out")
