"""Reads a segment in bulk: the fields of many records as arrays, for a reader of millions.

Checks what `SegmentReader.slices` checks (lengths, seq, checksum of every record) and raises the same `CorruptFile`;
only the checksums cost a call a record. Needs numpy, so nothing of the server imports it.
"""

from array import array
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

from topics.storage.frame import CHECKSUM_BYTES, LENGTH_BYTES
from topics.storage.segment_format import DELETED, FIXED_LENGTH, HEADER, HEADER_FIELDS, OVERHEAD_BYTES, TAIL_BYTES
from topics.storage.segment_reader import SegmentReader

_HEADER = np.dtype([(name, f"<{code}") for name, code in zip(HEADER_FIELDS, HEADER.format[1:], strict=True)])
assert _HEADER.itemsize == HEADER.size

Ints = NDArray[np.int64]


class FrameColumns(NamedTuple):
    """Consecutive records, deleted ones included. `node_at` and so on are offsets into `data`; a field ends where the
    next one begins, and the payload at `payload_end`."""

    data: bytes
    seq: Ints
    ts: Ints
    flags: NDArray[np.uint8]
    node_at: Ints
    tag_at: Ints
    payload_at: Ints
    payload_end: Ints
    deleted: NDArray[np.bool_]


def read_columns(reader: SegmentReader, start: int, stop: int) -> FrameColumns:
    """The records at positions [start, stop), of which there has to be one at least."""
    found = _checked(reader.first_seq + start, *reader.frames(start, stop))
    if found is None:
        # The index leads astray, or the data is damaged: then this raises.
        reader.index.rebuild()
        found = _checked(reader.first_seq + start, *reader.frames(start, stop))
        assert found is not None, "every frame was found right"
    return found


def _checked(first_seq: int, data: bytes, base: int, offsets: "array[int] | memoryview[int]") -> FrameColumns | None:
    """None when anything is not as it should be."""
    at = np.array(offsets, np.int64) - base
    if at[0] != 0 or at.min() < 0 or at.max() > len(data) - OVERHEAD_BYTES:
        return None
    content = np.frombuffer(data, np.uint8)
    header = sliding_window_view(content, HEADER.size)[at].view(_HEADER).ravel()
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
    stored = sliding_window_view(content, CHECKSUM_BYTES)[ends - TAIL_BYTES].tobytes()
    starts, stops = (at + LENGTH_BYTES).tolist(), payload_end.tolist()
    # Hot: once per record.
    digests = b"".join([xxh3_64_digest(data[start:stop]) for start, stop in zip(starts, stops, strict=True)])
    if (np.frombuffer(digests, ">u8") != np.frombuffer(stored, "<u8")).any():
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
