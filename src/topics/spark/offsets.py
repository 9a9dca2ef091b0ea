"""How far a query has read, and how the rest is divided: pure functions, no server.

An offset maps each topic to the last seq read and to the topic's epoch, because a name may be reused by a later topic.
Spark compares offsets as JSON text, so keys are sorted and values are integers.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from topics.spark.errors import InvalidOption


class Position(NamedTuple):
    """The last seq read of one instance of a topic; 0 is before the first."""

    epoch: int
    seq: int


class TopicRange(NamedTuple):
    """What a topic holds now."""

    epoch: int
    earliest_seq: int
    head_seq: int
    schema: str | None = None
    """The columns in its configuration, as DDL."""


DELETED = "deleted_topic"
"""Why seqs are lost of a topic that is not there any more."""


class Gap(NamedTuple):
    """Seqs that can no longer be read, both ends inclusive; `gap_to` is None if the end is unknown."""

    gap_from: int
    gap_to: int | None
    reason: str


class SeqRange(NamedTuple):
    """Seqs of one topic to read: `start` is exclusive, `end` inclusive. `lost_from` is set when the name now belongs to
    a new topic: then everything of the old one from that seq on is lost, nobody knows how much, and the range begins at
    the start of the new one."""

    topic: str
    epoch: int
    start: int
    end: int
    lost_from: int | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


Offsets = Mapping[str, Position]


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {topic: {"epoch": offsets[topic].epoch, "seq": offsets[topic].seq} for topic in sorted(offsets)}


def from_json(value: Mapping[str, Mapping[str, int]]) -> dict[str, Position]:
    try:
        return {topic: Position(int(entry["epoch"]), int(entry["seq"])) for topic, entry in value.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InvalidOption("checkpointLocation", f"holds offsets of another source: {value!r}") from None


def is_same_log(before: Position, now: Position) -> bool:
    """Whether both positions are in the same log. A head that went back means a new one."""
    return before.epoch == now.epoch and before.seq <= now.seq


def ranges_between(start: Offsets, end: Offsets) -> list[SeqRange]:
    """What a batch from `start` to `end` has to read. A topic not in `start` is read from its beginning."""
    ranges = []
    for topic in sorted(end):
        to = end[topic]
        since = start.get(topic)
        if since is None:
            ranges.append(SeqRange(topic, to.epoch, 0, to.seq))
        elif is_same_log(since, to):
            ranges.append(SeqRange(topic, to.epoch, since.seq, to.seq))
        else:
            ranges.append(SeqRange(topic, to.epoch, 0, to.seq, lost_from=since.seq + 1))
    return [piece for piece in ranges if piece.size or piece.lost_from is not None]


def limited(start: Offsets, end: Offsets, offsets_max: int) -> dict[str, Position]:
    """`end`, or as much of it as `offsets_max` allows. Each topic gets a share in proportion to what it has waiting.

    A topic with anything waiting gets at least one seq, so none starves beside a busy one. More such topics than
    `offsets_max` exceed the bound.
    """
    waiting = {piece.topic: piece for piece in ranges_between(start, end)}
    total = sum(piece.size for piece in waiting.values())
    if total <= offsets_max:
        return dict(end)
    shares = _shares({topic: piece.size for topic, piece in waiting.items()}, offsets_max)
    return {
        topic: position._replace(seq=waiting[topic].start + shares[topic]) if topic in waiting else position
        for topic, position in end.items()
    }


def _shares(sizes: Mapping[str, int], offsets_max: int) -> dict[str, int]:
    """Integers in proportion to `sizes`, by largest remainder; at least one for each size that is not 0."""
    total = sum(sizes.values())
    shares = {topic: max(min(1, size), offsets_max * size // total) for topic, size in sizes.items()}
    rest = offsets_max - sum(shares.values())
    if rest > 0:
        # A share raised to one has already used its remainder.
        may_have_more = [topic for topic, size in sizes.items() if offsets_max * size >= total]
        may_have_more.sort(key=lambda topic: (-(offsets_max * sizes[topic] % total), topic))
        for topic in may_have_more[:rest]:
            shares[topic] += 1
    for topic in sorted(shares, key=lambda topic: (-shares[topic], topic)):
        if rest >= 0:
            break
        given_back = min(-rest, shares[topic] - 1)
        shares[topic] -= given_back
        rest += given_back
    return shares


def pieces_of(ranges: Iterable[SeqRange], pieces_min: int, records_max: int | None) -> list[SeqRange]:
    """Cuts ranges for parallel tasks: into at least `pieces_min` pieces if there are that many seqs, larger ranges into
    more, none longer than `records_max`."""
    ranges = list(ranges)
    total = sum(piece.size for piece in ranges)
    pieces: list[SeqRange] = []
    for whole in ranges:
        count = -(-pieces_min * whole.size // total) if total else 1
        if records_max is not None:
            count = max(count, -(-whole.size // records_max))
        count = max(1, min(count, whole.size))
        cuts = [whole.start + whole.size * number // count for number in range(count + 1)]
        for number in range(count):
            lost_from = whole.lost_from if number == 0 else None
            pieces.append(whole._replace(start=cuts[number], end=cuts[number + 1], lost_from=lost_from))
    return pieces
