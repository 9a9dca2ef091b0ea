"""Queues: claim, ack, nack, extend, and what happens to jobs that nobody could do.

Decides and journals; who holds what is in each topic's `LeaseQueue`. Like the engine: plain calls, deterministic,
`Busy` where an answer has to wait for slow storage, a `commit` where it has to wait for the disk.

Leases are journalled without waiting, and forgotten by a crash: every job can be claimed again then. With
`leases_durable` a claim counts only once it is durable, and outlives a crash. In a topic of class `fsync` claims wait,
too, because the delivery counters are to be as durable as the jobs.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

from topics import limits
from topics.engine import log_reading
from topics.engine.apply import apply_lease
from topics.engine.dead_letters import DeadLetters
from topics.engine.flow import Flow
from topics.engine.journal import Busy, Commit
from topics.engine.lease_queue import Lease, LeaseQueue
from topics.engine.records import Records
from topics.engine.sharing import deal, shares
from topics.engine.topic import Topic
from topics.engine.topics import Topics
from topics.errors import NotAQueue, TopicsError
from topics.model.config import Durability
from topics.model.dead_letter import provenance, stored_record, with_provenance
from topics.model.operation import Claimed, Extended, Grant, Released
from topics.model.operation import Lease as LeaseEvent
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch

_LEASE_ID_CLOCK_BITS = 12


class Claimer(NamedTuple):
    """Who asks for jobs. `connection`: the stream they are pushed to; they are released when it ends."""

    node: str
    count_max: int
    lease_ms: int | None = None
    connection: int = 0


class Job(NamedTuple):
    """A claimed job: `text` is its record with what belongs to the lease."""

    seq: int
    text: bytes


class Claim(NamedTuple):
    """The `seqs` of the jobs and their `texts`, one for each. `commit`: wait for it before you hand out the jobs.
    `moved`: dead letters that this claim found, on their way."""

    seqs: list[int]
    texts: list[bytes]
    commit: Commit | None = None
    moved: Commit | None = None

    @property
    def jobs(self) -> list[Job]:
        return list(map(Job, self.seqs, self.texts))


class Settled(NamedTuple):
    """What an ack, nack or extend did."""

    topic: Topic
    seqs: list[int]
    skipped: list[int]
    commit: Commit | None = None
    deadline_ms: int = 0


class QueueCounts(NamedTuple):
    ready: int
    in_flight: int
    dead_lettered: int


class HeldLease(NamedTuple):
    seq: int
    lease: Lease
    deliveries: int


class Redriven(NamedTuple):
    """One chunk on its way back. `last_seq`: dead letters up to here have been looked at."""

    moving: int
    last_seq: int
    commit: Commit | None


class Queues:
    def __init__(self, flow: Flow, topics: Topics, records: Records, dead_letters: DeadLetters) -> None:
        self._flow = flow
        self._clock = flow.clock
        self._topics = topics
        self._records = records
        self._moves = dead_letters
        self._first_share = 0
        self.on_change: Callable[[Topic], None] = lambda topic: None  # jobs may be claimable that were not

    def queue(self, name: str) -> tuple[Topic, LeaseQueue]:
        """The topic as it is now, which has to be a queue, and nobody is about to delete it."""
        self._flow.await_open(name)
        topic = self._topics.get(name, touch=True)
        return topic, self.swept(topic)

    def swept(self, topic: Topic) -> LeaseQueue:
        """The leases of a queue, without those that have ended by now."""
        if topic.queue is None:
            raise NotAQueue(topic.name)
        topic.queue.sweep(self._clock.now_ms())
        return topic.queue

    def counts(self, topic: Topic) -> QueueCounts:
        """Once per claim and ack."""
        queue = self.swept(topic)
        return QueueCounts(queue.ready(topic.log.count), queue.in_flight(), queue.dead_lettered)

    def ready(self, topic: Topic) -> int:
        """How many jobs can be claimed now. Once per claim."""
        return self.swept(topic).ready(topic.log.count)

    # Claiming

    def claim(self, topic: Topic, claimers: Sequence[Claimer]) -> list[Claim]:
        """Serves all claimers in one pass: what is claimable is divided among them."""
        self._flow.await_open(topic.name)
        self._topics.refresh(topic)
        return self.serve(topic, self.swept(topic), claimers)

    def serve(self, topic: Topic, queue: LeaseQueue, claimers: Sequence[Claimer]) -> list[Claim]:
        """`claim` for who has just asked for the `queue`, which is up to date then. Once per claim."""
        jobs, dead = self._choose(topic, queue, sum(claimer.count_max for claimer in claimers))
        jobs, texts = self._texts(topic, jobs)
        dead_texts: list[bytes] = []
        if dead:
            dead, dead_texts = self._texts(topic, dead, enough=bool(jobs))
        dead_letters = [stored_record(text) for text in dead_texts]
        claims = self._grant(topic, queue, claimers, jobs, texts) if jobs else [Claim([], []) for _ in claimers]
        if dead_letters:
            records = {
                seq: with_provenance(record, topic.name, queue.deliveries[seq], seq)
                for seq, record in zip(dead, dead_letters, strict=True)
            }
            moved = self._move_dead(topic, records)
            claims = [claim._replace(moved=moved) for claim in claims]
        return claims

    @staticmethod
    def _texts(topic: Topic, seqs: list[int], *, enough: bool = False) -> tuple[list[int], list[bytes]]:
        """These jobs and their texts. If some have to be fetched, those that have not: together they may be of more
        segments than fit in memory. Raises `Busy` if that is none, unless there is `enough` without them."""
        try:
            return seqs, log_reading.texts_of(topic.log, seqs)
        except Busy:
            seqs = log_reading.at_hand(topic.log, seqs)
            if not (seqs or enough):
                raise
            return seqs, log_reading.texts_of(topic.log, seqs)

    def _grant(
        self, topic: Topic, queue: LeaseQueue, claimers: Sequence[Claimer], jobs: list[int], texts: list[bytes]
    ) -> list[Claim]:
        """Leases the jobs: once per claim, one lease for all of them."""
        now_ms = self._clock.now_ms()
        if len(claimers) == 1:
            hands = [sorted(jobs)]
        else:
            hands = deal(jobs, shares(len(jobs), [claimer.count_max for claimer in claimers], self._first_share))
            self._first_share += 1
        grants = self._grants(topic, queue, claimers, hands, now_ms)
        cursor = queue.cursor_after(jobs)
        event = Claimed(topic_id=topic.topic_id, ts=now_ms, grants=grants, cursor=cursor)
        connections = [claimer.connection for claimer, hand in zip(claimers, hands, strict=True) if hand]
        commit = self._record(topic, event, gated=self._claims_wait(topic))
        apply_lease(self._flow.state, topic, event, connections)
        if commit is not None:
            commit.when_done(lambda done: self._unclaim(topic, event, done))
        if len(hands) == 1 and hands[0] == jobs:
            return [Claim(jobs, _leased(queue, grants[0], texts), commit)]
        text_of = dict(zip(jobs, texts, strict=True))
        granted = iter(grants)
        return [
            Claim(hand, _leased(queue, next(granted), [text_of[seq] for seq in hand]), commit)
            if hand
            else Claim([], [])
            for hand in hands
        ]

    def _choose(self, topic: Topic, queue: LeaseQueue, wanted: int) -> tuple[list[int], list[int]]:
        """The jobs to hand out, and those that were delivered too often."""
        config = topic.config
        dead: list[int] = []
        count = wanted
        deliveries_max = config.max_deliveries
        if config.dead_letter is None or not (config.auto_create or self._topics.find(config.dead_letter)):
            deliveries_max = 0
        while True:
            chosen = queue.choose(count, partial(log_reading.live_from, topic.log))
            if not deliveries_max:
                return chosen, dead
            dead = [seq for seq in chosen if queue.deliveries.get(seq, 0) >= deliveries_max]
            if len(chosen) < count or len(chosen) - len(dead) >= wanted or len(dead) >= limits.MOVE_RECORDS_MAX:
                gone = set(dead[: limits.MOVE_RECORDS_MAX])
                jobs = [seq for seq in chosen if seq not in gone and queue.deliveries.get(seq, 0) < deliveries_max]
                return jobs[:wanted], dead[: limits.MOVE_RECORDS_MAX]
            count = wanted + len(dead)

    @staticmethod
    def _grants(
        topic: Topic, queue: LeaseQueue, claimers: Sequence[Claimer], hands: list[list[int]], now_ms: int
    ) -> list[Grant]:
        # Ids go on from the clock, so that none is given out again when a crash has taken the last ones.
        lease_id = max(queue.last_lease_id + 1, now_ms << _LEASE_ID_CLOCK_BITS)
        grants: list[Grant] = []
        for claimer, hand in zip(claimers, hands, strict=True):
            if hand:
                lease_ms = topic.config.lease_ms if claimer.lease_ms is None else claimer.lease_ms
                grants.append(Grant(claimer.node, lease_id, now_ms + lease_ms, hand))
                lease_id += 1
        return grants

    def _unclaim(self, topic: Topic, event: Claimed, commit: Commit) -> None:
        if commit.error is not None and topic.queue is not None:
            for grant in event.grants:
                topic.queue.unclaim(grant.seqs, grant.lease_id)

    def _move_dead(self, topic: Topic, records: dict[int, NewRecord]) -> Commit:
        assert topic.config.dead_letter is not None
        moved = self._moves.move(
            topic, records, topic.config.dead_letter, dead_letters=True, create=topic.config.auto_create
        )
        moved.when_done(lambda _: self.on_change(topic))
        return moved

    # Settling

    def ack(self, name: str, node: str, seqs: Sequence[int], lease_ids: Sequence[str] | None) -> Settled:
        """Deletes the jobs whose last holder is `node`. A late ack counts as long as nobody else has the job."""
        topic, queue = self.queue(name)
        held, skipped = _split(queue, node, seqs, lease_ids)
        if not held:
            return Settled(topic, held, skipped)
        log_reading.prepare_removal(topic.log, held)
        commit = self._records.delete_jobs(topic, held, node)
        if commit is None:
            self.on_change(topic)
        else:
            self._flow.state.before_change(topic)
            queue.leave(held)
            commit.when_done(lambda done: self._acked(topic, queue, held, done))
        return Settled(topic, held, skipped, commit)

    def _acked(self, topic: Topic, queue: LeaseQueue, seqs: list[int], commit: Commit) -> None:
        if commit.error is not None:
            queue.stay(seqs)
        self.on_change(topic)

    def nack(
        self, name: str, node: str, seqs: Sequence[int], lease_ids: Sequence[str] | None, delay_ms: int
    ) -> Settled:
        """Gives jobs back, to be claimed again at once or after a while."""
        topic, queue = self.queue(name)
        held, skipped = _split(queue, node, seqs, lease_ids)
        if not held:
            return Settled(topic, held, skipped)
        now_ms = self._clock.now_ms()
        ready_ms = now_ms + delay_ms if delay_ms else 0
        event = Released(topic_id=topic.topic_id, ts=now_ms, seqs=held, ready_ms=ready_ms)
        return Settled(topic, held, skipped, self._settle(topic, event))

    def extend(
        self, name: str, node: str, seqs: Sequence[int], lease_ids: Sequence[str] | None, lease_ms: int
    ) -> Settled:
        """Sets the deadline of leases that still hold to `lease_ms` from now."""
        topic, queue = self.queue(name)
        held, skipped = _split(queue, node, seqs, lease_ids, expired=queue.leases.expired)
        if not held:
            return Settled(topic, held, skipped)
        now_ms = self._clock.now_ms()
        deadline_ms = now_ms + lease_ms
        event = Extended(topic_id=topic.topic_id, ts=now_ms, seqs=held, deadline_ms=deadline_ms)
        return Settled(topic, held, skipped, self._settle(topic, event), deadline_ms)

    def _settle(self, topic: Topic, event: LeaseEvent) -> Commit | None:
        commit = self._record(topic, event, gated=topic.config.leases_durable)
        apply_lease(self._flow.state, topic, event)
        self.on_change(topic)
        return commit

    def release(self, topic: Topic, connection: int) -> None:
        """A stream has ended: what it held can be claimed again."""
        queue = topic.queue
        if queue is None or topic.deleted:
            return
        seqs = sorted(queue.leases.held_by(connection))
        if not seqs:
            return
        event = Released(topic_id=topic.topic_id, ts=self._clock.now_ms(), seqs=seqs)
        with suppress(
            TopicsError, Busy
        ):  # a disk that failed: nobody is there to be told, and the leases end all the same
            self._record(topic, event, gated=False)
        apply_lease(self._flow.state, topic, event)
        self.on_change(topic)

    # Looking

    def leases(self, name: str, after_seq: int, count: int) -> tuple[Topic, list[HeldLease]]:
        """The leases that hold, in the order of their jobs."""
        topic, queue = self.queue(name)
        leases, expired = queue.leases.by_seq, queue.leases.expired
        seqs = sorted(seq for seq in leases if seq > after_seq and seq not in expired)
        return topic, [HeldLease(seq, leases[seq], queue.deliveries[seq]) for seq in islice(seqs, count)]

    # Dead letters

    def dead_letter_head(self, topic: Topic) -> int:
        """How far the dead letters of this queue go now."""
        dead = self._dead_letters(topic)
        return 0 if dead is None else dead.log.head_seq

    def redrive(self, topic: Topic, after_seq: int, to_seq: int, count: int, match: TagMatch | None) -> Redriven:
        """Sends the next dead letters of this queue back to it, at most a chunk."""
        dead = self._dead_letters(topic)
        if dead is None:
            return Redriven(0, to_seq, None)
        self._topics.refresh(dead)
        records: dict[int, NewRecord] = {}
        last_seq = to_seq
        looked_at = log_reading.live_from(dead.log, after_seq + 1, limits.REDRIVE_LOOK_MAX)
        if looked_at:
            last_seq = min(looked_at[-1], to_seq)
        moving = self._moves.moving(dead)
        leased = {} if dead.queue is None else dead.queue.leases.by_seq
        for seq, text in zip(looked_at, log_reading.texts_of(dead.log, looked_at), strict=True):
            if seq > to_seq:
                break
            record = stored_record(text)
            letter = provenance(record)
            if letter is None or letter.queue != topic.name or (match is not None and not match.matches(record.tag)):
                continue
            if seq not in moving and seq not in leased:
                records[seq] = record.again(letter.meta)
                if len(records) == min(count, limits.MOVE_RECORDS_MAX):
                    last_seq = seq
                    break
        if not records:
            return Redriven(0, last_seq, None)
        commit = self._moves.move(dead, records, topic.name, dead_letters=False, create=False)
        commit.when_done(lambda _: self.on_change(dead))
        return Redriven(len(records), last_seq, commit)

    def _dead_letters(self, topic: Topic) -> Topic | None:
        name = topic.config.dead_letter
        return None if name is None or topic.deleted else self._topics.find(name)

    def _record(self, topic: Topic, event: LeaseEvent, *, gated: bool) -> Commit | None:
        """Leases do not queue: they are applied at once, and taken back if the disk fails."""
        self._flow.admit(topic)
        if not topic.log.outlives_process:
            return None  # as little as the jobs
        return self._flow.journal.submit([event], gated=gated)

    @staticmethod
    def _claims_wait(topic: Topic) -> bool:
        return topic.config.leases_durable or topic.config.durability is Durability.FSYNC


def lease_token(lease_id: int, seq: int) -> str:
    """The `lease_id` of one job, as clients see it."""
    return f"lease_{lease_id:x}{seq:08x}"


def _split(
    queue: LeaseQueue,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[str] | None,
    expired: set[int] | frozenset[int] = frozenset(),
) -> tuple[list[int], list[int]]:
    """Which of these jobs `node` holds (under the given lease, if there is one), and which it does not."""
    held: list[int] = []
    skipped: list[int] = []
    leases = queue.leases.by_seq
    if lease_ids is None and not expired:  # most acks: all are held, and none is named twice
        lease = leases.get(seqs[0])
        if lease is not None and lease.node == node and len(set(seqs)) == len(seqs):
            # And mostly of one claim.
            found = [*map(leases.get, seqs)]
            if found.count(lease) == len(found) or all(each is not None and each.node == node for each in found):
                return list(seqs), skipped
    taken: set[int] = set()
    for position, seq in enumerate(seqs):
        lease = leases.get(seq)
        if (
            lease is None
            or lease.node != node
            or seq in expired
            or seq in taken
            or (lease_ids is not None and lease_ids[position] != lease_token(lease.lease_id, seq))
        ):
            skipped.append(seq)
        else:
            held.append(seq)
            taken.add(seq)
    return held, skipped


def _leased(queue: LeaseQueue, grant: Grant, texts: list[bytes]) -> list[bytes]:
    """The lease is inserted after the seq, which comes first in every record's text. Hot: once per job."""
    deliveries = queue.deliveries
    lease = b',"lease_id":"lease_%x%%08x","deadline":%d,"deliveries":%%d,' % (grant.lease_id, grant.deadline_ms)
    return [text.replace(b",", lease % (seq, deliveries[seq]), 1) for seq, text in zip(grant.seqs, texts, strict=True)]
