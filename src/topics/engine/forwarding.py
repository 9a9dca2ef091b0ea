"""Forwarding: records of a source become copies in the dest of its routers. Nothing of it is journalled.

A copy is derived: source and cursor say what it is, so a crash loses none that can be made again. What could not be
found out again is journalled, and only that: a jump of the cursor over records the source has lost, and the time of
copies that are made late. Journalled operations of a dest say how far its routers were, so that a replay makes copies
and operations in the order they happened.

Cursor and copies change in the same step. Whoever reads a dest has it caught up first.
"""

from array import array
from collections.abc import Iterable
from enum import Enum, auto

from topics import limits
from topics.engine import copies
from topics.engine.block import Batch
from topics.engine.control import Control
from topics.engine.journal import Busy, Commit, all_of
from topics.engine.router import Router
from topics.engine.router_graph import upstream
from topics.engine.topic import Staged, Topic
from topics.engine.topic_log import Run
from topics.errors import TopicsError
from topics.model.capture import Columns
from topics.model.config import Discard
from topics.model.gap import Gap, GapReason
from topics.model.operation import ForwardedLate, RouterChanged, RouterLag, SourceSkipped


class Outcome(Enum):
    CAUGHT_UP = auto()
    MORE = auto()
    FULL = auto()  # the dest takes no more for now: try again later
    HELD = auto()  # an operation is under way; `on_forwardable` is called when it is over


class Forwarding(Control):
    _asked: tuple[Topic, int, int, int, int] | None = None
    _run: Run = Run(0, (), Columns((), (), (), (), ()))

    def catch_up(self, topic: Topic) -> None:
        """Forwards what the routers into the topic, and those before them, have to do. Bounded: a read calls it."""
        budget = limits.ROUTER_CATCH_UP_RECORDS_MAX
        for dest in reversed(upstream(topic)):
            while budget > 0 and self.forward(dest, limits.ROUTER_BATCH_RECORDS_MAX) is Outcome.MORE:
                budget -= limits.ROUTER_BATCH_RECORDS_MAX

    def forward_pending(self) -> None:
        """Forwards what is left to do everywhere, in bounds: before a checkpoint, so that it has the copies, too."""
        self._catch_up_all(self.routers)

    def forward(self, dest: Topic, records_max: int) -> Outcome:
        """Makes the next copies in `dest`, of so many records at most."""
        routers = tuple(dest.inbound.values())
        if not routers:
            return Outcome.CAUGHT_UP
        source = routers[0].source
        cursor = routers[0].cursor if len(routers) == 1 else min(router.cursor for router in routers)
        if cursor >= source.log.head_seq:
            return Outcome.CAUGHT_UP
        if dest.held or (self._pending and (dest.name in self._pending or source.name in self._pending)):
            return Outcome.HELD
        gap = source.log.gap_at(cursor)
        if gap is not None:
            return self._skip_lost(dest, source, routers, gap)
        try:
            through_seq, seqs, columns = self._run_after(source, cursor, records_max)
        except Busy as busy:
            # It is on the cold tier.
            busy.commit.when_done(lambda _: self.on_forwardable(source))
            return Outcome.HELD
        except TopicsError:
            return Outcome.FULL  # a damaged segment: whoever reads the source is told
        now_ms = self._clock.now_ms()
        picks = copies.pick(routers, seqs, columns, source.hops)
        for removal in source.removals:
            picks = [pick for pick in picks if not removal.takes(seqs[pick[1]], columns.tags[pick[1]])]
        first_seq = dest.assigned_seq + 1
        oldest_ts = dest.assigned_ts
        late = bool(picks) and now_ms - columns.timestamps[picks[0][1]] > limits.ROUTER_LATE_MS
        if late:
            oldest_ts = max(now_ms, oldest_ts)
        has_room = self._has_room(dest, now_ms)
        batch, timestamps = copies.render(picks if has_room else (), seqs, columns, first_seq, oldest_ts)
        count = self.fitting(dest, batch)
        if count < len(batch.fragments):
            batch, timestamps = _cut(batch, count), timestamps[:count]
        commit = None
        if late and count:
            try:
                self._journal.admit(dest.topic_id)
            except TopicsError:
                return Outcome.FULL
            change = RouterChanged(late=ForwardedLate(first_seq + count - 1, oldest_ts))
            commit = self._journal.change_router(dest.topic_id, now_ms, change, gated=True)
        waits = commit is not None or dest.staged
        before = _positions(routers) if waits else None
        copies.advance(routers, picks, count, seqs, through_seq)
        if routers[0].ring:
            copies.note_hops(picks[:count], seqs, first_seq, source.hops, dest.hops)
        self._changed.add(dest)
        if count:
            self._give_out(dest, batch, timestamps, before, commit)
        _forget_hops(source, dest)
        if count < len(picks):
            return Outcome.FULL
        return Outcome.CAUGHT_UP if through_seq >= source.log.head_seq else Outcome.MORE

    def _run_after(self, source: Topic, cursor: int, records_max: int) -> Run:
        """Read once for all topics that stand at the same place: a source may have a thousand of them."""
        log = source.log
        asked = (source, cursor, records_max, log.head_seq, log.count)
        if asked != self._asked:
            self._run = log.run_after(cursor, records_max, limits.ROUTER_BATCH_BYTES_MAX)
            self._asked = asked
        return self._run

    def forward_from(self, source: Topic) -> None:
        """Forwards what the topic has for its routers, in bounds: before records of it are deleted."""
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

    def note_lag(self, source: Topic) -> None:
        """Notes which routers have not come so far, with the delete of records that is journalled next."""
        for router in source.outbound.values():
            if router.lag:
                change = RouterChanged(lag=RouterLag(router.router_id, router.cursor))
                self._journal.change_router(source.topic_id, self._clock.now_ms(), change, gated=False)

    def _give_out(
        self,
        dest: Topic,
        batch: Batch,
        timestamps: "array[int]",
        before: dict[int, tuple[int, int]] | None,
        commit: Commit | None,
    ) -> None:
        """The copies get their seqs: at once, or, where something waits for the disk, behind it."""
        dest.assigned_seq += len(batch.fragments)
        dest.assigned_ts = timestamps[-1]
        self._journal.note_forwarded(dest.topic_id, dest.assigned_seq)
        if commit is not None or dest.staged:
            waiting = commit or dest.staged[-1].commit
            dest.stage(Staged(batch, timestamps[-1], None, waiting, timestamps=timestamps, routers_before=before))
            waiting.when_done(lambda _: self._settle(dest))
        else:
            self.apply_append(dest, batch, timestamps)
        if dest.strong_readers:
            self._note_when_durable(dest, dest.assigned_seq)

    def _skip_lost(self, dest: Topic, source: Topic, routers: tuple[Router, ...], gap: Gap) -> Outcome:
        """The source has lost records before they were forwarded: one seq of the dest says so, durably."""
        now_ms = self._clock.now_ms()
        hops = copies.hops_of_gap(source.hops, gap.gap_from, gap.gap_to)
        if routers[0].ring and hops + 1 >= routers[0].ring:
            # All on the cycle have been told.
            for router in routers:
                router.cursor = max(router.cursor, gap.gap_to)
            _forget_hops(source, dest)
            self._changed.add(dest)
            return Outcome.MORE
        reason = GapReason.CRASH if gap.reason is GapReason.CRASH else GapReason.SOURCE_TRIM
        try:
            self._journal.admit(dest.topic_id)
        except TopicsError:
            return Outcome.FULL
        change = RouterChanged(skipped=SourceSkipped(dest.assigned_seq + 1, gap.gap_to, reason))
        commit = self._journal.change_router(dest.topic_id, now_ms, change, gated=True)
        before = _positions(routers)
        for router in routers:
            router.cursor = max(router.cursor, gap.gap_to)
        dest.assigned_seq += 1
        if routers[0].ring:
            dest.hops[dest.assigned_seq] = hops + 1
        self._journal.note_forwarded(dest.topic_id, dest.assigned_seq)
        if commit is None:
            self.apply_lost(dest, reason)
        else:
            dest.stage(Staged(_NOTHING, dest.assigned_ts, None, commit, lost=reason, routers_before=before))
            commit.when_done(lambda _: self._settle(dest))
        return Outcome.MORE

    def _has_room(self, dest: Topic, now_ms: int) -> bool:
        """Whether it is worth while to make copies: a full topic is asked often."""
        config = self._current(dest, now_ms).config
        held = dest.log.count + dest.staged_count
        return config.discard is not Discard.REJECT or not config.cap_records or held < config.cap_records

    def fitting(self, dest: Topic, batch: Batch) -> int:
        """How many of the copies there is room for."""
        config, log = dest.config, dest.log
        count = len(batch.fragments)
        if config.discard is Discard.REJECT:
            if config.cap_records:
                count = max(min(count, config.cap_records - log.count - dest.staged_count), 0)
            if config.cap_bytes:
                count = _within(batch.sizes[:count], config.cap_bytes - log.bytes - dest.staged_bytes)
        if self._limits.total_bytes_max:
            free = self._limits.total_bytes_max - self.bytes_live - dest.staged_bytes
            count = _within(batch.sizes[:count], free)
        return count

    def _settle(self, topic: Topic) -> None:
        """Publishes, in order, the staged writes that are durable; drops those that failed."""
        while topic.staged and topic.staged[0].commit.done:
            staged = topic.unstage()
            if staged.commit.error is not None:
                if staged.key is not None:
                    topic.keys.forget(staged.key)
                for router_id, before in (staged.routers_before or {}).items():
                    if router := topic.inbound.get(router_id):
                        router.cursor, router.forwarded_total = min(router.cursor, before[0]), before[1]
            elif staged.lost is not None:
                self.apply_lost(topic, staged.lost)
            else:
                if staged.delays:
                    self.apply_delays(topic, staged.delays)
                count = len(staged.batch.fragments)
                timestamps = array("q", (staged.ts,)) * count if staged.timestamps is None else staged.timestamps
                self.apply_append(topic, staged.batch, timestamps)
        if not topic.staged:
            # Seqs of dropped writes were never told to anybody.
            topic.assigned_seq, topic.assigned_ts = topic.log.head_seq, topic.log.last_ts

    # Who may see a record only once it is durable

    def _note_when_durable(self, topic: Topic, last_seq: int) -> None:
        """A copy is durable when all it was derived from is."""
        commit = all_of([self._journal.barrier_of(each.topic_id) for each in upstream(topic)])
        if commit is None:
            topic.durable_seq = limits.U64_MAX
        else:
            commit.when_done(lambda done: self._note_durable(topic, last_seq, done))

    def _note_durable(self, topic: Topic, seq: int, commit: Commit) -> None:
        if commit.error is None and seq > topic.durable_seq:
            topic.durable_seq = seq
            self.on_change(topic)


def _positions(routers: tuple[Router, ...]) -> dict[int, tuple[int, int]]:
    return {router.router_id: (router.cursor, router.forwarded_total) for router in routers}


_NOTHING = Batch([], [], [], [], [], 0)


def _cut(batch: Batch, count: int) -> Batch:
    return Batch(
        batch.fragments[:count],
        batch.sizes[:count],
        batch.nodes[:count],
        batch.tags[:count],
        batch.meta_at[:count],
        sum(batch.sizes[:count]),
    )


def _within(sizes: list[int], room: int) -> int:
    """How many of these, one after the other, fit."""
    for number, size in enumerate(sizes):
        room -= size
        if room < 0:
            return number
    return len(sizes)


def _forget_hops(source: Topic, dest: Topic) -> None:
    """Of what is dealt with for good: a snapshot made while copies wait for the disk has the cursors before them."""
    if source.hops and not dest.staged:
        through_seq = min((router.cursor for router in dest.inbound.values() if router.ring), default=0)
        for seq in [seq for seq in source.hops if seq <= through_seq]:
            del source.hops[seq]
