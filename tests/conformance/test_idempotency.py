"""A write with an idempotency key is appended once."""

from collections.abc import Callable
from typing import Any

from conformance.client import JSON_TYPE, Reply, Topic, assert_error, eventually, success, to_json


def write_with_header(topic: Topic, key: str, **body: Any) -> Reply:
    content = to_json({"records": [{"data": 1}], **body})
    return topic.api.request("POST", topic.path, body=content, headers={**JSON_TYPE, "Idempotency-Key": key})


def test_a_retry_returns_the_original_seqs(topic: Topic) -> None:
    topic.fill(2)
    first = topic.write({"data": 1}, {"data": 2}, idempotency_key="k")
    topic.fill(1)
    reply = topic.api.post(topic.path, {"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"})
    assert reply.status == 200
    assert (first["deduped"], reply.json["deduped"]) == (False, True)
    assert reply.json["seqs"] == first["seqs"] == [3, 4]
    assert (reply.json["first_seq"], reply.json["last_seq"], reply.json["count"]) == (3, 4, 2)


def test_a_retry_appends_nothing(topic: Topic) -> None:
    topic.write({"data": 1}, idempotency_key="k")
    topic.write({"data": 1}, idempotency_key="k")
    assert topic.seqs() == [1]


def test_a_retry_of_the_creating_write_did_not_create_the_topic(topic: Topic) -> None:
    topic.write({"data": 1}, idempotency_key="k")
    reply = topic.api.post(topic.path, {"records": [{"data": 1}], "idempotency_key": "k"})
    assert (reply.status, reply.json["created"], reply.json["deduped"]) == (200, False, True)


def test_the_same_key_with_another_batch_returns_the_original_seqs(topic: Topic) -> None:
    topic.write({"data": 1}, idempotency_key="k")
    retried = topic.write({"data": "other"}, {"data": "longer"}, idempotency_key="k")
    assert (retried["deduped"], retried["seqs"]) == (True, [1])
    assert topic.state()["head_seq"] == 1


def test_another_key_is_another_write(topic: Topic) -> None:
    topic.write({"data": 1}, idempotency_key="a")
    written = topic.write({"data": 1}, idempotency_key="b")
    assert (written["deduped"], written["seqs"]) == (False, [2])


def test_keys_are_case_sensitive(topic: Topic) -> None:
    topic.write({"data": 1}, idempotency_key="a")
    assert topic.write({"data": 1}, idempotency_key="A")["deduped"] is False


def test_writes_without_a_key_are_never_deduplicated(topic: Topic) -> None:
    topic.write({"data": 1})
    assert topic.write({"data": 1})["deduped"] is False
    assert topic.state()["head_seq"] == 2


def test_keys_belong_to_their_topic(new_topic: Callable[..., Topic]) -> None:
    one, other = new_topic(), new_topic()
    one.write({"data": 1}, idempotency_key="k")
    assert other.write({"data": 1}, idempotency_key="k")["deduped"] is False


def test_the_key_may_be_sent_as_a_header(topic: Topic) -> None:
    success(write_with_header(topic, "k"))
    assert success(write_with_header(topic, "k"))["deduped"] is True


def test_header_and_body_name_the_same_key(topic: Topic) -> None:
    topic.write({"data": 1}, idempotency_key="k")
    assert success(write_with_header(topic, "k"))["deduped"] is True


def test_the_key_in_the_body_wins_over_the_header(topic: Topic) -> None:
    success(write_with_header(topic, "from-header", idempotency_key="from-body"))
    assert topic.write({"data": 1}, idempotency_key="from-body")["deduped"] is True
    assert topic.write({"data": 1}, idempotency_key="from-header")["deduped"] is False


def test_a_null_key_in_the_body_leaves_the_header_in_force(topic: Topic) -> None:
    success(write_with_header(topic, "k"))
    assert success(write_with_header(topic, "k", idempotency_key=None))["deduped"] is True


def test_a_key_is_forgotten_after_its_window(topic: Topic) -> None:
    topic.configure(idempotency_window_ms=50)
    topic.write({"data": 1}, idempotency_key="k")
    eventually(lambda: topic.write({"data": 1}, idempotency_key="k")["deduped"] is False)
    assert topic.state()["head_seq"] == 2


def test_a_key_outlives_its_records(topic: Topic) -> None:
    topic.write({"data": 1}, idempotency_key="k")
    topic.delete_records(before_seq=2)
    retried = topic.write({"data": 1}, idempotency_key="k")
    assert (retried["deduped"], retried["seqs"]) == (True, [1])
    assert topic.state()["count"] == 0


def test_a_retry_succeeds_on_a_topic_that_has_become_full(topic: Topic) -> None:
    topic.configure(cap_records=1, discard="reject")
    topic.write({"data": 1}, idempotency_key="k")
    assert topic.write({"data": 1}, idempotency_key="k")["deduped"] is True


def test_the_key_of_a_refused_write_is_not_remembered(topic: Topic) -> None:
    topic.configure(cap_records=1, discard="reject")
    topic.fill(1)
    refused = topic.api.post(topic.path, {"records": [{"data": 1}], "idempotency_key": "k"})
    assert_error(refused, 422, "topic_full")
    topic.delete_records(before_seq=2)
    written = topic.write({"data": 1}, idempotency_key="k")
    assert (written["deduped"], written["seqs"]) == (False, [2])


def test_a_retry_may_leave_out_the_seqs(topic: Topic) -> None:
    topic.write({"data": 1}, {"data": 2}, idempotency_key="k")
    body = {"records": [{"data": 1}], "idempotency_key": "k"}
    retried = success(topic.api.post(f"{topic.path}?return_seqs=false", body))
    assert "seqs" not in retried
    assert (retried["first_seq"], retried["last_seq"]) == (1, 2)


def test_a_key_of_256_characters_is_accepted(topic: Topic) -> None:
    topic.write({"data": 1}, idempotency_key="é" * 256)
    assert topic.write({"data": 1}, idempotency_key="é" * 256)["deduped"] is True


def test_a_key_of_257_characters_is_refused(topic: Topic) -> None:
    reply = topic.api.post(topic.path, {"records": [{"data": 1}], "idempotency_key": "k" * 257})
    assert_error(reply, 400, "invalid_request", "idempotency_key")
    assert not topic.exists()


def test_a_key_of_257_characters_in_the_header_is_refused(topic: Topic) -> None:
    assert_error(write_with_header(topic, "k" * 257), 400, "invalid_request")
    assert not topic.exists()
