"""SSE ids: where a stream stands in all its topics, as one opaque text.

Up to 64 topics it is base64url of the JSON map topic -> seq and "$topic" -> epoch, which tells a topic from an earlier
one of its name; beyond, or where that is too long for a request head, "z." and base64url of that map compressed.
"""

import base64
import binascii
import zlib

import msgspec

from topics import limits

_COMPRESSED = "z."
_decode = msgspec.json.Decoder(dict[str, int]).decode


def encode_id(cursors: dict[str, int]) -> bytes:
    text = msgspec.json.encode(cursors)
    topic_count = sum(not name.startswith("$") for name in cursors)
    if topic_count <= limits.PLAIN_ID_TOPICS_MAX and len(text) <= limits.PLAIN_ID_BYTES_MAX:
        return base64.urlsafe_b64encode(text).rstrip(b"=")
    return _COMPRESSED.encode() + base64.urlsafe_b64encode(zlib.compress(text, 1)).rstrip(b"=")


def decode_id(text: str) -> dict[str, int] | None:
    """The cursors, or None if this is not one of our ids."""
    compressed = text.startswith(_COMPRESSED)
    encoded = text.removeprefix(_COMPRESSED) if compressed else text
    try:
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        if compressed:
            raw = zlib.decompressobj().decompress(raw, limits.ID_BYTES_MAX)
        cursors = _decode(raw)
    except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError, zlib.error):
        return None
    # Seqs and epochs are unsigned 64-bit integers: whoever goes on from one relies on it.
    return cursors if all(0 <= value <= limits.U64_MAX for value in cursors.values()) else None
