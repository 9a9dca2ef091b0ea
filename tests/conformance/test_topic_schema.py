"""Extensions for readers in bulk: a topic's schema, and many topics by name in one call."""

import pytest

from conformance.client import Api, Topic, assert_error, success


def test_a_schema_is_kept_until_it_is_unset(topic: Topic) -> None:
    assert "schema" not in topic.configure()["config"]
    assert topic.configure(schema="sku string")["config"]["schema"] == "sku string"
    topic.configure(ttl_ms=0)
    assert topic.state()["config"]["schema"] == "sku string"
    topic.configure(schema=None)
    assert "schema" not in topic.state()["config"]


@pytest.mark.parametrize("schema", ["", "  ", "x" * 8193, 5])
def test_a_schema_that_cannot_be_one_is_refused_and_changes_nothing(api: Api, topic: Topic, schema: object) -> None:
    topic.configure(schema="sku string")
    assert_error(api.put(f"/v0/topics/{topic.name}", {"schema": schema}), 400, "invalid_request")
    assert topic.state()["config"]["schema"] == "sku string"


def test_topics_are_listed_by_their_names(api: Api, topic: Topic) -> None:
    topic.configure(schema="sku string")
    other = Topic(api, f"{topic.name}-other")
    other.fill(3)
    listed = success(api.get(f"/v0/topics?names={other.name},{topic.name}-missing,{topic.name},{topic.name}"))["topics"]
    assert [entry["topic"] for entry in listed] == [topic.name, other.name]
    assert [entry["epoch"] for entry in listed] == [topic.state()["epoch"], other.state()["epoch"]]
    assert (listed[0]["schema"], listed[1]["head_seq"]) == ("sku string", 3)
    assert "schema" not in listed[1]


def test_names_that_are_none_are_refused(api: Api) -> None:
    assert_error(api.get("/v0/topics?names=a,,b"), 400, "invalid_request")
    assert_error(api.get("/v0/topics?names=" + ",".join(["a"] * 1001)), 400, "invalid_request")
