"""The state of an engine as a fold of its log, and what a restart adds to it. Nothing here is shared with the engine.

`fold(log)` is the state. A copy made by a router is in no log. How far its router had come is, but that is logged late,
so a restart makes the rest again: `recover` does it for any part of the log that a crash may leave. `live_log_model` is
the process that writes the log. The two together are the argument that no promise is broken this way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

# What there is


class Reason(Enum):
    CAP = "cap"
    CRASH = "crash"
    SOURCE_TRIM = "source_trim"


class Loss(NamedTuple):
    """A seq that is told as lost. `hops`: how far on its cycle this news has come."""

    reason: Reason
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """`number` tells a record from every other; its copies share it. `hops`: copies around its cycle so far."""

    number: int
    tag: str
    ts: int
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A seq up to the head that is neither in `records` nor in `lost` was deleted. `ceiling`: seqs up to it may be
    given out before anything says so in the log."""

    waits: bool  # class `fsync`; else `disk`
    cap: int = 0
    reject: bool = False
    head: int = 0
    last_ts: int = 0
    ceiling: int = 0
    records: Mapping[int, Record] = field(default_factory=dict)
    lost: Mapping[int, Loss] = field(default_factory=dict)

    @property
    def room(self) -> int:
        return max(self.cap - len(self.records), 0) if self.cap and self.reject else 1 << 30

    def appended(self, first_seq: int, records: Sequence[Record]) -> "Topic":
        lost = {**self.lost, **dict.fromkeys(range(self.head + 1, first_seq), Loss(Reason.CRASH))}
        kept = {**self.records, **dict(enumerate(records, first_seq))}
        head = max(self.head, first_seq + len(records) - 1)
        last_ts = max([self.last_ts, *(record.ts for record in records)])
        return replace(self, head=head, last_ts=last_ts, records=kept, lost=lost).evicted()

    def evicted(self) -> "Topic":
        excess = len(self.records) - self.cap
        if not self.cap or self.reject or excess <= 0:
            return self
        records, lost = dict(self.records), dict(self.lost)
        for seq in sorted(records)[:excess]:
            lost[seq] = Loss(Reason.CAP, records.pop(seq).hops)
        return replace(self, records=records, lost=lost)

    def lost_through(self, last_seq: int, loss: Loss) -> "Topic":
        lost = {**self.lost, **dict.fromkeys(range(self.head + 1, last_seq + 1), loss)}
        return replace(self, head=max(self.head, last_seq), lost=lost)


@dataclass(frozen=True, slots=True)
class Router:
    source: str
    dest: str
    tag: str | None
    cursor: int


@dataclass(frozen=True, slots=True)
class State:
    """`routers` by name, in the order in which they copy the same record. All routers into a topic have one source."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    routers: Mapping[str, Router] = field(default_factory=dict)

    def into(self, dest: str) -> dict[str, Router]:
        return {name: router for name, router in self.routers.items() if router.dest == dest}

    def out_of(self, source: str) -> dict[str, Router]:
        return {name: router for name, router in self.routers.items() if router.source == source}

    def source_of(self, dest: str) -> str | None:
        return next((router.source for router in self.routers.values() if router.dest == dest), None)

    def upstream(self, topic: str) -> list[str]:
        """The topic, its source, the source of that, and so on, each once."""
        found = [topic]
        while (source := self.source_of(found[-1])) is not None and source not in found:
            found.append(source)
        return found

    def ring(self, dest: str) -> int:
        """How many topics are on the cycle this topic is on; 0 when it is on none."""
        found = self.upstream(dest)
        return len(found) if self.source_of(found[-1]) == dest else 0

    def with_topic(self, name: str, topic: Topic) -> "State":
        return State({**self.topics, name: topic}, self.routers)

    def with_router(self, name: str, router: Router) -> "State":
        return State(self.topics, {**self.routers, name: router})


# What happens


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: str
    waits: bool
    cap: int = 0
    reject: bool = False


@dataclass(frozen=True, slots=True)
class Configured:
    topic: str
    cap: int
    reject: bool


@dataclass(frozen=True, slots=True)
class Appended:
    topic: str
    first_seq: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Deleted:
    topic: str
    seqs: frozenset[int]


@dataclass(frozen=True, slots=True)
class RouterPut:
    """`cursor` counts for a new router only."""

    router: str
    source: str
    dest: str
    tag: str | None
    cursor: int


@dataclass(frozen=True, slots=True)
class RouterDeleted:
    router: str
    dest: str


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The routers into a topic have come so far. `skip`: over records the source has lost, which takes one seq."""

    dest: str
    through: tuple[tuple[str, int], ...]
    oldest_ts: int = 0
    skip: Reason | None = None


@dataclass(frozen=True, slots=True)
class Reserved:
    topic: str
    ceiling: int


@dataclass(frozen=True, slots=True)
class Restarted:
    topic: str
    last_seq: int
    cursors: tuple[tuple[str, int], ...] = ()


Operation = (
    TopicCreated | Configured | Appended | Deleted | RouterPut | RouterDeleted | Forwarded | Reserved | Restarted
)


def apply(state: State, operation: Operation) -> State:
    """Reads nothing but its arguments, and never refuses: what may happen was decided before it was logged."""
    match operation:
        case TopicCreated(name, waits, cap, reject):
            return state.with_topic(name, Topic(waits, cap, reject))
        case Configured(name, cap, reject):
            return state.with_topic(name, replace(state.topics[name], cap=cap, reject=reject).evicted())
        case Appended(name, first_seq, records):
            return state.with_topic(name, state.topics[name].appended(first_seq, records))
        case Deleted(name, seqs):
            topic = state.topics[name]
            kept = {seq: record for seq, record in topic.records.items() if seq not in seqs}
            return state.with_topic(name, replace(topic, records=kept))
        case RouterPut(name, source, dest, tag, cursor):
            if name in state.routers:
                cursor = state.routers[name].cursor
            return state.with_router(name, Router(source, dest, tag, cursor))
        case RouterDeleted(name):
            return State(state.topics, {each: router for each, router in state.routers.items() if each != name})
        case Forwarded():
            return _forwarded(state, operation)
        case Reserved(name, ceiling):
            topic = state.topics[name]
            return state.with_topic(name, replace(topic, ceiling=max(topic.ceiling, ceiling)))
        case Restarted(name, last_seq, cursors):
            state = state.with_topic(name, state.topics[name].lost_through(last_seq, Loss(Reason.CRASH)))
            return _moved(state, cursors)


def _forwarded(state: State, operation: Forwarded) -> State:
    dest, ring, through = state.topics[operation.dest], state.ring(operation.dest), dict(operation.through)
    routers = {name: router for name, router in state.into(operation.dest).items() if name in through}
    source = state.topics[next(iter(routers.values())).source]
    passed = range(min(router.cursor for router in routers.values()) + 1, max(through.values()) + 1)
    if operation.skip is not None:
        hops = _hops_of_gap(source, passed) + 1 if ring else 0
        dest = dest.lost_through(dest.head + 1, Loss(operation.skip, hops))
    else:
        made: list[Record] = []
        ts = max(dest.last_ts, operation.oldest_ts)
        for seq in passed:
            for name, router in routers.items():
                if router.cursor < seq <= through[name] and seq in source.records:
                    original = source.records[seq]
                    if _is_copied(router, original, ring):
                        ts = max(ts, original.ts)
                        made.append(replace(original, ts=ts, hops=original.hops + 1 if ring else 0))
        dest = dest.appended(dest.head + 1, made)
    return _moved(state.with_topic(operation.dest, dest), operation.through)


def _moved(state: State, cursors: Iterable[tuple[str, int]]) -> State:
    for name, cursor in cursors:
        router = state.routers[name]
        state = state.with_router(name, replace(router, cursor=max(router.cursor, cursor)))
    return state


def _is_copied(router: Router, record: Record, ring: int) -> bool:
    """On a cycle a record stops before the topic it was written to."""
    return router.tag in (None, record.tag) and (not ring or record.hops + 1 < ring)


def _hops_of_gap(source: Topic, seqs: Iterable[int]) -> int:
    return min((source.lost[seq].hops for seq in seqs if seq in source.lost), default=0)


def fold(operations: Iterable[Operation], state: State | None = None) -> State:
    state = state or State()
    for operation in operations:
        state = apply(state, operation)
    return state


# What routers do next, by the default rule: live and in a restart alike


class Step(NamedTuple):
    """`over`: deleted seqs of the source that the routers pass."""

    forwarded: Forwarded
    copies: int
    first_ts: int
    over: list[int]


def next_step(state: State, dest: str, copies_max: int, seen: Mapping[int, Record] | None = None) -> Step | None:
    """So many copies at most, in the order of the source, and whatever is passed on the way. `seen`: records of the
    source that may be copied already; without it, all."""
    routers = state.into(dest)
    if not routers:
        return None
    source, ring = state.topics[next(iter(routers.values())).source], state.ring(dest)
    cursors = {name: router.cursor for name, router in routers.items()}
    before, copies, first_ts, over = dict(cursors), 0, 0, list[int]()
    seq = min(cursors.values()) + 1
    while seq <= source.head:
        record = source.records.get(seq)
        if record is not None:
            if seen is not None and seq not in seen:
                break
            full = False
            for name, router in routers.items():
                if cursors[name] < seq:
                    if _is_copied(router, record, ring):
                        full = copies == copies_max
                        if full:
                            break
                        first_ts = record.ts if not copies else first_ts
                        copies += 1
                    cursors[name] = seq
            if full:
                break
        elif seq in source.lost:
            end = seq
            while end + 1 in source.lost:
                end += 1
            gap = range(seq, end + 1)
            if not ring or _hops_of_gap(source, gap) + 1 < ring:
                if cursors != before:
                    break
                crashed = any(source.lost[each].reason is Reason.CRASH for each in gap)
                reason = Reason.CRASH if crashed else Reason.SOURCE_TRIM
                return Step(Forwarded(dest, tuple((name, end) for name in routers), skip=reason), 0, 0, [])
            cursors = {name: max(cursor, end) for name, cursor in cursors.items()}
            seq = end
        else:
            over.append(seq)
            cursors = {name: max(cursor, seq) for name, cursor in cursors.items()}
        seq += 1
    if cursors == before:
        return None
    return Step(Forwarded(dest, tuple(cursors.items())), copies, first_ts, over)


def taken(state: State, after: State) -> dict[str, set[int]]:
    """Records that are there before and not after."""
    return {
        name: gone
        for name, topic in state.topics.items()
        if topic is not after.topics[name] and (gone := topic.records.keys() - after.topics[name].records.keys())
    }


# A restart


def recover(
    logged: State, heads: Mapping[str, int] | None, *, evict_last: bool = True
) -> tuple[State, list[Operation]]:
    """What a restart makes of the state that is in the log, and what it logs before it serves. `heads`: the last seqs
    anybody saw, which a killed process leaves and a power cut does not. With them, copies are made up to there, room or
    no room; without them, all there is room for, and every reserved seq counts as given out. `evict_last`: what others
    still have to copy is evicted last, as it was before the crash."""
    state, found = logged, list[Operation]()
    while (forwarded := _next_copy(state, heads, evict_last)) is not None:
        found.append(forwarded)
        state = apply(state, forwarded)
    given = {name: topic.ceiling if heads is None else heads.get(name, 0) for name, topic in state.topics.items()}
    ends = {name: max(topic.head, given[name]) for name, topic in state.topics.items()}
    told = [
        Restarted(name, given[name], _cursors_past_the_loss(state, name, ends))
        for name, topic in state.topics.items()
        if given[name] > topic.head
    ]
    return fold(told, state), [*found, *told]


def _next_copy(state: State, heads: Mapping[str, int] | None, evict_last: bool) -> Forwarded | None:
    waiting: Forwarded | None = None
    for dest, topic in state.topics.items():
        wanted = topic.room > 0 if heads is None else topic.head < heads.get(dest, 0)
        step = next_step(state, dest, 1 if wanted else 0)
        if step is None or step.forwarded.skip is not None:
            continue
        gone = taken(state, apply(state, step.forwarded)).get(dest, set())
        if not evict_last or not _are_wanted(state, dest, gone, heads):
            return step.forwarded
        waiting = waiting or step.forwarded
    return waiting


def _are_wanted(state: State, source: str, seqs: set[int], heads: Mapping[str, int] | None) -> bool:
    """Whether a router out of the topic still has to copy some of these."""
    return any(
        router.cursor < max(seqs, default=0)
        and (heads is None or state.topics[router.dest].head < heads.get(router.dest, 0))
        for router in state.out_of(source).values()
    )


def _cursors_past_the_loss(state: State, dest: str, ends: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """A dest that lost copies while its routers had nothing left to copy lost them because its source did. That is told
    by this, so the routers do not tell it again."""
    routers = state.into(dest)
    if not routers:
        return ()
    source = next(iter(routers.values())).source
    if max(state.topics[source].records, default=0) > min(router.cursor for router in routers.values()):
        return ()
    return tuple((name, ends[source]) for name in routers)
