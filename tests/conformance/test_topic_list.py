"""GET /v0/topics enumerates topics, page by page."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from conformance.client import Api, Topic, assert_error, success


def list_topics(api: Api, **query: object) -> dict[str, Any]:
    return success(api.get(f"/v0/topics?{urlencode(query)}"))


def names(page: dict[str, Any]) -> list[str]:
    return [entry["topic"] for entry in page["topics"]]


def all_names(api: Api, **query: object) -> list[str]:
    page = list_topics(api, **query)
    found = names(page)
    while "next_cursor" in page:
        page = list_topics(api, **{**query, "cursor": page["next_cursor"]})
        found += names(page)
    return found


@pytest.fixture
def family(api: Api) -> Iterator[Callable[[int], list[Topic]]]:
    """Creates topics that share a prefix nobody else uses."""
    created: list[Topic] = []

    def create(count: int) -> list[Topic]:
        prefix = f"list:{uuid.uuid4().hex}:"
        topics = [Topic(api, f"{prefix}{position:03}") for position in range(count)]
        for topic in topics:
            topic.configure()
        created.extend(topics)
        return topics

    yield create
    for topic in created:
        topic.remove()


def prefix_of(topics: list[Topic]) -> str:
    return topics[0].name[:-3]


def test_an_entry_summarizes_the_state(topic: Topic) -> None:
    topic.configure(durable=True, priority=9)
    topic.fill(3)
    topic.delete_records(before_seq=2)
    state = topic.state()
    (entry,) = list_topics(topic.api, prefix=topic.name)["topics"]
    shared = ["topic", "head_seq", "earliest_seq", "count", "bytes", "effective_priority"]
    assert {field: entry[field] for field in shared} == {field: state[field] for field in shared}
    assert entry["durable"] is True


def test_only_names_with_the_prefix_are_listed(api: Api, family: Callable[[int], list[Topic]]) -> None:
    ours, others = family(3), family(2)
    assert sorted(names(list_topics(api, prefix=prefix_of(ours)))) == [topic.name for topic in ours]
    assert sorted(names(list_topics(api, prefix=prefix_of(others)))) == [topic.name for topic in others]


def test_a_topic_is_listed_without_a_prefix(topic: Topic) -> None:
    topic.configure()
    assert topic.name in all_names(topic.api, page_size=1000)


def test_a_prefix_nobody_has_lists_nothing(api: Api) -> None:
    page = list_topics(api, prefix=uuid.uuid4().hex)
    assert page["topics"] == []
    assert "next_cursor" not in page


def test_a_deleted_topic_is_not_listed(api: Api, family: Callable[[int], list[Topic]]) -> None:
    topics = family(3)
    topics[1].remove()
    assert sorted(names(list_topics(api, prefix=prefix_of(topics)))) == [topics[0].name, topics[2].name]


@pytest.mark.parametrize("page_size", [1, 2, 3, 5, 7])
def test_paging_finds_every_topic_once(api: Api, family: Callable[[int], list[Topic]], page_size: int) -> None:
    topics = family(5)
    found = all_names(api, prefix=prefix_of(topics), page_size=page_size)
    assert sorted(found) == [topic.name for topic in topics]


def test_a_page_holds_at_most_page_size_topics(api: Api, family: Callable[[int], list[Topic]]) -> None:
    page = list_topics(api, prefix=prefix_of(family(5)), page_size=2)
    assert len(page["topics"]) == 2
    assert isinstance(page["next_cursor"], str)


def test_a_last_page_that_is_full_has_no_cursor(api: Api, family: Callable[[int], list[Topic]]) -> None:
    prefix = prefix_of(family(4))
    first = list_topics(api, prefix=prefix, page_size=2)
    second = list_topics(api, prefix=prefix, page_size=2, cursor=first["next_cursor"])
    assert len(second["topics"]) == 2
    assert "next_cursor" not in second


def test_the_default_page_holds_100_topics(api: Api, family: Callable[[int], list[Topic]]) -> None:
    prefix = prefix_of(family(101))
    page = list_topics(api, prefix=prefix)
    assert len(page["topics"]) == 100
    assert "next_cursor" in page
    assert len(list_topics(api, prefix=prefix, cursor=page["next_cursor"])["topics"]) == 1


@pytest.mark.parametrize("page_size", [1001, 2**32 - 1, 2**64 - 1])
def test_a_page_size_beyond_the_maximum_is_clamped(
    api: Api, family: Callable[[int], list[Topic]], page_size: int
) -> None:
    assert len(list_topics(api, prefix=prefix_of(family(2)), page_size=page_size)["topics"]) == 2


def test_topics_deleted_between_pages_do_not_hide_others(api: Api, family: Callable[[int], list[Topic]]) -> None:
    topics = family(6)
    prefix = prefix_of(topics)
    first = list_topics(api, prefix=prefix, page_size=2)
    for name in names(first):
        Topic(api, name).remove()
    rest = all_names(api, prefix=prefix, page_size=2, cursor=first["next_cursor"])
    assert sorted(names(first) + rest) == [topic.name for topic in topics]


@pytest.mark.parametrize("cursor", ["%21", "not-a-cursor", "AAAA", "e30%3D", "bnVsbA%3D%3D", "a" * 2000])
def test_a_malformed_cursor_is_refused(api: Api, cursor: str) -> None:
    assert_error(api.get(f"/v0/topics?cursor={cursor}"), 400, "invalid_request", "cursor")


@pytest.mark.parametrize("query", ["cursor=%FF", "prefix=%FF", "prefix=%C3"])
def test_a_query_that_is_no_unicode_is_refused(api: Api, query: str) -> None:
    assert_error(api.get(f"/v0/topics?{query}"), 400, "invalid_request")


@pytest.mark.parametrize("page_size", ["abc", "-1", "1.5", "%31%00"])
def test_a_page_size_that_is_no_number_is_refused(api: Api, page_size: str) -> None:
    assert_error(api.get(f"/v0/topics?page_size={page_size}"), 400, "invalid_request", "page_size")


def test_listing_does_not_touch_the_topics(topic: Topic) -> None:
    topic.configure()
    list_topics(topic.api, prefix=topic.name)
    assert topic.state()["last_read_ts"] is None


def test_listing_touches_the_topics_when_asked_to(topic: Topic) -> None:
    topic.configure()
    list_topics(topic.api, prefix=topic.name, touch="true")
    assert isinstance(topic.state()["last_read_ts"], int)


def test_the_reply_reports_its_time(api: Api) -> None:
    assert list_topics(api, page_size=1)["performance"]["server_total_ms"] >= 0
