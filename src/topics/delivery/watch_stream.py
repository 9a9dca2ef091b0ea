"""One open SSE stream of a watch session: what its subscriber delivers becomes events on a channel.

Ends when the client goes, when the server stops, when another stream takes the session over, or when the client does
not read for `SLOW_CONSUMER_TIMEOUT_MS`. The session stays, with its cursors.
"""

from collections.abc import Callable
from typing import Protocol

from topics import limits
from topics.clock import Clock, monotonic_ms
from topics.delivery import sse
from topics.delivery.cursor_ids import encode_id
from topics.delivery.hub import CallLater, Hub
from topics.delivery.shared_batches import SharedBatch
from topics.delivery.subscriber import Feed, Subscriber
from topics.delivery.watch_session import Position, WatchSession, WatchSessions
from topics.engine.engine import Engine
from topics.errors import TopicsError
from topics.model.gap import Gap, GapReason


class Outlet(Protocol):
    """The connection, as far as a stream needs it."""

    @property
    def writable(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class WatchStream:
    """Owns a connection for as long as it lasts. `release` gives its slot back, once."""

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        clock: Clock,
        sessions: WatchSessions,
        session: WatchSession,
        call_later: CallLater,
        release: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._sessions = sessions
        self._session = session
        self._call_later = call_later
        self._release = release
        self._subscriber = Subscriber(engine, hub, self)
        self._outlet: Outlet | None = None
        self._last_sent_ms = 0
        self._stuck_since_ms: int | None = None
        self._single = len(session.positions) == 1

    # The connection

    def opened(self, channel: Outlet) -> None:
        session = self._session
        if session.close_stream is not None:
            session.close_stream()
        self._outlet = channel
        session.close_stream = self.end
        channel.write(sse.RETRY)
        self._last_sent_ms = monotonic_ms(self._clock)
        for name, position in session.positions.items():
            self._subscribe(name, position)
        self._later()

    def received(self, data: bytes) -> None:
        """A stream has nothing to receive."""

    def drained(self) -> None:
        self._stuck_since_ms = None
        self._subscriber.drained()

    def closed(self) -> None:
        """The connection is gone, or never came. May be called again."""
        self._outlet = None
        self._subscriber.close()
        if self._session.close_stream == self.end:
            self._session.close_stream = None
        self._sessions.touch(self._session)
        self._release()

    def shutting_down(self) -> None:
        self._write(sse.error_event(503, "the server is shutting down", retry_after_ms=limits.SHUTDOWN_RETRY_AFTER_MS))
        self.end()

    def end(self) -> None:
        """Closes the connection after what was written."""
        outlet = self._outlet
        if outlet is not None:
            self.closed()
            outlet.close()

    # The subscriber

    @property
    def writable(self) -> bool:
        outlet = self._outlet
        if outlet is None:
            return False
        if outlet.writable:
            return True
        if self._stuck_since_ms is None:
            self._stuck_since_ms = monotonic_ms(self._clock)
        return False

    def records(self, feed: Feed, shared: SharedBatch, from_seq: int, head_seq: int) -> None:
        # Hot. Streams of this topic alone that stand at the same place have the same id, too: one text for all.
        key = ("sse-single", from_seq)
        text = shared.texts.get(key) if self._single else None
        if text is None:
            text = b"id: %b\n%b" % (self._advance(feed), sse.record_event(feed, shared, from_seq, head_seq))
            if self._single:
                shared.texts[key] = text
        else:
            self._session.positions[feed.topic.name].cursor = feed.cursor
        self._write(text)

    def tombstone(self, feed: Feed, gap: Gap, earliest_seq: int, head_seq: int, *, first: bool) -> None:
        reason = gap.reason.value
        if first and gap.reason is not GapReason.RECREATED:
            reason = "from_seq_too_old"
        data = sse.tombstone_data(feed.topic.name, gap, reason, earliest_seq, head_seq)
        self._write(sse.event(b"tombstone", data, self._advance(feed)))

    def caught_up(self, feed: Feed, head_seq: int) -> None:
        data = b'{"topic":"%b","head_seq":%d}' % (feed.topic.name.encode(), head_seq)
        self._write(sse.event(b"caught-up", data, self._advance(feed)))

    def topic_deleted(self, feed: Feed, head_seq: int) -> None:
        self._tell_deleted(feed.topic.name, head_seq)

    def failed(self, feed: Feed, error: TopicsError) -> None:
        self._write(sse.error_event(500, error.message, topics=[feed.topic.name]))

    def paced(self, topics: list[str], retry_after_ms: int) -> None:
        self._write(
            sse.error_event(429, "watch throttled under CPU pressure", retry_after_ms=retry_after_ms, topics=topics)
        )

    # The parts

    def _subscribe(self, name: str, position: Position) -> None:
        topic = self._engine.find_topic(name)
        if topic is None:
            self._tell_deleted(name, position.cursor)
            return
        # The session takes up the new topic only when its tombstone has been written: see `_advance`.
        recreated = topic.topic_id != position.topic_id
        options = self._session.options
        self._subscriber.add(Feed(topic, position.cursor, options.read, strong=options.strong, recreated=recreated))

    def _tell_deleted(self, name: str, head_seq: int) -> None:
        data = b'{"topic":"%b","head_seq":%d,"reason":"deleted"}' % (name.encode(), head_seq)
        self._write(sse.event(b"topic-deleted", data, encode_id(self._session.cursors())))

    def _advance(self, feed: Feed) -> bytes:
        """Moves the session to where the feed is; returns the id that says so."""
        position = self._session.positions[feed.topic.name]
        position.topic_id = feed.topic.topic_id
        position.cursor = feed.cursor
        return encode_id(self._session.cursors())

    def _write(self, data: bytes) -> None:
        if self._outlet is not None:
            self._last_sent_ms = monotonic_ms(self._clock)
            self._outlet.write(data)

    def _later(self) -> None:
        """Looks in again when the next heartbeat may be due."""
        idle_ms = monotonic_ms(self._clock) - self._last_sent_ms
        due_ms = max(self._session.options.heartbeat_ms - idle_ms, 1)
        self._call_later(min(due_ms, limits.STREAM_CHECK_MS) / 1000, self._check)

    def _check(self) -> None:
        if self._outlet is None:
            return
        now_ms = monotonic_ms(self._clock)
        if self._stuck_since_ms is not None and now_ms - self._stuck_since_ms >= limits.SLOW_CONSUMER_TIMEOUT_MS:
            self._write(sse.error_event(408, "the stream was not read for too long; reconnect to go on"))
            self.end()
            return
        if now_ms - self._last_sent_ms >= self._session.options.heartbeat_ms and self.writable:
            self._write(sse.heartbeat(self._clock.now_ms()))
        self._later()
