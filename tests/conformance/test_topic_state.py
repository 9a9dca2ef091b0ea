"""GET /v0/topics/:topic reports where a topic stands."""

from typing import Any

import pytest

from conformance.client import Topic, assert_error, success


def touch(topic: Topic) -> dict[str, Any]:
    return success(topic.api.get(topic.path))


def test_a_fresh_topic_is_empty(topic: Topic) -> None:
    topic.configure()
    state = topic.state()
    assert state["topic"] == topic.name
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (0, 1, 1)
    assert (state["count"], state["bytes"]) == (0, 0)
    assert state["last_write_ts"] is None
    assert state["last_read_ts"] is None


def test_the_watermarks_follow_the_writes(topic: Topic) -> None:
    topic.fill(3)
    topic.fill(2)
    state = topic.state()
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"], state["count"]) == (5, 1, 6, 5)


def test_bytes_grow_with_writes_and_fall_with_deletes(topic: Topic) -> None:
    topic.fill(1)
    one = topic.state()["bytes"]
    topic.fill(1)
    two = topic.state()["bytes"]
    topic.delete_records(before_seq=2)
    assert two > one > 0
    assert topic.state()["bytes"] < two


def test_bytes_are_zero_again_when_everything_is_deleted(topic: Topic) -> None:
    topic.write({"data": "x" * 100, "tag": "t", "node": "n", "meta": {"k": "v"}})
    topic.delete_records(before_seq=2)
    assert topic.state()["bytes"] == 0


def test_bytes_cover_at_least_the_payload(topic: Topic) -> None:
    topic.write({"data": "x" * 1000})
    assert topic.state()["bytes"] >= 1000


def test_earliest_seq_of_an_emptied_topic_is_one_past_the_head(topic: Topic) -> None:
    topic.fill(4)
    topic.delete_records(before_seq=5)
    state = topic.state()
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"], state["count"]) == (4, 5, 5, 0)


def test_the_state_carries_the_same_config_as_the_put(topic: Topic) -> None:
    assert topic.configure(ttl_ms=60000, discard="reject")["config"] == topic.state()["config"]


def test_the_last_write_time_is_set_by_a_write(topic: Topic) -> None:
    topic.fill(2)
    assert topic.state()["last_write_ts"] >= topic.diff()["records"][-1]["$ts"]


def test_a_write_is_not_a_read(topic: Topic) -> None:
    topic.fill(2)
    assert topic.state()["last_read_ts"] is None


def test_reading_the_state_touches_the_topic_first(topic: Topic) -> None:
    topic.configure()
    state = touch(topic)
    assert isinstance(state["last_read_ts"], int)
    assert state["effective_priority"] == 500


def test_touch_false_leaves_the_topic_untouched(topic: Topic) -> None:
    topic.configure()
    topic.state()
    state = topic.state()
    assert state["last_read_ts"] is None
    assert state["effective_priority"] == 0


def test_a_diff_touches_the_topic(topic: Topic) -> None:
    topic.configure()
    topic.diff()
    state = topic.state()
    assert isinstance(state["last_read_ts"], int)
    assert state["effective_priority"] > 0


@pytest.mark.parametrize("priority", [10, -10, 1000, 0])
def test_a_manual_priority_overrides_the_automatic_one(topic: Topic, priority: int) -> None:
    topic.configure(priority=priority)
    assert touch(topic)["effective_priority"] == priority


def test_without_auto_priority_recency_does_not_count(topic: Topic) -> None:
    topic.configure(auto_priority=False)
    assert touch(topic)["effective_priority"] == 0


def test_an_absent_topic_is_404(topic: Topic) -> None:
    detail = assert_error(topic.api.get(topic.path), 404, "topic_not_found")
    assert detail["topic"] == topic.name


def test_reading_the_state_never_creates_the_topic(topic: Topic) -> None:
    topic.api.get(topic.path)
    assert not topic.exists()


def test_a_log_has_no_queue_counters(topic: Topic) -> None:
    topic.configure()
    state = topic.state()
    assert state.get("type", "log") == "log"
    assert "queue" not in state


def test_a_queue_reports_its_counters(topic: Topic) -> None:
    topic.configure(type="queue")
    topic.fill(3)
    state = topic.state()
    assert state["type"] == "queue"
    assert state["queue"] == {"ready": 3, "in_flight": 0, "dead_lettered": 0}


def test_deleted_jobs_are_no_longer_ready(topic: Topic) -> None:
    topic.configure(type="queue")
    topic.fill(3)
    topic.delete_records(before_seq=3)
    assert topic.state()["queue"]["ready"] == 1


def test_a_touch_that_is_no_boolean_is_refused(topic: Topic) -> None:
    topic.configure()
    assert_error(topic.api.get(f"{topic.path}?touch=perhaps"), 400, "invalid_request", "touch")


def test_the_reply_reports_its_time(topic: Topic) -> None:
    topic.configure()
    assert topic.state()["performance"]["server_total_ms"] >= 0
