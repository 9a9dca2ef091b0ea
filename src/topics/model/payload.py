"""The opaque blob of a record, in WAL frames and in segments alike.

    data                          JSON text
    data 00 meta                  and meta, JSON text
    data 00 [meta] 00 key         and the idempotency key it was written with; empty meta is no meta

JSON text never holds a NUL byte, so the first one ends `data` and the second one ends `meta`. The key is last
and runs to the end, so it may hold anything.
"""

from collections.abc import Iterable
from itertools import repeat

SEPARATOR = b"\x00"


def join_payload(data: bytes, meta: bytes | None, key: bytes | None) -> bytes:
    if key is not None:
        return b"%b\x00%b\x00%b" % (data, meta or b"", key)
    if meta is not None:
        return b"%b\x00%b" % (data, meta)
    return data


def split_payload(blob: bytes) -> tuple[bytes, bytes | None, bytes | None]:
    """`(data, meta, key)`. Hot: most records are data only, and then the blob itself is returned."""
    if SEPARATOR not in blob:
        return blob, None, None
    parts = blob.split(SEPARATOR, 2)
    return parts[0], parts[1] or None, parts[2] if len(parts) == 3 else None


def are_data_only(blobs: Iterable[bytes]) -> bool:
    """Whether none of them has meta or a key. Hot, 0.05 µs each."""
    return max(map(bytes.find, blobs, repeat(SEPARATOR)), default=-1) < 0
