"""What live connections have in common: their slots, event streams, and what a request makes of topics."""

from collections.abc import Callable

from topics import limits
from topics.api.accept import kinds_named
from topics.api.auth import ANYBODY, Key
from topics.api.call import Call
from topics.api.http import ChannelOwner, Response, Streaming
from topics.api.quotas import SlotsByKey
from topics.engine.admission import byte_length
from topics.engine.engine import Engine
from topics.engine.topic import Topic
from topics.errors import InvalidRequest, NotAcceptable, Throttled, TopicNotFound
from topics.model.names import check_topic_name
from topics.model.read_options import ReadOptions
from topics.model.tag_match import parse_match
from topics.wire.live_requests import ReadWishes, TopicStart
from topics.wire.requests import DiffRequest

_SSE_CONTENT_TYPE = b"text/event-stream; charset=utf-8"
_SSE_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)


class LiveConnections:
    """How many are open, in all and for each key; 0 is no bound. Every slot taken is given back."""

    def __init__(self, connections_max: int, per_key_max: int) -> None:
        self._max = connections_max
        self._per_key_max = per_key_max
        self._count = 0
        self._slots = SlotsByKey()

    def __len__(self) -> int:
        return self._count

    def enter(self, key: Key) -> Callable[[], None]:
        """Takes a slot; the call returned gives it back, however often it is called."""
        if self._max and self._count >= self._max:
            raise _no_room("max_sse_connections", self._max)
        if self._per_key_max and key is not ANYBODY and self._slots.get(key.digest, 0) >= self._per_key_max:
            raise _no_room("max_sse_connections_per_key", self._per_key_max)
        self._count += 1
        self._slots.take(key)
        given_back = False

        def give_back() -> None:
            nonlocal given_back
            if not given_back:
                given_back = True
                self._count -= 1
                self._slots.give_back(key)

        return give_back


def _no_room(limit: str, maximum: int) -> Throttled:
    return Throttled(
        f"{maximum} live connections are open, which is the limit",
        retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
        limit=limit,
        max=maximum,
    )


def require_event_stream(call: Call) -> None:
    """Refuses a client whose `Accept` excludes event streams. Without the header anything is taken."""
    accept = call.request.headers.get(b"accept", b"*/*")
    if kinds_named(accept).isdisjoint((b"text/event-stream", b"text/*", b"*/*")):
        raise NotAcceptable("this is an event stream: send Accept: text/event-stream")


def event_stream(owner: ChannelOwner) -> Response:
    return Streaming(200, b"", _SSE_CONTENT_TYPE, _SSE_HEADERS, owner=owner)


def read_options(wishes: DiffRequest | ReadWishes, limit_max: int, node_bytes_max: int) -> ReadOptions:
    """How the engine is to read for a diff, a watch or a subscription."""
    return ReadOptions(
        limit=min(wishes.limit or limits.DIFF_LIMIT_DEFAULT, limit_max),
        bytes_max=min(wishes.max_batch_bytes or limits.DIFF_REPLY_BYTES_MAX, limits.BATCH_BYTES_MAX),
        include_tags=wishes.include_tags,
        include_meta=wishes.include_meta,
        include_data=wishes.include_data,
        own_nodes=own_nodes(wishes.node, node_bytes_max),
        to_seq=limits.U64_MAX if wishes.to_seq is None else wishes.to_seq,
        match=None if wishes.match is None else parse_match(wishes.match),
        joined=True,
    )


def own_nodes(node: str | list[str] | None, node_bytes_max: int) -> frozenset[str]:
    if node is None:
        return frozenset()
    nodes = [node] if isinstance(node, str) else node
    if len(nodes) > limits.NODE_FILTER_ENTRIES_MAX:
        raise InvalidRequest.in_field("node", f"at most {limits.NODE_FILTER_ENTRIES_MAX} are allowed")
    for one in nodes:
        byte_length(one, node_bytes_max, "node")
    return frozenset(nodes)


def find_topics(
    engine: Engine, key: Key, starts: dict[str, TopicStart], topics_max: int, *, lenient: bool
) -> list[tuple[Topic, int, int]]:
    """The topics asked for, each with the seq to begin after and the epoch of that seq. `lenient` leaves out those that
    do not exist."""
    if not starts:
        raise InvalidRequest.in_field("topics", "must name at least one topic")
    if len(starts) > topics_max:
        raise InvalidRequest.in_field("topics", f"names {len(starts)} topics; at most {topics_max} are allowed")
    for name in starts:
        check_topic_name(name, "topics")
        key.require_name(name)
    found: list[tuple[Topic, int, int]] = []
    for name, start in starts.items():
        try:
            topic = engine.topic(name, touch=True)
        except TopicNotFound:
            if lenient:
                continue
            raise
        epoch = topic.topic_id if start.epoch is None or start.tail else start.epoch
        found.append((topic, topic.log.head_seq if start.tail else start.from_seq, epoch))
    return found
