"""One open SSE stream of a watch session: what its subscriber delivers becomes events on a channel.

Ends also when another stream takes the session over. The session stays, with its cursors. They move when the bytes of
an event have left the process, never before: a frame that was half sent when the connection broke comes again.
"""

from collections.abc import Callable

from topics.clock import Clock
from topics.delivery import sse
from topics.delivery.event_stream import EventStream
from topics.delivery.hub import CallLater, Hub
from topics.delivery.shared_batches import Crowd, SharedBatch
from topics.delivery.subscriber import Feed, Subscriber
from topics.delivery.watch_session import Position, WatchSession, WatchSessions
from topics.engine.engine import Engine
from topics.errors import TopicsError
from topics.model.gap import Gap, GapReason


class WatchStream(EventStream):
    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        clock: Clock,
        sessions: WatchSessions,
        session: WatchSession,
        call_later: CallLater,
        release: Callable[[], None],
        resume_from: dict[str, int] | None = None,
    ) -> None:
        """`resume_from`: the cursors of the last event its client has processed, as far as it says."""
        super().__init__(clock, call_later, session.options.heartbeat_ms, release)
        self._engine = engine
        self._sessions = sessions
        self._session = session
        self._subscriber = Subscriber(engine, hub, self)
        positions = list(session.positions.values())
        self._single = positions[0] if len(positions) == 1 else None
        self._resume_from = resume_from

    # The connection

    def started(self) -> None:
        session = self._session
        if session.close_stream is not None:
            session.close_stream()
        session.close_stream = self.end
        if self._resume_from is not None:
            session.rewind(self._resume_from)
        session.begin()
        for name, position in session.positions.items():
            self._subscribe(name, position)

    def resumed(self) -> None:
        self._subscriber.drained()

    def stopped(self) -> None:
        if self._outlet is not None:
            self._session.settle(self._outlet.left_bytes)
        self._subscriber.close()
        if self._session.close_stream == self.end:
            self._session.close_stream = None
        self._sessions.touch(self._session)

    # The subscriber

    def records(self, feed: Feed, shared: SharedBatch, from_seq: int, head_seq: int) -> int:
        # Hot. Streams of this topic alone that stand at the same place have the same id, too: one text for all.
        single = self._single
        if single is None:
            position = self._session.tell(feed.topic.name, feed.topic.topic_id, feed.cursor)
            text = b"id: %b\n%b" % (self._session.event_id(), sse.record_event(feed, shared, from_seq, head_seq))
        else:
            position = single
            single.told_id = feed.topic.topic_id
            single.told = feed.cursor
            key = ("sse-single", from_seq)
            known = shared.texts.get(key)
            if known is None:
                known = b"id: %b\n%b" % (self._session.event_id(), sse.record_event(feed, shared, from_seq, head_seq))
                shared.texts[key] = known
            text = known
            serving = shared.serving
            if serving.alone and serving.crowd is None and feed.joins and feed.caught_up and feed.cursor == head_seq:
                serving.crowd = Crowd(serving, from_seq, feed.options, text)
        self._write_positioned(text, position)
        return len(text)

    def join(self, crowd: Crowd) -> int:
        outlet = self._outlet
        if outlet is None or self._single is None or not outlet.writable:
            return 0
        crowd.join(self)
        return len(crowd.text)

    def follow(self, crowd: Crowd) -> None:
        # Hot, like `records`.
        outlet, position = self._outlet, self._single
        if outlet is None or position is None:
            return
        self._last_sent_ms = crowd.began_ms
        position.told_id = crowd.topic_id
        position.told = crowd.to_seq
        if outlet.send(crowd.text):
            self._session.sent(position)
        else:
            self._session.wrote(position, outlet)

    def tombstone(self, feed: Feed, gap: Gap, earliest_seq: int, head_seq: int, *, first: bool) -> None:
        reason = gap.reason.value
        if first and gap.reason is not GapReason.RECREATED:
            reason = "from_seq_too_old"
        data = sse.tombstone_data(feed.topic.name, gap, reason, earliest_seq, head_seq)
        position = self._session.tell(feed.topic.name, feed.topic.topic_id, feed.cursor)
        self._write_positioned(sse.event(b"tombstone", data, self._session.event_id()), position)

    def caught_up(self, feed: Feed, head_seq: int) -> None:
        data = b'{"topic":"%b","head_seq":%d}' % (feed.topic.name.encode(), head_seq)
        position = self._session.tell(feed.topic.name, feed.topic.topic_id, feed.cursor)
        self._write_positioned(sse.event(b"caught-up", data, self._session.event_id()), position)

    def topic_deleted(self, feed: Feed, head_seq: int) -> None:
        self.write(sse.topic_deleted(feed.topic.name, head_seq, self._session.event_id()))

    def failed(self, feed: Feed, error: TopicsError) -> None:
        self.fail(500, error.message, topics=[feed.topic.name])

    def paced(self, topics: list[str], retry_after_ms: int) -> None:
        self.write(
            sse.error_event(429, "watch throttled under CPU pressure", retry_after_ms=retry_after_ms, topics=topics)
        )

    # The parts

    def _subscribe(self, name: str, position: Position) -> None:
        topic = self._engine.find_topic(name)
        if topic is None:
            self.write(sse.topic_deleted(name, position.cursor, self._session.event_id()))
            return
        # The session takes up the new topic only when its tombstone has left.
        recreated = topic.topic_id != position.topic_id
        options = self._session.options
        read = options.read._replace(line_bytes=sse.LINE_BYTES)
        self._subscriber.add(Feed(topic, position.cursor, read, strong=options.strong, recreated=recreated))

    def _write_positioned(self, text: bytes, position: Position) -> None:
        """Writes an event. When it has left, the session moves to the event's position."""
        outlet = self._outlet
        if outlet is None:
            return
        self.write(text)
        self._session.wrote(position, outlet)
