"""All topics by name, and listing them in order."""

import pytest

from topics.engine.registry import Registry
from topics.engine.topic import Topic
from topics.engine.topic_log import TopicLog
from topics.model.config import DEFAULT_CONFIG

NAMES = ["b", "a:2", "a:1", "ab", "c", "a"]


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    for topic_id, name in enumerate(NAMES, 1):
        registry.add(Topic(name, topic_id, DEFAULT_CONFIG, TopicLog()))
    return registry


@pytest.mark.parametrize(
    ("after", "prefixes", "names"),
    [
        ("", ("",), ["a", "a:1", "a:2", "ab", "b", "c"]),
        ("", ("a:",), ["a:1", "a:2"]),
        ("a:1", ("a:",), ["a:2"]),
        ("a:1", ("",), ["a:2", "ab", "b", "c"]),
        ("a:15", ("",), ["a:2", "ab", "b", "c"]),
        ("c", ("",), []),
        ("z", ("a",), []),
        ("", ("c", "a:"), ["a:1", "a:2", "c"]),
        ("", ("a", "a:", "ab"), ["a", "a:1", "a:2", "ab"]),
        ("a:2", ("c", "a"), ["ab", "c"]),
        ("", ("x",), []),
        ("", (), []),
    ],
)
def test_names_are_listed_in_order_each_once(
    registry: Registry, after: str, prefixes: tuple[str, ...], names: list[str]
) -> None:
    assert list(registry.names_after(after, prefixes)) == names


def test_a_removed_topic_is_gone_from_both_views(registry: Registry) -> None:
    registry.remove(registry.by_name["a:2"])
    assert registry.get("a:2") is None
    assert list(registry.names_after("", ("a",))) == ["a", "a:1", "ab"]
    assert len(registry) == len(list(registry)) == len(NAMES) - 1


def test_a_topic_is_found_by_its_id_until_it_is_removed(registry: Registry) -> None:
    found = registry.by_id(2)
    assert found is not None
    assert found.name == "a:2"
    registry.remove(found)
    assert registry.by_id(2) is None


def test_a_topic_is_found_by_its_exact_name(registry: Registry) -> None:
    found = registry.get("ab")
    assert found is not None
    assert found.name == "ab"
    assert registry.get("AB") is None


@pytest.mark.parametrize("later_first", [False, True])
def test_of_two_topics_with_one_name_the_later_one_has_it_whichever_was_met_first(later_first: bool) -> None:
    """Logs are read one after the other."""
    earlier, later = (Topic("t", topic_id, DEFAULT_CONFIG, TopicLog()) for topic_id in (1, 2))
    registry = Registry()
    for topic in (later, earlier) if later_first else (earlier, later):
        registry.add(topic)
    assert (registry.get("t"), registry.by_id(1), len(registry)) == (later, earlier, 1)
    assert (registry.replaced(), list(registry.names_after("", ("",)))) == ([earlier], ["t"])
    registry.remove(earlier)
    assert (registry.get("t"), registry.by_id(1), registry.replaced()) == (later, None, [])


def test_a_topic_that_comes_after_its_successor_has_gone_gets_no_name() -> None:
    registry = Registry()
    older, newer = (Topic("a", topic_id, DEFAULT_CONFIG, TopicLog()) for topic_id in (1, 2))
    registry.add(newer)
    registry.remove(newer)
    registry.add(older)
    assert registry.get("a") is None
    assert list(registry.names_after("", ("",))) == []
    assert registry.replaced() == [older]
    registry.remove(older)
    assert registry.replaced() == []


def test_a_topic_whose_successor_has_gone_does_not_get_its_name_back() -> None:
    registry = Registry()
    older, newer = (Topic("a", topic_id, DEFAULT_CONFIG, TopicLog()) for topic_id in (1, 2))
    registry.add(older)
    registry.add(newer)
    registry.remove(newer)
    assert registry.get("a") is None
    assert registry.replaced() == [older]
