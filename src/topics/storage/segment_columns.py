"""Reads a segment in bulk: the fields of many records as arrays, for a reader of millions.

Checks what `SegmentReader.slices` checks (lengths, seq, checksum of every record) and raises the same `CorruptFile`;
only the checksums cost a call a record, two thirds of the whole. Who wants nothing but seqs can do without them. Needs
numpy, so nothing of the server imports it.
"""

from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

from topics.storage.frame import LENGTH_BYTES
from topics.storage.segment_format import DELETED, FIXED_LENGTH, HEADER, HEADER_FIELDS, OVERHEAD_BYTES
from topics.storage.segment_reader import SegmentReader

_SUM = np.dtype("<u8")
_HEADER = np.dtype([(name, f"<{code}") for name, code in zip(HEADER_FIELDS, HEADER.format[1:], strict=True)])
assert _HEADER.itemsize == HEADER.size

Ints = NDArray[np.int64]


class FrameColumns(NamedTuple):
    """Consecutive records, deleted ones included. `node_at` and so on are offsets into `data`; a field ends where the
    next one begins, and the payload at `payload_end`."""

    data: memoryview
    seq: Ints
    ts: Ints
    flags: NDArray[np.uint8]
    node_at: Ints
    tag_at: Ints
    payload_at: Ints
    payload_end: Ints
    deleted: NDArray[np.bool_]


def read_columns(reader: SegmentReader, start: int, stop: int, *, with_sums: bool = True) -> FrameColumns:
    """The records at positions [start, stop), of which there has to be one at least. Not `with_sums`: only lengths and
    seqs are checked, so only `seq` and `deleted` are to be relied on."""
    found = _checked(reader.first_seq + start, *reader.frames(start, stop), with_sums)
    if found is None:
        # The index leads astray, or the data is damaged: then this raises.
        reader.index.rebuild()
        found = _checked(reader.first_seq + start, *reader.frames(start, stop), with_sums)
        assert found is not None, "every frame was found right"
    return found


def read_texts(reader: SegmentReader, start: int, stop: int) -> memoryview | None:
    """The records at positions [start, stop) as the server sends them, joined by commas: 256 of them have one checksum.
    None where the segment does not have them at hand, or one was dead when it was sealed."""
    text = reader.text
    if text is None:
        return None
    before = text.ends(start - 1, start)[0] if start else -1
    lengths = np.diff(np.array(text.ends(start, stop), np.int64), prepend=before) - 1
    return text.view(start, stop) if lengths.all() else None


def _checked(
    first_seq: int, data: memoryview, base: int, offsets: "array[int] | memoryview[int]", with_sums: bool
) -> FrameColumns | None:
    """None when anything is not as it should be."""
    at = np.array(offsets, np.int64) - base
    if at[0] != 0 or at.min() < 0 or at.max() > len(data) - OVERHEAD_BYTES:
        return None
    content = np.frombuffer(data, np.uint8)
    header = _at(data, at, _HEADER)
    length = header["frame_len"].astype(np.int64)
    node_at = at + HEADER.size
    tag_at = node_at + header["node_len"]
    payload_at = tag_at + header["tag_len"]
    payload_end = payload_at + header["data_len"]
    ends = at + LENGTH_BYTES + length
    seq = np.arange(first_seq, first_seq + len(at), dtype=np.int64)
    if (
        ends[-1] != len(data)
        or (ends[:-1] != at[1:]).any()
        or (payload_end - node_at + FIXED_LENGTH != length).any()
        or (header["seq"] != seq.astype(np.uint64)).any()
    ):
        return None
    if with_sums and not _has_right_sums(data, at + LENGTH_BYTES, payload_end):
        return None
    return FrameColumns(
        data=data,
        seq=seq,
        ts=header["ts"].astype(np.int64),
        flags=header["flags"],
        node_at=node_at,
        tag_at=tag_at,
        payload_at=payload_at,
        payload_end=payload_end,
        deleted=content[ends - 1] == DELETED,
    )


def _has_right_sums(data: memoryview, covered_at: Ints, covered_end: Ints) -> bool:
    """Hot: once per record."""
    covered = zip(covered_at.tolist(), covered_end.tolist(), strict=True)
    digests = b"".join([xxh3_64_digest(data[start:stop]) for start, stop in covered])
    return bool((np.frombuffer(digests, ">u8") == _at(data, covered_end, _SUM)).all())


def _at(data: memoryview, places: Ints, kind: np.dtype[Any]) -> NDArray[Any]:
    """The values that lie at these places, aligned or not. All of each has to be within `data`."""
    # As bare bytes: numpy copies a structure field by field.
    opaque = np.dtype((np.void, kind.itemsize))
    everywhere: NDArray[Any] = np.ndarray((len(data) - kind.itemsize + 1,), opaque, data, strides=(1,))
    return everywhere[places].view(kind)
