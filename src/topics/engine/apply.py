"""What each operation changes. The one function that changes the state: live, at recovery, and for readers of the
files.

Reads no clock, no settings, no files and no journal, and never refuses: the operation was decided. The same operations
in the same order give the same state, so what a restart folds from the log is what clients were shown. An operation on
a topic first removes what the topic's TTL has expired by then.
"""

from collections.abc import Sequence
from functools import partial
from typing import assert_never

from topics.engine import copies, log_reading
from topics.engine.lease_queue import NO_CONNECTION
from topics.engine.state import State
from topics.engine.topic import Router, Topic
from topics.model.config import Discard, Durability
from topics.model.gap import GapReason
from topics.model.image import NamedCursor
from topics.model.operation import (
    Appended,
    CapReached,
    Claimed,
    ClockReached,
    ConfigChanged,
    Copies,
    CursorSet,
    Extended,
    Forwarded,
    JobsDelayed,
    JobsDeleted,
    Lease,
    Moved,
    Operation,
    RecordsDeleted,
    Released,
    Restarted,
    RouterDeleted,
    RouterPut,
    SeqsReserved,
    TopicCreated,
    TopicDeleted,
)
from topics.model.record import Batch


def apply(state: State, operation: Operation) -> int:
    """Returns how many records a deletion took; 0 for everything else. An operation on a topic that is gone does
    nothing: the log of one shard may say what happened to the topic, and that of another that it was deleted."""
    if state.uncaptured:
        _capture_before(state, operation)
    if isinstance(operation, Appended):  # first: most are
        if topic := state.topics.by_id(operation.topic_id):
            _append_writes(state, topic, operation)
        return 0
    if isinstance(operation, TopicCreated):
        _create(state, operation)
        return 0
    if isinstance(operation, ClockReached):
        for topic_id in operation.topic_ids:
            if due := state.topics.by_id(topic_id):
                state.expire(due, operation.ts)
        return 0
    topic = state.topics.by_id(operation.topic_id)
    if topic is None:
        return 0
    match operation:
        case RecordsDeleted() | JobsDeleted():
            return _delete(state, topic, operation)
        case Claimed() | Released() | Extended():
            apply_lease(state, topic, operation)
        case JobsDelayed(seqs=seqs, ready_ms=ready_ms):
            if topic.queue is not None:
                for seq in seqs:
                    topic.queue.delay(seq, ready_ms)
        case Forwarded():
            _forward(state, topic, operation)
        case ConfigChanged():
            _configure(state, topic, operation)
        case TopicDeleted():
            state.remove_topic(topic)
        case Moved():
            topic.exchange = True
        case CursorSet(name=name, seq=seq, ts=ts):
            if seq is None:
                topic.own_extras().cursors.pop(name, None)
            else:
                topic.own_extras().cursors[name] = NamedCursor(seq, ts)
        case SeqsReserved(ceiling=ceiling):
            topic.ceiling = max(topic.ceiling, ceiling)
            topic.requested_ceiling = max(topic.requested_ceiling, ceiling)
        case CapReached(through_seq=through_seq):
            state.evict_through(topic, through_seq)
        case RouterPut():
            _put_router(state, topic, operation)
        case RouterDeleted(router_id=router_id):
            if router := topic.inbound.get(router_id):
                state.remove_router(router)
        case Restarted():
            _restart(state, topic, operation)
        case _:
            assert_never(operation)
    if not topic.deleted:
        state.changed[topic] = None
    return 0


def _capture_before(state: State, operation: Operation) -> None:
    """A checkpoint shows all topics at one instant, but captures them a few at a time: captures those first that this
    operation is about to change."""
    topics = [state.topics.by_id(operation.topic_id)]
    if isinstance(operation, ClockReached):
        topics = [state.topics.by_id(topic_id) for topic_id in operation.topic_ids]
    elif isinstance(operation, Forwarded):
        routers = [state.routers.by_id(router_id) for router_id in operation.routers]
        topics += [router.dest for router in routers if router is not None]
    for topic in topics:
        if topic is not None:
            state.before_change(topic)


# Topics


def _create(state: State, created: TopicCreated) -> None:
    topic = state.unborn.pop(created.topic_id, None)
    if topic is None:
        topic = Topic(created.name, created.topic_id, created.config, state.new_log())
    topic.exchange = created.exchange
    topic.ceiling = created.ceiling
    topic.requested_ceiling = max(topic.requested_ceiling, created.ceiling)
    state.add_topic(topic)


def _configure(state: State, topic: Topic, change: ConfigChanged) -> None:
    state.expire(topic, change.ts)  # what the old TTL took stays taken
    state.topics_by_class[topic.config.durability] -= 1
    topic.configure(change.config)
    state.topics_by_class[topic.config.durability] += 1
    topic.log.keep_resident(change.config.durability is Durability.EPHEMERAL)
    state.expire(topic, change.ts)
    if change.config.discard is Discard.OLD:
        state.evict(topic)
    topic.due_ms = 0
    state.watch_ttl(topic)


def _restart(state: State, topic: Topic, restarted: Restarted) -> None:
    log = topic.log
    bytes_before, count_before = log.bytes, log.count
    log.drop_resident()
    state.count_lost(GapReason.CRASH, count_before - log.count)
    state.account(topic, bytes_before, count_before)
    if restarted.head_seq > log.head_seq:
        _lose(state, topic, restarted.head_seq, GapReason.CRASH)
    for router_id, cursor in restarted.cursors.items():
        if router := topic.inbound.get(router_id):
            router.cursor = router.decided = router.logged = cursor
    for first_seq, last_seq, reason in log.lost_ranges:
        topic.own_extras().losses.note(first_seq, last_seq, reason, log.last_ts)
    queue = topic.queue
    if queue is not None:
        # Jobs that were claimed and lost may have had these seqs; the next ones are new.
        queue.forget_dead(partial(log_reading.is_live, log), log.head_seq + 1)
        queue.forget([seq for seq in set(queue.known()) if seq > log.head_seq])
        queue.claim_cursor = min(queue.claim_cursor, log.head_seq + 1)
        queue.reclaim_strays(log_reading.live_below(log, queue.claim_cursor))
        if not topic.config.leases_durable:
            queue.release_all()


def _lose(state: State, topic: Topic, last_seq: int, reason: GapReason) -> None:
    """Seqs up to here have no record, and never will."""
    first_seq = topic.log.head_seq + 1
    topic.log.lose(first_seq, last_seq, reason)
    topic.own_extras().losses.note(first_seq, last_seq, reason, topic.log.last_ts)
    state.count_lost(reason, last_seq - first_seq + 1)
    _published(state, topic)


# Records


def _append_writes(state: State, topic: Topic, appended: Appended) -> None:
    if appended.first_seq > topic.log.head_seq + 1:
        # Records came before these that no log has: their class was `ephemeral`.
        _lose(state, topic, appended.first_seq - 1, GapReason.CRASH)
    writes, config = appended.writes, topic.config
    if len(writes) > 1 and (config.ttl_ms or config.cap_records or config.cap_bytes):
        # What a bound takes depends on what is there: one write after the other, as they were made.
        start = 0
        for write in writes:
            stop = write.last_seq - appended.first_seq + 1
            _append(state, topic, appended.batch.part(start, stop), appended.timestamps[start:stop])
            start = stop
    else:
        _append(state, topic, appended.batch, appended.timestamps)
    if len(writes) == 1 and writes[0].key is None:
        return
    first_seq = appended.first_seq
    for write in writes:
        if write.key is not None:
            ts = appended.timestamps[first_seq - appended.first_seq]
            count = write.last_seq - first_seq + 1
            topic.own_extras().keys.remember(write.key, first_seq, count, ts, topic.log.resident_from)
        first_seq = write.last_seq + 1


def _append(state: State, topic: Topic, batch: Batch, timestamps: Sequence[int]) -> None:
    """From here on readers see it. Hot: once per write."""
    config = topic.config
    if config.ttl_ms:
        state.expire(topic, timestamps[0])
    if topic.log.append(batch, timestamps):
        state.note_block(topic)
    state.bytes_live += batch.total_bytes
    state.records_live += len(batch.fragments)
    if (config.cap_records or config.cap_bytes) and config.discard is Discard.OLD:
        state.evict(topic)
    topic.last_write_ts = timestamps[-1]
    if config.ttl_ms and not topic.due_ms:
        state.watch_ttl(topic)
    _published(state, topic)


def _published(state: State, topic: Topic) -> None:
    state.changed[topic] = None
    state.on_change(topic)
    if topic.outbound:
        state.on_forwardable(topic)


def _delete(state: State, topic: Topic, deleted: RecordsDeleted | JobsDeleted) -> int:
    log, queue = topic.log, topic.queue
    state.expire(topic, deleted.ts)
    bytes_before, count_before = log.bytes, log.count
    if isinstance(deleted, JobsDeleted):
        count = log.delete_seqs(deleted.seqs)
        if queue is not None:
            queue.forget(deleted.seqs)
            queue.dead_lettered += len(deleted.seqs) if deleted.dead_letters else 0
    elif deleted.match is None:
        count = log.delete_before(deleted.before_seq)
    else:
        count = log.delete_matching(deleted.match, deleted.before_seq)
        if queue is not None:
            queue.forget_dead(partial(log_reading.is_live, log), deleted.before_seq)
    state.account(topic, bytes_before, count_before)
    if count:
        for router in topic.inbound.values():
            state.on_forwardable(router.source)  # its copies may have room now
    return count


# Queues


def apply_lease(state: State, topic: Topic, event: Lease, connections: Sequence[int] = ()) -> None:
    """`connections`: those the grants of a claim are for."""
    queue = topic.queue
    if queue is None:
        return
    state.before_change(topic)
    match event:
        case Claimed(ts=claimed_ms, grants=grants, cursor=cursor):
            for number, grant in enumerate(grants):
                connection = connections[number] if connections else NO_CONNECTION
                queue.claimed(grant.seqs, grant.node, grant.lease_id, claimed_ms, grant.deadline_ms, connection)
            queue.pass_by(cursor)
        case Released(seqs=seqs, ready_ms=ready_ms):
            queue.released(seqs, ready_ms)
        case Extended(seqs=seqs, deadline_ms=deadline_ms):
            queue.extended(seqs, deadline_ms)
    state.changed[topic] = None


# Routers


def _put_router(state: State, dest: Topic, put: RouterPut) -> None:
    router = dest.inbound.get(put.router_id)
    if router is not None:
        router.settings = put.settings
        return
    source = state.topics.by_id(put.source_id)
    if source is not None:
        state.add_router(Router(put.router_id, put.name, source, dest, put.settings, put.ts, put.cursor))


def _forward(state: State, source: Topic, forwarded: Forwarded) -> None:
    by_dest: dict[Topic, list[Router]] = {}
    for router_id in forwarded.routers:
        router = state.routers.by_id(router_id)
        if router is not None and router.source is source:
            by_dest.setdefault(router.dest, []).append(router)
    for dest, routers in by_dest.items():
        if forwarded.lost is not None:
            gap_from = min(router.cursor for router in routers) + 1
            hops = copies.hops_of_gap(source.hops, gap_from, forwarded.through_seq)
            _lose(state, dest, dest.log.head_seq + 1, forwarded.lost)
            if routers[0].ring:
                dest.own_extras().hops[dest.log.head_seq] = hops + 1
        else:
            _copy(state, dest, forwarded.copies or _copies(state, source, dest, routers, forwarded))
        for router in routers:
            router.cursor = max(router.cursor, forwarded.through_seq)
            router.decided = max(router.decided, router.cursor)
        copies.forget_hops(source)
        state.changed[dest] = None


def _copies(state: State, source: Topic, dest: Topic, routers: list[Router], forwarded: Forwarded) -> Copies:
    """Makes the copies again. If the log does not have all of the originals, nobody knows which copy had which seq:
    then all of these seqs stay taken."""
    made = copies.between(source, dest, routers, forwarded.through_seq, forwarded.oldest_ts)
    if dest.log.head_seq + len(made.timestamps) < forwarded.dest_seq:
        _lose(state, dest, forwarded.dest_seq, GapReason.CRASH)
        return copies.NOTHING
    return made


def _copy(state: State, dest: Topic, made: Copies) -> None:
    if made.hops:
        dest.own_extras().hops.update(made.hops)
    if made.batch.fragments:
        _append(state, dest, made.batch, made.timestamps)
    for router_id, count in made.counts.items():
        if router := dest.inbound.get(router_id):
            router.forwarded_total += count
