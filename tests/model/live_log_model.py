"""One shard of a log and the process that writes it: what waits for the disk, and when a router's place is logged.

An operation is logged, then seen. Some wait until the log is durable up to them; the others are seen at once, unless
something they must not overtake waits. Copies are seen at once and not logged: `pending` says how far routers have come
since that was last logged. `Rules` has a switch for every rule of this; without any one of them a promise breaks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from history_model import (
    Appended,
    Configured,
    Deleted,
    Forwarded,
    Operation,
    Reason,
    Record,
    Reserved,
    RouterDeleted,
    RouterPut,
    State,
    TopicCreated,
    apply,
    next_step,
    recover,
    taken,
)

LATE_AFTER = 3
RESERVED_BLOCK = 4


class PromiseBroken(AssertionError):
    """A seq was given out twice."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the argument needs. Each can be turned off, to see what it is for."""

    operations_of_a_topic_keep_their_order: bool = True
    cursors_are_logged_before_the_dest_changes: bool = True
    cursors_are_logged_before_the_source_loses: bool = True
    cursors_are_logged_from_the_first_source_on: bool = True
    copies_behind_uncopied_deletes_wait: bool = True
    what_is_in_flight_is_looked_at: bool = True
    takers_wait_for_copies_in_flight: bool = True
    direct_writes_to_a_dest_wait: bool = True
    seqs_are_reserved: bool = True
    skips_wait: bool = True
    late_copies_wait: bool = True
    seqs_of_dropped_writes_stay_taken: bool = True
    heads_are_noted_when_seen: bool = True
    restarts_evict_last_what_is_to_be_copied: bool = True


@dataclass(slots=True)
class Frame:
    """`topics`: whose operations keep their order with this one. `reads`: the source of copies it makes."""

    operation: Operation
    topics: frozenset[str]
    reads: str | None = None
    applied: bool = False
    dropped: bool = False

    @property
    def is_in_flight(self) -> bool:
        """A reservation changes nothing that anything else looks at, so nothing waits behind it."""
        return not (self.applied or self.dropped or isinstance(self.operation, Reserved))


class LiveLog:
    """`planned` is everything decided, `live` is what readers see: operations in flight lie between the two. `pending`:
    how far routers have come since that was last logged. `durable`: so many frames are on disk for certain."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.frames: list[Frame] = []
        self.states = [State()]  # after so many frames
        self.pending: list[Forwarded] = []
        self.planned = self.live = State()
        self.now = 0
        self.failed = False
        self.heads: dict[str, int] = {}
        self.seen: dict[str, dict[int, Record | None]] = {}
        self.deletes_asked: set[tuple[str, int]] = set()
        self._deleted_at: dict[tuple[str, int], int] = {}
        self.durable = 0

    def start(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self._add(Frame(operation, frozenset(), applied=True))
        self.durable = len(self.frames)
        self.planned = self.live = self.states[-1]
        self._note_seen(self.live.topics)

    # What clients ask for

    def create(self, topic: str, *, waits: bool, cap: int = 0, reject: bool = False) -> None:
        self._log(TopicCreated(topic, waits, cap, reject), waits=True)

    def configure(self, topic: str, cap: int, *, reject: bool) -> None:
        self._log(Configured(topic, cap, reject), waits=True)

    def append(self, name: str, records: Sequence[tuple[int, str]]) -> bool:
        """Numbers and tags. False if the topic is full."""
        topic = self.planned.topics[name]
        if topic.room < len(records):
            return False
        ts = max(self.now, topic.last_ts)
        last_seq = topic.head + len(records)
        waits = topic.waits
        if self.rules.direct_writes_to_a_dest_wait and self.planned.into(name):
            # Lost by a crash, its seqs would be taken by copies of what lies before it in the log.
            waits = True
        if not waits and self._is_beyond_the_ceiling(name, last_seq):
            self.reserve(name, last_seq + RESERVED_BLOCK)
            waits = True
        made = tuple(Record(number, tag, ts) for number, tag in records)
        return self._log(Appended(name, topic.head + 1, made), waits=waits)

    def delete(self, name: str, seqs: Iterable[int]) -> None:
        topic = self.planned.topics[name]
        chosen = frozenset(seq for seq in seqs if seq in topic.records)
        if chosen and self._log(Deleted(name, chosen), waits=topic.waits):
            self.deletes_asked |= {(name, seq) for seq in chosen}
            self._deleted_at.update({(name, seq): len(self.frames) for seq in chosen})

    def put_router(self, name: str, source: str, dest: str, tag: str | None = None, cursor: int = 0) -> bool:
        there = self.planned.routers.get(name)
        if source == dest or self.planned.source_of(dest) not in (None, source):
            return False
        if there is not None and (there.source, there.dest) != (source, dest):
            return False
        return self._log(RouterPut(name, source, dest, tag, cursor), waits=True)

    def delete_router(self, name: str) -> None:
        self._log(RouterDeleted(name, self.planned.routers[name].dest), waits=True)

    # What goes on by itself

    def reserve(self, topic: str, ceiling: int) -> None:
        self._log(Reserved(topic, ceiling), waits=True)

    def forward(self, dest: str, copies_max: int = 1 << 30) -> bool:
        """Makes copies, or hears of a loss; whether there was anything to do."""
        source = self.planned.source_of(dest)
        if source is None:
            return False
        topic, seen = self.planned.topics[dest], self.live.topics[source]
        plan = self.planned if self.rules.what_is_in_flight_is_looked_at else self.planned.with_topic(source, seen)
        step = next_step(plan, dest, min(copies_max, topic.room), seen.records)
        if step is None:
            return False
        operation = step.forwarded
        waits = operation.skip is not None and self.rules.skips_wait
        if step.copies and self.now - step.first_ts > LATE_AFTER:
            operation = replace(operation, oldest_ts=self.now)
            waits = waits or self.rules.late_copies_wait
        if self.rules.copies_behind_uncopied_deletes_wait:
            waits = waits or any(self._deleted_at.get((source, seq), 0) > self.durable for seq in step.over)
        if step.copies and self._is_beyond_the_ceiling(dest, topic.head + step.copies):
            self.reserve(dest, topic.head + step.copies + RESERVED_BLOCK)
            waits = True
        after = apply(self.planned, operation)
        if waits or self._is_held(self._topics_of(operation, after), after):
            return self._log(operation, waits=True)
        unlogged = self._unlogged(frozenset(), after)
        if unlogged and self.failed:
            return False
        self._log_cursors(unlogged)
        self.pending.append(operation)
        self.planned = after
        self._see(operation)
        return True

    def sync(self, frames: int) -> None:
        """So much of the log is durable: what has waited for that is seen, in the order of the log."""
        if not self.failed:
            self.durable = max(self.durable, frames)
            for frame in self.frames[: self.durable]:
                if not frame.applied:
                    frame.applied = True
                    self._see(frame.operation)

    def fail(self) -> None:
        """The disk fails. Nothing is logged any more, and nobody knows whether what is in flight will be there."""
        self.failed = True
        if not self.rules.seqs_of_dropped_writes_stay_taken:
            for frame in self.frames:
                frame.dropped = not frame.applied
            self.planned = self.live

    def crash(self, frames: int, *, power_cut: bool) -> "LiveLog":
        """A new process, on what is left of the log."""
        _, found = self.recovered(self.states[frames], power_cut=power_cut)
        after = LiveLog(self.rules)
        after.now = self.now
        after.seen, after.deletes_asked = self.seen, self.deletes_asked
        after.start([frame.operation for frame in self.frames[:frames]] + found)
        return after

    def recovered(self, logged: State, *, power_cut: bool) -> tuple[State, list[Operation]]:
        heads = None if power_cut else self.heads
        return recover(logged, heads, evict_last=self.rules.restarts_evict_last_what_is_to_be_copied)

    # How it is done

    def _log(self, operation: Operation, *, waits: bool) -> bool:
        if self.failed:
            return False
        after = apply(self.planned, operation)
        topics = self._topics_of(operation, after)
        if not isinstance(operation, Reserved):
            self._log_cursors(self._unlogged(topics, after))
        if self._is_held(topics, after):
            waits = waits or self.rules.operations_of_a_topic_keep_their_order or not isinstance(operation, Deleted)
        reads = self.planned.source_of(operation.dest) if isinstance(operation, Forwarded) else None
        frame = Frame(operation, topics, reads)
        self._add(frame)
        self.planned = after
        if not self.rules.heads_are_noted_when_seen:
            self.heads.update((name, self.planned.topics[name].head) for name in topics)
        if not waits:
            frame.applied = True
            self._see(operation)
        return True

    def _add(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.states.append(apply(self.states[-1], frame.operation))

    def _topics_of(self, operation: Operation, after: State) -> frozenset[str]:
        match operation:
            case RouterPut(dest=dest) | RouterDeleted(dest=dest):
                # All on a cycle that it opens or closes: records go another way from here on.
                changed = {name for name in self.planned.topics if self.planned.ring(name) != after.ring(name)}
                return frozenset({dest, *changed})
            case Forwarded(dest=dest):
                return frozenset({dest})
            case _:
                return frozenset({operation.topic})

    def _is_held(self, topics: frozenset[str], after: State) -> bool:
        """Whether something in flight has to be seen first."""
        losing = taken(self.planned, after) if self.rules.takers_wait_for_copies_in_flight else {}
        return any(
            frame.is_in_flight and (frame.topics & topics or frame.reads in losing)
            for frame in self.frames[self.durable :]
        )

    def _unlogged(self, topics: frozenset[str], after: State) -> set[str]:
        """Topics whose routers' places have to be in the log before this change is."""
        found = set(topics) if self.rules.cursors_are_logged_before_the_dest_changes else set()
        if self.rules.cursors_are_logged_before_the_source_loses:
            for name, seqs in taken(self.planned, after).items():
                for router_name, router in self.planned.out_of(name).items():
                    logged = self.states[-1].routers.get(router_name)
                    if logged is not None and logged.cursor < max(seqs):
                        found.add(router.dest)
        if self.rules.cursors_are_logged_from_the_first_source_on:
            found = {each for name in found if name in self.planned.topics for each in self.planned.upstream(name)}
        return found & {operation.dest for operation in self.pending}

    def _log_cursors(self, dests: set[str]) -> None:
        for operation in [each for each in self.pending if each.dest in dests]:
            self.pending.remove(operation)
            self._add(Frame(operation, frozenset({operation.dest}), applied=True))

    def _is_beyond_the_ceiling(self, topic: str, seq: int) -> bool:
        return self.rules.seqs_are_reserved and seq > self.live.topics[topic].ceiling

    def _see(self, operation: Operation) -> None:
        before, self.live = self.live, apply(self.live, operation)
        self._note_seen(name for name, topic in self.live.topics.items() if topic is not before.topics.get(name))

    def _note_seen(self, topics: Iterable[str]) -> None:
        for name in topics:
            topic = self.live.topics[name]
            if self.rules.heads_are_noted_when_seen:
                self.heads[name] = topic.head
            seen = self.seen.setdefault(name, {})
            for seq, record in topic.records.items():
                if seen.setdefault(seq, record) != record:
                    raise PromiseBroken(f"{name}/{seq} was {seen[seq]} and is {record}")
            for seq, loss in topic.lost.items():
                if loss.reason is not Reason.CAP:
                    seen.setdefault(seq, None)
