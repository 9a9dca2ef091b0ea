"""Opaque list cursors: base64 of a small JSON object. Clients pass them back and never look inside."""

import base64
import binascii

import msgspec
from msgspec import Struct

from topics.errors import InvalidRequest


class _Position(Struct):
    after: str


_decode = msgspec.json.Decoder(_Position).decode


def encode_cursor(after: str) -> str:
    return base64.b64encode(msgspec.json.encode(_Position(after))).decode()


def decode_cursor(text: str) -> str:
    """The name to go on after; empty for no cursor."""
    if not text:
        return ""
    try:
        return _decode(base64.b64decode(text, validate=True)).after
    except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        raise InvalidRequest.in_field("cursor", "is not one this server gave out") from None
