"""POST /v0/topics/:topic appends records."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conformance.client import Topic, assert_error, success

MIB = 1024 * 1024


def test_the_first_write_creates_the_topic_with_201(topic: Topic) -> None:
    reply = topic.api.post(topic.path, {"records": [{"data": 1}]})
    assert reply.status == 201
    assert reply.json["created"] is True


def test_a_later_write_answers_200(topic: Topic) -> None:
    topic.fill(1)
    reply = topic.api.post(topic.path, {"records": [{"data": 1}]})
    assert reply.status == 200
    assert reply.json["created"] is False


def test_the_reply_names_the_assigned_seqs(topic: Topic) -> None:
    topic.fill(2)
    written = topic.fill(3)
    assert written["topic"] == topic.name
    assert written["seqs"] == [3, 4, 5]
    assert (written["first_seq"], written["last_seq"], written["head_seq"]) == (3, 5, 5)
    assert written["count"] == 3
    assert written["deduped"] is False


def test_seqs_start_at_1(topic: Topic) -> None:
    assert topic.fill(1)["first_seq"] == 1


def test_records_are_read_back_in_the_order_written(topic: Topic) -> None:
    topic.write({"data": "c"}, {"data": "a"})
    topic.write({"data": "b"})
    assert [record["data"] for record in topic.diff()["records"]] == ["c", "a", "b"]


def test_return_seqs_false_leaves_out_the_list(topic: Topic) -> None:
    written = success(topic.api.post(f"{topic.path}?return_seqs=false", {"records": [{"data": 1}] * 3}))
    assert "seqs" not in written
    assert (written["first_seq"], written["last_seq"], written["count"]) == (1, 3, 3)


def test_return_seqs_true_is_the_default(topic: Topic) -> None:
    written = success(topic.api.post(f"{topic.path}?return_seqs=true", {"records": [{"data": 1}] * 3}))
    assert written["seqs"] == [1, 2, 3]


def test_a_return_seqs_that_is_no_boolean_is_refused(topic: Topic) -> None:
    reply = topic.api.post(f"{topic.path}?return_seqs=perhaps", {"records": [{"data": 1}]})
    assert_error(reply, 400, "invalid_request", "return_seqs")
    assert not topic.exists()


def test_tag_node_and_meta_are_read_back(topic: Topic) -> None:
    topic.write({"data": 1, "tag": "t-1", "node": "n-1", "meta": {"trace": "abc"}})
    (record,) = topic.diff(include_tags=True)["records"]
    assert (record["$tag"], record["$node"], record["meta"]) == ("t-1", "n-1", {"trace": "abc"})


def test_absent_tag_node_and_meta_are_left_out(topic: Topic) -> None:
    topic.write({"data": 1})
    (record,) = topic.diff(include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "data"}


def test_null_stands_for_an_absent_tag_node_and_meta(topic: Topic) -> None:
    topic.write({"data": 1, "tag": None, "node": None, "meta": None})
    (record,) = topic.diff(include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "data"}


def test_null_stands_for_an_absent_option_of_the_write(topic: Topic) -> None:
    written = topic.write({"data": 1}, node=None, idempotency_key=None, create=None, config=None)
    assert written["seqs"] == [1]
    assert written["deduped"] is False


def test_the_batch_node_is_the_default_of_every_record(topic: Topic) -> None:
    topic.write({"data": 1}, {"data": 2, "node": "own"}, node="batch")
    assert [record["$node"] for record in topic.diff()["records"]] == ["batch", "own"]


def test_data_may_be_null(topic: Topic) -> None:
    topic.write({"data": None})
    (record,) = topic.diff()["records"]
    assert record["data"] is None


def test_timestamps_never_go_back(topic: Topic) -> None:
    for _ in range(5):
        topic.fill(3)
    stamps = [record["$ts"] for record in topic.diff()["records"]]
    assert stamps == sorted(stamps)
    assert all(isinstance(stamp, int) for stamp in stamps)


def test_create_false_refuses_an_absent_topic(topic: Topic) -> None:
    reply = topic.api.post(topic.path, {"records": [{"data": 1}], "create": False})
    assert_error(reply, 404, "topic_not_found")
    assert not topic.exists()


def test_create_false_writes_to_an_existing_topic(topic: Topic) -> None:
    topic.configure()
    assert topic.write({"data": 1}, create=False)["seqs"] == [1]


def test_create_true_creates_the_topic(topic: Topic) -> None:
    assert topic.write({"data": 1}, create=True)["created"] is True


def test_an_inline_config_is_applied_when_the_write_creates_the_topic(topic: Topic) -> None:
    topic.write({"data": 1}, config={"ttl_ms": 60000, "discard": "reject", "cap_records": 10})
    config = topic.state()["config"]
    assert (config["ttl_ms"], config["discard"], config["cap_records"]) == (60000, "reject", 10)


def test_an_inline_config_is_merged_over_the_defaults(topic: Topic) -> None:
    topic.write({"data": 1}, config={"ttl_ms": 60000})
    config = topic.state()["config"]
    assert (config["durability"], config["idempotency_window_ms"]) == ("disk", 120000)


def test_an_inline_config_is_ignored_when_the_topic_exists(topic: Topic) -> None:
    before = topic.configure(ttl_ms=60000)["config"]
    topic.write({"data": 1}, config={"ttl_ms": 5, "type": "queue"})
    assert topic.state()["config"] == before


def test_an_inline_config_can_create_a_queue(topic: Topic) -> None:
    topic.write({"data": 1}, config={"type": "queue"})
    assert topic.state()["type"] == "queue"


def test_an_inline_config_naming_the_topic_as_its_dead_letter_creates_nothing(topic: Topic) -> None:
    body = {"records": [{"data": 1}], "config": {"type": "queue", "dead_letter": topic.name}}
    assert_error(topic.api.post(topic.path, body), 400, "invalid_request", "dead_letter")
    assert not topic.exists()


def test_a_queue_is_written_and_read_like_a_log(topic: Topic) -> None:
    topic.configure(type="queue")
    topic.fill(3)
    assert topic.seqs() == [1, 2, 3]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_an_acked_write_is_readable_in_every_durability_class(topic: Topic, durability: str) -> None:
    topic.configure(durability=durability)
    topic.fill(2)
    assert topic.seqs() == [1, 2]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk"])
def test_only_the_fsync_class_waits_for_a_sync(topic: Topic, durability: str) -> None:
    topic.configure(durability=durability)
    assert topic.fill(1)["performance"].get("fsync_ms", 0) == 0


def test_the_fsync_class_reports_its_sync(topic: Topic) -> None:
    topic.configure(durability="fsync")
    assert topic.fill(1)["performance"]["fsync_ms"] > 0


def test_a_write_may_opt_out_of_backpressure(topic: Topic) -> None:
    assert topic.write({"data": 1}, disable_backpressure=True)["seqs"] == [1]


def test_unknown_fields_are_ignored(topic: Topic) -> None:
    topic.write({"data": 1, "$seq": 99, "other": [1]}, another={"x": 1})
    (record,) = topic.diff()["records"]
    assert set(record) == {"$seq", "$ts", "data"}
    assert record["$seq"] == 1


def test_of_a_repeated_field_the_last_one_wins(topic: Topic) -> None:
    success(topic.api.post_bytes(topic.path, b'{"records":[{"data":1,"tag":"a","data":2,"tag":"b"}]}'))
    (record,) = topic.diff(include_tags=True)["records"]
    assert (record["data"], record["$tag"]) == (2, "b")


def test_10000_records_fit_into_one_write(topic: Topic) -> None:
    written = topic.fill(10_000)
    assert (written["first_seq"], written["last_seq"], len(written["seqs"])) == (1, 10_000, 10_000)


def test_10001_records_are_too_many(topic: Topic) -> None:
    topic.fill(1)
    reply = topic.api.post(topic.path, {"records": [{"data": 0}] * 10_001})
    assert_error(reply, 400, "batch_too_large")
    assert topic.state()["head_seq"] == 1


def test_a_record_of_exactly_1_mib_is_accepted(topic: Topic) -> None:
    topic.write({"data": "x" * (MIB - 2)})
    assert topic.state()["count"] == 1


@pytest.mark.parametrize(
    "record",
    [
        {"data": "x" * (MIB - 1)},
        {"data": "x" * (MIB - 2), "meta": {"k": "v"}},
        {"data": "é" * (MIB // 2)},
    ],
    ids=["data", "data and meta", "bytes, not characters"],
)
def test_a_record_beyond_1_mib_is_too_large(topic: Topic, record: dict[str, Any]) -> None:
    topic.fill(1)
    assert_error(topic.api.post(topic.path, {"records": [{"data": 1}, record]}), 400, "record_too_large")
    assert topic.state()["head_seq"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tag", "t" * 256),
        ("tag", "é" * 128),
        ("node", "n" * 128),
        ("node", "é" * 64),
        ("meta", {f"k{position}": "v" for position in range(64)}),
        ("meta", {"k": "v" * 16_000}),
    ],
)
def test_a_record_field_at_its_limit_is_accepted(topic: Topic, field: str, value: Any) -> None:
    topic.write({"data": 1, field: value})
    (record,) = topic.diff(include_tags=True)["records"]
    assert record["meta" if field == "meta" else f"${field}"] == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tag", "t" * 257),
        ("tag", "é" * 129),
        ("node", "n" * 129),
        ("node", "é" * 65),
        ("meta", {f"k{position}": "v" for position in range(65)}),
        ("meta", {"k": "v" * (16 * 1024 + 1)}),
    ],
)
def test_a_record_field_beyond_its_limit_is_refused(topic: Topic, field: str, value: Any) -> None:
    topic.fill(1)
    reply = topic.api.post(topic.path, {"records": [{"data": 1}, {"data": 2, field: value}]})
    assert_error(reply, 400, "invalid_request", field)
    assert topic.state()["head_seq"] == 1


def test_a_batch_node_beyond_its_limit_is_refused(topic: Topic) -> None:
    topic.fill(1)
    reply = topic.api.post(topic.path, {"records": [{"data": 1}], "node": "n" * 129})
    assert_error(reply, 400, "invalid_request", "node")
    assert topic.state()["head_seq"] == 1


def test_a_refused_write_takes_no_seqs(topic: Topic) -> None:
    topic.fill(1)
    assert_error(topic.api.post(topic.path, {"records": [{"data": 1}, {}]}), 400, "invalid_request", "data")
    assert topic.fill(1)["seqs"] == [2]


def test_concurrent_writers_get_seqs_of_their_own(topic: Topic) -> None:
    topic.configure()
    with ThreadPoolExecutor(8) as pool:
        batches = [written["seqs"] for written in pool.map(lambda _: topic.fill(3), range(80))]
    assert all(batch == list(range(batch[0], batch[0] + 3)) for batch in batches)
    assert sorted(seq for batch in batches for seq in batch) == list(range(1, 241))


def test_topics_are_numbered_apart(new_topic: Callable[..., Topic]) -> None:
    one, other = new_topic(), new_topic()
    one.fill(5)
    assert other.fill(1)["seqs"] == [1]


def test_the_reply_reports_its_time(topic: Topic) -> None:
    assert topic.fill(1)["performance"]["server_total_ms"] >= 0
