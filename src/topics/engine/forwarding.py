"""Forwarding: records of a source become copies in the dest of its routers, at once and in no log.

Decides how far: what the dest has room for, what is at hand, what nobody is about to delete. The decision is a
`Forwarded` operation; `flow.py` logs it late, or never. What a restart could not find out by itself is logged at
once, and durable before the copies are seen: a jump over records the source has lost, copies made so late that they
have a time of their own, copies behind originals that were deleted uncopied, seqs that are not reserved.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from topics import limits
from topics.engine import copies, log_reading
from topics.engine.flow import EngineLimits, Flow
from topics.engine.journal import Busy
from topics.engine.log_reading import Run
from topics.engine.room import bytes_free
from topics.engine.router_graph import upstream
from topics.engine.topic import Router, Topic
from topics.errors import TopicsError
from topics.model.config import Discard, Durability
from topics.model.gap import Gap, GapReason
from topics.model.operation import Copies, Forwarded
from topics.model.record import RECORD_OVERHEAD_BYTES, Columns

ALL_ROUTERS = "*"
"""Routers are made one after the other, so that two of them cannot close a cycle neither of them sees. No topic or
router has such a name."""


class Outcome(Enum):
    CAUGHT_UP = auto()
    MORE = auto()
    FULL = auto()  # the dest takes no more for now: try again later
    HELD = auto()  # an operation is under way; `on_forwardable` is called when it is over
    STALLED = auto()  # the source cannot be read; it is tried again after a while


class Stall(NamedTuple):
    """Why nothing is copied into a topic, and when that is tried again."""

    reason: str
    pause_ms: int
    retry_at_ms: int


class Forwarding:
    def __init__(self, flow: Flow, bounds: EngineLimits) -> None:
        self._flow = flow
        self._state = flow.state
        self._limits = bounds
        self._asked: tuple[Topic, int, int, int, int] | None = None
        self._run = Run(0, (), Columns((), (), (), (), ()))
        self._stalls: dict[Topic, Stall] = {}  # by dest

    def stall_of(self, dest: Topic) -> Stall | None:
        return self._stalls.get(dest)

    def await_routers(self) -> None:
        self._flow.await_open(ALL_ROUTERS)

    def catch_up(self, topic: Topic) -> None:
        """Forwards what the routers into the topic, and those before them, have to do. Bounded: a read calls it."""
        budget = limits.ROUTER_CATCH_UP_RECORDS_MAX
        for dest in reversed(upstream(topic)):
            while budget > 0 and self.forward(dest, limits.ROUTER_BATCH_RECORDS_MAX) is Outcome.MORE:
                budget -= limits.ROUTER_BATCH_RECORDS_MAX

    def forward_pending(self) -> None:
        """Forwards what is left everywhere, within bounds: before a checkpoint, so that it includes the copies."""
        self._catch_up_all(self._state.routers)

    def forward_from(self, source: Topic) -> None:
        """Forwards what the topic has for its routers, within bounds: before its records are deleted."""
        self._catch_up_all(source.outbound.values())

    def _catch_up_all(self, routers: Iterable[Router]) -> None:
        budget = limits.ROUTER_CATCH_UP_ALL_RECORDS_MAX
        for router in routers:
            lag = router.lag
            if lag:
                self.catch_up(router.dest)
                budget -= min(lag, limits.ROUTER_CATCH_UP_RECORDS_MAX)
                if budget <= 0:
                    return

    def forward(self, dest: Topic, records_max: int) -> Outcome:
        """Makes the next copies in `dest`, of so many records at most."""
        routers = tuple(dest.inbound.values())
        if not routers:
            return Outcome.CAUGHT_UP
        source = routers[0].source
        cursor = routers[0].decided if len(routers) == 1 else min(router.decided for router in routers)
        if cursor >= source.log.head_seq:
            return Outcome.CAUGHT_UP
        if self._flow.paused is not None:
            self._flow.hold(source)
            return Outcome.HELD
        closed = self._flow.closed
        if closed and (dest.name in closed or source.name in closed):
            return Outcome.HELD
        stall = self._stalls.get(dest)
        if stall is not None and self._flow.clock.now_ms() < stall.retry_at_ms:
            return Outcome.STALLED
        try:
            self._flow.admit(dest)
            self._flow.check_unsealed()
        except TopicsError:
            return Outcome.FULL  # its disk has failed, or does not keep up
        gap = log_reading.gap_at(source.log, cursor)
        if gap is not None:
            return self._skip_lost(dest, source, routers, gap)
        try:
            run = self._run_after(source, cursor, records_max)
        except Busy as busy:
            return self._wait(dest, source, busy)
        except TopicsError as error:
            self._stall(dest, source, error.message)
            return Outcome.STALLED
        except OSError as error:
            self._stall(dest, source, str(error))
            return Outcome.STALLED
        if stall is not None:
            del self._stalls[dest]
        if source.in_flight and not self._stays(source, cursor, run):
            return Outcome.HELD
        return self._copy(dest, source, routers, run)

    def _wait(self, dest: Topic, source: Topic, busy: Busy) -> Outcome:
        """Waits for a segment of the cold tier."""
        busy.when_over(
            lambda: self._state.on_forwardable(source), lambda error: self._stall(dest, source, error.message)
        )
        return Outcome.HELD

    def _stall(self, dest: Topic, source: Topic, reason: str) -> None:
        """A segment of the source is damaged or missing, so this is tried again only after a while."""
        self._stalls = {topic: stall for topic, stall in self._stalls.items() if not topic.deleted}
        before = self._stalls.get(dest)
        pause_ms = limits.ROUTER_STALL_MS_MIN if before is None else 2 * before.pause_ms
        pause_ms = min(pause_ms, limits.ROUTER_STALL_MS_MAX)
        self._stalls[dest] = Stall(reason, pause_ms, self._flow.clock.now_ms() + pause_ms)
        self._state.on_forwardable(source)

    def _copy(self, dest: Topic, source: Topic, routers: tuple[Router, ...], run: Run) -> Outcome:
        through_seq, seqs, columns = run
        now_ms = self._flow.clock.now_ms()
        picks = copies.pick(routers, seqs, columns, source.hops)
        if source.in_flight:
            picks = [pick for pick in picks if not source.will_delete(seqs[pick[1]], columns.tags[pick[1]])]
        oldest_ts = dest.assigned_ts
        late = bool(picks) and now_ms - columns.timestamps[picks[0][1]] > limits.ROUTER_LATE_MS
        if late:
            oldest_ts = max(now_ms, oldest_ts)
        chosen = picks if self._has_room(dest, now_ms) else []
        made = copies.gather(chosen, seqs, columns, dest, dest.assigned_seq + 1, oldest_ts)
        try:
            free = bytes_free(self._limits.total_bytes_max, self._state.bytes_live, dest, made.batch.sizes)
        except Busy as busy:
            return self._wait(dest, source, busy)
        except TopicsError as error:
            self._stall(dest, source, error.message)
            return Outcome.STALLED
        count = fitting(dest, made, free)
        gated = False
        if count:
            reserved = not copies_can_be_lost(dest) or self._flow.reserve(dest, dest.assigned_seq + count, now_ms)
            gated = late or not reserved or any(router.unsure for router in routers)
        for part, movers, place in parts(routers, picks, count, made, seqs, through_seq):
            if part.timestamps or place > min(router.decided for router in movers):
                self._hand_over(dest, source, movers, place, part, oldest_ts if late else 0, gated=gated)
        if count < len(picks):
            return Outcome.FULL
        return Outcome.CAUGHT_UP if through_seq >= source.log.head_seq else Outcome.MORE

    def _hand_over(
        self,
        dest: Topic,
        source: Topic,
        routers: tuple[Router, ...],
        through_seq: int,
        made: Copies,
        oldest_ts: int,
        *,
        gated: bool,
    ) -> None:
        """The copies get their seqs: at once, or, where something waits for the disk, behind it."""
        count = len(made.timestamps)
        forwarded = Forwarded(
            topic_id=source.topic_id,
            ts=self._flow.clock.now_ms(),
            routers=[router.router_id for router in routers],
            through_seq=through_seq,
            oldest_ts=oldest_ts,
            dest_seq=dest.assigned_seq + count,
            copies=made,
        )
        if count:
            dest.assigned_seq += count
            dest.assigned_ts = made.timestamps[-1]
        self._submit(dest, routers, forwarded, gated=gated)
        if dest.strong_readers and count:
            self.note_when_durable(dest, dest.assigned_seq)

    def _submit(self, dest: Topic, routers: tuple[Router, ...], forwarded: Forwarded, *, gated: bool) -> None:
        # On a cycle the order of all that is copied around it counts; and what copies push out was copied on before.
        logged = gated or routers[0].ring > 0 or (bool(dest.outbound) and pushes_out(dest, forwarded.copies))
        if gated:
            for router in routers:
                router.unsure = False
        self._flow.submit([forwarded], (dest,), gated=gated, journalled=logged)
        for router in routers:
            router.decided = max(router.decided, forwarded.through_seq)
            if logged:
                router.logged = router.decided

    def _stays(self, source: Topic, cursor: int, run: Run) -> bool:
        """Whether what is in flight leaves the records behind the cursor where they are. A delete is looked at record
        by record; a cap takes the oldest, so they stay if they fit together with what is to come."""
        config = source.config
        if config.discard is not Discard.OLD or not (config.cap_records or config.cap_bytes):
            return True
        if config.cap_records and source.log.head_seq - cursor + source.pending_count > config.cap_records:
            return False
        if config.cap_bytes and source.log.bytes + source.pending_bytes > config.cap_bytes:
            columns = run.columns
            behind = sum(
                len(fragment) + RECORD_OVERHEAD_BYTES for fragment in columns.fragments if fragment is not None
            )
            behind += sum(len(tag.encode()) for tag in columns.tags if tag is not None)
            return run.through_seq >= source.log.head_seq and behind + source.pending_bytes <= config.cap_bytes
        return True

    def _run_after(self, source: Topic, cursor: int, records_max: int) -> Run:
        """The next records of the source, read once for all dests at the same place: there may be a thousand of
        them."""
        log = source.log
        asked = (source, cursor, records_max, log.head_seq, log.count)
        if asked != self._asked:
            self._run = log_reading.run_after(log, cursor, records_max, limits.ROUTER_BATCH_BYTES_MAX)
            self._asked = asked
        return self._run

    def _skip_lost(self, dest: Topic, source: Topic, routers: tuple[Router, ...], gap: Gap) -> Outcome:
        """The source has lost records before they were forwarded: one seq of the dest says so, durably."""
        hops = copies.hops_of_gap(source.hops, gap.gap_from, gap.gap_to)
        if routers[0].ring and hops + 1 >= routers[0].ring:
            # All on the cycle have been told.
            self._hand_over(dest, source, routers, gap.gap_to, copies.NOTHING, 0, gated=True)
            return Outcome.MORE
        forwarded = Forwarded(
            topic_id=source.topic_id,
            ts=self._flow.clock.now_ms(),
            routers=[router.router_id for router in routers],
            through_seq=gap.gap_to,
            lost=GapReason.CRASH if gap.reason is GapReason.CRASH else GapReason.SOURCE_TRIM,
            dest_seq=dest.assigned_seq + 1,
        )
        dest.assigned_seq += 1
        self._submit(dest, routers, forwarded, gated=True)
        return Outcome.MORE

    # Room

    def _has_room(self, dest: Topic, now_ms: int) -> bool:
        """Whether it is worth making copies: a full topic is asked often."""
        self._state.expire(dest, now_ms)
        config = dest.config
        held = dest.log.count + dest.pending_count
        return config.discard is not Discard.REJECT or not config.cap_records or held < config.cap_records

    # Who may see a record only once it is durable

    def note_when_durable(self, topic: Topic, last_seq: int) -> None:
        """A copy is durable when all before it in its log is: what it was made from is there, too."""
        commit = self._flow.journal.barrier_of(topic.topic_id)
        if commit is None:
            topic.durable_seq = limits.U64_MAX
            return

        def durable(done: object) -> None:
            if commit.error is None and last_seq > topic.durable_seq:
                topic.durable_seq = last_seq
                self._state.on_change(topic)

        commit.when_done(durable)


def copies_can_be_lost(dest: Topic) -> bool:
    """Whether a crash may take copies, with their originals, that somebody has seen: then their seqs must not be given
    out again."""
    durability = dest.config.durability
    if durability is Durability.DISK:
        return True
    if durability is not Durability.FSYNC:
        return False
    return any(topic.config.durability is not Durability.FSYNC for topic in upstream(dest)[1:])


def pushes_out(dest: Topic, made: Copies | None) -> bool:
    """Whether a cap takes records of the topic when these are there."""
    config, log = dest.config, dest.log
    if made is None or config.discard is not Discard.OLD:
        return False
    count = log.count + dest.pending_count + len(made.timestamps)
    size = log.bytes + dest.pending_bytes + made.batch.total_bytes
    return bool((config.cap_records and count > config.cap_records) or (config.cap_bytes and size > config.cap_bytes))


def fitting(dest: Topic, made: Copies, free: int) -> int:
    """How many of the copies there is room for."""
    config, log, sizes = dest.config, dest.log, made.batch.sizes
    count = len(sizes)
    if config.discard is Discard.REJECT:
        if config.cap_records:
            count = max(min(count, config.cap_records - log.count - dest.pending_count), 0)
        if config.cap_bytes:
            count = _within(sizes[:count], config.cap_bytes - log.bytes - dest.pending_bytes)
    return _within(sizes[:count], free)


def parts(
    routers: tuple[Router, ...],
    picks: list[copies.Pick],
    count: int,
    made: Copies,
    seqs: Sequence[int],
    through_seq: int,
) -> list[tuple[Copies, tuple[Router, ...], int]]:
    """The first `count` copies, who makes them, and how far these are then. Where there is room for some of the
    copies of one record only, the routers that have made theirs are one record on."""
    if count == len(picks):
        return [(made, routers, through_seq)]
    position = picks[count][1]
    ahead = tuple(router for router, at in picks[:count] if at == position)
    whole = count - len(ahead)
    found = [(_part(made, picks, 0, whole), routers, seqs[position] - 1)]
    if ahead:
        found.append((_part(made, picks, whole, count), ahead, seqs[position]))
    return found


def _part(made: Copies, picks: list[copies.Pick], start: int, stop: int) -> Copies:
    counts: dict[int, int] = {}
    for router, _ in picks[start:stop]:
        counts[router.router_id] = counts.get(router.router_id, 0) + 1
    hops = {seq: made.hops[seq] for seq in sorted(made.hops)[start:stop]}
    return Copies(made.batch.part(start, stop), made.timestamps[start:stop], hops, counts)


def _within(sizes: list[int], room: int) -> int:
    """How many of these fit, taken in order."""
    for number, size in enumerate(sizes):
        room -= size
        if room < 0:
            return number
    return len(sizes)
