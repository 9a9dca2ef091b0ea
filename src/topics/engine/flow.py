"""How operations go from decided to applied: live happens in the order of the log, topic by topic.

An operation is handed to the journal and applied when it is the first in the queues of all topics it changes and, if
it waits for the disk, durable. Where nothing is in flight and nobody waits, that is at once. Whatever comes behind
something in flight waits as well, so a topic's queue empties in the order of the log.

Reservations of seqs, named cursors and leases change nothing that others look at: they do not queue.

Routers are ahead of the log. Their copies are made at once and logged by nobody; what a restart needs to make the
same copies again is the `Forwarded` cursor, and it is logged only right before an operation that could tell the
difference: any on the dest, and any on the source that takes records the log does not say are copied. On a cycle what
came first cannot be told afterwards, so there every cursor is logged when it moves.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from topics import limits
from topics.clock import Clock
from topics.engine import log_reading
from topics.engine.admission import WriteLimits
from topics.engine.apply import apply
from topics.engine.journal import Busy, Commit, Journal
from topics.engine.producers import Mark
from topics.engine.router_graph import upstream
from topics.engine.state import State
from topics.engine.topic import InFlight, Router, Topic
from topics.errors import Throttled
from topics.model.config import Discard
from topics.model.operation import (
    Appended,
    CursorSet,
    Forwarded,
    JobsDeleted,
    Moved,
    Operation,
    RecordsDeleted,
    SeqsReserved,
    TopicCreated,
)
from topics.model.producer import RememberedWrite, split_key

Landed = Callable[[int], object]
"""Called with what `apply` returned, once the last of the operations is applied."""


class EngineLimits(NamedTuple):
    """Instance-wide caps; 0 is no cap."""

    write: WriteLimits = WriteLimits()
    topics_max: int = limits.TOPICS_MAX
    routers_max: int = limits.ROUTERS_MAX
    total_bytes_max: int = limits.TOTAL_BYTES_MAX
    block_events_max: int = limits.SEGMENT_EVENTS_MAX
    block_bytes_max: int = limits.SEGMENT_BYTES_MAX
    unsealed_bytes_max: int = limits.UNSEALED_BYTES_MAX


class Flow:
    def __init__(
        self, state: State, clock: Clock, journal: Journal, unsealed_bytes_max: int = limits.UNSEALED_BYTES_MAX
    ) -> None:
        self._unsealed_bytes_max = unsealed_bytes_max
        self.state = state
        self.clock = clock
        self.journal = journal
        self.closed: dict[str, Commit] = {}  # names of topics that are being made, changed or deleted
        self.paused: Commit | None = None  # nothing is taken until what is in flight has landed
        self.call_soon: Callable[[Callable[[], None]], object] = lambda call: call()  # on the loop's next turn
        self._in_flight = 0
        self._when_quiet: Callable[[], None] | None = None
        self._joining: dict[int, Commit] = {}
        self._held: dict[Topic, None] = {}  # sources whose routers waited for a pause to end

    # Asking first

    def admit(self, *topics: Topic) -> None:
        """Raises when an operation on these topics cannot be taken now."""
        if self.paused is not None:
            raise Busy(self.paused)
        for topic in topics:
            self.journal.admit(topic.topic_id)

    def pause_ms(self) -> float:
        """How long the answer to a write of many records had better wait, so that segments keep up with writers before
        these have to be refused. Grows with what is in memory."""
        used = self.state.unsealed_bytes / self._unsealed_bytes_max - limits.UNSEALED_SHARE_UNPAUSED
        return max(used, 0.0) / (1 - limits.UNSEALED_SHARE_UNPAUSED) * limits.UNSEALED_PAUSE_MS_MAX

    def check_unsealed(self) -> None:
        """Raises while more records are in memory than may wait for their segments."""
        state, bytes_max = self.state, self._unsealed_bytes_max
        if state.unsealed_bytes > bytes_max and state.count_unsealed() > bytes_max:
            raise Throttled(
                f"the disk does not keep up: {state.unsealed_bytes} bytes of records wait to become segments, "
                f"and the limit is {bytes_max}",
                retry_after_s=limits.UNSEALED_RETRY_AFTER_MS // 1000,
                retry_after_ms=limits.UNSEALED_RETRY_AFTER_MS,
            )

    def await_open(self, *names: str) -> None:
        """Raises `Busy` while one of these is being made, changed or deleted."""
        if self.closed:
            for name in names:
                commit = self.closed.get(name)
                if commit is not None:
                    raise Busy(commit)

    def expire(self, topic: Topic, now_ms: int, *, wait: bool = False) -> None:
        """Expires what is too old by now. Does nothing while a change of the TTL is in flight: the log says that the
        topic had the new one by then."""
        if not (topic.in_flight and topic.name in self.closed and topic.is_changing()):
            self.state.expire(topic, now_ms, wait=wait)

    def next_turn(self) -> Commit:
        """A commit that is done when others have had their turn: for work that is cut into slices."""
        commit = Commit()
        self.call_soon(lambda: commit.resolve(None, 0))
        return commit

    # Handing over

    def submit(
        self,
        operations: Sequence[Operation],
        topics: tuple[Topic, ...],
        *,
        gated: bool,
        journalled: bool = True,
        closes: tuple[str, ...] = (),
        landed: Landed | None = None,
    ) -> Commit | None:
        """Submits one batch that changes these topics, once per write. Returns the commit to wait for, if any. Whoever
        needs one of the names it `closes` waits for that, too."""
        behind = [topic.in_flight[-1].commit for topic in topics if topic.in_flight]
        if journalled:
            logged = operations
            if len(self.state.routers):
                logged = [*self._cursors_before(operations, topics), *operations]
                _note_uncopied(operations, topics)
            commit = self.journal.submit(logged, gated=gated or bool(behind))
        else:
            commit = _all_of(behind) if len(behind) > 1 else behind[0] if behind else None
        if commit is None:
            count = self._apply(operations)
            if landed is not None:
                landed(count)
            return None
        flight = InFlight(operations, topics, commit, closes)
        self._in_flight += 1
        for topic in topics:
            waiting = topic.in_flight
            if not waiting:
                topic.in_flight = (flight,)  # most wait alone, and a queue is 600 bytes
            elif isinstance(waiting, deque):
                waiting.append(flight)
            else:
                topic.in_flight = deque((*waiting, flight))
        for name in closes:
            self.closed[name] = commit
        self._note_pending(flight, 1)
        commit.when_done(lambda _: self._land(flight, landed))
        return commit

    def submit_apart(self, operation: SeqsReserved | CursorSet) -> Commit | None:
        """Submits an operation that does not queue: it is applied when it is durable, whatever else is in flight."""
        commit = self.journal.submit([operation], gated=True)
        if commit is None:
            apply(self.state, operation)
            return None
        self._in_flight += 1

        def done(commit: Commit) -> None:
            if commit.error is None:
                apply(self.state, operation)
            self._landed()

        commit.when_done(done)
        return commit

    def _open(self, names: tuple[str, ...], commit: Commit) -> None:
        """What closed these names is over."""
        for name in names:
            if self.closed.get(name) is commit:
                del self.closed[name]
        for name in names:
            self.resume_forwarding(self.state.topics.get(name))

    def reserve(self, topic: Topic, last_seq: int, now_ms: int) -> bool:
        """Whether seqs up to here are reserved durably; asks for more when they run out."""
        ceiling = topic.next_ceiling(last_seq, now_ms)
        if ceiling is not None:
            topic.requested_ceiling = ceiling
            self.submit_apart(SeqsReserved(topic_id=topic.topic_id, ts=now_ms, ceiling=ceiling))
        return last_seq <= topic.ceiling

    def when_quiet(self, call: Callable[[], None]) -> None:
        """Makes the call while nothing is in flight: at once, or when everything in flight has landed, while newer
        operations wait. The state is then one instant of the log."""
        if not self._in_flight:
            call()
        else:
            self._when_quiet = call
            self.paused = self.paused or Commit()

    def _land(self, flight: InFlight, landed: Landed | None) -> None:
        """The operation is durable, or its disk failed: applies or drops it in its turn. Once per write that waits."""
        commit = flight.commit
        for topic in flight.topics:
            waiting = topic.in_flight
            assert waiting[0] is flight, topic.name
            if len(waiting) == 1:
                topic.in_flight = ()
            else:
                assert isinstance(waiting, deque), topic.name
                waiting.popleft()
        self._note_pending(flight, -1)
        if commit.error is None:
            count = self._apply(flight.operations)
            if landed is not None:
                landed(count)
        else:
            self._drop(flight)
        for topic in flight.topics:
            if (topic.inbound or topic.outbound) and not topic.in_flight:
                self.resume_forwarding(topic)
        if flight.closes:
            self._open(flight.closes, commit)
        self._landed()

    def _landed(self) -> None:
        self._in_flight -= 1
        if self._when_quiet is not None and not self._in_flight:
            call, self._when_quiet = self._when_quiet, None
            call()
            pause, self.paused = self.paused, None
            held, self._held = self._held, {}
            if pause is not None:
                pause.resolve(None, 0)
            for source in held:
                self.state.on_forwardable(source)

    def _drop(self, flight: InFlight) -> None:
        """The disk failed, so the operation never happened, and nobody was told of its seqs."""
        for operation in flight.operations:
            if isinstance(operation, TopicCreated):
                self.state.unborn.pop(operation.topic_id, None)
        for topic in flight.topics:
            if not topic.in_flight:
                topic.assigned_seq, topic.assigned_ts = topic.log.head_seq, topic.log.last_ts
                for router in topic.inbound.values():
                    router.decided = router.cursor

    def _apply(self, operations: Iterable[Operation]) -> int:
        count = 0
        for operation in operations:
            count = apply(self.state, operation)
            if type(operation) is Appended:
                self.journal.seen(operation.topic_id, operation.first_seq + len(operation.timestamps) - 1)
            elif type(operation) is Forwarded:
                for router_id in operation.routers:
                    if router := self.state.routers.by_id(router_id):
                        self.journal.seen(router.dest.topic_id, router.dest.log.head_seq)
        return count

    def _note_pending(self, flight: InFlight, sign: int) -> None:
        """What decisions have to know of it until it is applied."""
        for operation in flight.operations:
            if type(operation) is Appended:
                for topic in flight.topics:
                    if topic.topic_id == operation.topic_id:
                        topic.pending_count += sign * len(operation.timestamps)
                        topic.pending_bytes += sign * operation.batch.total_bytes
                        if operation.writes[-1].key is not None:
                            _note_key(topic, operation, sign)
            elif type(operation) is Forwarded and operation.copies is not None:
                dest = flight.topics[0]
                dest.pending_count += sign * len(operation.copies.timestamps)
                dest.pending_bytes += sign * operation.copies.batch.total_bytes

    # Exchanging records

    def join(self, topic: Topic) -> Commit | None:
        """Moves the history of the topic to the log of the topics that exchange records. Its log so far has to be
        durable first, so that what a crash takes is the end of its history; until then nothing is taken for it."""
        commit = self._joining.get(topic.topic_id)
        if commit is None:
            self.admit(topic)
            commit = Commit()
            barrier = self.journal.barrier_of(topic.topic_id)
            assert barrier is not None, topic.name
            self._joining[topic.topic_id] = commit
            self._in_flight += 1
            self.closed[topic.name] = commit

            def durable(barrier: Commit) -> None:
                if barrier.error is not None or topic.deleted:
                    moved = None
                else:
                    # From here on the journal has the topic in the other log.
                    moved = self.journal.submit([self.moved(topic)], gated=True)
                if moved is None:
                    done(barrier)
                else:
                    moved.when_done(done)

            def done(moved: Commit) -> None:
                del self._joining[topic.topic_id]
                if moved.error is None and not topic.deleted:
                    apply(self.state, self.moved(topic))
                self._landed()
                self._open((topic.name,), commit)
                commit.resolve(moved.error, moved.sync_ns)

            barrier.when_done(durable)
        return commit

    def joined(self, *topics: Topic) -> list[Operation]:
        """What makes these topics exchange records, for the batch that is the reason for it. Raises `Busy` while one of
        them has to change its log first."""
        operations: list[Operation] = []
        for topic in topics:
            if not topic.exchange:
                if self.journal.lane(topic.topic_id):
                    commit = self.join(topic)
                    if commit is not None:
                        raise Busy(commit)
                operations.append(self.moved(topic))
        return operations

    def moved(self, topic: Topic) -> Moved:
        return Moved(topic_id=topic.topic_id, ts=self.clock.now_ms())

    # Routers

    def hold(self, source: Topic) -> None:
        """Its routers go on when the pause is over."""
        self._held[source] = None

    def resume_forwarding(self, topic: Topic | None) -> None:
        """What held up routers from or to the topic is over."""
        if topic is not None and (topic.outbound or topic.inbound):
            for router in (*topic.outbound.values(), *topic.inbound.values()):
                self.state.on_forwardable(router.source)

    def _cursors_before(self, operations: Sequence[Operation], topics: Iterable[Topic]) -> list[Operation]:
        """The cursors of routers that must be logged first, because these operations would change what a restart
        copies."""
        due: dict[Router, None] = {}
        for topic in topics:
            # What was copied on may be a copy itself: from the first source on.
            for each in reversed(upstream(topic)) if topic.inbound else ():
                for router in each.inbound.values():
                    if router.logged < router.decided:
                        due[router] = None
            if topic.outbound:
                taken = self._taken(topic, operations)
                for router in topic.outbound.values():
                    if router.logged < min(router.decided, taken):
                        due[router] = None
        if not due:
            return []
        by_source: dict[Topic, list[Router]] = {}
        for router in due:
            by_source.setdefault(router.source, []).append(router)
        return [
            cursor for source, routers in by_source.items() for cursor in self._cursors(source, routers, operations)
        ]

    def _taken(self, source: Topic, operations: Sequence[Operation]) -> int:
        """Up to which seq these operations may take records of the topic."""
        log, config = source.log, source.config
        through_seq = log.earliest_seq - 1 if config.ttl_ms else 0
        for operation in operations:
            if not isinstance(operation, Appended):
                return limits.U64_MAX
            if operation.topic_id == source.topic_id and config.discard is Discard.OLD:
                batch = operation.batch
                # What is left for the records there are now, once these are there, too.
                records_left = config.cap_records - source.pending_count - len(batch.fragments)
                bytes_left = config.cap_bytes - source.pending_bytes - batch.total_bytes
                if (config.cap_records and records_left <= 0) or (config.cap_bytes and bytes_left <= 0):
                    return limits.U64_MAX
                records_max, bytes_max = max(records_left, 0), max(bytes_left, 0)
                if records_max or bytes_max:
                    through_seq = max(through_seq, log_reading.beyond_cap(log, records_max, bytes_max, cold=False))
        return through_seq

    def _cursors(self, source: Topic, routers: list[Router], before: Sequence[Operation]) -> list[Operation]:
        """Routers at the same place share one operation. A dest whose originals are in no log says at which seq it
        ends."""
        now_ms = self.clock.now_ms()
        groups: list[list[Router]] = [routers]
        if source.log.resident_from is not None or len({router.dest for router in routers}) == 1:
            by_dest: dict[Topic, list[Router]] = {}
            for router in routers:
                by_dest.setdefault(router.dest, []).append(router)
            groups = list(by_dest.values())
        cursors: list[Operation] = []
        for group in groups:
            places = sorted({router.decided for router in group})
            alone = len({router.dest for router in group}) == 1
            for place in places:
                cursors.append(
                    Forwarded(
                        topic_id=source.topic_id,
                        ts=now_ms,
                        routers=[router.router_id for router in group if router.decided >= place],
                        through_seq=place,
                        dest_seq=_assigned_before(before, group[0].dest) if alone and place == places[-1] else 0,
                    )
                )
        for router in routers:
            router.logged = router.decided
        return cursors


def _all_of(commits: Sequence[Commit]) -> Commit:
    """Done when all of these are; failed when one of them is."""
    whole = Commit()
    left = list(commits)

    def one_is(done: Commit) -> None:
        left.remove(done)
        whole.error = whole.error or done.error
        if not left:
            whole.resolve(whole.error, done.sync_ns)

    for commit in commits:
        commit.when_done(one_is)
    return whole


def _assigned_before(operations: Sequence[Operation], topic: Topic) -> int:
    """The last seq of the topic that was given out before these operations."""
    for operation in operations:
        if isinstance(operation, Appended) and operation.topic_id == topic.topic_id:
            return operation.first_seq - 1
        if isinstance(operation, Forwarded) and operation.routers[0] in topic.inbound:
            return operation.dest_seq - (1 if operation.copies is None else len(operation.copies.timestamps))
    return topic.assigned_seq


def _note_uncopied(operations: Sequence[Operation], topics: Iterable[Topic]) -> None:
    """Notes that routers have not copied what this delete takes: if a crash took the delete, they would copy it
    first."""
    if any(isinstance(operation, RecordsDeleted | JobsDeleted) for operation in operations):
        for topic in topics:
            for router in topic.outbound.values():
                if router.decided < topic.log.head_seq:
                    router.unsure = True


def _note_key(topic: Topic, appended: Appended, sign: int) -> None:
    key = appended.writes[-1].key
    assert key is not None
    extras = topic.own_extras()
    write = RememberedWrite(appended.first_seq, len(appended.timestamps), appended.ts)
    numbered = split_key(key)
    if numbered is None:
        if sign > 0:
            extras.pending_keys[key] = write
        else:
            extras.pending_keys.pop(key, None)
    else:
        name, last_number, last_hash = numbered
        mark = Mark(last_number, last_hash, write)
        if sign > 0:
            extras.pending_producers[name] = mark
        elif extras.pending_producers.get(name) == mark:
            del extras.pending_producers[name]
