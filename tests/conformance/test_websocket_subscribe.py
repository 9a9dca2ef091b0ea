"""/v0/ws: subscriptions, what they are served, and what they are told of losses."""

from typing import Any

import pytest

from conformance.client import Topic
from conformance.websocket import Client, NewTopic, gist, seqs

# Subscribing


def test_a_subscription_is_confirmed_and_then_served(client: Client, topic: Topic) -> None:
    topic.write({"data": {"a": 1}, "node": "n", "tag": "t", "meta": {"m": "1"}}, {"data": 2})
    stamps = [record["$ts"] for record in topic.diff()["records"]]
    assert client.ask("subscribe", request_id="s1", topic=topic.name) == {
        "op": "subscribed",
        "request_id": "s1",
        "topics": {topic.name: {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}},
    }
    assert client.frame() == {
        "op": "record",
        "topic": topic.name,
        "records": [
            {"$seq": 1, "$ts": stamps[0], "$node": "n", "data": {"a": 1}, "meta": {"m": "1"}},
            {"$seq": 2, "$ts": stamps[1], "data": 2},
        ],
        "from_seq": 0,
        "to_seq": 2,
        "head_seq": 2,
    }
    assert client.frame() == {"op": "caught_up", "topic": topic.name, "head_seq": 2}
    topic.fill(1)
    assert seqs(client.frame()) == [3]


def test_what_has_no_request_id_is_answered_without(client: Client, topic: Topic) -> None:
    topic.configure()
    assert "request_id" not in client.ask("subscribe", topic=topic.name)


@pytest.mark.parametrize(
    ("options", "first"),
    [({"from_seq": 2}, [3, 4]), ({"tail": True}, "caught_up"), ({"tail": True, "from_seq": 1}, "caught_up")],
)
def test_a_subscription_begins_where_it_is_told(
    client: Client, topic: Topic, options: dict[str, Any], first: Any
) -> None:
    topic.fill(4)
    assert gist(client.subscribe(topic=topic.name, **options))[0] == first


def test_a_map_subscribes_to_many_topics(client: Client, new_topic: NewTopic) -> None:
    names = [new_topic() for _ in range(2)]
    for topic in names:
        topic.fill(3)
    one, two = (topic.name for topic in names)
    reply = client.ask("subscribe", request_id="m", topics={one: {"from_seq": 1}, two: {"tail": True}})
    assert {name: place["from_seq"] for name, place in reply["topics"].items()} == {one: 1, two: 3}
    frames = [client.frame() for _ in range(3)]
    assert {(frame["topic"], frame["op"]) for frame in frames} == {
        (one, "record"),
        (one, "caught_up"),
        (two, "caught_up"),
    }


def test_topic_and_map_go_together(client: Client, new_topic: NewTopic) -> None:
    one, two = new_topic(), new_topic()
    one.fill(2)
    two.fill(2)
    reply = client.ask("subscribe", topic=one.name, from_seq=1, topics={two.name: {}})
    assert {name: place["from_seq"] for name, place in reply["topics"].items()} == {one.name: 1, two.name: 0}


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, {"$seq": 1, "$node": "n", "data": [1], "meta": {"m": "v"}}),
        ({"include_tags": True}, {"$seq": 1, "$node": "n", "$tag": "t", "data": [1], "meta": {"m": "v"}}),
        ({"include_meta": False}, {"$seq": 1, "$node": "n", "data": [1]}),
        ({"include_data": False}, {"$seq": 1, "$node": "n"}),
    ],
)
def test_a_subscription_says_what_it_wants_of_a_record(
    client: Client, topic: Topic, options: dict[str, bool], shown: dict[str, Any]
) -> None:
    topic.write({"data": [1], "tag": "t", "node": "n", "meta": {"m": "v"}})
    (record,) = client.subscribe(topic=topic.name, **options)[0]["records"]
    assert isinstance(record.pop("$ts"), int)
    assert record == shown


def test_a_subscription_has_a_limit(client: Client, topic: Topic) -> None:
    topic.fill(5)
    assert gist(client.subscribe(topic=topic.name, limit=2)) == [[1, 2], [3, 4], [5], "caught_up"]


def test_a_subscription_has_bytes_of_a_frame(client: Client, topic: Topic) -> None:
    topic.write(*({"data": "x" * 1000} for _ in range(3)))
    assert gist(client.subscribe(topic=topic.name, max_batch_bytes=2500)) == [[1, 2], [3], "caught_up"]


@pytest.mark.parametrize(("node", "expected"), [("a", [2, 3]), (["a", "b"], [3])])
def test_a_subscriber_does_not_get_its_own_records(
    client: Client, topic: Topic, node: Any, expected: list[int]
) -> None:
    topic.write({"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3})
    frame = client.subscribe(topic=topic.name, node=node)[0]
    assert (seqs(frame), frame["to_seq"]) == (expected, 3)


def test_subscribing_again_begins_anew(client: Client, topic: Topic) -> None:
    topic.fill(2)
    assert gist(client.subscribe(topic=topic.name)) == [[1, 2], "caught_up"]
    assert gist(client.subscribe(topic=topic.name, from_seq=1)) == [[2], "caught_up"]
    topic.fill(1)
    assert seqs(client.frame()) == [3]
    assert client.ask("ping")["op"] == "pong"  # and not the record a second time


def test_payloads_may_have_line_breaks(client: Client, topic: Topic) -> None:
    assert topic.api.post_bytes(topic.path, b'{"records":[{"data":[1,\r\n2,\r3,\n4]}]}').status == 201
    assert client.subscribe(topic=topic.name)[0]["records"][0]["data"] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({}, "invalid_request"),
        ({"topics": {}}, "invalid_request"),
        ({"topic": "not a name"}, "invalid_request"),
        ({"topic": 5}, "invalid_request"),
        ({"topics": {"a": None}}, "invalid_request"),
        ({"topics": {"a": {"from_seq": -1}}}, "invalid_request"),
        ({"topic": "a", "from_seq": -1}, "invalid_request"),
        ({"topic": "a", "from_seq": 2**64}, "invalid_request"),
        ({"topic": "a", "tail": 1}, "invalid_request"),
        ({"topic": "a", "limit": "1"}, "invalid_request"),
        ({"topic": "a", "node": "n" * 129}, "invalid_request"),
        ({"topics": {f"absent-{number}": {} for number in range(257)}}, "invalid_request"),
        ({"topic": "absent-from-this-server"}, "topic_not_found"),
    ],
)
def test_a_subscription_is_refused_with_its_request_id(client: Client, command: dict[str, Any], code: str) -> None:
    assert client.error("subscribe", request_id="r", **command) == (code, "r")
    assert client.ask("ping")["op"] == "pong"


def test_one_unknown_topic_refuses_the_whole_map(client: Client, topic: Topic) -> None:
    topic.fill(1)
    assert client.error("subscribe", topics={topic.name: {}, "absent-from-this-server": {}})[0] == "topic_not_found"
    topic.fill(1)
    assert client.ask("ping")["op"] == "pong"  # and no record


def test_an_unknown_topic_is_named_in_the_detail(client: Client) -> None:
    frame = client.ask("subscribe", request_id="r", topic="absent-from-this-server")
    assert frame["detail"] == {"topic": "absent-from-this-server"}


# Unsubscribing


def test_what_is_unsubscribed_is_not_served(client: Client, topic: Topic) -> None:
    topic.configure()
    client.subscribe(topic=topic.name)
    assert client.ask("unsubscribe", request_id="u", topic=topic.name) == {
        "op": "unsubscribed",
        "request_id": "u",
        "topic": topic.name,
    }
    topic.fill(1)
    assert client.ask("ping", request_id="p") == {"op": "pong", "request_id": "p"}


def test_the_other_topics_stay_subscribed(client: Client, new_topic: NewTopic) -> None:
    one, two = new_topic(), new_topic()
    for topic in (one, two):
        topic.configure()
        client.subscribe(topic=topic.name)
    client.ask("unsubscribe", topic=one.name)
    one.fill(1)
    two.fill(1)
    assert client.frame()["topic"] == two.name


def test_what_was_never_subscribed_can_be_unsubscribed(client: Client) -> None:
    assert client.ask("unsubscribe", topic="absent-from-this-server")["op"] == "unsubscribed"


def test_unsubscribing_names_a_topic(client: Client) -> None:
    assert client.error("unsubscribe", request_id="u") == ("invalid_request", "u")


# Losses and ends of topics


def test_a_gap_is_a_tombstone(client: Client, topic: Topic) -> None:
    topic.configure(cap_records=3)
    topic.fill(10)
    frames = client.subscribe(topic=topic.name)
    assert frames[0] == {
        "op": "tombstone",
        "topic": topic.name,
        "reason": "cap",
        "gap_from": 1,
        "gap_to": 7,
        "earliest_seq": 8,
        "head_seq": 10,
    }
    assert gist(frames[1:]) == [[8, 9, 10], "caught_up"]


def test_what_a_cap_takes_before_it_is_pushed_is_a_tombstone(client: Client, topic: Topic) -> None:
    topic.configure(cap_records=3)
    client.subscribe(topic=topic.name)
    topic.fill(10)
    tombstone = client.frame()
    assert (tombstone["op"], tombstone["reason"], tombstone["gap_to"]) == ("tombstone", "cap", 7)
    assert seqs(client.frame()) == [8, 9, 10]


def test_a_cursor_beyond_the_head_means_the_topic_was_recreated(client: Client, topic: Topic) -> None:
    topic.fill(2)
    frames = client.subscribe(topic=topic.name, from_seq=9)
    assert (frames[0]["op"], frames[0]["reason"]) == ("tombstone", "recreated")
    assert gist(frames[1:]) == [[1, 2], "caught_up"]


def test_a_deleted_prefix_is_silent(client: Client, topic: Topic) -> None:
    topic.fill(5)
    topic.delete_records(before_seq=4)
    assert gist(client.subscribe(topic=topic.name)) == [[4, 5], "caught_up"]


def test_the_end_of_a_topic_is_told_and_ends_nothing_else(client: Client, new_topic: NewTopic) -> None:
    one, two = new_topic(), new_topic()
    for topic in (one, two):
        topic.fill(1)
        client.subscribe(topic=topic.name)
    one.remove()
    assert client.frame() == {"op": "topic_deleted", "topic": one.name, "head_seq": 1, "reason": "deleted"}
    one.fill(1)
    two.fill(1)
    assert client.frame()["topic"] == two.name
    assert gist(client.subscribe(topic=one.name)) == [[1], "caught_up"]


def test_a_place_of_an_earlier_topic_is_told_by_its_epoch(client: Client, topic: Topic) -> None:
    topic.fill(3)
    first = topic.state()["epoch"]
    topic.api.delete(topic.path)
    topic.fill(5)
    client.ask("subscribe", topic=topic.name, from_seq=2, epoch=first)
    frame = client.frame()
    assert (frame["op"], frame["reason"], frame["gap_to"]) == ("tombstone", "recreated", 5)
    assert seqs(client.frame()) == [1, 2, 3, 4, 5]
