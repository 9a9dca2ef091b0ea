"""What a log says happened to a topic besides appends: the bodies of its control frames."""

from msgspec import Struct

from topics.model.config import TopicConfig
from topics.model.gap import GapReason
from topics.model.router import RouterSettings
from topics.model.tag_match import TagMatch


class TopicCreated(Struct, frozen=True):
    """`ceiling`: seqs up to here are reserved from the start (class `disk`)."""

    name: str
    config: TopicConfig
    ceiling: int = 0


class CursorSet(Struct, frozen=True):
    """A named cursor; without a seq it is forgotten."""

    name: str
    seq: int | None = None


class ConfigUpdated(Struct, frozen=True, omit_defaults=True):
    """What is kept with a topic changed: its configuration, or a named cursor.

    `version` counts the changes of the configuration, so that one a snapshot has is told from a later one.
    """

    config: TopicConfig | None = None
    version: int = 0
    cursor: CursorSet | None = None


class RecordsDeleted(Struct, frozen=True, omit_defaults=True):
    """Every record below `before_seq`, with a `match` only those whose tag matches; or just those of `seqs`.

    Those of `seqs` are jobs: acked by the worker `node`, or moved to another topic by the move `move`.
    """

    before_seq: int = 0
    match: TagMatch | None = None
    seqs: list[int] | None = None
    node: str | None = None
    move: str | None = None


class HeadReserved(Struct, frozen=True):
    """No seq up to `ceiling` may be given out after a crash, whether its record survived or not."""

    ceiling: int


class RecordsExpired(Struct, frozen=True):
    """The clock has taken every record up to this one."""

    ttl_lost_seq: int


class TopicDeleted(Struct, frozen=True, omit_defaults=True):
    """`forwarded`: for each topic routers copied this one to, the last seq they gave out there. They end with it."""

    forwarded: dict[int, int] = {}


class RouterPut(Struct, frozen=True, omit_defaults=True):
    """A router was made, or its settings changed. Logged with both its topics: with the source, so that records after
    it are known to be forwarded, and with the dest, where it counts. `ring`: how many topics are on its cycle, 0 for
    none; early logs do not say."""

    router_id: int
    name: str
    source_id: int
    dest_id: int
    settings: RouterSettings
    created_ts: int
    cursor: int
    ring: int | None = None


class SourceSkipped(Struct, frozen=True):
    """The source had lost records before they were forwarded: forwarding went on after `cursor`, and `seq` of the dest
    stands for all that was lost."""

    seq: int
    cursor: int
    reason: GapReason


class ForwardedLate(Struct, frozen=True):
    """Copies up to `until_seq` were made so much later than their originals that they have a time of their own."""

    until_seq: int
    ts: int


class RouterLag(Struct, frozen=True):
    """How far a router was when records of its source were deleted: those behind `cursor` were not forwarded."""

    router_id: int
    cursor: int


class RingChanged(Struct, frozen=True):
    """A router elsewhere closed or opened a cycle: so many topics are on the one that routers into this topic are part
    of now, 0 for none. `cursors`: how far these had come, by their ids. `source_seq`: the last seq of their source
    then; hops are counted from there on."""

    size: int
    cursors: dict[int, int]
    source_seq: int


class RouterChanged(Struct, frozen=True, omit_defaults=True):
    """One of these."""

    put: RouterPut | None = None
    skipped: SourceSkipped | None = None
    late: ForwardedLate | None = None
    lag: RouterLag | None = None
    ring: RingChanged | None = None


class RouterDeleted(Struct, frozen=True):
    router_id: int
