"""Replies to requests with fields nobody knows say so, over HTTP and over WebSocket."""

import pytest
from test_api_handlers import Served
from websocket_stage import Stage


@pytest.fixture
def at() -> Served:
    return Served()


def test_a_good_request_gets_no_warnings(at: Served) -> None:
    assert "warnings" not in at.write(1, 2)
    assert "warnings" not in at.ok("PUT /v0/topics/t", {"durable": True})


def test_a_configuration_with_a_typo_is_applied_without_it(at: Served) -> None:
    reply = at.ok("PUT /v0/topics/t", {"durabel": True, "cap_records": 7})
    assert reply["warnings"] == ["unknown field durabel; did you mean durable?"]
    assert reply["config"]["cap_records"] == 7


@pytest.mark.parametrize(
    ("target", "body", "warning"),
    [
        ("POST /v0/topics/t", {"records": [{"data": 1, "tags": "x"}]}, "records[0].tags; did you mean tag?"),
        ("POST /v0/topics/t/diff", {"from_sec": 1}, "from_sec; did you mean from_seq?"),
        ("POST /v0/topics/t/delete", {"before_seq": 0, "dry_run": True}, "dry_run was ignored"),
        ("PUT /v0/topics/t/cursors/c", {"seq": 0, "sec": 1}, "sec; did you mean seq?"),
        ("PUT /v0/routers/r", {"source": "t", "dest": "u", "filters": "x"}, "filters; did you mean filter?"),
        ("POST /v0/watch", {"topics": {"t": {"tial": True}}}, "topics.t.tial; did you mean tail?"),
        ("POST /v0/topics/q/claim", {"node": "n", "maximum": 1}, "maximum; did you mean max?"),
        ("POST /v0/topics/q/ack", {"node": "n", "seqs": [1], "leases": []}, "leases; did you mean lease_ids?"),
    ],
)
def test_every_body_is_looked_at(at: Served, target: str, body: object, warning: str) -> None:
    at.write(1)
    at.ok("PUT /v0/topics/q", {"type": "queue"})
    assert at.ok(target, body)["warnings"] == [f"unknown field {warning}"]


def test_a_refusal_says_what_was_perhaps_meant(at: Served) -> None:
    status, reply = at.call("POST /v0/topics/t", {"record": [{"data": 1}]})
    assert (status, reply["error"]["code"]) == (400, "invalid_request")
    assert reply["warnings"] == ["unknown field record; did you mean records?"]
    assert at.call("GET /v0/topics/t")[0] == 404


def test_a_reply_that_waits_has_them_too(at: Served) -> None:
    at.ok("PUT /v0/topics/f", {"durability": "fsync"})
    reply = at.ok("POST /v0/topics/f", {"records": [{"data": 1}], "idempotencykey": "k"})
    assert reply["first_seq"] == 1
    assert reply["warnings"] == ["unknown field idempotencykey; did you mean idempotency_key?"]


def test_commands_over_websocket_are_looked_at() -> None:
    stage = Stage()
    (ack,) = stage.ask("publish", topic="t", records=[{"data": 1, "tags": "x"}])
    assert (ack["op"], ack["warnings"]) == ("ack", ["unknown field records[0].tags; did you mean tag?"])
    subscribed = stage.ask("subscribe", topic="t", form_seq=1)[0]
    assert subscribed["warnings"] == ["unknown field form_seq; did you mean from_seq?"]
    (pong,) = [frame for frame in stage.ask("ping", request="1") if frame["op"] == "pong"]
    assert pong["warnings"] == ["unknown field request; did you mean request_id?"]
    (pong,) = [frame for frame in stage.ask("ping") if frame["op"] == "pong"]
    assert "warnings" not in pong
    (refused,) = stage.ask("publish", topic="t", record=[])
    assert (refused["op"], refused["warnings"]) == ("error", ["unknown field record; did you mean records?"])
