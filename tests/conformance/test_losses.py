"""Extension: the ledger of what was lost involuntarily."""

import time
from typing import Any

from conformance.client import Topic, assert_error, eventually, success
from conformance.conftest import StartServer


def losses(topic: Topic) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = success(topic.api.get(f"{topic.path}/losses"))["losses"]
    return found


def ranges(topic: Topic) -> list[tuple[int, int, str]]:
    return [(loss["gap_from"], loss["gap_to"], loss["reason"]) for loss in losses(topic)]


def test_nothing_lost_is_an_empty_ledger(topic: Topic) -> None:
    topic.fill(3)
    assert losses(topic) == []


def test_what_a_cap_takes_is_noted_with_its_time(topic: Topic) -> None:
    topic.configure(cap_records=4)
    topic.fill(4)
    before_ms = time.time_ns() // 1_000_000
    topic.fill(6)
    [loss] = losses(topic)
    assert (loss["gap_from"], loss["gap_to"], loss["reason"]) == (1, 6, "cap")
    assert before_ms - 1000 <= loss["ts"] <= time.time_ns() // 1_000_000 + 1000


def test_what_a_ttl_takes_is_noted(topic: Topic) -> None:
    topic.configure(ttl_ms=1)
    topic.fill(5)
    eventually(lambda: topic.state()["count"] == 0)
    assert ranges(topic) == [(1, 5, "ttl")]


def test_what_was_deleted_on_purpose_is_not_noted(topic: Topic) -> None:
    topic.write(*({"data": number, "tag": f"k{number % 2}"} for number in range(10)))
    topic.delete_records(match="k1")
    topic.delete_records(before_seq=8)
    assert losses(topic) == []


def test_different_reasons_are_different_entries(topic: Topic) -> None:
    topic.configure(cap_records=5)
    topic.fill(8)
    topic.configure(ttl_ms=1, cap_records=0)
    eventually(lambda: topic.state()["count"] == 0)
    assert ranges(topic) == [(1, 3, "cap"), (4, 8, "ttl")]


def test_a_new_topic_of_the_same_name_has_lost_nothing(topic: Topic) -> None:
    topic.configure(cap_records=1)
    topic.fill(3)
    assert losses(topic)
    topic.remove()
    assert_error(topic.api.get(f"{topic.path}/losses"), 404, "topic_not_found")
    topic.fill(3)
    assert losses(topic) == []


def test_a_key_needs_the_scope_and_the_name(server: StartServer) -> None:
    api = server(TOPICS_API_KEYS="all,writer:write,other:read:b.,own:read:a.").api
    Topic(api.with_key("all"), "a.t").fill(1)
    path = "/v0/topics/a.t/losses"
    assert api.with_key("own").get(path).status == 200
    assert_error(api.get(path), 401, "unauthorized")
    assert_error(api.with_key("writer").get(path), 403, "forbidden")
    assert_error(api.with_key("other").get(path), 403, "forbidden")
