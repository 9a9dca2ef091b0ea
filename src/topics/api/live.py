"""What the two kinds of live connections have in common: their slots, and what a request makes of topics."""

from collections.abc import Callable

from topics import limits
from topics.api.auth import ANYBODY, Key
from topics.engine.admission import byte_length
from topics.engine.engine import Engine
from topics.engine.topic import Topic
from topics.errors import InvalidRequest, Throttled, TopicNotFound
from topics.model.names import check_topic_name
from topics.model.read_options import ReadOptions
from topics.model.tag_match import parse_match
from topics.wire.live_requests import ReadWishes, TopicStart


class LiveConnections:
    """How many there are, of all and of each key; 0 is no bound. Every slot taken is given back."""

    def __init__(self, connections_max: int, per_key_max: int) -> None:
        self._max = connections_max
        self._per_key_max = per_key_max
        self._count = 0
        self._by_key: dict[bytes, int] = {}

    def __len__(self) -> int:
        return self._count

    def enter(self, key: Key) -> Callable[[], None]:
        """Takes a slot; the call returned gives it back, however often it is called."""
        if self._max and self._count >= self._max:
            raise _no_room("max_sse_connections", self._max)
        held = self._by_key.get(key.digest, 0)
        if self._per_key_max and key is not ANYBODY and held >= self._per_key_max:
            raise _no_room("max_sse_connections_per_key", self._per_key_max)
        self._count += 1
        self._by_key[key.digest] = held + 1
        given_back = False

        def give_back() -> None:
            nonlocal given_back
            if given_back:
                return
            given_back = True
            self._count -= 1
            left = self._by_key[key.digest] - 1
            if left:
                self._by_key[key.digest] = left
            else:
                del self._by_key[key.digest]

        return give_back


def _no_room(limit: str, maximum: int) -> Throttled:
    return Throttled(
        f"{maximum} live connections are open, as many as may be",
        retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
        limit=limit,
        max=maximum,
    )


def read_options(wishes: ReadWishes, limit_max: int, node_bytes_max: int) -> ReadOptions:
    return ReadOptions(
        limit=min(wishes.limit or limits.DIFF_LIMIT_DEFAULT, limit_max),
        bytes_max=min(wishes.max_batch_bytes or limits.DIFF_REPLY_BYTES_MAX, limits.BATCH_BYTES_MAX),
        include_tags=wishes.include_tags,
        include_meta=wishes.include_meta,
        include_data=wishes.include_data,
        own_nodes=own_nodes(wishes.node, node_bytes_max),
        match=None if wishes.match is None else parse_match(wishes.match),
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
) -> list[tuple[Topic, int]]:
    """The topics asked for, each with the seq to begin after. `lenient`: those that do not exist are left out."""
    if not starts:
        raise InvalidRequest.in_field("topics", "must name at least one topic")
    if len(starts) > topics_max:
        raise InvalidRequest.in_field("topics", f"names {len(starts)} topics; at most {topics_max} are allowed")
    for name in starts:
        check_topic_name(name, "topics")
        key.require_name(name)
    found: list[tuple[Topic, int]] = []
    for name, start in starts.items():
        try:
            topic = engine.topic(name, touch=True)
        except TopicNotFound:
            if lenient:
                continue
            raise
        found.append((topic, topic.log.head_seq if start.tail else start.from_seq))
    return found
