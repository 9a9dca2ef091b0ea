"""The copies routers make: which records, in which order, and their bytes.

A copy has its own seq and time; node, tag, data and meta are the bytes of the record it was made from. Live forwarding
and recovery both make copies here, so that what is made again after a crash is what was there before.

All routers into one topic have the same source. Their copies come in the order of the source, and for one record of it
in the order of the routers: who made which copy does not depend on when it was made.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Raw

from topics.engine.block import Batch
from topics.engine.router import Router
from topics.model.capture import Columns
from topics.model.record import RECORD_OVERHEAD_BYTES
from topics.model.router import Guarantee

STAMP = "_topics_router"
_STAMP_TEXT = STAMP.encode()

Pick = tuple[Router, int]
"""A router and the position of the record it copies."""

_encode = msgspec.json.encode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def pick(routers: Sequence[Router], seqs: Sequence[int], columns: Columns, hops: Mapping[int, int]) -> list[Pick]:
    """Who copies what. `hops`: how often each record of the source was copied around its cycle; absent is 0."""
    if len(routers) == 1:
        router = routers[0]
        match, cursor = router.settings.filter, router.cursor
        positions: Iterable[int] = range(len(seqs))
        if seqs and seqs[0] <= cursor:
            positions = (position for position in positions if seqs[position] > cursor)
        if match is not None:
            tags = columns.tags
            positions = (position for position in positions if match.matches(tags[position]))
        if router.ring:
            positions = (position for position in positions if hops.get(seqs[position], 0) + 1 < router.ring)
        return [(router, position) for position in positions]
    return [
        (router, position)
        for position, seq in enumerate(seqs)
        for router in routers
        if router.cursor < seq
        and (router.settings.filter is None or router.settings.filter.matches(columns.tags[position]))
        and (not router.ring or hops.get(seq, 0) + 1 < router.ring)
    ]


def render(
    picks: Sequence[Pick], seqs: Sequence[int], columns: Columns, first_seq: int, oldest_ts: int
) -> tuple[Batch, "array[int]"]:
    """The copies with seqs from `first_seq` on, none older than `oldest_ts`. Hot: once per copy."""
    fragments: list[bytes] = []
    sizes: list[int] = []
    nodes: list[str | None] = []
    tags: list[str | None] = []
    meta_at: list[int] = []
    timestamps = array("q")
    total_bytes = 0
    seq, ts = first_seq, oldest_ts
    for router, position in picks:
        settings = router.settings
        original = columns.fragments[position]
        assert original is not None, "a live record has a fragment"
        at, node, tag = columns.meta_at[position], columns.nodes[position], columns.tags[position]
        ts = max(ts, columns.timestamps[position])
        # {"$seq":7,"$ts":1748450001000,"$node":"eu-1","data":…: what follows the second comma is taken over.
        rest_at = original.index(b",", original.index(b",", 8) + 1)
        data_at = rest_at + 8 if node is None else original.index(b'"data":', rest_at) + 7
        size = RECORD_OVERHEAD_BYTES + len(original) - 1 - data_at - (7 if at else 0)
        if node is not None:
            if settings.preserve_node:
                size += len(node) if node.isascii() else len(node.encode())
            else:
                node = None
                rest_at = data_at - 8
        if tag is not None:
            if settings.preserve_tag:
                size += len(tag) if tag.isascii() else len(tag.encode())
            else:
                tag = None
        fragment = b'{"$seq":%d,"$ts":%d%b' % (seq, ts, original[rest_at:])
        if at:
            at += len(fragment) - len(original)
        if settings.guarantee is Guarantee.EXACTLY_ONCE:
            unstamped_bytes = len(fragment)
            fragment, at = stamped(fragment, at, stamp_of(router, seqs[position]))
            size += len(fragment) - unstamped_bytes - (0 if columns.meta_at[position] else 7)
        fragments.append(fragment)
        meta_at.append(at)
        sizes.append(size)
        nodes.append(node)
        tags.append(tag)
        timestamps.append(ts)
        total_bytes += size
        seq += 1
    return Batch(fragments, sizes, nodes, tags, meta_at, total_bytes), timestamps


def stamp_of(router: Router, seq: int) -> str:
    """Says of which record a copy was made, and by whom: the same whenever it is made. A topic's id is its epoch."""
    return f"{router.name}/{router.source.topic_id}/{router.source.topic_id}/{seq}"


def stamped(fragment: bytes, meta_at: int, stamp: str) -> tuple[bytes, int]:
    """The fragment with the stamp in its meta, instead of one that is there, and where its meta begins."""
    entry = b'"%b":%b' % (_STAMP_TEXT, _encode(stamp))
    if not meta_at:
        return b'%b,"meta":{%b}}' % (fragment[:-1], entry), len(fragment) - 1
    meta = fragment[meta_at + 8 : -1]
    if _STAMP_TEXT in meta or b"\\" in meta:
        # It may have the key already, written in one way or another.
        fields = _decode_fields(meta)
        fields.pop(STAMP, None)
        inner = b",".join(b"%b:%b" % (_encode(key), value) for key, value in fields.items())
    else:
        inner = meta[1:-1].strip()
    separator = b"," if inner else b""
    return b'%b,"meta":{%b%b%b}}' % (fragment[:meta_at], entry, separator, inner), meta_at


def advance(routers: Iterable[Router], picks: Sequence[Pick], done: int, seqs: Sequence[int], through_seq: int) -> None:
    """Moves the cursors past the first `done` picks; past everything up to `through_seq` when that is all of them."""
    waiting: Router | None = None
    if done < len(picks):
        waiting, position = picks[done]
        through_seq = seqs[position]
    for router in routers:
        if router is waiting:
            # Its copy of this record is the next one, and those of the routers behind it follow.
            through_seq -= 1
        router.cursor = max(router.cursor, through_seq)
    for router, _ in picks[:done]:
        router.forwarded_total += 1


def note_hops(
    picks: Sequence[Pick], seqs: Sequence[int], first_seq: int, before: Mapping[int, int], after: dict[int, int]
) -> None:
    """Counts the hops of the copies that stay on a cycle."""
    for number, (router, position) in enumerate(picks):
        if router.ring:
            after[first_seq + number] = before.get(seqs[position], 0) + 1


def hops_of_gap(hops: Mapping[int, int], gap_from: int, gap_to: int) -> int:
    """How often the news that these seqs are lost went around their cycle: as the newest of them says."""
    told = [count for seq, count in hops.items() if gap_from <= seq <= gap_to]
    return min(told) if len(told) == gap_to - gap_from + 1 else 0
