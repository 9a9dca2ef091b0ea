"""Slots of live connections, and what a request makes of topics and options."""

import pytest

from doubles.live_stage import LiveStage
from topics import limits
from topics.api.auth import ANYBODY, Key, Scope
from topics.api.live import LiveConnections, find_topics, own_nodes, read_options
from topics.errors import Forbidden, InvalidRequest, Throttled, TopicNotFound
from topics.wire.live_requests import ReadWishes, TopicStart

ONE = Key(b"1", Scope.ALL, ("",))
OTHER = Key(b"2", Scope.ALL, ("",))
TENANT = Key(b"3", Scope.ALL, ("t42:",))


# Slots


def test_there_are_as_many_connections_as_may_be() -> None:
    connections = LiveConnections(2, 0)
    connections.enter(ONE)
    connections.enter(OTHER)
    with pytest.raises(Throttled) as refused:
        connections.enter(ONE)
    assert refused.value.detail == {"limit": "max_sse_connections", "max": 2}
    assert refused.value.retry_after_s == limits.RESOURCE_RETRY_AFTER_S
    assert len(connections) == 2


def test_each_key_has_its_own_share() -> None:
    connections = LiveConnections(0, 1)
    connections.enter(ONE)
    connections.enter(OTHER)
    with pytest.raises(Throttled) as refused:
        connections.enter(ONE)
    assert refused.value.detail == {"limit": "max_sse_connections_per_key", "max": 1}


def test_a_refusal_takes_no_slot() -> None:
    connections = LiveConnections(0, 1)
    give_back = connections.enter(ONE)
    for _ in range(3):
        with pytest.raises(Throttled):
            connections.enter(ONE)
    give_back()
    assert len(connections) == 0
    connections.enter(ONE)


def test_a_slot_is_given_back_once() -> None:
    connections = LiveConnections(2, 2)
    first = connections.enter(ONE)
    connections.enter(ONE)
    first()
    first()
    assert len(connections) == 1
    connections.enter(ONE)
    with pytest.raises(Throttled):
        connections.enter(ONE)


def test_without_keys_there_is_nobody_to_have_a_share() -> None:
    connections = LiveConnections(0, 1)
    for _ in range(5):
        connections.enter(ANYBODY)
    assert len(connections) == 5


def test_zero_is_no_bound() -> None:
    connections = LiveConnections(0, 0)
    for _ in range(5):
        connections.enter(ONE)
    assert len(connections) == 5


# Options


@pytest.mark.parametrize(("limit", "taken"), [(0, 256), (1, 1), (1000, 1000), (1001, 1000), (2**64 - 1, 1000)])
def test_the_limit_is_clamped(limit: int, taken: int) -> None:
    assert read_options(ReadWishes(limit=limit), 1000, 128).limit == taken


@pytest.mark.parametrize(
    ("wanted", "taken"), [(0, 1 << 20), (1, 1), (8 << 20, 8 << 20), ((8 << 20) + 1, 8 << 20), (2**64 - 1, 8 << 20)]
)
def test_the_bytes_are_clamped(wanted: int, taken: int) -> None:
    assert read_options(ReadWishes(max_batch_bytes=wanted), 1000, 128).bytes_max == taken


def test_what_nobody_says_is_the_documented_default() -> None:
    options = read_options(ReadWishes(), 1000, 128)
    assert (options.limit, options.bytes_max) == (256, 262_144)
    assert (options.include_meta, options.include_tags, options.include_data) == (True, False, True)
    assert options.own_nodes == frozenset()


def test_own_nodes_are_one_or_many() -> None:
    assert own_nodes(None, 128) == frozenset()
    assert own_nodes("a", 128) == {"a"}
    assert own_nodes(["a", "b", "a"], 128) == {"a", "b"}


@pytest.mark.parametrize("node", ["é" * 65, ["a", "x" * 129], ["a"] * (limits.NODE_FILTER_ENTRIES_MAX + 1)])
def test_own_nodes_have_bounds(node: str | list[str]) -> None:
    with pytest.raises(InvalidRequest):
        own_nodes(node, 128)


# Topics


@pytest.fixture
def stage() -> LiveStage:
    """With the topics a and t42:b, of three records each."""
    stage = LiveStage()
    for name in ("a", "t42:b"):
        stage.write(name, 3)
    return stage


def places(
    stage: LiveStage, starts: dict[str, TopicStart], key: Key = ONE, *, topics_max: int = 10, lenient: bool = False
) -> dict[str, int]:
    found = find_topics(stage.engine, key, starts, topics_max, lenient=lenient)
    return {topic.name: from_seq for topic, from_seq, _ in found}


def test_a_topic_begins_where_it_is_asked_to(stage: LiveStage) -> None:
    assert places(stage, {"a": TopicStart(2), "t42:b": TopicStart(1, True)}) == {"a": 2, "t42:b": 3}


def test_finding_a_topic_counts_as_reading_it(stage: LiveStage) -> None:
    places(stage, {"a": TopicStart()})
    assert stage.engine.topic("a").last_read_ts == stage.clock.now_ms()


def test_an_unknown_topic_is_refused_unless_lenient(stage: LiveStage) -> None:
    starts = {"a": TopicStart(), "unknown": TopicStart()}
    with pytest.raises(TopicNotFound):
        places(stage, starts)
    assert places(stage, starts, lenient=True) == {"a": 0}


def test_there_is_at_least_one_topic(stage: LiveStage) -> None:
    with pytest.raises(InvalidRequest):
        places(stage, {})


@pytest.mark.parametrize("names", [("a", "t42:b"), ("unknown", "unheard")])
def test_there_are_no_more_topics_than_may_be(stage: LiveStage, names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest):
        places(stage, {name: TopicStart() for name in names}, topics_max=1, lenient=True)


@pytest.mark.parametrize("lenient", [True, False])
@pytest.mark.parametrize("name", ["a", "unknown"])
def test_a_name_outside_the_prefixes_is_refused_whether_it_exists_or_not(
    stage: LiveStage, name: str, lenient: bool
) -> None:
    assert places(stage, {"t42:b": TopicStart()}, TENANT, lenient=lenient) == {"t42:b": 0}
    with pytest.raises(Forbidden):
        places(stage, {"t42:b": TopicStart(), name: TopicStart()}, TENANT, lenient=lenient)
