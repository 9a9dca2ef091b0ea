"""What all operations of the engine share: the clock, the bounds, the journal, and names that are closed for a while.

A control operation (making, changing, deleting a topic or a router) is durable before it is applied. Until then the
names it is about are closed: whoever needs one waits (`Busy`).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from topics import limits
from topics.clock import Clock
from topics.engine.admission import WriteLimits
from topics.engine.journal import Busy, Commit, Journal
from topics.engine.state import EngineState
from topics.engine.topic import Topic
from topics.errors import Throttled
from topics.model.config import DEFAULT_CONFIG, Durability, TopicConfigPatch, merge

# Routers are made one after the other, so that two of them cannot close a cycle neither of them sees. No topic or
# router has such a name.
ALL_ROUTERS = "*"


class EngineLimits(NamedTuple):
    """Instance-wide caps; 0 is no cap."""

    write: WriteLimits = WriteLimits()
    topics_max: int = limits.TOPICS_MAX
    routers_max: int = limits.ROUTERS_MAX
    total_bytes_max: int = limits.TOTAL_BYTES_MAX
    block_events_max: int = limits.SEGMENT_EVENTS_MAX
    block_bytes_max: int = limits.SEGMENT_BYTES_MAX


class Control(EngineState):
    def __init__(self, clock: Clock, bounds: EngineLimits, journal: Journal) -> None:
        super().__init__(bounds.block_events_max, bounds.block_bytes_max)
        self._clock = clock
        self._limits = bounds
        self._journal = journal
        # Names a control operation is under way for, and those of them that do not exist yet.
        self._pending: dict[str, Commit] = {}
        self._pending_new = 0

    def _await_control(self, name: str) -> None:
        commit = self._pending.get(name)
        if commit is not None:
            raise Busy(commit)

    def _await_routers(self) -> None:
        self._await_control(ALL_ROUTERS)

    def _when_durable(
        self, names: str | Iterable[str], commit: Commit | None, apply: Callable[[], object], *, new: bool = False
    ) -> None:
        """Applies a control operation once it is durable; until then the names are closed for others."""
        if commit is None:
            apply()
            return
        closed = (names,) if isinstance(names, str) else tuple(names)
        for name in closed:
            self._pending[name] = commit
        self._pending_new += new

        def done(commit: Commit) -> None:
            for name in closed:
                del self._pending[name]
            self._pending_new -= new
            if commit.error is None:
                apply()
            for name in closed:
                self._resume_forwarding(self.topics.get(name))

        commit.when_done(done)

    def _resume_forwarding(self, topic: Topic | None) -> None:
        """What held up routers from or to the topic is over."""
        if topic is not None:
            for router in (*topic.outbound.values(), *topic.inbound.values()):
                self.on_forwardable(router.source)

    def _check_topic_count(self, more: int = 1) -> None:
        if self._limits.topics_max and len(self.topics) + self._pending_new + more > self._limits.topics_max:
            raise Throttled(
                f"this server holds {self._limits.topics_max} topics, as many as it may",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_topics",
                max=self._limits.topics_max,
            )

    def _new_topic(self, name: str, patch: TopicConfigPatch) -> Topic:
        self._check_topic_count()
        config = merge(name, DEFAULT_CONFIG, patch, exists=False)
        return Topic(name, self.next_topic_id, config, self.new_log())

    def _create(self, topic: Topic, now_ms: int, *, gated: bool) -> Commit | None:
        ceiling = 0
        if topic.config.durability is Durability.DISK:
            ceiling = topic.next_ceiling(0, now_ms) or 0
        commit = self._journal.create_topic(topic.topic_id, now_ms, topic.name, topic.config, ceiling, gated=gated)
        self.next_topic_id = topic.topic_id + 1
        self._note_ceiling(topic, ceiling, commit)
        return commit

    def _create_durably(self, topic: Topic, now_ms: int) -> Commit | None:
        """Makes the topic; it is there once that is durable."""
        self._journal.admit(topic.topic_id)
        commit = self._create(topic, now_ms, gated=True)
        self._when_durable(topic.name, commit, lambda: self.apply_add_topic(topic), new=True)
        return commit

    def _note_ceiling(self, topic: Topic, ceiling: int, commit: Commit | None) -> None:
        topic.requested_ceiling = max(topic.requested_ceiling, ceiling)

        def reserved(done: Commit | None) -> None:
            if done is None or done.error is None:
                topic.ceiling = max(topic.ceiling, ceiling)
                self._changed.add(topic)

        if commit is None:
            reserved(None)
        else:
            commit.when_done(reserved)
