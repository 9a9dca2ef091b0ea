"""What the engine holds: every topic and router, what they add up to, and what a checkpoint has to write.

Changed by `apply.py` alone. Nothing here refuses, journals or waits, and time comes in as an argument.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from topics import limits
from topics.engine import log_reading
from topics.engine.registry import Registry
from topics.engine.router_graph import RouterRegistry, link, unlink
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
        self.changed: set[Topic] = set()
        self._removed: list[int] = []
        self.topics = Registry()
        self.unborn: dict[int, Topic] = {}  # decided and not there yet, by id
        self.routers = RouterRegistry()
        self.next_id = 1  # of topics and routers: no two of them ever have the same
        self.bytes_live = 0
        self.records_live = 0
        self.topics_by_class = dict.fromkeys(Durability, 0)
        self.queue_topics: dict[Topic, None] = {}
        self.lost_total: dict[GapReason, int] = {}  # records, since the start
        self.blocks_filled = 0  # ever: full blocks wait to be sealed
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
        self.changed.add(topic)
        self.watch_ttl(topic)

    def remove_topic(self, topic: Topic) -> None:
        for router in (*topic.inbound.values(), *topic.outbound.values()):
            self.remove_router(router)
        self.topics.remove(topic)
        self.changed.discard(topic)
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
        self.changed.add(router.dest)

    def remove_router(self, router: Router) -> None:
        if self.routers.get(router.name) is router:
            unlink(router)
            self.routers.remove(router)
            self.changed.add(router.dest)

    # Records that go

    def evict(self, topic: Topic) -> None:
        """Lets the caps of the topic take what is beyond them."""
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
            topic.losses.note(first_seq, log.cap_lost_seq, GapReason.CAP, log.last_ts)
            self.count_lost(GapReason.CAP, count_before - log.count)
            self.account(topic, bytes_before, count_before)

    def expire(self, topic: Topic, now_ms: int, *, wait: bool = False) -> None:
        """Lets the TTL of the topic take what is too old at `now_ms`; see `TopicLog.expire` for `wait`.

        Doing it now or with the next operation comes to the same: what goes is always the oldest.
        """
        ttl_ms = topic.config.ttl_ms
        if ttl_ms:
            log = topic.log
            bytes_before, count_before, first_seq = log.bytes, log.count, log.earliest_seq
            log.expire(now_ms - ttl_ms, wait=wait)  # expired: now - ts > ttl
            if count_before != log.count:
                topic.expired_ms = max(topic.expired_ms, now_ms)
                topic.losses.note(first_seq, log.ttl_lost_seq, GapReason.TTL, now_ms)
                self.count_lost(GapReason.TTL, count_before - log.count)
                self.account(topic, bytes_before, count_before)

    def count_lost(self, reason: GapReason, records: int) -> None:
        self.lost_total[reason] = self.lost_total.get(reason, 0) + records

    def account(self, topic: Topic, bytes_before: int, count_before: int) -> None:
        """Records of the topic are gone: takes over what that changes elsewhere."""
        self.bytes_live += topic.log.bytes - bytes_before
        self.records_live += topic.log.count - count_before
        if topic.queue is not None:
            topic.queue.forget_below(topic.log.earliest_seq)
        self.changed.add(topic)

    # When TTLs take something

    def watch_ttl(self, topic: Topic) -> None:
        """Has the topic looked at when its oldest record is too old."""
        if topic.config.ttl_ms and topic.log.count:
            due_ms = log_reading.oldest_ts(topic.log) + topic.config.ttl_ms + 1
            if not topic.due_ms or due_ms < topic.due_ms:
                topic.due_ms = due_ms
                heappush(self._due, (due_ms, topic.topic_id))

    def take_due(self, now_ms: int, count_max: int) -> list[Topic]:
        """Topics whose TTL may take something by now, so many at most. The others cost nothing."""
        found: list[Topic] = []
        while len(found) < count_max and self._due and self._due[0][0] <= now_ms:
            due_ms, topic_id = heappop(self._due)
            topic = self.topics.by_id(topic_id)
            if topic is not None and topic.due_ms == due_ms:
                topic.due_ms = 0
                found.append(topic)
        return found

    # Checkpoints

    def take_changes(self) -> tuple[list[Topic], list[int]]:
        """The topics changed since the last call, and the ids of those removed."""
        changed = sorted((topic for topic in self.changed if not topic.deleted), key=lambda topic: topic.topic_id)
        removed = self._removed
        self.changed, self._removed = set(), []
        return changed, removed

    def return_changes(self, changed: list[Topic], removed: list[int]) -> None:
        """They could not be made durable: they are still changes."""
        self.changed.update(topic for topic in changed if not topic.deleted)
        self._removed = removed + self._removed


def _nobody(topic: Topic) -> None:
    """Nobody watches."""
