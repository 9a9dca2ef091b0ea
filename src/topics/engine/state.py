"""What the engine holds, and how operations change it: what has been decided, now or in an earlier life.

Nothing here refuses, journals or waits. Whoever calls it has decided (`engine.Engine`), or repeats what an earlier
process decided (`rebuild.Rebuild`). Time comes in as an argument.
"""

from collections.abc import Callable, Sequence

from topics.engine.block import AnyBlock, Batch
from topics.engine.lease_queue import NO_CONNECTION, LeaseQueue
from topics.engine.registry import Registry
from topics.engine.router import Router
from topics.engine.router_graph import RouterRegistry, link, unlink
from topics.engine.topic import Move, NamedCursor, Topic
from topics.engine.topic_log import TopicLog
from topics.model.config import Discard, Durability, TopicConfig
from topics.model.gap import GapReason
from topics.model.lease_event import Claimed, Delayed, Extended, MoveBegun, MoveGivenUp, NumberedEvent, Released
from topics.model.router import RouterSettings
from topics.model.tag_match import TagMatch


class EngineState:
    def __init__(self, block_events_max: int, block_bytes_max: int) -> None:
        self._block_events_max = block_events_max
        self._block_bytes_max = block_bytes_max
        self._with_ttl: dict[Topic, None] = {}  # a set in the order they came: everything here is deterministic
        # What the next checkpoint has to write.
        self._changed: set[Topic] = set()
        self._removed: list[int] = []
        self.topics = Registry()
        self.routers = RouterRegistry()
        self.next_topic_id = 1
        self.bytes_live = 0
        self.records_live = 0
        self.on_change: Callable[[Topic], None] = _nobody  # told of every append, and of a topic's end
        self.on_forwardable: Callable[[Topic], None] = _nobody  # told of topics that have records for their routers
        self.blocks_filled = 0  # ever: full blocks wait to be sealed

    def new_log(self) -> TopicLog:
        return TopicLog(self._block_events_max, self._block_bytes_max)

    def apply_add_topic(self, topic: Topic) -> None:
        self.topics.add(topic)
        topic.log.keep_resident(topic.config.durability is Durability.EPHEMERAL)
        self._note_ttl(topic)
        self.bytes_live += topic.log.bytes
        self.records_live += topic.log.count
        self._changed.add(topic)

    def apply_delete_topic(self, topic: Topic) -> None:
        for router in (*topic.inbound.values(), *topic.outbound.values()):
            self.apply_remove_router(router)
        self.topics.remove(topic.name)
        self._with_ttl.pop(topic, None)
        self._changed.discard(topic)
        self._removed.append(topic.topic_id)
        self.bytes_live -= topic.log.bytes
        self.records_live -= topic.log.count
        topic.deleted = True
        self.on_change(topic)

    def apply_config(self, topic: Topic, config: TopicConfig, version: int, now_ms: int) -> None:
        self._current(topic, now_ms)  # what the old TTL took stays taken
        topic.configure(config)
        topic.config_version = version
        topic.log.keep_resident(config.durability is Durability.EPHEMERAL)
        self._note_ttl(topic)
        self._current(topic, now_ms)
        if config.discard is Discard.OLD:
            self._evict(topic)
        self._changed.add(topic)

    def apply_cursor(self, topic: Topic, cursor: str, seq: int | None, ts: int) -> None:
        if seq is None:
            topic.cursors.pop(cursor, None)
        else:
            topic.cursors[cursor] = NamedCursor(seq, ts)
        self._changed.add(topic)

    def apply_append(self, topic: Topic, batch: Batch, timestamps: Sequence[int]) -> None:
        """Publishes a batch: from here on readers see it. Hot."""
        if topic.log.append(batch, timestamps):
            self.blocks_filled += 1
        self.bytes_live += batch.total_bytes
        self.records_live += len(batch.fragments)
        config = topic.config
        if (config.cap_records or config.cap_bytes) and config.discard is Discard.OLD:
            self._evict(topic)
        topic.last_write_ts = timestamps[-1]
        self._changed.add(topic)
        self.on_change(topic)
        if topic.outbound:
            self.on_forwardable(topic)

    def apply_lost(self, topic: Topic, reason: GapReason) -> None:
        """The next seq stands for records its router could not have."""
        seq = topic.log.head_seq + 1
        topic.log.lose(seq, seq, reason)
        topic.losses.note(seq, seq, reason, topic.log.last_ts)
        self._changed.add(topic)
        self.on_change(topic)
        if topic.outbound:
            self.on_forwardable(topic)

    def apply_add_router(self, router: Router) -> None:
        link(router)
        self.routers.add(router)
        self._changed.add(router.dest)

    def apply_router_settings(self, router: Router, settings: RouterSettings) -> None:
        router.settings = settings
        self._changed.add(router.dest)

    def apply_remove_router(self, router: Router) -> None:
        if self.routers.get(router.name) is router:
            unlink(router)
            self.routers.remove(router.name)
            self._changed.add(router.dest)

    def apply_delete_records(self, topic: Topic, before_seq: int, match: TagMatch | None) -> int:
        """Returns how many records it took."""
        log = topic.log
        bytes_before, count_before = log.bytes, log.count
        deleted = log.delete_before(before_seq) if match is None else log.delete_matching(match, before_seq)
        if topic.queue is not None and match is not None:
            topic.queue.forget_dead(log.is_live, before_seq)
        self._account(topic, bytes_before, count_before)
        return deleted

    def apply_delete_jobs(self, topic: Topic, seqs: list[int], move: str | None) -> int:
        """Acked, or moved away by the move with this key. Returns how many records it took."""
        log = topic.log
        bytes_before, count_before = log.bytes, log.count
        deleted = log.delete_seqs(seqs)
        begun = None if move is None else topic.moves.pop(move, None)
        if topic.queue is not None:
            topic.queue.forget(seqs)
            if begun is not None and begun.dead_letters:
                topic.queue.dead_lettered += len(seqs)
        self._account(topic, bytes_before, count_before)
        return deleted

    def apply_lease_event(self, topic: Topic, event: NumberedEvent, connections: Sequence[int] = ()) -> None:
        """`connections`: those the grants of a claim are for."""
        if event.number <= topic.event_number:
            return
        topic.event_number = event.number
        queue = topic.queue
        if isinstance(event, MoveBegun):
            topic.moves[event.key] = Move(event.seqs, event.dest_id, event.dead_letters)
            if queue is not None:
                queue.leave(event.seqs)
        elif isinstance(event, MoveGivenUp):
            move = topic.moves.pop(event.key, None)
            if queue is not None and move is not None:
                queue.stay(move.seqs)
        elif queue is not None:
            _apply_to_queue(queue, event, connections)
        self._changed.add(topic)

    def apply_delays(self, topic: Topic, delays: Sequence[Delayed]) -> None:
        assert topic.queue is not None, topic.name
        for delayed in delays:
            for seq in delayed.seqs:
                topic.queue.delay(seq, delayed.ready_ms)

    def apply_expired(self, topic: Topic, ttl_lost_seq: int) -> None:
        bytes_before, count_before, first_seq = topic.log.bytes, topic.log.count, topic.log.earliest_seq
        topic.log.expire_through(ttl_lost_seq)
        topic.losses.note(first_seq, topic.log.ttl_lost_seq, GapReason.TTL, topic.log.last_ts)
        self._account(topic, bytes_before, count_before)

    def recount(self, topic: Topic, count: Callable[[AnyBlock, int], None]) -> None:
        bytes_before, count_before = topic.log.bytes, topic.log.count
        topic.log.recount(count)
        self._account(topic, bytes_before, count_before)

    def reset_totals(self) -> None:
        """Before all topics are added anew."""
        self.bytes_live = self.records_live = 0

    def take_changes(self) -> tuple[list[Topic], list[int]]:
        """The topics changed since the last call, and the ids of those removed."""
        changed = sorted((topic for topic in self._changed if not topic.deleted), key=lambda topic: topic.topic_id)
        removed = self._removed
        self._changed, self._removed = set(), []
        return changed, removed

    def return_changes(self, changed: list[Topic], removed: list[int]) -> None:
        """They could not be made durable: they are still changes."""
        self._changed.update(topic for topic in changed if not topic.deleted)
        self._removed = removed + self._removed

    def _note_ttl(self, topic: Topic) -> None:
        if topic.config.ttl_ms:
            self._with_ttl[topic] = None
        else:
            self._with_ttl.pop(topic, None)

    def _current(self, topic: Topic, now_ms: int, *, wait: bool = False) -> Topic:
        """The topic after its TTL has been applied at `now_ms`; see `TopicLog.expire` for `wait`."""
        if topic.config.ttl_ms:
            log = topic.log
            bytes_before, count_before, first_seq = log.bytes, log.count, log.earliest_seq
            topic.expire(now_ms, wait=wait)
            if count_before != log.count:
                topic.losses.note(first_seq, log.ttl_lost_seq, GapReason.TTL, now_ms)
                self._account(topic, bytes_before, count_before)
        return topic

    def _evict(self, topic: Topic) -> None:
        config, log = topic.config, topic.log
        if config.cap_records or config.cap_bytes:
            bytes_before, count_before, first_seq = log.bytes, log.count, log.earliest_seq
            log.evict(config.cap_records, config.cap_bytes)
            if count_before != log.count:
                topic.losses.note(first_seq, log.cap_lost_seq, GapReason.CAP, log.last_ts)
                self._account(topic, bytes_before, count_before)

    def _account(self, topic: Topic, bytes_before: int, count_before: int) -> None:
        self.bytes_live += topic.log.bytes - bytes_before
        self.records_live += topic.log.count - count_before
        if topic.queue is not None:
            topic.queue.forget_below(topic.log.earliest_seq)
        self._changed.add(topic)


def _nobody(topic: Topic) -> None:
    """Nobody watches."""


def _apply_to_queue(queue: LeaseQueue, event: Claimed | Released | Extended, connections: Sequence[int]) -> None:
    match event:
        case Claimed(grants=grants, cursor=cursor):
            for number, grant in enumerate(grants):
                connection = connections[number] if connections else NO_CONNECTION
                queue.claimed(grant.seqs, grant.node, grant.lease_id, grant.deadline_ms, connection)
            queue.pass_by(cursor)
        case Released(seqs=seqs, ready_ms=ready_ms):
            queue.released(seqs, ready_ms)
        case Extended(seqs=seqs, deadline_ms=deadline_ms):
            queue.extended(seqs, deadline_ms)
