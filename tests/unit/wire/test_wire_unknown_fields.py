"""Fields nobody knows: allowed, and told with what was perhaps meant."""

import json
from typing import Any

import pytest

from topics import limits
from topics.errors import InvalidRequest
from topics.model.config import TopicConfigPatch
from topics.model.record import NewRecord
from topics.wire.live_requests import Command, Publish, Subscribe, WatchRequest, decode_command_leniently
from topics.wire.queue_messages import ClaimRequest
from topics.wire.requests import DeleteRecordsRequest, WriteRequest, decode, decode_leniently
from topics.wire.unknown_fields import UnknownFields, nearest


def warnings(body: object, kind: Any) -> list[str]:
    with pytest.raises(UnknownFields) as caught:
        decode(json.dumps(body).encode(), kind)
    return caught.value.warnings


@pytest.mark.parametrize(
    ("body", "kind", "warning"),
    [
        ({"durabel": True}, TopicConfigPatch, "unknown field durabel; did you mean durable?"),
        ({"ttl": 5}, TopicConfigPatch, "unknown field ttl; did you mean ttl_ms?"),
        ({"zzz": 5}, TopicConfigPatch, "unknown field zzz was ignored"),
        ({"records": [{"data": 1, "tags": "x"}]}, WriteRequest, "unknown field records[0].tags; did you mean tag?"),
        (
            {"records": [{"data": 1}, {"data": 2, "Tag": "x"}]},
            WriteRequest,
            "unknown field records[1].Tag; did you mean tag?",
        ),
        (
            {"records": [], "config": {"cap_record": 1}},
            WriteRequest,
            "unknown field config.cap_record; did you mean cap_records?",
        ),
        (
            {"records": [], "producer": {"name": "p", "sequence": 0, "seq": 1}},
            WriteRequest,
            "unknown field producer.seq was ignored",
        ),
        ({"topics": {"a": {"form_seq": 1}}}, WatchRequest, "unknown field topics.a.form_seq; did you mean from_seq?"),
        ({"dry_run": True}, DeleteRecordsRequest, "unknown field dry_run was ignored"),
        ({"node": "n", "lease": 5}, ClaimRequest, "unknown field lease; did you mean lease_ms?"),
        ({"op": "subscribe", "topik": "a"}, Command, "unknown field topik; did you mean topic?"),
        (
            {"op": "publish", "topic": "a", "records": [{"data": 1, "tga": "x"}]},
            Command,
            "unknown field records[0].tga; did you mean tag?",
        ),
        ({"op": "ping", "requestid": "7"}, Command, "unknown field requestid; did you mean request_id?"),
    ],
)
def test_a_field_nobody_knows_is_told(body: object, kind: Any, warning: str) -> None:
    assert warnings(body, kind) == [warning]


def test_the_request_is_the_one_without_them() -> None:
    body = b'{"records":[{"data": 1.0,"tags":1,"tag":"x"}],"config":{"ttl":1,"ttl_ms":2},"nodes":[],"node":"n"}'
    request = decode_leniently(body, WriteRequest)
    assert isinstance(request, WriteRequest)
    assert (request.node, bytes(request.records[0].data), request.records[0].tag) == ("n", b"1.0", "x")
    assert isinstance(request.records[0], NewRecord)
    assert request.config is not None
    assert request.config.ttl_ms == 2


def test_commands_are_told_apart_without_them() -> None:
    assert isinstance(decode_command_leniently(b'{"op":"subscribe","topic":"a","x":1}'), Subscribe)
    assert isinstance(decode_command_leniently(b'{"x":1,"op":"publish","topic":"a","records":[]}'), Publish)


def test_what_is_wrong_besides_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="records"):
        decode_leniently(b'{"record":[{"data":1}]}', WriteRequest)
    with pytest.raises(InvalidRequest, match=r"records\[0\].tag"):
        decode_leniently(b'{"records":[{"data":1,"tag":1}],"x":1}', WriteRequest)


def test_the_same_field_of_many_records_is_told_once() -> None:
    assert len(warnings({"records": [{"data": 1, "tags": 1}] * 5000}, WriteRequest)) == 1


def test_a_field_far_behind_is_told_of_too() -> None:
    records: list[dict[str, int]] = [{"data": 1}] * (limits.WARNING_ENTRIES_MAX + 1)
    assert warnings({"records": [*records, {"data": 1, "tags": 1}]}, WriteRequest) == [
        f"unknown field records[{len(records)}].tags was ignored"
    ]


def test_warnings_have_a_bound() -> None:
    told = warnings({f"field{number}" * 100: 1 for number in range(100)}, TopicConfigPatch)
    assert len(told) == limits.WARNINGS_MAX
    assert max(map(len, told)) < 200


def test_keys_of_payloads_are_nobodys_business() -> None:
    body = b'{"records":[{"data":{"durabel":1},"meta":{"tags":"x"}}]}'
    assert decode(body, WriteRequest).records[0].tag is None


@pytest.mark.parametrize(("name", "meant"), [("TOPICS_DATADIR", "TOPICS_DATA_DIR"), ("x" * 10_000, None)])
def test_the_nearest_name_is_found(name: str, meant: str | None) -> None:
    assert nearest(name, ["TOPICS_DATA_DIR", "TOPICS_PORT"]) == meant
