"""One topic: its identity, configuration, log, remembered keys and recency clocks.

Between assigned and published: a write to an `fsync` topic has its seqs (`assigned_seq`) but is *staged*,
invisible, until it is durable. `log.head_seq` is the last published one.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from topics import limits
from topics.engine.block import Batch
from topics.engine.idempotency import IdempotencyKeys
from topics.engine.journal import Commit
from topics.engine.lease_queue import LeaseQueue
from topics.engine.losses import LossLedger
from topics.engine.priority import effective_priority
from topics.engine.topic_log import TopicLog
from topics.model.config import Durability, TopicConfig, TopicType
from topics.model.gap import GapReason
from topics.model.lease_event import Delayed
from topics.model.tag_match import TagMatch

if TYPE_CHECKING:
    from topics.engine.router import Router


class Staged(NamedTuple):
    """A write that has its seqs and waits for its commit: a client's, or copies of a router that come after one.

    `timestamps`: of copies, which have their own. `lost`: no records, but a seq whose record a router cannot have.
    `routers_before`: cursor and count of each router before that, by id."""

    batch: Batch
    ts: int
    key: str | None
    commit: Commit
    delays: Sequence[Delayed] = ()
    timestamps: "array[int] | None" = None
    lost: GapReason | None = None
    routers_before: dict[int, tuple[int, int]] | None = None


class NamedCursor(NamedTuple):
    """How far somebody has read, kept for them under a name."""

    seq: int
    updated_ts: int


class Move(NamedTuple):
    """Records on their way to another topic."""

    seqs: list[int]
    dest_id: int
    dead_letters: bool


class Removal(NamedTuple):
    """Which records a delete takes: those of `seqs`, or those before a seq, with a `match` only the ones it matches."""

    before_seq: int = 0
    match: TagMatch | None = None
    seqs: frozenset[int] = frozenset()

    def takes(self, seq: int, tag: str | None) -> bool:
        return seq in self.seqs or (seq < self.before_seq and (self.match is None or self.match.matches(tag)))


class Topic:
    """`topic_id` is never used twice, so it also tells this instance from an earlier one of the same name."""

    __slots__ = (
        "_reserved_at_ms",
        "assigned_seq",
        "assigned_ts",
        "ceiling",
        "ceiling_margin",
        "config",
        "config_version",
        "cursors",
        "deleted",
        "durable_seq",
        "event_number",
        "held",
        "hops",
        "inbound",
        "keys",
        "last_read_ts",
        "last_write_ts",
        "log",
        "losses",
        "moves",
        "name",
        "noted_ttl_seq",
        "outbound",
        "plain",
        "queue",
        "removals",
        "requested_ceiling",
        "staged",
        "staged_bytes",
        "staged_count",
        "strong_readers",
        "topic_id",
    )

    def __init__(self, name: str, topic_id: int, config: TopicConfig, log: TopicLog) -> None:
        self.name = name
        self.topic_id = topic_id
        self.configure(config)
        self.config_version = 0  # how often it was changed
        self.log = log
        self.keys = IdempotencyKeys()
        self.cursors: dict[str, NamedCursor] = {}
        self.losses = LossLedger()
        self.queue = LeaseQueue() if config.type is TopicType.QUEUE else None
        self.event_number = 0  # of the last lease event applied
        self.moves: dict[str, Move] = {}  # under way, by the idempotency key of their copies
        self.last_write_ts: int | None = None
        self.last_read_ts: int | None = None
        self.deleted = False
        self.assigned_seq = log.head_seq
        self.assigned_ts = log.last_ts
        self.staged: deque[Staged] = deque()
        self.staged_count = 0
        self.staged_bytes = 0
        self.ceiling = 0  # no seq up to here is given out again after a crash
        self.requested_ceiling = 0  # ceiling once the reservation under way is durable
        self.ceiling_margin = limits.SEQ_RESERVATION_MIN // 2  # so close to the ceiling a higher one is asked for
        self._reserved_at_ms = 0
        self.noted_ttl_seq = 0  # the last log.ttl_lost_seq the journal knows
        self.inbound: dict[int, Router] = {}  # routers that copy into this topic, by id, in the order they were made
        self.outbound: dict[int, Router] = {}  # routers that copy from it
        self.hops: dict[int, int] = {}  # of copies on a cycle, until they are dealt with there
        self.held = 0  # operations under way before which nothing may be copied into it
        self.removals: list[Removal] = []  # deletes under way: what they take is not copied from it any more
        self.strong_readers = 0  # who may see a record only once it is durable
        self.durable_seq = 0  # kept while there are strong readers

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        # Nothing but its bounds decides whether a record may be appended, and nobody waits for that.
        self.plain = not (
            config.cap_records or config.cap_bytes or config.ttl_ms or config.durability is Durability.FSYNC
        )

    def expire(self, now_ms: int, *, wait: bool) -> None:
        """Lets the clock take what the TTL says is gone."""
        if self.config.ttl_ms:
            # Expired: now - ts > ttl.
            self.log.expire(now_ms - self.config.ttl_ms, wait=wait)

    def stage(self, staged: Staged) -> None:
        self.staged.append(staged)
        self.staged_count += len(staged.batch.fragments)
        self.staged_bytes += staged.batch.total_bytes

    def unstage(self) -> Staged:
        staged = self.staged.popleft()
        self.staged_count -= len(staged.batch.fragments)
        self.staged_bytes -= staged.batch.total_bytes
        return staged

    def next_ceiling(self, last_seq: int, now_ms: int) -> int | None:
        """The ceiling to ask for before `last_seq` is given out, if it is time to ask.

        Blocks grow with the pace of writing: a slow topic skips few seqs after a crash, a fast one asks rarely.
        """
        if self.requested_ceiling - last_seq >= self.ceiling_margin:
            return None
        quick = now_ms - self._reserved_at_ms < limits.SEQ_RESERVATION_PACE_MS
        reservation = min(4 * self.ceiling_margin, limits.SEQ_RESERVATION_MAX) if quick else limits.SEQ_RESERVATION_MIN
        self.ceiling_margin = reservation // 2
        self._reserved_at_ms = now_ms
        return last_seq + reservation

    def effective_priority(self, now_ms: int) -> int:
        return effective_priority(self.config, now_ms, self.last_read_ts)
