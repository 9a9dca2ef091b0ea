"""What the server answers, as far as a client uses it. Fields not named here are ignored, as the API document asks."""

from msgspec import Struct

from topics.wire.responses import RecordReply


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
    next_sequence: int = 0  # of the producer


class JobReply(RecordReply, kw_only=True):
    """A claimed job. Hand it back to `ack`, `nack` or `extend`: its `lease_id` fences a worker that came too late."""

    lease_id: str
    deadline: int
    deliveries: int


class ClaimReply(Struct):
    claimed: list[JobReply]
    ready: int


class SettledReply(Struct):
    """`skipped`: the seqs of jobs the worker does not hold any more."""

    skipped: list[int]


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


class ReadyReply(Struct):
    """`server_id` is empty when the server is of a version without ids."""

    server_id: str = ""


class LossesReply(Struct):
    topic: str
    losses: list[Loss]


class ErrorBody(Struct):
    code: str
    message: str
    detail: dict[str, object] = {}


class ErrorReply(Struct):
    error: ErrorBody
