"""Records: as a client sends them, and as the log keeps them.

The log keeps a record as its *fragment*, the JSON text a reader gets:

    {"$seq":7,"$ts":1748450001000,"$node":"eu-1","data":<data>,"meta":<meta>}

`data` and `meta` are the client's own bytes. The text is made once, when the record is written, and
serves every reader; the rarer renderings (with the tag, without meta) are cut from it. The order of
the keys is therefore part of this module's contract: `meta`, when present, comes last.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from topics import limits
from topics.model.payload import join_payload, split_payload

# What one record costs beyond its own bytes: the fixed part of a log frame.
RECORD_OVERHEAD_BYTES = 38

_encode = msgspec.json.encode

Delay = Annotated[
    int,
    Meta(
        ge=0,
        le=limits.JOB_DELAY_MS_MAX,
        description="Extension. A job of a queue cannot be claimed before this many milliseconds have passed.",
    ),
]


class NewRecord(Struct, gc=False, forbid_unknown_fields=True):
    """One record of a write, as sent."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw | UnsetType = UNSET
    delay_ms: Delay = 0


class Batch(Struct, gc=False):
    """Records of one write, or of several in a row, in columns. All lists have the same length.

    `payloads`: what the disk keeps of each; empty for copies, which no log has.
    `has_delays`: some are jobs that are not to be claimed yet.
    """

    fragments: list[bytes]
    sizes: list[int]
    nodes: list[str | None]
    tags: list[str | None]
    meta_at: list[int]
    total_bytes: int
    payloads: Sequence[bytes | Raw] = ()
    has_delays: bool = False

    def part(self, start: int, stop: int) -> "Batch":
        sizes = self.sizes[start:stop]
        return Batch(
            self.fragments[start:stop],
            sizes,
            self.nodes[start:stop],
            self.tags[start:stop],
            self.meta_at[start:stop],
            sum(sizes),
            self.payloads[start:stop],
        )


class Columns(NamedTuple):
    """Consecutive records of a log, a dead one without fragment."""

    fragments: Sequence[bytes | None]
    timestamps: Sequence[int]
    meta_at: Sequence[int]
    nodes: Sequence[str | None]
    tags: Sequence[str | None]


class Joined(NamedTuple):
    """Texts with commas between neighbours, of how many records, and their bytes without the commas."""

    texts: list[bytes]
    record_count: int
    size: int


class _Origin(Struct, gc=False):
    node: str | None = field(name="$node", default=None)


_decode_origin = msgspec.json.Decoder(_Origin).decode


def render_fragment(seq: int, ts: int, node: str | None, data: bytes | Raw, meta: bytes) -> tuple[bytes, int]:
    """The fragment, and where its `,"meta":` begins (0 without meta). Hot: once per record written."""
    if not meta:
        return plain_fragment(seq, ts, node, data), 0
    head = plain_fragment(seq, ts, node, b"")[:-1]
    return b"".join((head, data, b',"meta":', meta, b"}")), len(head) + len(data)


def plain_fragment(seq: int, ts: int, node: str | None, data: bytes | Raw) -> bytes:
    """The fragment of a record without meta: what most single writes are."""
    if node is None:
        return b'{"$seq":%d,"$ts":%d,"data":%b}' % (seq, ts, data)
    return b'{"$seq":%d,"$ts":%d,"$node":%b,"data":%b}' % (seq, ts, _encode(node), data)


def plain_fragments(
    first_seq: int, timestamps: Sequence[int], nodes: Sequence[str | None], data: Sequence[bytes | Raw]
) -> list[bytes]:
    """`plain_fragment` of records in a row. Hot, once per record of a batch or at a start: 0.12 to 0.15 µs each where
    none has a node."""
    seqs = range(first_seq, first_seq + len(data))
    if nodes.count(None) < len(nodes):
        return list(map(plain_fragment, seqs, timestamps, nodes, data))
    if data and timestamps[0] == timestamps[-1] and timestamps.count(timestamps[0]) == len(timestamps):
        of_this_ts = b'{"$seq":%%d,"$ts":%d,"data":%%b}' % timestamps[0]
        return [of_this_ts % each for each in zip(seqs, data, strict=True)]
    return [b'{"$seq":%d,"$ts":%d,"data":%b}' % each for each in zip(seqs, timestamps, data, strict=True)]


def moved_fragment(fragment: bytes, seq: int, ts: int, meta_at: int) -> tuple[bytes, int]:
    """The fragment of the same record with another seq and time, and where its meta begins."""
    # {"$seq":7,"$ts":1748450001000,"$node":"eu-1","data":…: what follows the second comma is taken over.
    rest_at = fragment.index(b",", fragment.index(b",", 8) + 1)
    moved = b"".join((b'{"$seq":%d,"$ts":%d' % (seq, ts), memoryview(fragment)[rest_at:]))
    return moved, meta_at and meta_at + len(moved) - len(fragment)


def payload_of(fragment: bytes, meta_at: int, key: bytes | None = None) -> bytes:
    """What the disk keeps of the record. `"data":` cannot stand unescaped inside the node before it."""
    start = fragment.index(b'"data":') + 7
    if not meta_at:
        return fragment[start:-1] if key is None else join_payload(fragment[start:-1], None, key)
    return join_payload(fragment[start:meta_at], fragment[meta_at + 8 : -1], key)


def fragment_of(seq: int, ts: int, node: str | None, payload: bytes) -> tuple[bytes, int]:
    """The reverse: the fragment of a record that comes from the disk, and where its meta begins."""
    data, meta, _ = split_payload(payload)
    return render_fragment(seq, ts, node, data, meta or b"")


def node_of(fragment: bytes) -> str | None:
    """Who wrote the record, from any rendering of it."""
    return _decode_origin(fragment).node


def with_tag(fragment: bytes, tag: str) -> bytes:
    return b'%b,"$tag":%b}' % (fragment[:-1], _encode(tag))


def without_data(fragment: bytes) -> bytes:
    """Only what the server knows of the record: neither data nor meta."""
    return fragment[: fragment.index(b',"data":')] + b"}"


def without_meta(fragment: bytes, meta_at: int) -> bytes:
    """`meta_at` is where `,"meta":` begins."""
    return fragment[:meta_at] + b"}"
