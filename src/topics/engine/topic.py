"""One topic, and the routers that join topics: identity, configuration, log, keys, queue, recency.

Between decided and applied: an operation that waits for the disk is *in flight*. Its records have their seqs
(`assigned_seq`) and nobody sees them; `log.head_seq` is the last seq somebody can see. What is in flight happens in the
order it was decided in, which is the order of the log (`flow.py`).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from topics import limits
from topics.engine.idempotency import IdempotencyKeys
from topics.engine.journal import Commit
from topics.engine.lease_queue import LeaseQueue
from topics.engine.losses import LossLedger
from topics.engine.priority import effective_priority
from topics.engine.producers import Mark
from topics.engine.topic_log import TopicLog
from topics.model.config import Durability, TopicConfig, TopicType
from topics.model.gap import GapReason
from topics.model.image import NamedCursor
from topics.model.operation import ConfigChanged, JobsDeleted, Operation, RecordsDeleted
from topics.model.producer import RememberedWrite
from topics.model.router import RouterSettings


class InFlight:
    """Operations that are one batch of the log, decided and not applied yet, the topics they change, and the names
    that are closed meanwhile."""

    __slots__ = ("closes", "commit", "operations", "topics")

    def __init__(
        self,
        operations: Sequence[Operation],
        topics: tuple["Topic", ...],
        commit: Commit,
        closes: tuple[str, ...] = (),
    ) -> None:
        self.operations = operations
        self.topics = topics
        self.commit = commit
        self.closes = closes


Routers = Mapping[int, "Router"]

NO_ROUTERS: Routers = MappingProxyType({})
"""Of all topics without routers. Nobody can put anything into it."""


class Extras:
    """What few topics have. Those that have none of it share one, which stays empty: 900 bytes a topic less."""

    __slots__ = ("cursors", "hops", "keys", "losses", "pending_keys", "pending_producers")

    def __init__(self) -> None:
        self.keys = IdempotencyKeys()
        self.cursors: dict[str, NamedCursor] = {}
        self.losses = LossLedger()
        self.hops: dict[int, int] = {}
        self.pending_keys: dict[str, RememberedWrite] = {}
        self.pending_producers: dict[str, Mark] = {}


class _NoKeys(IdempotencyKeys):
    __slots__ = ()

    def restore(self, key: str, write: RememberedWrite) -> None:
        raise AssertionError("all topics share these: add to `own_extras`")

    def remember(self, key: str, first_seq: int, count: int, now_ms: int, resident_from: int | None = None) -> None:
        raise AssertionError("all topics share these: add to `own_extras`")


class _NoLosses(LossLedger):
    __slots__ = ()

    def note(self, gap_from: int, gap_to: int, reason: GapReason, ts: int) -> None:
        raise AssertionError("all topics share these: add to `own_extras`")


def _no_extras() -> Extras:
    """Shared by all topics that have none: nobody can put anything into them."""
    extras = Extras()
    extras.keys, extras.losses = _NoKeys(), _NoLosses()
    nothing = cast(dict[Any, Any], MappingProxyType({}))
    extras.cursors = extras.hops = extras.pending_keys = extras.pending_producers = nothing
    return extras


NO_EXTRAS = _no_extras()


class Topic:
    """`topic_id` is never used twice, so it also tells this instance from an earlier one of the same name."""

    __slots__ = (
        "_reserved_at_ms",
        "assigned_seq",
        "assigned_ts",
        "ceiling",
        "ceiling_margin",
        "config",
        "deleted",
        "due_ms",
        "durable_seq",
        "exchange",
        "expired_ms",
        "extras",
        "in_flight",
        "inbound",
        "last_read_ts",
        "last_write_ts",
        "log",
        "name",
        "outbound",
        "pending_bytes",
        "pending_count",
        "plain",
        "queue",
        "requested_ceiling",
        "strong_readers",
        "topic_id",
    )

    def __init__(self, name: str, topic_id: int, config: TopicConfig, log: TopicLog) -> None:
        self.name = name
        self.topic_id = topic_id
        self.configure(config)
        self.log = log
        self.exchange = False  # it exchanges records with other topics: its history is in their log
        self.extras = NO_EXTRAS  # to look at; `own_extras` to change
        self.queue = LeaseQueue() if config.type is TopicType.QUEUE else None
        self.last_write_ts: int | None = None
        self.last_read_ts: int | None = None
        self.deleted = False
        self.ceiling = 0  # no seq up to here is given out again after a crash
        self.inbound: Routers = NO_ROUTERS  # routers that copy into this topic, by id, in the order they were made
        self.outbound: Routers = NO_ROUTERS  # routers that copy from it
        # What is decided and not applied yet.
        self.in_flight: Sequence[InFlight] = ()
        self.assigned_seq = log.head_seq
        self.assigned_ts = log.last_ts
        self.pending_count = 0
        self.pending_bytes = 0
        # Reservations of seqs.
        self.requested_ceiling = 0  # ceiling once the reservation under way is durable
        self.ceiling_margin = limits.SEQ_RESERVATION_MIN // 2  # so close to the ceiling a higher one is asked for
        self._reserved_at_ms = 0
        # The clock.
        self.expired_ms = 0  # when its TTL last took something; 0 when the log says so
        self.due_ms = 0  # when its TTL takes something next, at the earliest; 0 when that is not watched
        # Readers who may see a record only once it is durable.
        self.strong_readers = 0
        self.durable_seq = 0  # kept while there are such readers

    @property
    def keys(self) -> IdempotencyKeys:
        """The writes that are remembered by their keys. To look at."""
        return self.extras.keys

    @property
    def cursors(self) -> Mapping[str, NamedCursor]:
        return self.extras.cursors

    @property
    def losses(self) -> LossLedger:
        """To look at."""
        return self.extras.losses

    @property
    def hops(self) -> dict[int, int]:
        """Of copies on a cycle, until they are dealt with there. To look at, and to take from."""
        return self.extras.hops

    def own_extras(self) -> Extras:
        """For who adds something to them."""
        if self.extras is NO_EXTRAS:
            self.extras = Extras()
        return self.extras

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        # Nothing but its bounds decides whether a record may be appended, and nobody waits for that.
        self.plain = not (
            config.cap_records or config.cap_bytes or config.ttl_ms or config.durability is Durability.FSYNC
        )

    def will_delete(self, seq: int, tag: str | None) -> bool:
        """Whether something in flight deletes this record."""
        return any(
            operation.takes(seq, tag)
            for flight in self.in_flight
            for operation in flight.operations
            if isinstance(operation, RecordsDeleted | JobsDeleted) and operation.topic_id == self.topic_id
        )

    def is_changing(self) -> bool:
        """Whether something in flight changes its configuration."""
        return any(isinstance(operation, ConfigChanged) for flight in self.in_flight for operation in flight.operations)

    def next_ceiling(self, last_seq: int, now_ms: int) -> int | None:
        """The ceiling to ask for before `last_seq` is given out, if it is time to ask.

        Blocks grow with the pace of writing, until one lasts a second: a slow topic skips few seqs after a crash, a
        fast one asks rarely, and long before it runs out.
        """
        if self.requested_ceiling - last_seq >= self.ceiling_margin:
            return None
        lasted_ms = now_ms - self._reserved_at_ms
        reservation = 2 * self.ceiling_margin
        if lasted_ms < limits.SEQ_RESERVATION_PACE_MS:
            reservation = min(2 * reservation, limits.SEQ_RESERVATION_MAX)
        elif lasted_ms > limits.SEQ_RESERVATION_SLOW_MS:
            reservation = limits.SEQ_RESERVATION_MIN
        self.ceiling_margin = reservation // 2
        self._reserved_at_ms = now_ms
        return last_seq + reservation

    def effective_priority(self, now_ms: int) -> int:
        return effective_priority(self.config, now_ms, self.last_read_ts)


class Router:
    """A rule that copies the records of one topic, its source, into another, its dest.

    `cursor`: the last seq of the source that is dealt with; it moves together with the dest's log, never alone.
    `decided`: the same with what is in flight. `logged`: how far the log says it is. `ring`: how many topics are on the
    cycle it is part of; 0 when on none. `unsure`: originals were deleted before it copied them, and what it copies next
    is seen only once the log says so, durably.
    """

    __slots__ = (
        "created_ts",
        "cursor",
        "decided",
        "dest",
        "forwarded_total",
        "logged",
        "name",
        "ring",
        "router_id",
        "settings",
        "source",
        "unsure",
    )

    def __init__(
        self,
        router_id: int,
        name: str,
        source: Topic,
        dest: Topic,
        settings: RouterSettings,
        created_ts: int,
        cursor: int,
        forwarded_total: int = 0,
    ) -> None:
        self.router_id = router_id
        self.name = name
        self.source = source
        self.dest = dest
        self.settings = settings
        self.created_ts = created_ts
        self.cursor = self.decided = self.logged = cursor
        self.forwarded_total = forwarded_total
        self.ring = 0
        self.unsure = False

    @property
    def lag(self) -> int:
        """How many seqs of the source are still to be dealt with."""
        return max(self.source.log.head_seq - self.cursor, 0)
