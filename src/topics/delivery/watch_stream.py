"""One open SSE stream of a watch session: what its subscriber delivers becomes events on a channel.

Ends also when another stream takes the session over. The session stays, with its cursors. They move when the bytes of
an event have left the process, never before: a frame that was half sent when the connection broke comes again.
"""

from collections.abc import Callable
from functools import partial

from topics.clock import Clock
from topics.delivery import sse
from topics.delivery.cursor_ids import encode_id
from topics.delivery.event_stream import EventStream
from topics.delivery.hub import CallLater, Hub
from topics.delivery.shared_batches import Crowd, SharedBatch
from topics.delivery.subscriber import Feed, Subscriber
from topics.delivery.watch_session import Position, WatchSession, WatchSessions, epoch_of
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
        self._hub = hub
        self._sessions = sessions
        self._session = session
        self._subscriber = Subscriber(engine, hub, self)
        positions = list(session.positions.values())
        self._single = positions[0] if len(positions) == 1 else None
        self._resume_from = resume_from
        self._crowd: Crowd | None = None  # it is in; until it parts, its position is where it joined

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
        if self._crowd is not None:
            self._crowd.leave(self)
        if self._outlet is not None:
            self._session.settle(self._outlet.left_bytes)
        self._subscriber.close()
        if self._session.close_stream == self.end:
            self._session.close_stream = None
        self._sessions.touch(self._session)

    def _check(self) -> None:
        if self._crowd is not None:
            self._last_sent_ms = max(self._last_sent_ms, self._crowd.last_sent_ms)
        super()._check()

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
                known = shared.texts[key] = _encode(feed, shared, from_seq, head_seq)
            text = known
            serving = shared.serving
            if (
                serving.alone
                and feed.joins
                and feed.caught_up
                and feed.cursor == head_seq
                and feed.options not in serving.audience.crowds
            ):
                encode = partial(_encode, feed)
                Crowd(serving, feed.options, from_seq, text, encode, self._engine.refresh, self._hub.changed)
        self._write_positioned(text, position)
        return len(text)

    def join(self, crowd: Crowd) -> int:
        outlet, position = self._outlet, self._single
        if outlet is None or position is None or not outlet.writable:
            return 0
        feed = self._subscriber.feeds[crowd.topic]
        sent_bytes = 0
        if feed.cursor == crowd.to_seq:
            self._session.settle(outlet.left_bytes)
            has_left = outlet.left_bytes == outlet.written_bytes
        else:
            sent_bytes = len(crowd.text)
            feed.cursor = crowd.to_seq
            self._last_sent_ms = crowd.last_sent_ms
            position.told_id = crowd.topic.topic_id
            position.told = crowd.to_seq
            has_left = outlet.send(crowd.text)
            if has_left:
                self._session.sent(position)
            else:
                self._session.wrote(position, outlet)
        if has_left:
            self._crowd = crowd
            crowd.add(self, outlet)
            self._subscriber.go_with(crowd)
        return sent_bytes

    def parted(self, crowd: Crowd, cursor: int, left_seq: int, told_seq: int) -> None:
        position = self._single
        assert position is not None
        self._crowd = None
        self._last_sent_ms = max(self._last_sent_ms, crowd.last_sent_ms)
        position.told = max(position.told, left_seq)  # it may have come later
        self._session.sent(position)
        if told_seq > left_seq and self._outlet is not None:
            position.told = told_seq
            self._session.wrote(position, self._outlet)
        self._subscriber.go_alone(crowd.topic, cursor)

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


def _encode(feed: Feed, shared: SharedBatch, from_seq: int, head_seq: int) -> bytes:
    """A record event of a stream of this topic alone: whoever it is for, its id is the same."""
    topic = feed.topic
    cursors = {topic.name: shared.batch.next_from_seq, epoch_of(topic.name): topic.topic_id}
    return b"id: %b\n%b" % (encode_id(cursors), sse.record_event(feed, shared, from_seq, head_seq))
