"""Who holds which job of one queue: the projection of its lease events, in memory.

Every live job is in exactly one of these states:

    fresh         never handed out: at or behind `claim_cursor`, and not delayed
    leased        in `leases`, deadline not passed
    reclaimable   to be handed out again, before any fresh one: its lease ended, or its delay is over
    delayed       in `delayed`: not to be handed out before a time
    leaving       being deleted or moved elsewhere, until that is durable

A lease whose deadline has passed stays in `leases` until the job is handed out again: a late ack by its last holder
still counts. Deadlines are looked at when somebody asks (`sweep`); there are no timers.

Knows seqs and times, nothing of records, journals or the log; whoever removes jobs from the log tells (`forget`).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain

from topics.engine.journal import Busy

NO_CONNECTION = 0
_HEAP_SLACK = 64


class Lease:
    """One delivery: to whom, since when, until when. Shared by the jobs that were handed out together, and never
    changed.

    `connection`: the stream they were pushed to, if they were.
    """

    __slots__ = ("claimed_ms", "connection", "deadline_ms", "lease_id", "node")

    def __init__(
        self, node: str, lease_id: int, claimed_ms: int, deadline_ms: int, connection: int = NO_CONNECTION
    ) -> None:
        self.node = node
        self.lease_id = lease_id
        self.claimed_ms = claimed_ms
        self.deadline_ms = deadline_ms
        self.connection = connection


class Leases:
    """The leases of a queue, by job, by connection and by deadline; those that have ended too, until their jobs are
    handed out again or gone."""

    __slots__ = ("_by_connection", "_deadlines", "_made_count", "by_seq", "expired")

    def __init__(self) -> None:
        self.by_seq: dict[int, Lease] = {}
        self.expired: set[int] = set()  # those of them whose deadline has passed: reclaimable
        self._by_connection: dict[int, set[int]] = {}  # the seqs that each holds
        # A heap of (deadline_ms, serial, lease, its seqs); an entry that holds nothing any more is passed over.
        self._deadlines: list[tuple[int, int, Lease, Sequence[int]]] = []
        self._made_count = 0

    def held_by(self, connection: int) -> Collection[int]:
        return self._by_connection.get(connection, ())

    def next_deadline_ms(self) -> int | None:
        """When the next one that holds ends, unless it is extended or released before."""
        deadlines = self._deadlines
        while deadlines and not self._holding(*deadlines[0][2:]):
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def put(self, seqs: Sequence[int], lease: Lease) -> None:
        by_seq = self.by_seq
        by_seq.update(dict.fromkeys(seqs, lease))
        self._made_count += 1
        heappush(self._deadlines, (lease.deadline_ms, self._made_count, lease, seqs))
        if len(self._deadlines) > 2 * len(by_seq) + _HEAP_SLACK:
            self._deadlines = [entry for entry in self._deadlines if self._holding(*entry[2:])]
            heapify(self._deadlines)

    def hold(self, seqs: Iterable[int], connection: int) -> None:
        """A connection holds these jobs until their leases end."""
        self._by_connection.setdefault(connection, set()).update(seqs)

    def extend(self, seqs: Iterable[int], deadline_ms: int) -> None:
        renewed: dict[Lease, list[int]] = {}
        for seq in seqs:
            lease = self.by_seq.get(seq)
            if lease is not None:
                renewed.setdefault(lease, []).append(seq)
        for lease, held in renewed.items():
            self.put(held, Lease(lease.node, lease.lease_id, lease.claimed_ms, deadline_ms, lease.connection))

    def may_end(self, now_ms: int) -> bool:
        """Whether `expire` has something to look at. Hot: several times a claim."""
        return bool(self._deadlines) and self._deadlines[0][0] < now_ms

    def expire(self, now_ms: int) -> list[int]:
        """The jobs whose leases have ended since it was last asked."""
        ended: list[int] = []
        while self._deadlines and self._deadlines[0][0] < now_ms:
            _, _, lease, seqs = heappop(self._deadlines)
            for seq in self._holding(lease, seqs):
                if lease.connection:
                    self._let_go(seq, lease.connection)
                self.expired.add(seq)
                ended.append(seq)
        return ended

    def end(self, seq: int) -> bool:
        """Ends the lease of a job; False if it had none."""
        lease = self.by_seq.pop(seq, None)
        if lease is None:
            return False
        if self.expired:
            self.expired.discard(seq)
        if lease.connection:
            self._let_go(seq, lease.connection)
        return True

    def end_all(self, seqs: Collection[int]) -> None:
        """`end` for each of these. Hot: once per ack."""
        take = self.by_seq.pop
        for seq in seqs:
            lease = take(seq, None)
            if lease is not None and lease.connection:
                self._let_go(seq, lease.connection)
        if self.expired:
            self.expired.difference_update(seqs)

    def _holding(self, lease: Lease, seqs: Iterable[int]) -> list[int]:
        """The jobs that this lease still holds."""
        by_seq, expired = self.by_seq, self.expired
        return [seq for seq in seqs if by_seq.get(seq) is lease and seq not in expired]

    def _let_go(self, seq: int, connection: int) -> None:
        held = self._by_connection.get(connection)
        if held is not None:
            held.discard(seq)
            if not held:
                del self._by_connection[connection]


class LeaseQueue:
    __slots__ = (
        "_due",
        "_floor",
        "_reclaim_heap",
        "claim_cursor",
        "dead_lettered",
        "delayed",
        "deliveries",
        "last_lease_id",
        "leases",
        "leaving",
        "reclaimable",
    )

    def __init__(self) -> None:
        self.leases = Leases()
        self.deliveries: dict[int, int] = {}
        self.delayed: dict[int, int] = {}  # seq -> claimable from then on, ms
        self.reclaimable: set[int] = set()
        self.leaving: set[int] = set()
        self.claim_cursor = 1
        self.dead_lettered = 0
        self.last_lease_id = 0
        # Heaps; an entry that the collections above no longer bear out is passed over.
        self._due: list[tuple[int, int]] = []  # (ready_ms, seq)
        self._reclaim_heap: list[int] = []
        self._floor = 1  # everything below is forgotten

    # Counting

    def in_flight(self) -> int:
        """Jobs whose lease holds. Sweep first."""
        return len(self.leases.by_seq) - len(self.leases.expired) + len(self.leaving)

    def ready(self, live_count: int) -> int:
        """Jobs that can be claimed now, of so many live ones. Sweep first."""
        return live_count - self.in_flight() - len(self.delayed)

    def next_change_ms(self) -> int | None:
        """When a lease or a delay ends next, if none is claimed, extended or released before."""
        while self._due and self.delayed.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        ready_ms = self._due[0][0] if self._due else None
        deadline_ms = self.leases.next_deadline_ms()
        if deadline_ms is None:
            return ready_ms
        # A lease holds up to and including its deadline.
        return deadline_ms + 1 if ready_ms is None else min(deadline_ms + 1, ready_ms)

    # What time does

    def sweep(self, now_ms: int) -> None:
        """Makes jobs claimable whose leases or delays have ended."""
        if self.leases.may_end(now_ms):
            for seq in self.leases.expire(now_ms):
                self._reclaim(seq)
        while self._due and self._due[0][0] <= now_ms:
            ready_ms, seq = heappop(self._due)
            if self.delayed.get(seq) == ready_ms:
                del self.delayed[seq]
                self._reclaim(seq)

    # Choosing

    def choose(self, count: int, live_from: Callable[[int, int], Sequence[int]]) -> list[int]:
        """Up to `count` claimable jobs: those to be reclaimed first, in the order of their seqs, then fresh ones.

        `live_from` gives the next live jobs from a seq on, so many at most; none at the end. Hands out nothing yet.
        """
        chosen: list[int] = []
        while self._reclaim_heap and len(chosen) < count:
            seq = heappop(self._reclaim_heap)
            if seq in self.reclaimable and (not chosen or chosen[-1] != seq):
                chosen.append(seq)
        for seq in chosen:
            heappush(self._reclaim_heap, seq)
        deliveries, delayed, leaving, reclaimable = self.deliveries, self.delayed, self.leaving, self.reclaimable
        seq = self.claim_cursor
        all_passed = True
        while len(chosen) < count:
            try:
                found = live_from(seq, count - len(chosen))
            except Busy:
                if not chosen:
                    raise
                break  # those are to be had now; the others may be of more segments than fit in memory
            if not found:
                break
            seq = found[-1] + 1
            fresh = [*found]
            if not deliveries.keys().isdisjoint(found):
                fresh = [job for job in found if job not in deliveries]
            if delayed or leaving or reclaimable:
                fresh = [job for job in fresh if not (job in delayed or job in leaving or job in reclaimable)]
            chosen += fresh
            all_passed = all_passed and not fresh
            if all_passed:
                self.claim_cursor = seq  # nothing fresh before: the next one need not look at these again
        return chosen

    # Events

    def cursor_after(self, seqs: Sequence[int]) -> int:
        """Where fresh jobs begin once these, at least one, are handed out; those to be reclaimed may come from behind
        fresh ones."""
        reclaimable = self.reclaimable
        if not reclaimable:
            return max(seqs) + 1
        return max((seq + 1 for seq in seqs if seq not in reclaimable), default=self.claim_cursor)

    def pass_by(self, cursor: int) -> None:
        """Everything below is accounted for: handed out, or kept back."""
        self.claim_cursor = max(self.claim_cursor, cursor)

    def claimed(
        self,
        seqs: Sequence[int],
        node: str,
        lease_id: int,
        claimed_ms: int,
        deadline_ms: int,
        connection: int = NO_CONNECTION,
    ) -> None:
        """One claimer's jobs. `pass_by` for all claimers of a pass together follows. Once per claim."""
        leases, deliveries = self.leases, self.deliveries
        if deliveries.keys().isdisjoint(seqs):
            deliveries.update(dict.fromkeys(seqs, 1))
        else:
            for seq in seqs:
                deliveries[seq] = deliveries.get(seq, 0) + 1
        if self.reclaimable:
            self.reclaimable.difference_update(seqs)
            leases.expired.difference_update(seqs)
        if self.delayed:
            for seq in seqs:
                self.delayed.pop(seq, None)
        leases.put(seqs, Lease(node, lease_id, claimed_ms, deadline_ms, connection))
        if connection:
            leases.hold(seqs, connection)
        self.last_lease_id = max(self.last_lease_id, lease_id)

    def unclaim(self, seqs: Iterable[int], lease_id: int) -> None:
        """Takes back a claim that could not be made durable: it never happened."""
        for seq in seqs:
            if seq not in self.deliveries:
                continue
            self.deliveries[seq] -= 1
            if not self.deliveries[seq]:
                del self.deliveries[seq]
            lease = self.leases.by_seq.get(seq)
            if lease is not None and lease.lease_id == lease_id:  # else it was given back meanwhile
                self.leases.end(seq)
                self._reclaim(seq)

    def released(self, seqs: Iterable[int], ready_ms: int) -> None:
        """The leases end; the jobs are claimable from `ready_ms` on, 0 is now."""
        for seq in seqs:
            if self.leases.end(seq):
                self.reclaimable.discard(seq)
                if ready_ms:
                    self.delay(seq, ready_ms)
                else:
                    self._reclaim(seq)

    def extended(self, seqs: Iterable[int], deadline_ms: int) -> None:
        self.leases.extend(seqs, deadline_ms)

    def delay(self, seq: int, ready_ms: int) -> None:
        """Keeps a job back until `ready_ms`."""
        self.delayed[seq] = ready_ms
        heappush(self._due, (ready_ms, seq))
        if len(self._due) > 2 * len(self.delayed) + _HEAP_SLACK:
            self._due = [(ready_ms, seq) for seq, ready_ms in self.delayed.items()]
            heapify(self._due)

    def leave(self, seqs: Iterable[int]) -> None:
        """These jobs are leaving: nobody gets them any more."""
        for seq in seqs:
            self.leases.end(seq)
            self.reclaimable.discard(seq)
            self.delayed.pop(seq, None)
            self.leaving.add(seq)

    def stay(self, seqs: Iterable[int], ready_ms: int = 0) -> None:
        """They could not leave: they are claimable again, at once or from `ready_ms` on."""
        for seq in seqs:
            if seq in self.leaving:
                self.leaving.discard(seq)
                if ready_ms:
                    self.delay(seq, ready_ms)
                else:
                    self._reclaim(seq)

    def reclaim_strays(self, live_seqs: Iterable[int]) -> None:
        """After a crash: live jobs below the cursor of which nothing is known, so that nobody would ever get them."""
        known = set(self.known())
        for seq in live_seqs:
            if seq < self.claim_cursor and seq not in known:
                self._reclaim(seq)

    def release_all(self) -> None:
        """No lease is certain any more: every job that was handed out can be claimed."""
        self.released(list(self.leases.by_seq), 0)

    # Jobs that are gone

    def forget(self, seqs: Collection[int]) -> None:
        """These jobs are gone from the log: forgets all about them. Once per ack."""
        self.leases.end_all(seqs)
        deliveries = self.deliveries
        for seq in seqs:
            deliveries.pop(seq, None)
        if self.delayed or self.reclaimable or self.leaving:
            for seq in seqs:
                self.delayed.pop(seq, None)
            self.reclaimable.difference_update(seqs)
            self.leaving.difference_update(seqs)

    def forget_below(self, earliest_seq: int) -> None:
        """Hot where a cap evicts at every write, and once per ack: only looks at what goes."""
        gone = range(self._floor, earliest_seq)
        if not gone:
            return
        kept_back = len(self.delayed) + len(self.reclaimable) + len(self.leaving)
        if len(gone) > len(self.deliveries) + kept_back:
            self.forget([seq for seq in set(self.known()) if seq < earliest_seq])
        elif kept_back or not self.deliveries.keys().isdisjoint(gone):  # else they went with their acks
            self.forget(gone)
        self._floor = earliest_seq

    def forget_dead(self, is_live: Callable[[int], bool], before_seq: int) -> None:
        self.forget([seq for seq in set(self.known()) if seq < before_seq and not is_live(seq)])

    def known(self) -> Iterable[int]:
        """Every job that is not fresh; some of them more than once."""
        return chain(self.deliveries, self.delayed, self.reclaimable, self.leaving)

    def restore(self, leases: dict[int, Lease], delayed: dict[int, int], reclaimable: Iterable[int]) -> None:
        """From a snapshot."""
        for seq, lease in leases.items():
            self.leases.put((seq,), lease)
        for seq, ready_ms in delayed.items():
            self.delay(seq, ready_ms)
        for seq in reclaimable:
            self._reclaim(seq)

    def _reclaim(self, seq: int) -> None:
        if seq not in self.reclaimable:
            self.reclaimable.add(seq)
            heappush(self._reclaim_heap, seq)
            if len(self._reclaim_heap) > 2 * len(self.reclaimable) + _HEAP_SLACK:
                self._reclaim_heap = sorted(self.reclaimable)
