"""What the engine holds: every topic and router, their totals, and what a checkpoint has to write.

Changed by `apply.py` alone. Nothing here refuses, journals or waits, and time comes in as an argument.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from topics import limits
from topics.engine import log_reading
from topics.engine.block import Block
from topics.engine.registry import Registry
from topics.engine.router_graph import RouterRegistry, around, link, unlink
from topics.engine.topic import Router, Topic
from topics.engine.topic_log import TopicLog
from topics.model.config import Durability
from topics.model.gap import GapReason


class State:
    def __init__(
        self,
        block_events_max: int = limits.SEGMENT_EVENTS_MAX,
        block_bytes_max: int = limits.SEGMENT_BYTES_MAX,
    ) -> None:
        self._block_events_max = block_events_max
        self._block_bytes_max = block_bytes_max
        self._due: list[tuple[int, int]] = []  # (when a TTL takes something at the earliest, topic id); a heap
        # What the next checkpoint has to write.
        self.changed: dict[Topic, None] = {}
        self._removed: list[int] = []
        # What the one under way has still to take, as it is now.
        self.uncaptured: dict[Topic, None] = {}
        self._capture: Callable[[Topic], None] = _nobody
        # What waits to be sealed.
        self.full: dict[Topic, None] = {}  # topics with a block that takes no more records
        self.begun: deque[int] = deque()  # topics in the order their open blocks were begun
        self.large: dict[Block, Topic] = {}  # blocks that count for the budget
        self.captured: set[Block] = set()  # of these, whose records a checkpoint holds
        self.unsealed_bytes = 0  # in memory, of those; never too low
        self.on_full: Callable[[], None] = _nothing
        self.topics = Registry()
        self.unborn: dict[int, Topic] = {}  # decided and not there yet, by id
        self.routers = RouterRegistry()
        self.next_id = 1  # of topics and routers: no two of them ever have the same
        self.bytes_live = 0
        self.records_live = 0
        self.topics_by_class = dict.fromkeys(Durability, 0)
        self.queue_topics: dict[Topic, None] = {}
        self.lost_total: dict[GapReason, int] = {}  # records, since the start
        self.on_change: Callable[[Topic], None] = _nobody  # told of every append, and of a topic's end
        self.on_forwardable: Callable[[Topic], None] = _nobody  # told of topics that have records for their routers

    def new_log(self) -> TopicLog:
        return TopicLog(self._block_events_max, self._block_bytes_max)

    # Topics and routers

    def add_topic(self, topic: Topic) -> None:
        self.topics.add(topic)
        topic.log.keep_resident(topic.config.durability is Durability.EPHEMERAL)
        self.next_id = max(self.next_id, topic.topic_id + 1)
        self.bytes_live += topic.log.bytes
        self.records_live += topic.log.count
        self.topics_by_class[topic.config.durability] += 1
        if topic.queue is not None:
            self.queue_topics[topic] = None
        self.changed[topic] = None
        self.watch_ttl(topic)

    def remove_topic(self, topic: Topic) -> None:
        for router in (*topic.inbound.values(), *topic.outbound.values()):
            self.remove_router(router)
        self.full.pop(topic, None)
        self.topics.remove(topic)
        self.changed.pop(topic, None)
        self._removed.append(topic.topic_id)
        self.bytes_live -= topic.log.bytes
        self.records_live -= topic.log.count
        self.topics_by_class[topic.config.durability] -= 1
        self.queue_topics.pop(topic, None)
        topic.deleted = True
        self.on_change(topic)

    def add_router(self, router: Router) -> None:
        link(router)
        self.routers.add(router)
        self.next_id = max(self.next_id, router.router_id + 1)
        self.changed[router.dest] = None

    def remove_router(self, router: Router) -> None:
        if self.routers.get(router.name) is router:
            if self.uncaptured:
                for topic in around(router.source, router.dest):
                    self.before_change(topic)
            unlink(router)
            self.routers.remove(router)
            self.changed[router.dest] = None

    # Records that go

    def evict(self, topic: Topic) -> None:
        """Evicts what is beyond the caps of the topic."""
        config, log = topic.config, topic.log
        if (config.cap_records and log.count > config.cap_records) or (
            config.cap_bytes and log.bytes > config.cap_bytes
        ):
            self.evict_through(topic, log_reading.beyond_cap(log, config.cap_records, config.cap_bytes, cold=False))

    def evict_through(self, topic: Topic, last_seq: int) -> None:
        log = topic.log
        bytes_before, count_before, first_seq = log.bytes, log.count, log.earliest_seq
        log.evict_through(last_seq)
        if count_before != log.count:
            topic.own_extras().losses.note(first_seq, log.cap_lost_seq, GapReason.CAP, log.last_ts)
            self.count_lost(GapReason.CAP, count_before - log.count)
            self.account(topic, bytes_before, count_before)

    def expire(self, topic: Topic, now_ms: int, *, wait: bool = False) -> None:
        """Expires what is too old at `now_ms`; see `TopicLog.expire` for `wait`.

        Doing it now or with the next operation comes to the same: what goes is always the oldest.
        """
        ttl_ms = topic.config.ttl_ms
        if ttl_ms:
            log = topic.log
            if self.uncaptured:
                self.before_change(topic)
            bytes_before, count_before, first_seq = log.bytes, log.count, log.earliest_seq
            log.expire(now_ms - ttl_ms, wait=wait)  # expired: now - ts > ttl
            if count_before != log.count:
                topic.expired_ms = max(topic.expired_ms, now_ms)
                topic.own_extras().losses.note(first_seq, log.ttl_lost_seq, GapReason.TTL, now_ms)
                self.count_lost(GapReason.TTL, count_before - log.count)
                self.account(topic, bytes_before, count_before)

    def count_lost(self, reason: GapReason, records: int) -> None:
        self.lost_total[reason] = self.lost_total.get(reason, 0) + records

    def account(self, topic: Topic, bytes_before: int, count_before: int) -> None:
        """Records of the topic are gone: updates the totals and everything else that depends on them."""
        self.bytes_live += topic.log.bytes - bytes_before
        self.records_live += topic.log.count - count_before
        if topic.queue is not None:
            topic.queue.forget_below(topic.log.earliest_seq)
        self.changed[topic] = None

    # When TTLs take something

    def watch_ttl(self, topic: Topic) -> None:
        """Remembers to look at the topic when its oldest record expires."""
        if topic.config.ttl_ms and topic.log.count:
            due_ms = log_reading.oldest_ts(topic.log) + topic.config.ttl_ms + 1
            if not topic.due_ms or due_ms < topic.due_ms:
                topic.due_ms = due_ms
                heappush(self._due, (due_ms, topic.topic_id))

    def take_due(self, now_ms: int, count_max: int) -> list[Topic]:
        """Up to so many topics whose TTL may have expired something by now. The others cost nothing."""
        found: list[Topic] = []
        while len(found) < count_max and self._due and self._due[0][0] <= now_ms:
            due_ms, topic_id = heappop(self._due)
            topic = self.topics.by_id(topic_id)
            if topic is not None and topic.due_ms == due_ms:
                topic.due_ms = 0
                found.append(topic)
        return found

    # Sealing

    def note_block(self, topic: Topic) -> None:
        """The last block of the topic is new, large or full."""
        log = topic.log
        block = log.blocks[-1]
        if not isinstance(block, Block) or log.is_resident(block):
            return
        if block.counted_bytes < 0:
            block.counted_bytes = 0
            self.begun.append(topic.topic_id)
        if log.is_full(block) or (len(log.blocks) > 1 and isinstance(log.blocks[-2], Block)):
            self.full[topic] = None
            self.on_full()
        if block.written_bytes >= limits.SMALL_TAIL_BYTES:
            memory_bytes = block.memory_bytes
            self.large[block] = topic
            self.unsealed_bytes += memory_bytes - block.counted_bytes
            block.counted_bytes = memory_bytes

    def count_unsealed(self) -> int:
        """Counts anew what is in memory and could be sealed, because blocks may have gone in many ways. What a
        checkpoint holds is in memory until it is written, also when its block has gone."""
        captured = self.captured
        gone = [block for block, topic in self.large.items() if not holds(topic, block) and block not in captured]
        for block in gone:
            del self.large[block]
        self.unsealed_bytes = sum(block.counted_bytes for block in self.large)
        return self.unsealed_bytes

    # Checkpoints

    @property
    def has_changes(self) -> bool:
        """Whether anything has changed since the last checkpoint began."""
        return bool(self.changed or self._removed)

    def begin_capture(self, capture: Callable[[Topic], None]) -> list[int]:
        """The instant of a checkpoint: `capture` is called for each topic changed since the last one, as it is now, by
        `capture_next` or before it changes. Returns the ids of those removed."""
        assert not self.uncaptured, "one checkpoint at a time"
        removed = self._removed
        self.uncaptured, self.changed, self._removed, self._capture = self.changed, {}, [], capture
        return removed

    def capture_next(self) -> bool:
        """Has one more captured; False when all are."""
        if not self.uncaptured:
            return False
        topic, _ = self.uncaptured.popitem()
        self._capture(topic)
        return True

    def before_change(self, topic: Topic) -> None:
        """Called before anything a snapshot has of the topic is changed: a checkpoint under way captures it first."""
        if topic in self.uncaptured:
            del self.uncaptured[topic]
            self._capture(topic)

    def end_capture(self, captured: list[Topic], removed: list[int]) -> None:
        """The checkpoint failed: what it has captured, or was about to, is still to be written."""
        for topic in (*captured, *self.uncaptured):
            if not topic.deleted:
                self.changed[topic] = None
        self.uncaptured = {}
        self._removed = removed + self._removed

    def forget_changes(self) -> None:
        """What is here is in a snapshot already."""
        self.changed.clear()
        self._removed.clear()


def holds(topic: Topic, block: Block) -> bool:
    """Whether the block is still part of the topic, as it is."""
    return not topic.deleted and topic.log.block_at(block.first_seq) is block


def _nobody(topic: Topic) -> None:
    """Nobody watches."""


def _nothing() -> None:
    """Nobody seals."""
