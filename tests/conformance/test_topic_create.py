"""PUT /v0/topics/:topic creates a topic or changes its config."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.client import Api, Topic, assert_error, success
from conformance.conftest import StartServer
from conformance.process import ServerProcess

U64_MAX = 2**64 - 1

DEFAULT_CONFIG: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120000,
    "dedupe_node": True,
    "lease_ms": 30000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}

OTHER_VALUES: list[tuple[str, Any]] = [
    ("type", "queue"),
    ("ttl_ms", 60000),
    ("cap_records", 1000000),
    ("cap_bytes", 4096),
    ("discard", "reject"),
    ("durability", "ephemeral"),
    ("durability", "memory"),
    ("durability", "fsync"),
    ("priority", 10),
    ("priority", -10),
    ("auto_priority", False),
    ("auto_create", False),
    ("idempotency_window_ms", 1000),
    ("dedupe_node", False),
    ("lease_ms", 500),
    ("claim_jitter_ms", 20),
    ("max_deliveries", 5),
    ("dead_letter", "jobs.dlq"),
    ("leases_durable", True),
]


def test_a_new_topic_is_created_with_201(topic: Topic) -> None:
    reply = topic.api.put(topic.path, {})
    assert reply.status == 201
    assert reply.json["topic"] == topic.name
    assert reply.json["created"] is True


def test_an_empty_config_takes_every_default(topic: Topic) -> None:
    config = topic.configure()["config"]
    assert {field: config[field] for field in DEFAULT_CONFIG} == DEFAULT_CONFIG


def test_a_put_without_a_body_takes_every_default(topic: Topic) -> None:
    reply = topic.api.put(topic.path)
    assert reply.status == 201
    assert {field: reply.json["config"][field] for field in DEFAULT_CONFIG} == DEFAULT_CONFIG


@pytest.mark.parametrize(("field", "value"), OTHER_VALUES)
def test_a_given_field_is_kept_and_echoed(topic: Topic, field: str, value: Any) -> None:
    assert topic.configure(**{field: value})["config"][field] == value
    assert topic.state()["config"][field] == value


@pytest.mark.parametrize(("field", "value"), OTHER_VALUES)
def test_the_other_fields_keep_their_defaults(topic: Topic, field: str, value: Any) -> None:
    config = topic.configure(**{field: value})["config"]
    expected = DEFAULT_CONFIG | {field: value}
    expected["durable"] = expected["durability"] == "fsync"
    assert {name: config[name] for name in DEFAULT_CONFIG} == expected


@pytest.mark.parametrize("field", ["ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "max_deliveries"])
def test_an_integer_field_takes_the_whole_u64_range(topic: Topic, field: str) -> None:
    assert topic.configure(**{field: U64_MAX})["config"][field] == U64_MAX


def test_an_identical_put_changes_nothing_and_answers_200(topic: Topic) -> None:
    first = topic.configure(ttl_ms=60000, cap_records=10)
    second = topic.api.put(topic.path, {"ttl_ms": 60000, "cap_records": 10})
    assert second.status == 200
    assert second.json["created"] is False
    assert second.json["config"] == first["config"]


def test_a_changed_put_answers_200_with_the_new_config(topic: Topic) -> None:
    topic.configure(ttl_ms=60000)
    reply = topic.api.put(topic.path, {"ttl_ms": 90000})
    assert reply.status == 200
    assert reply.json["created"] is False
    assert reply.json["config"]["ttl_ms"] == 90000


def test_a_put_is_merged_over_the_stored_config(topic: Topic) -> None:
    topic.configure(ttl_ms=60000, discard="reject", priority=7)
    config = topic.configure(cap_records=5)["config"]
    assert (config["ttl_ms"], config["discard"], config["priority"], config["cap_records"]) == (60000, "reject", 7, 5)


def test_a_put_keeps_the_records(topic: Topic) -> None:
    topic.fill(3)
    topic.configure(durability="fsync", cap_records=100)
    assert topic.seqs() == [1, 2, 3]


def test_a_write_to_an_existing_topic_finds_it_created(topic: Topic) -> None:
    topic.configure()
    assert topic.write({"data": 1})["created"] is False


def test_a_put_of_a_lazily_created_topic_is_an_update(topic: Topic) -> None:
    topic.write({"data": 1})
    reply = topic.api.put(topic.path, {})
    assert reply.status == 200
    assert reply.json["created"] is False


@pytest.mark.parametrize(
    ("given", "durability", "durable"),
    [
        ({"durable": True}, "fsync", True),
        ({"durable": False}, "disk", False),
        ({"durability": "fsync"}, "fsync", True),
        ({"durability": "disk"}, "disk", False),
        ({"durability": "memory"}, "memory", False),
        ({"durability": "ephemeral"}, "ephemeral", False),
        ({"durability": "memory", "durable": True}, "memory", False),
        ({"durability": "fsync", "durable": False}, "fsync", True),
    ],
)
def test_the_durability_class_is_resolved_and_reported(
    topic: Topic, given: dict[str, Any], durability: str, durable: bool
) -> None:
    config = topic.configure(**given)["config"]
    assert (config["durability"], config["durable"]) == (durability, durable)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "fsync", "disk"])
def test_the_durability_class_can_be_changed_in_place(topic: Topic, durability: str) -> None:
    topic.fill(1)
    topic.configure(durability="memory")
    assert topic.configure(durability=durability)["config"]["durability"] == durability
    topic.fill(1)
    assert topic.seqs() == [1, 2]


def test_durable_alone_changes_the_class_of_an_existing_topic(topic: Topic) -> None:
    topic.configure()
    assert topic.configure(durable=True)["config"]["durability"] == "fsync"
    assert topic.configure(durable=False)["config"]["durability"] == "disk"


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("priority", 1001, 1000),
        ("priority", -1001, -1000),
        ("priority", 2**31 - 1, 1000),
        ("lease_ms", 0, 100),
        ("lease_ms", 99, 100),
        ("lease_ms", 86400001, 86400000),
        ("lease_ms", U64_MAX, 86400000),
        ("claim_jitter_ms", 5001, 5000),
    ],
)
def test_a_value_beyond_its_clamp_is_stored_and_echoed_as_clamped(
    topic: Topic, field: str, given: int, kept: int
) -> None:
    assert topic.configure(**{field: given})["config"][field] == kept
    assert topic.state()["config"][field] == kept


@pytest.mark.parametrize(("field", "value"), [("priority", 7), ("dead_letter", "jobs.dlq")])
def test_null_clears_a_field_whose_default_is_null(topic: Topic, field: str, value: Any) -> None:
    topic.configure(**{field: value})
    assert topic.configure(**{field: None})["config"][field] is None


@pytest.mark.parametrize(("old", "new"), [("log", "queue"), ("queue", "log")])
def test_the_type_of_a_topic_cannot_be_changed(topic: Topic, old: str, new: str) -> None:
    topic.configure(type=old)
    assert_error(topic.api.put(topic.path, {"type": new}), 409, "topic_exists_incompatible")
    assert topic.state()["config"]["type"] == old


def test_a_refused_change_of_type_changes_no_other_field(topic: Topic) -> None:
    before = topic.configure()["config"]
    assert_error(topic.api.put(topic.path, {"type": "queue", "ttl_ms": 5}), 409, "topic_exists_incompatible")
    assert topic.state()["config"] == before


def test_a_put_with_the_same_type_is_an_update(topic: Topic) -> None:
    topic.configure(type="queue")
    assert topic.configure(type="queue", lease_ms=1000)["config"]["lease_ms"] == 1000


def test_a_put_without_a_type_keeps_a_queue_a_queue(topic: Topic) -> None:
    topic.configure(type="queue")
    assert topic.configure(ttl_ms=60000)["config"]["type"] == "queue"


def test_a_queue_echoes_all_of_its_settings(topic: Topic) -> None:
    settings = {
        "type": "queue",
        "durable": True,
        "discard": "reject",
        "lease_ms": 45000,
        "claim_jitter_ms": 50,
        "max_deliveries": 5,
        "dead_letter": "jobs.dlq",
        "leases_durable": True,
    }
    config = topic.configure(**settings)["config"]
    assert {field: config[field] for field in settings} == settings


def test_a_topic_cannot_be_its_own_dead_letter(topic: Topic) -> None:
    body = {"type": "queue", "dead_letter": topic.name}
    assert_error(topic.api.put(topic.path, body), 400, "invalid_request", "dead_letter")
    assert not topic.exists()


def test_unknown_fields_are_ignored(topic: Topic) -> None:
    assert topic.configure(ttl_ms=5, no_such_field={"a": [1]})["config"]["ttl_ms"] == 5


def test_of_a_repeated_field_the_last_one_wins(topic: Topic) -> None:
    reply = topic.api.put_bytes(topic.path, b'{"ttl_ms":5,"ttl_ms":6}')
    assert success(reply)["config"]["ttl_ms"] == 6


def test_the_reply_reports_its_time(topic: Topic) -> None:
    assert topic.configure()["performance"]["server_total_ms"] >= 0


@pytest.fixture(scope="module")
def empty(server: StartServer) -> ServerProcess:
    """A server of its own, so that short names cannot meet somebody's topics."""
    return server()


@pytest.mark.parametrize("name", ["a", "Z", "0", "a._:-b", "a" * 255, "render-queue:tenantA", "a..", "0-0"])
def test_a_well_formed_name_is_accepted(empty: ServerProcess, name: str) -> None:
    topic = Topic(empty.api, name)
    assert topic.configure()["topic"] == name
    assert topic.state()["topic"] == name


def test_names_are_case_sensitive(new_topic: Callable[..., Topic]) -> None:
    upper = new_topic("Case-")
    lower = Topic(upper.api, upper.name.lower())
    upper.configure()
    assert not lower.exists()


def test_a_percent_encoded_name_is_the_same_name(new_topic: Callable[..., Topic]) -> None:
    topic = new_topic("tenant:")
    reply = topic.api.put(topic.path.replace(":", "%3A"), {})
    assert success(reply)["topic"] == topic.name
    assert topic.exists()


MALFORMED_NAMES = [
    "a" * 256,
    ".a",
    "_a",
    ":a",
    "-a",
    "a%20b",
    "a%00b",
    "a%0Ab",
    "a%7Fb",
    "a%2Fb",
    "%2E%2E",
    "a%2F..%2Fb",
    "a>b",
    "a*",
    "a+b",
    "a%C3%A9",
    "a%FF",
    "%C2%B2",
]


@pytest.mark.parametrize("name", MALFORMED_NAMES)
def test_a_malformed_name_cannot_be_created(api: Api, name: str) -> None:
    assert_error(api.put(f"/v0/topics/{name}", {}), 400, "invalid_request")


@pytest.mark.parametrize("name", MALFORMED_NAMES)
def test_a_malformed_name_cannot_be_written_to(api: Api, name: str) -> None:
    assert_error(api.post(f"/v0/topics/{name}", {"records": [{"data": 1}]}), 400, "invalid_request")


@pytest.mark.parametrize("name", MALFORMED_NAMES)
def test_a_malformed_name_cannot_be_read(api: Api, name: str) -> None:
    assert api.get(f"/v0/topics/{name}").status in {400, 404}
    assert api.post(f"/v0/topics/{name}/diff", {}).status in {400, 404}
