"""Extension: named cursors, which remember for somebody how far they have read."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.client import Topic, assert_error, success
from conformance.conftest import StartServer


def cursor(topic: Topic, name: str = "reader") -> str:
    return f"{topic.path}/cursors/{name}"


def test_a_cursor_is_kept_and_tells_its_lag(topic: Topic) -> None:
    topic.fill(5)
    put = success(topic.api.put(cursor(topic), {"seq": 3}))
    got = success(topic.api.get(cursor(topic)))
    for reply in (put, got):
        assert (reply["topic"], reply["name"], reply["seq"]) == (topic.name, "reader", 3)
        assert (reply["head_seq"], reply["lag"]) == (5, 2)
    assert put["updated_ts"] == got["updated_ts"]
    topic.fill(4)
    assert success(topic.api.get(cursor(topic)))["lag"] == 6


def test_a_cursor_may_go_back_and_beyond_the_head(topic: Topic) -> None:
    topic.fill(5)
    for seq, lag in ((5, 0), (2, 3), (0, 5), (99, 0), (2**64 - 1, 0)):
        reply = success(topic.api.put(cursor(topic), {"seq": seq}))
        assert (reply["seq"], reply["lag"]) == (seq, lag)


def test_cursors_are_listed_by_name(topic: Topic) -> None:
    topic.fill(5)
    for name, seq in (("b", 2), ("a", 1), ("c:1.x", 3)):
        topic.api.put(cursor(topic, name), {"seq": seq})
    listed = success(topic.api.get(f"{topic.path}/cursors"))["cursors"]
    assert [(each["name"], each["seq"], each["lag"]) for each in listed] == [("a", 1, 4), ("b", 2, 3), ("c:1.x", 3, 2)]


def test_a_deleted_cursor_is_gone(topic: Topic) -> None:
    topic.fill(1)
    topic.api.put(cursor(topic), {"seq": 1})
    assert success(topic.api.delete(cursor(topic)))["deleted"] is True
    assert success(topic.api.delete(cursor(topic)))["deleted"] is False
    detail = assert_error(topic.api.get(cursor(topic)), 404, "cursor_not_found")
    assert detail == {"topic": topic.name, "cursor": "reader"}


def test_cursors_go_with_their_topic(topic: Topic) -> None:
    topic.fill(1)
    topic.api.put(cursor(topic), {"seq": 1})
    topic.remove()
    assert_error(topic.api.get(cursor(topic)), 404, "topic_not_found")
    topic.fill(1)
    assert_error(topic.api.get(cursor(topic)), 404, "cursor_not_found")


def test_a_cursor_moves_no_record_and_creates_no_topic(topic: Topic) -> None:
    assert_error(topic.api.put(cursor(topic), {"seq": 1}), 404, "topic_not_found")
    assert not topic.exists()
    topic.fill(3)
    before = topic.state()
    topic.api.put(cursor(topic), {"seq": 1})
    after = topic.state()
    assert {name: after[name] for name in ("head_seq", "earliest_seq", "count", "bytes")} == {
        name: before[name] for name in ("head_seq", "earliest_seq", "count", "bytes")
    }


@pytest.mark.parametrize("body", [{}, {"seq": -1}, {"seq": "1"}, {"seq": 1.0}, {"seq": None}, {"seq": 2**64}, [1]])
def test_a_bad_seq_is_refused_and_changes_nothing(topic: Topic, body: object) -> None:
    topic.fill(1)
    assert_error(topic.api.put(cursor(topic), body), 400, "invalid_request")
    assert_error(topic.api.get(cursor(topic)), 404, "cursor_not_found")


def test_a_put_without_a_body_is_refused(topic: Topic) -> None:
    topic.fill(1)
    assert_error(topic.api.put(cursor(topic)), 400, "invalid_request")


@pytest.mark.parametrize("name", ["-a", "a%20b", "%C3%BC", "a" * 256, ".a"])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_bad_name_is_refused(topic: Topic, method: str, name: str) -> None:
    topic.fill(1)
    reply = topic.api.put(cursor(topic, name), {"seq": 1}) if method == "PUT" else topic.api.delete(cursor(topic, name))
    assert_error(reply, 400, "invalid_request", "cursor")


def test_a_cursor_has_no_other_methods(topic: Topic) -> None:
    topic.fill(1)
    reply = topic.api.post(cursor(topic), {"seq": 1})
    assert_error(reply, 405, "method_not_allowed")
    assert reply.headers["Allow"] == "DELETE, GET, PUT, HEAD"


def test_a_key_needs_the_scope_and_the_name(server: StartServer) -> None:
    api = server(TOPICS_API_KEYS="all,reader:read,writer:write,own:read+write:a.,other:read+write:b.").api
    topic = Topic(api.with_key("all"), "a.t")
    topic.fill(2)
    path = cursor(topic)
    assert_error(api.put(path, {"seq": 1}), 401, "unauthorized")
    assert_error(api.with_key("reader").put(path, {"seq": 1}), 403, "forbidden")
    assert_error(api.with_key("other").put(path, {"seq": 1}), 403, "forbidden")
    success(api.with_key("own").put(path, {"seq": 1}))
    assert_error(api.with_key("writer").get(path), 403, "forbidden")
    assert_error(api.with_key("other").get(path), 403, "forbidden")
    assert_error(api.with_key("other").get(f"{topic.path}/cursors"), 403, "forbidden")
    assert success(api.with_key("reader").get(path))["seq"] == 1
    assert_error(api.with_key("reader").delete(path), 403, "forbidden")
    assert_error(api.with_key("other").delete(path), 403, "forbidden")
    assert success(api.with_key("own").delete(path))["deleted"] is True


def test_a_topic_has_a_bounded_number_of_cursors(topic: Topic) -> None:
    topic.fill(1)
    with ThreadPoolExecutor(8) as threads:
        replies = threads.map(lambda number: topic.api.put(cursor(topic, f"c{number}"), {"seq": 1}), range(1000))
        assert {reply.status for reply in replies} == {200}
    refused = topic.api.put(cursor(topic, "one-too-many"), {"seq": 1})
    assert assert_error(refused, 429, "throttled") == {"limit": "max_cursors", "max": 1000}
    success(topic.api.put(cursor(topic, "c7"), {"seq": 0}))
    success(topic.api.delete(cursor(topic, "c8")))
    success(topic.api.put(cursor(topic, "one-more"), {"seq": 1}))
