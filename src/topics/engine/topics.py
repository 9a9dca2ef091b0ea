"""Topics: making, changing, looking up and deleting them, and the named cursors kept with them."""

from typing import NamedTuple

from topics import limits
from topics.engine import log_reading
from topics.engine.flow import EngineLimits, Flow
from topics.engine.forwarding import Forwarding
from topics.engine.journal import Busy, Commit
from topics.engine.router_graph import around
from topics.engine.topic import Topic
from topics.errors import Throttled, TopicNotEmpty, TopicNotFound, TopicsError
from topics.model.config import DEFAULT_CONFIG, Discard, Durability, TopicConfigPatch, merge
from topics.model.names import check_topic_name
from topics.model.operation import CapReached, ConfigChanged, CursorSet, TopicCreated, TopicDeleted


class PutTopic(NamedTuple):
    topic: Topic
    created: bool
    commit: Commit | None


class DeletedTopic(NamedTuple):
    deleted: bool
    commit: Commit | None
    routers_removed: tuple[str, ...] = ()


class Page(NamedTuple):
    topics: list[Topic]
    last_name: str
    more: bool


class Topics:
    def __init__(self, flow: Flow, bounds: EngineLimits, forwarding: Forwarding) -> None:
        self._flow = flow
        self._state = flow.state
        self._limits = bounds
        self._forwarding = forwarding

    # Looking

    def find(self, name: str) -> Topic | None:
        return self._state.topics.get(name)

    def get(self, name: str, *, touch: bool = False, wait: bool = True) -> Topic:
        """The topic for reading its state, after forwarding and expiring what is due. `wait`: completely, even if that
        takes a fetch."""
        topic = self._state.topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFound(name)
        now_ms = self._flow.clock.now_ms()
        if touch:
            topic.last_read_ts = now_ms
        if wait and topic.inbound:
            self._forwarding.catch_up(topic)
        if topic.config.ttl_ms:
            self._flow.expire(topic, now_ms, wait=wait)
        return topic

    def refresh(self, topic: Topic) -> None:
        """For a delivery of this topic: counts as a read, forwards what its routers have for it, and expires what is
        too old."""
        topic.last_read_ts = now_ms = self._flow.clock.now_ms()
        if topic.inbound:
            self._forwarding.catch_up(topic)
        self._flow.expire(topic, now_ms, wait=True)

    def page(self, after: str, prefixes: tuple[str, ...], page_size: int, *, touch: bool = False) -> Page:
        """Topics named after `after` that begin with one of `prefixes`, in the order of their names."""
        page: list[Topic] = []
        for name in self._state.topics.names_after(after, prefixes):
            if len(page) == page_size:
                return Page(page, page[-1].name, more=True)
            page.append(self.get(name, touch=touch, wait=False))
        return Page(page, after, more=False)

    # Making and changing

    def put(self, name: str, patch: TopicConfigPatch) -> PutTopic:
        """Creates the topic or merges `patch` into its configuration."""
        check_topic_name(name)
        self._flow.await_open(name)
        topic = self._state.topics.get(name)
        if topic is None:
            self._flow.journal.require_room(0)
            topic = self.new(name, patch)
            return PutTopic(topic, created=True, commit=self.create(topic))
        config = merge(name, topic.config, patch, exists=True)
        if config == topic.config:
            return PutTopic(topic, created=False, commit=None)
        self._flow.admit(topic)
        if topic.outbound:
            self._forwarding.forward_from(topic)
        change = ConfigChanged(topic_id=topic.topic_id, ts=self._flow.clock.now_ms(), config=config)
        commit = self._flow.submit(
            [change], (topic,), gated=True, closes=(name,), landed=lambda _: self.evict_cold(topic)
        )
        return PutTopic(topic, created=False, commit=commit)

    def new(self, name: str, patch: TopicConfigPatch | None = None) -> Topic:
        """A topic that is not there yet. Those that ask for nothing share one configuration."""
        self.check_count()
        config = DEFAULT_CONFIG if patch is None else merge(name, DEFAULT_CONFIG, patch, exists=False)
        topic_id = self._state.next_id
        if self._state.unborn:
            topic_id = self._flow.journal.id_among(topic_id)
        return Topic(name, topic_id, config, self._state.new_log())

    def created(self, topic: Topic, *, exchange: bool = False) -> TopicCreated:
        """The operation that makes it. The first seqs of class `disk` are reserved with it."""
        now_ms = self._flow.clock.now_ms()
        ceiling = 0
        if topic.config.durability is Durability.DISK:
            ceiling = topic.requested_ceiling = topic.next_ceiling(0, now_ms) or 0
        self._state.next_id = topic.topic_id + 1
        self._state.unborn[topic.topic_id] = topic
        return TopicCreated(
            topic_id=topic.topic_id,
            ts=now_ms,
            name=topic.name,
            config=topic.config,
            ceiling=ceiling,
            exchange=exchange,
        )

    def create(self, topic: Topic, *, exchange: bool = False) -> Commit | None:
        """Makes the topic; it is there once that is durable."""
        self._flow.admit(topic)
        created = self.created(topic, exchange=exchange)
        return self._flow.submit([created], (topic,), gated=True, closes=(topic.name,))

    def check_count(self, more: int = 1) -> None:
        topics_max = self._limits.topics_max
        if topics_max and len(self._state.topics) + len(self._state.unborn) + more > topics_max:
            raise Throttled(
                f"this server holds {topics_max} topics, which is its limit",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_topics",
                max=topics_max,
            )

    def delete(self, name: str, *, if_empty: bool = False) -> DeletedTopic:
        """Removes the topic with all it holds, and the routers from and to it."""
        check_topic_name(name)
        self._flow.await_open(name)
        topic = self._state.topics.get(name)
        if topic is None:
            return DeletedTopic(deleted=False, commit=None)
        if topic.inbound or topic.outbound:
            self._forwarding.await_routers()
            self._forwarding.catch_up(topic)
            self._forwarding.forward_from(topic)
        now_ms = self._flow.clock.now_ms()
        self._state.expire(topic, now_ms)
        if if_empty and topic.log.count + topic.pending_count:
            if topic.in_flight:
                raise Busy(topic.in_flight[-1].commit)
            raise TopicNotEmpty(
                f'topic "{name}" holds {topic.log.count} records and if_empty was set',
                topic=name,
                count=topic.log.count,
            )
        self._flow.admit(topic)
        routers = (*topic.inbound.values(), *topic.outbound.values())
        # The topics it is copied to lose their routers. Every topic on its cycle forgets the cycle, except the deleted
        # one.
        topics = tuple(
            dict.fromkeys((topic, *(each for router in routers for each in around(router.source, router.dest))))
        )
        self._flow.await_open(*(each.name for each in topics))
        deleted = TopicDeleted(topic_id=topic.topic_id, ts=now_ms)
        closes = tuple(each.name for each in topics)
        commit = self._flow.submit([deleted], topics, gated=True, closes=closes)
        return DeletedTopic(True, commit, tuple(sorted(router.name for router in routers)))

    def evict_cold(self, topic: Topic) -> None:
        """Evicts what is beyond the caps and on the cold tier once it has been fetched. Nobody waits for that."""
        config, log = topic.config, topic.log
        if topic.deleted or config.discard is not Discard.OLD or not log.blocks or not log.blocks[0].cold:
            return
        try:
            through_seq = log_reading.beyond_cap(log, config.cap_records, config.cap_bytes, cold=True)
            if through_seq:
                self._flow.admit(topic)
        except Busy as busy:
            busy.when_over(lambda: self.evict_cold(topic), lambda error: None)  # as if it were damaged
            return
        except TopicsError:
            return  # damaged, or the disk failed: whoever reads or writes is told
        if through_seq:
            reached = CapReached(topic_id=topic.topic_id, ts=self._flow.clock.now_ms(), through_seq=through_seq)
            self._flow.submit([reached], (topic,), gated=False, journalled=log.outlives_process)

    # Named cursors

    def put_cursor(self, name: str, cursor: str, seq: int) -> tuple[Topic, Commit | None]:
        """Remembers how far somebody has read."""
        topic = self._for_cursor(name, cursor)
        if cursor not in topic.cursors and len(topic.cursors) >= limits.CURSORS_PER_TOPIC_MAX:
            raise Throttled(
                f'topic "{name}" has {limits.CURSORS_PER_TOPIC_MAX} named cursors, which is its limit',
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_cursors",
                max=limits.CURSORS_PER_TOPIC_MAX,
            )
        return topic, self._set_cursor(topic, cursor, seq)

    def delete_cursor(self, name: str, cursor: str) -> tuple[bool, Commit | None]:
        topic = self._for_cursor(name, cursor)
        if cursor not in topic.cursors:
            return False, None
        return True, self._set_cursor(topic, cursor, None)

    def _for_cursor(self, name: str, cursor: str) -> Topic:
        check_topic_name(cursor, "cursor")
        self._flow.await_open(name)
        return self.get(name, wait=False)

    def _set_cursor(self, topic: Topic, cursor: str, seq: int | None) -> Commit | None:
        self._flow.admit(topic)
        change = CursorSet(topic_id=topic.topic_id, ts=self._flow.clock.now_ms(), name=cursor, seq=seq)
        return self._flow.submit_apart(change)
