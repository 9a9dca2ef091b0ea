"""Watch sessions: a subscription that outlives its connections. Holds where it stands in each topic.

A session ends `SESSION_TTL_MS` after its last stream has gone. One with an open stream never ends.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from topics import limits
from topics.clock import Clock, monotonic_ms
from topics.delivery.cursor_ids import encode_id
from topics.delivery.event_stream import Outlet
from topics.errors import Throttled
from topics.model.read_options import ReadOptions


class Position:
    """Where a session stands in one topic, twice: up to where everything has left the process (`topic_id`, `cursor`),
    and what the last event written says (`told_id`, `told`). A stream that breaks off leaves the first; a client that
    shows it has got more is believed up to the second.

    The ids tell whether the topic is still the one the cursor is of.
    """

    __slots__ = ("cursor", "told", "told_id", "topic_id")

    def __init__(self, topic_id: int, cursor: int) -> None:
        self.topic_id = self.told_id = topic_id
        self.cursor = self.told = cursor

    def tell(self, topic_id: int, cursor: int) -> None:
        self.told_id = topic_id
        self.told = cursor

    def left(self, topic_id: int, cursor: int) -> None:
        self.topic_id = topic_id
        self.cursor = cursor

    def begin(self) -> None:
        self.told_id = self.topic_id
        self.told = self.cursor


def epoch_of(name: str) -> str:
    """Under which name the cursors of an event have the epoch of this topic."""
    return f"${name}"


class WatchOptions(NamedTuple):
    read: ReadOptions
    heartbeat_ms: int
    strong: bool


class WatchSession:
    __slots__ = ("_unsettled", "close_stream", "key_digest", "last_access_ms", "options", "positions", "wid")

    def __init__(self, wid: str, key_digest: bytes, options: WatchOptions, positions: dict[str, Position]) -> None:
        self.wid = wid
        self.key_digest = key_digest
        self.options = options
        self.positions = positions
        self.last_access_ms = 0
        # Of its stream, written and not known to have left: (bytes written by then, whose position, topic, cursor).
        self._unsettled: deque[tuple[int, Position, int, int]] = deque()
        self.close_stream: Callable[[], None] | None = None  # of the stream that is open, if any

    def cursors(self) -> dict[str, int]:
        """What the next event says: the seq of each topic, and its epoch under a name no topic can have."""
        cursors: dict[str, int] = {}
        for name, position in self.positions.items():
            cursors[name] = position.told
            cursors[epoch_of(name)] = position.told_id
        return cursors

    def event_id(self) -> bytes:
        return encode_id(self.cursors())

    def begin(self) -> None:
        """A new stream begins. What the previous one wrote but never sent does not count."""
        self._unsettled.clear()
        for position in self.positions.values():
            position.begin()

    def tell(self, name: str, topic_id: int, cursor: int) -> Position:
        """The next event will carry this position."""
        position = self.positions[name]
        position.tell(topic_id, cursor)
        return position

    def wrote(self, position: Position, outlet: Outlet) -> None:
        """Its stream has written an event that says where it is, and that may not have left yet."""
        self._unsettled.append((outlet.written_bytes, position, position.told_id, position.told))
        if len(self._unsettled) >= limits.POSITIONS_UNSETTLED_MIN:
            self.settle(outlet.left_bytes)

    def sent(self, position: Position) -> None:
        """Its stream has sent an event that says where it is; that one and all before it have left the process."""
        if self._unsettled:
            self.settle(limits.U64_MAX)
        position.topic_id = position.told_id
        position.cursor = position.told

    def settle(self, left_bytes: int) -> None:
        """Moves the session to the position of the last event that has left the process."""
        unsettled = self._unsettled
        while unsettled and unsettled[0][0] <= left_bytes:
            _, position, topic_id, cursor = unsettled.popleft()
            position.left(topic_id, cursor)

    def rewind(self, cursors: dict[str, int]) -> None:
        """Goes back to where the client says it was; never beyond what it was told."""
        for name, position in self.positions.items():
            seq = cursors.get(name, -1)
            topic_id = cursors.get(epoch_of(name), position.topic_id)
            if seq >= 0 and not (topic_id == position.told_id and seq > position.told):
                # The client's cursor may be of an earlier topic of this name: it never got the tombstone, or lost it.
                position.left(topic_id, seq)


class WatchSessions:
    """`sessions_max` 0 is no bound."""

    def __init__(self, clock: Clock, sessions_max: int) -> None:
        self._clock = clock
        self._max = sessions_max
        self._sessions: dict[str, WatchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, key_digest: bytes, options: WatchOptions, positions: dict[str, Position]) -> WatchSession:
        self.collect()
        if self._max and len(self._sessions) >= self._max:
            raise Throttled(
                f"this server holds {self._max} watch sessions, which is its limit",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_watch_sessions",
                max=self._max,
            )
        from secrets import token_urlsafe  # noqa: PLC0415 (a start does not wait for it)

        session = WatchSession(f"wid_{token_urlsafe(16)}", key_digest, options, positions)
        session.last_access_ms = monotonic_ms(self._clock)
        self._sessions[session.wid] = session
        return session

    def find(self, wid: str) -> WatchSession | None:
        self.collect()
        return self._sessions.get(wid)

    def touch(self, session: WatchSession) -> None:
        session.last_access_ms = monotonic_ms(self._clock)

    def collect(self) -> None:
        """Ends the sessions nobody has used for too long."""
        oldest_ms = monotonic_ms(self._clock) - limits.SESSION_TTL_MS
        ended = [
            wid
            for wid, session in self._sessions.items()
            if session.close_stream is None and session.last_access_ms < oldest_ms
        ]
        for wid in ended:
            del self._sessions[wid]
