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

from topics import limits
from topics.engine import log_reading
from topics.engine.topic import Router, Topic
from topics.model.operation import Copies
from topics.model.record import RECORD_OVERHEAD_BYTES, Batch, Columns
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
        match, cursor = router.settings.filter, router.decided
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
        if router.decided < seq
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
    """Says which record was copied, and by which router: the same whenever the copy is made. A topic's id is its
    epoch."""
    return f"{router.name}/{router.source.topic_id}/{router.source.topic_id}/{seq}"


def stamped(fragment: bytes, meta_at: int, stamp: str) -> tuple[bytes, int]:
    """The fragment with the stamp in its meta, replacing an older one, and where its meta begins."""
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


def gather(
    picks: Sequence[Pick], seqs: Sequence[int], columns: Columns, dest: Topic, first_seq: int, ts: int
) -> Copies:
    """The copies of these picks, with seqs of the dest from `first_seq` on, none older than `ts`."""
    batch, timestamps = render(picks, seqs, columns, first_seq, ts)
    counts: dict[int, int] = {}
    for router, _ in picks:
        counts[router.router_id] = counts.get(router.router_id, 0) + 1
    hops: dict[int, int] = {}
    if picks and picks[0][0].ring:
        before = picks[0][0].source.hops
        hops = {first_seq + number: before.get(seqs[at], 0) + 1 for number, (_, at) in enumerate(picks)}
    return Copies(batch, timestamps, hops, counts)


def between(source: Topic, dest: Topic, routers: Sequence[Router], through_seq: int, oldest_ts: int) -> Copies:
    """The copies these routers make in the dest of what the source has up to `through_seq`."""
    log = source.log
    cursor = min(router.decided for router in routers)
    made = NOTHING
    first_seq, ts = dest.log.head_seq + 1, max(dest.log.last_ts, oldest_ts)
    while cursor < min(through_seq, log.head_seq):
        gap = log_reading.gap_at(log, cursor)
        if gap is not None:
            cursor = gap.gap_to
            continue
        run = log_reading.run_after(log, cursor, limits.ROUTER_BATCH_RECORDS_MAX, limits.ROUTER_BATCH_BYTES_MAX)
        picks = pick(routers, run.seqs, run.columns, source.hops)
        if run.through_seq > through_seq:
            picks = [each for each in picks if run.seqs[each[1]] <= through_seq]
        part = gather(picks, run.seqs, run.columns, dest, first_seq, ts)
        if picks:
            made = joined(made, part)
            first_seq += len(picks)
            ts = part.timestamps[-1]
        cursor = run.through_seq
    return made


NOTHING = Copies(Batch([], [], [], [], [], 0), array("q"), {}, {})


def joined(first: Copies, second: Copies) -> Copies:
    if not first.batch.fragments:
        return second
    one, two = first.batch, second.batch
    batch = Batch(
        one.fragments + two.fragments,
        one.sizes + two.sizes,
        one.nodes + two.nodes,
        one.tags + two.tags,
        one.meta_at + two.meta_at,
        one.total_bytes + two.total_bytes,
    )
    counts = dict(first.counts)
    for router_id, count in second.counts.items():
        counts[router_id] = counts.get(router_id, 0) + count
    return Copies(batch, array("q", [*first.timestamps, *second.timestamps]), {**first.hops, **second.hops}, counts)


def hops_of_gap(hops: Mapping[int, int], gap_from: int, gap_to: int) -> int:
    """How far the news of this loss has gone around the cycle: as far as the newest of these seqs."""
    told = [count for seq, count in hops.items() if gap_from <= seq <= gap_to]
    return min(told) if len(told) == gap_to - gap_from + 1 else 0


def forget_hops(source: Topic) -> None:
    """Forgets the hops of records that all routers on the cycle have handled."""
    if source.hops:
        through_seq = min((router.cursor for router in source.outbound.values() if router.ring), default=0)
        for seq in [seq for seq in source.hops if seq <= through_seq]:
            del source.hops[seq]
