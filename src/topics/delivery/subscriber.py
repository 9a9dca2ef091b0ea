"""One connection's subscriptions: for each topic, where it stands and what comes next. SSE and WebSocket share it.

The contract, for every topic: seqs strictly increase; each seq is delivered, inside a tombstone, deleted, or the
reader's own. Nothing is buffered but what the connection's own buffer holds: while that is full nothing is read, and
when it drains reading goes on from the cursor. What the log has lost by then shows as a tombstone.
"""

from typing import Protocol

from topics import limits
from topics.delivery.hub import Hub
from topics.delivery.shared_batches import NOBODY, Crowd, SharedBatch, SharedBatches
from topics.engine.engine import Engine
from topics.engine.journal import Busy
from topics.engine.topic import Topic
from topics.errors import StorageFailed, TopicsError
from topics.model.gap import Gap, GapReason
from topics.model.read_options import ReadOptions


class Sink(Protocol):
    """Where deliveries go, encoded for one kind of connection."""

    @property
    def writable(self) -> bool:
        """False while the connection has enough to send."""
        ...

    def records(self, feed: "Feed", shared: SharedBatch, from_seq: int, head_seq: int) -> int:
        """Returns how many bytes it takes."""
        ...

    def join(self, crowd: Crowd) -> int:
        """Sends the text of the crowd, if that leads to where the crowd is, and goes with it from there on, if it can.
        Returns how many bytes that takes."""
        ...

    def tombstone(self, feed: "Feed", gap: Gap, earliest_seq: int, head_seq: int, *, first: bool) -> None:
        """`first`: it is the first thing this subscription says."""
        ...

    def caught_up(self, feed: "Feed", head_seq: int) -> None: ...

    def topic_deleted(self, feed: "Feed", head_seq: int) -> None: ...

    def failed(self, feed: "Feed", error: TopicsError) -> None:
        """The topic cannot be read any further: says so, and ends the connection."""
        ...

    def paced(self, topics: list[str], retry_after_ms: int) -> None:
        """Deliveries of these topics pause under pressure; their records stay readable."""
        ...


class Feed:
    """One topic of a subscriber. `cursor` is the last seq dealt with; in a `crowd`, the crowd knows it."""

    __slots__ = (
        "caught_up",
        "crowd",
        "cursor",
        "joins",
        "options",
        "own_nodes",
        "recreated",
        "started",
        "strong",
        "topic",
    )

    def __init__(
        self, topic: Topic, cursor: int, options: ReadOptions, *, strong: bool = False, recreated: bool = False
    ) -> None:
        """`recreated`: the cursor is of an earlier topic of this name."""
        self.topic = topic
        self.cursor = cursor
        self.options = options._replace(own_nodes=NOBODY)
        self.own_nodes = options.own_nodes
        self.strong = strong
        self.joins = not strong and not recreated and not options.own_nodes  # it may get what others get
        self.recreated = recreated
        self.crowd: Crowd | None = None
        self.caught_up = False
        self.started = False


class Subscriber:
    def __init__(self, engine: Engine, hub: Hub, sink: Sink) -> None:
        self._engine = engine
        self._hub = hub
        self._sink = sink
        self.feeds: dict[Topic, Feed] = {}
        self._closed = False
        self._sent_bytes = 0  # in this serving

    def add(self, feed: Feed) -> None:
        """Subscribes; what there is already is sent from the next turn on."""
        self.remove(feed.topic)
        self.feeds[feed.topic] = feed
        self._hub.watch(feed.topic, self)
        if feed.strong:
            self._engine.add_strong_reader(feed.topic)
        self._hub.changed(feed.topic)

    def remove(self, topic: Topic) -> bool:
        feed = self.feeds.pop(topic, None)
        if feed is None:
            return False
        if feed.strong:
            topic.strong_readers -= 1
        self._hub.unwatch(topic, self)
        return True

    def close(self) -> None:
        self._closed = True
        for topic in tuple(self.feeds):
            self.remove(topic)

    def drained(self) -> None:
        """The connection has room again."""
        for topic, feed in self.feeds.items():
            if not feed.caught_up or feed.cursor < topic.log.head_seq or topic.deleted:
                self._hub.changed(topic)

    def cursor_of(self, feed: Feed) -> int:
        """The last seq dealt with, also while a crowd knows it."""
        return feed.cursor if feed.crowd is None else max(feed.cursor, feed.crowd.left_seq)

    def go_with(self, crowd: Crowd) -> None:
        feed = self.feeds[crowd.topic]
        feed.cursor = crowd.to_seq
        feed.crowd = crowd
        self._hub.go_with(crowd, self)

    def go_alone(self, topic: Topic, cursor: int) -> None:
        feed = self.feeds[topic]
        feed.cursor = cursor
        feed.crowd = None
        self._hub.go_alone(topic, self)

    def pace(self, topics: list[str], retry_after_ms: int) -> None:
        self._sink.paced(topics, retry_after_ms)

    def serve(self, topic: Topic, shared: SharedBatches) -> int:
        feed = self.feeds.get(topic)
        self._sent_bytes = 0
        if feed is None:
            return 0
        if feed.joins and feed.caught_up and (crowds := shared.audience.crowds):
            crowd = crowds.get(feed.options)
            if crowd is not None and crowd.takes(feed.cursor, shared):
                joined_bytes = self._sink.join(crowd)
                if joined_bytes or feed.crowd is not None:
                    return joined_bytes
        for _ in range(limits.BATCHES_PER_SERVING_MAX):
            if not self._sink.writable:
                return self._sent_bytes
            try:
                if not self._deliver(feed, shared):
                    return self._sent_bytes
            except Busy as busy:
                # It reads from the cold tier; the others go on meanwhile.
                busy.when_over(lambda: self._again(topic), lambda error: self._fail(feed, error))
                return self._sent_bytes
            except TopicsError as error:
                self._fail(feed, error)
                return self._sent_bytes
            except OSError as error:
                self._fail(feed, StorageFailed(f'topic "{topic.name}" cannot be read: {error}'))
                return self._sent_bytes
            if self._sent_bytes >= limits.SERVING_BYTES_MAX:
                break
        self._hub.changed(topic)
        return self._sent_bytes

    def _again(self, topic: Topic) -> None:
        if not self._closed:
            self._hub.changed(topic)

    def _fail(self, feed: Feed, error: TopicsError) -> None:
        """A segment is damaged or missing. Asking again would only find the same, so the client is told, and its
        connection ends. The other watchers go on."""
        if self.feeds.get(feed.topic) is feed:
            self.remove(feed.topic)
            self._sink.failed(feed, error)

    def _deliver(self, feed: Feed, shared: SharedBatches) -> bool:
        """Sends the next batch; True when there may be more."""
        topic, log, sink = feed.topic, feed.topic.log, self._sink
        if topic.deleted:
            self.remove(topic)
            sink.topic_deleted(feed, log.head_seq)
            return False
        if not shared.fresh:
            self._engine.refresh(topic)
            shared.fresh = True
        options = feed.options
        if feed.strong:
            options = options._replace(to_seq=self._engine.durable_seq(topic))
        if feed.recreated:
            feed.recreated = False
            feed.cursor = log.earliest_seq - 1
            sink.tombstone(feed, Gap(1, log.head_seq, GapReason.RECREATED), log.earliest_seq, log.head_seq, first=True)
            feed.started = True
        from_seq = feed.cursor
        read = shared.read(from_seq, options, feed.own_nodes if topic.config.dedupe_node else NOBODY)
        batch = read.batch
        if batch.gap is not None:
            from_seq = log.earliest_seq - 1 if batch.gap.reason is GapReason.RECREATED else batch.gap.gap_to
            feed.cursor = from_seq
            sink.tombstone(feed, batch.gap, log.earliest_seq, log.head_seq, first=not feed.started)
        feed.started = True
        # What a strong reader may see can end inside the gap: it has been told of all of that.
        feed.cursor = max(batch.next_from_seq, from_seq)
        if batch.fragments:
            self._sent_bytes += sink.records(feed, read, from_seq, log.head_seq)
        if feed.cursor < log.head_seq:
            feed.caught_up = feed.caught_up and feed.strong
            return feed.cursor < options.to_seq
        if not feed.caught_up:
            feed.caught_up = True
            sink.caught_up(feed, log.head_seq)
        return False


def record_body(feed: Feed, shared: SharedBatch, from_seq: int, head_seq: int) -> bytes:
    """The part of a record frame that SSE and WebSocket share; made once for all recipients."""
    body = shared.texts.get(from_seq)
    if body is None:
        batch = shared.batch
        body = shared.texts[from_seq] = b'"topic":"%b","records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
            feed.topic.name.encode(),
            b",".join(batch.fragments),
            from_seq,
            batch.next_from_seq,
            head_seq,
        )
    return body
