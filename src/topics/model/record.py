"""Records: as a client sends them, and as the log keeps them.

The log keeps a record as its *fragment*, the JSON text a reader gets:

    {"$seq":7,"$ts":1748450001000,"$node":"eu-1","data":<data>,"meta":<meta>}

`data` and `meta` are the client's own bytes. The text is made once, when the record is written, and
serves every reader; the rarer renderings (with the tag, without meta) are cut from it. The order of
the keys is therefore part of this module's contract: `meta`, when present, comes last.
"""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

# What one record costs beyond its own bytes: the fixed part of a log frame.
RECORD_OVERHEAD_BYTES = 38

_encode = msgspec.json.encode


class NewRecord(Struct, gc=False):
    """One record of a write, as sent."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw | UnsetType = UNSET


def quote(text: str) -> bytes:
    """`text` as a JSON string."""
    return _encode(text)


def with_tag(fragment: bytes, tag: str) -> bytes:
    return b'%b,"$tag":%b}' % (fragment[:-1], _encode(tag))


def without_meta(fragment: bytes, meta_at: int) -> bytes:
    """`meta_at` is where `,"meta":` begins."""
    return fragment[:meta_at] + b"}"
