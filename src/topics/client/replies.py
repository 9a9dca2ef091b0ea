"""What the server answers, as far as a client uses it. Fields not named here are ignored, as the API document asks.

Payloads stay the text they are (`msgspec.Raw`): parsing one would lose `1.0`, `1e400` and the order of keys.
"""

from msgspec import Raw, Struct, field


class RecordReply(Struct):
    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    data: Raw
    node: str | None = field(default=None, name="$node")
    tag: str | None = field(default=None, name="$tag")
    meta: dict[str, str] | None = None


class GapReply(Struct):
    """A tombstone: both ends are inclusive."""

    gap_from: int
    gap_to: int
    reason: str


class DiffReply(Struct):
    records: list[RecordReply]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: GapReply | None = None


class StateReply(Struct):
    """`epoch` tells this topic from earlier and later ones of the same name."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    epoch: int


class ListedTopic(Struct):
    topic: str
    head_seq: int
    earliest_seq: int
    count: int


class ListReply(Struct):
    topics: list[ListedTopic]
    next_cursor: str | None = None


class AppendReply(Struct):
    first_seq: int
    last_seq: int
    count: int
    created: bool
    deduped: bool


class CursorReply(Struct):
    topic: str
    name: str
    seq: int
    head_seq: int
    lag: int
    updated_ts: int


class Done(Struct):
    """A reply of which only the success matters."""


class Loss(Struct):
    gap_from: int
    gap_to: int
    reason: str
    ts: int


class LossesReply(Struct):
    topic: str
    losses: list[Loss]


class ExportEnd(Struct):
    """The last line of an export: where to go on, what of the range is lost, and why it ended early if it did."""

    next_from_seq: int
    tombstones: list[GapReply] = []
    error: str | None = None


class ExportTrailer(Struct):
    end: ExportEnd = field(name="$end")


class ErrorBody(Struct):
    code: str
    message: str
    detail: dict[str, object] = {}


class ErrorReply(Struct):
    error: ErrorBody
