"""DELETE /v0/topics/:topic removes a topic and all it held."""

from conformance.client import Topic, assert_error, success


def test_an_existing_topic_is_deleted(topic: Topic) -> None:
    topic.fill(2)
    reply = topic.api.delete(topic.path)
    assert reply.status == 200
    assert reply.json["topic"] == topic.name
    assert reply.json["deleted"] is True
    assert reply.json["routers_removed"] == []
    assert not topic.exists()


def test_deleting_an_absent_topic_succeeds(topic: Topic) -> None:
    reply = topic.api.delete(topic.path)
    assert reply.status == 200
    assert reply.json["deleted"] is False
    assert reply.json["routers_removed"] == []


def test_deleting_twice_reports_it_once(topic: Topic) -> None:
    topic.configure()
    assert [topic.remove()["deleted"], topic.remove()["deleted"]] == [True, False]


def test_if_empty_refuses_a_topic_with_records(topic: Topic) -> None:
    topic.fill(2)
    assert_error(topic.api.delete(f"{topic.path}?if_empty=true"), 409, "topic_not_empty")
    assert topic.seqs() == [1, 2]


def test_if_empty_deletes_a_topic_never_written_to(topic: Topic) -> None:
    topic.configure()
    assert success(topic.api.delete(f"{topic.path}?if_empty=true"))["deleted"] is True


def test_if_empty_deletes_a_topic_whose_records_are_all_deleted(topic: Topic) -> None:
    topic.fill(2)
    topic.delete_records(before_seq=3)
    assert success(topic.api.delete(f"{topic.path}?if_empty=true"))["deleted"] is True


def test_if_empty_on_an_absent_topic_succeeds(topic: Topic) -> None:
    assert success(topic.api.delete(f"{topic.path}?if_empty=true"))["deleted"] is False


def test_if_empty_false_deletes_a_topic_with_records(topic: Topic) -> None:
    topic.fill(1)
    assert success(topic.api.delete(f"{topic.path}?if_empty=false"))["deleted"] is True


def test_an_if_empty_that_is_no_boolean_is_refused(topic: Topic) -> None:
    topic.fill(1)
    assert_error(topic.api.delete(f"{topic.path}?if_empty=perhaps"), 400, "invalid_request", "if_empty")
    assert topic.exists()


def test_a_recreated_topic_starts_again_at_seq_1(topic: Topic) -> None:
    topic.fill(5)
    topic.remove()
    written = topic.fill(1)
    assert (written["created"], written["seqs"], written["head_seq"]) == (True, [1], 1)
    assert [record["$seq"] for record in topic.diff()["records"]] == [1]


def test_a_recreated_topic_has_the_default_config(topic: Topic) -> None:
    topic.configure(ttl_ms=60000, discard="reject", type="queue")
    topic.remove()
    config = topic.configure()["config"]
    assert (config["ttl_ms"], config["discard"], config["type"]) == (0, "old", "log")


def test_a_recreated_topic_remembers_no_idempotency_keys(topic: Topic) -> None:
    topic.write({"data": 1}, idempotency_key="k")
    topic.remove()
    assert topic.write({"data": 1}, idempotency_key="k")["deduped"] is False


def test_a_recreated_topic_remembers_no_tags(topic: Topic) -> None:
    topic.write({"data": 1, "tag": "t"})
    topic.remove()
    topic.fill(1)
    assert topic.delete_records(match="t")["deleted"] == 0
    assert topic.seqs() == [1]


def test_a_recreated_topic_has_never_been_read(topic: Topic) -> None:
    topic.fill(1)
    topic.diff()
    topic.remove()
    topic.configure()
    state = topic.state()
    assert (state["last_write_ts"], state["last_read_ts"]) == (None, None)


def test_the_reply_reports_its_time(topic: Topic) -> None:
    assert topic.remove()["performance"]["server_total_ms"] >= 0
