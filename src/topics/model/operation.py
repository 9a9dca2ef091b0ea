"""Everything that can happen to a topic: one value of one closed union, `Operation`.

The state of the engine is these values folded over nothing: `engine/apply.py` says what each of them changes, live and
at recovery alike; `storage/operation_codec.py` writes and reads them. `ts` is the wall clock when it was decided. An
operation says what was decided, never what to decide: applying it needs no clock and no settings, and cannot fail.
"""

from collections.abc import Sequence

from msgspec import Struct

from topics.model.config import TopicConfig
from topics.model.gap import GapReason
from topics.model.record import Batch
from topics.model.router import RouterSettings
from topics.model.tag_match import TagMatch


class Happened(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is"):
    """What all operations except `Appended` have. `topic_id` is 0 if the operation is not about one topic."""

    topic_id: int = 0
    ts: int


# Topics


class TopicCreated(Happened, frozen=True, tag="topic-created"):
    """`ceiling`: seqs up to here are reserved from the start. `exchange`: it was made to exchange records."""

    name: str
    config: TopicConfig
    ceiling: int = 0
    exchange: bool = False


class ConfigChanged(Happened, frozen=True, tag="config-changed"):
    config: TopicConfig


class TopicDeleted(Happened, frozen=True, tag="topic-deleted"):
    """With all it holds, and the routers from and to it."""


class Moved(Happened, frozen=True, tag="moved"):
    """From here on the history of the topic is in the log of the topics that exchange records."""


class CursorSet(Happened, frozen=True, tag="cursor-set"):
    """A named cursor; without a seq it is forgotten."""

    name: str
    seq: int | None = None


class SeqsReserved(Happened, frozen=True, tag="seqs-reserved"):
    """No seq up to `ceiling` is given out after a crash, whether its record survived or not."""

    ceiling: int


# Records


class WriteEnd(Struct, frozen=True, array_like=True):
    """One atomic write: where it ends, and its idempotency key."""

    last_seq: int
    key: str | None = None


class Appended(Struct, frozen=True, gc=False):
    """Records with seqs from `first_seq` on; `timestamps` has one for each. `writes`: whole writes, in order. Live it
    is one write; a log that is read hands over many at once."""

    topic_id: int
    first_seq: int
    batch: Batch
    timestamps: Sequence[int]
    writes: Sequence[WriteEnd]

    @property
    def ts(self) -> int:
        return self.timestamps[0]


class RecordsDeleted(Happened, frozen=True, tag="records-deleted"):
    """Every record below `before_seq`, with a `match` only those whose tag matches."""

    before_seq: int
    match: TagMatch | None = None

    def takes(self, seq: int, tag: str | None) -> bool:
        return seq < self.before_seq and (self.match is None or self.match.matches(tag))


class ClockReached(Happened, frozen=True, tag="clock-reached"):
    """The TTLs of these topics have expired what is too old at `ts`. Every other operation does the same for its own
    topic."""

    topic_ids: list[int]


class CapReached(Happened, frozen=True, tag="cap-reached"):
    """What a cap took late, because it was on the cold tier when it should have gone."""

    through_seq: int


class Restarted(Happened, frozen=True, tag="restarted"):
    """The previous process ended without a clean stop. Seqs up to `head_seq` were given out and may be gone; routers
    into the topic go on behind `cursors`, by their ids; leases have ended, unless they are durable. `topic_id` 0 says
    only that there was a start."""

    head_seq: int = 0
    cursors: dict[int, int] = {}


# Queues


class Grant(Struct, frozen=True, array_like=True):
    """Jobs leased to one worker."""

    node: str
    lease_id: int
    deadline_ms: int
    seqs: list[int]


class Claimed(Happened, frozen=True, tag="claimed"):
    """One pass over the claimable jobs, for all workers that were served by it. `cursor`: from there on all are fresh,
    but for those that are known otherwise."""

    grants: list[Grant]
    cursor: int


class Released(Happened, frozen=True, tag="released"):
    """Leases given up before their deadline; `ready_ms` 0: the jobs can be claimed at once."""

    seqs: list[int]
    ready_ms: int = 0


class Extended(Happened, frozen=True, tag="extended"):
    seqs: list[int]
    deadline_ms: int


class JobsDelayed(Happened, frozen=True, tag="jobs-delayed"):
    """Jobs that are written next and cannot be claimed before `ready_ms`."""

    seqs: list[int]
    ready_ms: int


class JobsDeleted(Happened, frozen=True, tag="jobs-deleted"):
    """Single records: jobs acked by `node`, or, without one, moved to another topic in the same batch."""

    seqs: list[int]
    node: str | None = None
    dead_letters: bool = False

    def takes(self, seq: int, tag: str | None) -> bool:
        return seq in self.seqs


# Routers


class RouterPut(Happened, frozen=True, tag="router-put"):
    """A router into the topic was made, or its settings changed. `cursor`: where a new one begins in its source."""

    router_id: int
    name: str
    source_id: int
    settings: RouterSettings
    cursor: int


class RouterDeleted(Happened, frozen=True, tag="router-deleted"):
    router_id: int


class Copies(Struct, frozen=True, gc=False):
    """What a `Forwarded` puts into its dest. `hops`: of those on a cycle, by seq. `counts`: by the ids of routers."""

    batch: Batch
    timestamps: Sequence[int]
    hops: dict[int, int]
    counts: dict[int, int]


class Forwarded(Happened, frozen=True, tag="forwarded"):
    """Routers from the topic have dealt with its records up to `through_seq`: their copies are in the dests.

    `oldest_ts`: copies made so late that they have a time of their own. `lost`: the topic had lost these records, and
    one seq of the dest says so. `dest_seq`: the last seq of the (one) dest then, so that seqs stay taken where the
    records are not there any more to be copied again. `copies` are made when it is decided and never logged.
    """

    routers: list[int]
    through_seq: int
    oldest_ts: int = 0
    lost: GapReason | None = None
    dest_seq: int = 0
    copies: Copies | None = None


Lease = Claimed | Released | Extended
Control = (
    TopicCreated
    | ConfigChanged
    | TopicDeleted
    | Moved
    | CursorSet
    | SeqsReserved
    | RecordsDeleted
    | ClockReached
    | CapReached
    | Restarted
    | Claimed
    | Released
    | Extended
    | JobsDelayed
    | JobsDeleted
    | RouterPut
    | RouterDeleted
    | Forwarded
)
"""All but `Appended`, which has a frame a record."""

Operation = Appended | Control
