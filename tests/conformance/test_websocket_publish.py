"""/v0/ws: publishing."""

from typing import Any

import pytest

from conformance.client import Topic
from conformance.websocket import Client


def test_a_publish_is_acknowledged_with_its_seqs(client: Client, topic: Topic) -> None:
    ack = client.ask("publish", request_id="p", topic=topic.name, records=[{"data": 1}, {"data": 2}])
    performance = ack.pop("performance")
    assert ack == {
        "op": "ack",
        "request_id": "p",
        "topic": topic.name,
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    assert performance["fsync_ms"] == 0.0
    assert client.ask("publish", topic=topic.name, records=[{"data": 3}])["created"] is False
    assert [record["data"] for record in topic.diff()["records"]] == [1, 2, 3]


def test_seqs_can_be_left_out(client: Client, topic: Topic) -> None:
    ack = client.ask("publish", topic=topic.name, records=[{"data": 1}], return_seqs=False)
    assert (ack["first_seq"], ack["last_seq"], "seqs" in ack) == (1, 1, False)


def test_records_have_all_their_fields(client: Client, topic: Topic) -> None:
    records = [{"data": None, "tag": "t", "meta": {"m": "v"}}, {"data": [1], "node": "own"}]
    client.ask("publish", topic=topic.name, node="batch", records=records)
    found = topic.diff(include_tags=True)["records"]
    assert [{name: record[name] for name in record if name != "$ts"} for record in found] == [
        {"$seq": 1, "$node": "batch", "$tag": "t", "data": None, "meta": {"m": "v"}},
        {"$seq": 2, "$node": "own", "data": [1]},
    ]


def test_a_payload_is_kept_as_it_was_sent(client: Client, topic: Topic) -> None:
    client.connection.send(f'{{"op":"publish","topic":"{topic.name}","records":[{{"data":{{"n": 1.0,\n"n":1e400}}}}]}}')
    assert client.frame()["op"] == "ack"
    assert b'"data":{"n": 1.0,\n"n":1e400}' in topic.api.post(f"{topic.path}/diff", {}).body


def test_a_publish_with_a_key_appends_once(client: Client, topic: Topic) -> None:
    first = client.ask("publish", topic=topic.name, records=[{"data": 1}], idempotency_key="k")
    again = client.ask("publish", topic=topic.name, records=[{"data": 1}], idempotency_key="k")
    assert (first["deduped"], again["deduped"], again["seqs"]) == (False, True, [1])
    assert topic.state()["head_seq"] == 1


def test_a_publish_may_configure_the_topic_it_makes(client: Client, topic: Topic) -> None:
    client.ask("publish", topic=topic.name, records=[{"data": 1}], config={"cap_records": 7})
    assert topic.state()["config"]["cap_records"] == 7


def test_a_publish_may_refuse_to_make_a_topic(client: Client, topic: Topic) -> None:
    code = client.error("publish", request_id="p", topic=topic.name, records=[{"data": 1}], create=False)
    assert code == ("topic_not_found", "p")
    assert not topic.exists()


def test_a_durable_publish_is_acknowledged_once_it_is_synced(client: Client, topic: Topic) -> None:
    topic.configure(durability="fsync")
    ack = client.ask("publish", topic=topic.name, records=[{"data": 1}])
    assert (ack["op"], ack["last_seq"], ack["head_seq"]) == ("ack", 1, 1)
    assert ack["performance"]["fsync_ms"] > 0


def test_publishes_are_appended_in_the_order_they_are_sent(client: Client, topic: Topic) -> None:
    for number in range(50):
        client.send("publish", request_id=str(number), topic=topic.name, records=[{"data": number}])
    acks = [client.frame() for _ in range(50)]
    assert [(ack["request_id"], ack["last_seq"]) for ack in acks] == [(str(seq - 1), seq) for seq in range(1, 51)]
    assert [record["data"] for record in topic.diff()["records"]] == list(range(50))


def test_backpressure_may_be_disabled(client: Client, topic: Topic) -> None:
    ack = client.ask("publish", topic=topic.name, records=[{"data": 1}], disable_backpressure=True)
    assert ack["op"] == "ack"


def test_a_publisher_may_subscribe_too(client: Client, topic: Topic) -> None:
    topic.configure()
    client.subscribe(topic=topic.name)
    client.send("publish", request_id="p", topic=topic.name, records=[{"data": 1}])
    assert {client.frame()["op"], client.frame()["op"]} == {"ack", "record"}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({}, "invalid_request"),
        ({"records": []}, "invalid_request"),
        ({"records": [{}]}, "invalid_request"),
        ({"records": [{"data": 1, "meta": [1]}]}, "invalid_request"),
        ({"records": [{"data": 1, "tag": "t" * 257}]}, "invalid_request"),
        ({"records": [{"data": 1}], "config": {"ttl_ms": -1}}, "invalid_request"),
        ({"records": [{"data": 1}], "return_seqs": "no"}, "invalid_request"),
        ({"records": [{"data": 1}], "idempotency_key": "k" * 257}, "invalid_request"),
        ({"records": [{"data": 1}] * 10_001}, "batch_too_large"),
        ({"records": [{"data": "x" * (1 << 20)}]}, "record_too_large"),
    ],
)
def test_a_publish_is_refused_with_its_request_id(
    client: Client, topic: Topic, command: dict[str, Any], code: str
) -> None:
    assert client.error("publish", request_id="p", topic=topic.name, **command) == (code, "p")
    assert not topic.exists()
    assert client.ask("ping")["op"] == "pong"


def test_a_publish_needs_a_topic(client: Client) -> None:
    assert client.error("publish", request_id="p", records=[{"data": 1}]) == ("invalid_request", "p")


def test_a_full_topic_refuses_a_publish(client: Client, topic: Topic) -> None:
    topic.configure(cap_records=1, discard="reject")
    topic.fill(1)
    frame = client.ask("publish", request_id="p", topic=topic.name, records=[{"data": 1}])
    assert (frame["op"], frame["code"], frame["request_id"]) == ("error", "topic_full", "p")
    assert frame["detail"]["cap_records"] == 1
