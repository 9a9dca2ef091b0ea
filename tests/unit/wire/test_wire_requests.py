"""From bytes to requests: what is taken, what is refused, and that a refusal names the field."""

from typing import Any

import pytest
from msgspec import UNSET

from topics import limits
from topics.errors import InvalidRequest
from topics.model.config import Discard, TopicConfigPatch
from topics.wire.requests import DeleteRecordsRequest, DiffRequest, WriteRequest, decode, decode_leniently

U64_MAX = b"18446744073709551615"
BEYOND_U64 = b"18446744073709551616"


def refusal(body: bytes, into: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        decode(body, into)
    return refused.value


def test_payloads_stay_the_bytes_they_came_as() -> None:
    body = rb'{"records":[{"data": {"b":1.0, "a":1e400,"a":"\u00e4"} ,"meta" : {"k" :"v"}}]}'
    record = decode(body, WriteRequest).records[0]
    assert bytes(record.data) == rb'{"b":1.0, "a":1e400,"a":"\u00e4"}'
    assert not isinstance(record.meta, type(UNSET))
    assert bytes(record.meta) == b'{"k" :"v"}'


def test_a_write_has_defaults_for_all_but_its_records() -> None:
    write = decode(b'{"records":[{"data":null}]}', WriteRequest)
    assert (write.node, write.idempotency_key, write.create, write.config) == (None, None, None, None)
    assert write.disable_backpressure is False
    assert (write.records[0].tag, write.records[0].node, write.records[0].meta) == (None, None, UNSET)


def test_a_diff_has_defaults_for_everything() -> None:
    assert decode(b"{}", DiffRequest) == DiffRequest(
        from_seq=0, limit=256, node=None, include_tags=False, include_meta=True, wait_ms=0
    )


def test_unknown_fields_are_passed_over() -> None:
    assert decode_leniently(b'{"unknown":{"deep":[1]},"from_seq":3}', DiffRequest).from_seq == 3


def test_the_last_of_a_repeated_field_counts() -> None:
    assert decode(b'{"from_seq":3,"from_seq":4}', DiffRequest).from_seq == 4


def test_a_null_counts_as_absent_where_a_field_is_optional() -> None:
    write = decode(b'{"records":[{"data":1,"tag":null,"node":null}],"node":null,"config":null}', WriteRequest)
    assert (write.node, write.config, write.records[0].tag) == (None, None, None)


def test_a_configuration_is_a_patch() -> None:
    patch = decode(b'{"discard":"reject","dead_letter":null}', TopicConfigPatch)
    assert patch == TopicConfigPatch(discard=Discard.REJECT, dead_letter=None)


@pytest.mark.parametrize("field", ["from_seq", "limit", "wait_ms"])
def test_numbers_of_a_diff_take_the_whole_unsigned_range(field: str) -> None:
    body = b'{"%b":%b}' % (field.encode(), U64_MAX)
    assert getattr(decode(body, DiffRequest), field) == limits.U64_MAX


@pytest.mark.parametrize("number", [BEYOND_U64, b"-1", b"1.0", b"1e3", b'"1"', b"true", b"[1]", b"9" * 400])
@pytest.mark.parametrize(
    ("field", "into"),
    [
        ("from_seq", DiffRequest),
        ("limit", DiffRequest),
        ("wait_ms", DiffRequest),
        ("before_seq", DeleteRecordsRequest),
        ("ttl_ms", TopicConfigPatch),
        ("cap_bytes", TopicConfigPatch),
    ],
)
def test_a_number_out_of_range_or_of_another_type_names_its_field(field: str, into: Any, number: bytes) -> None:
    refused = refusal(b'{"%b":%b}' % (field.encode(), number), into)
    assert refused.detail == {"field": field}
    assert refused.message.startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{}", "records"),
        (b'{"records":null}', "records"),
        (b'{"records":{}}', "records"),
        (b'{"records":[1]}', "records[0]"),
        (b'{"records":[{"data":1},{}]}', "records[1].data"),
        (b'{"records":[{"data":1,"tag":7}]}', "records[0].tag"),
        (b'{"records":[{"data":1,"node":[]}]}', "records[0].node"),
        (b'{"records":[{"data":1}],"create":"yes"}', "create"),
        (b'{"records":[{"data":1}],"node":1}', "node"),
        (b'{"records":[{"data":1}],"idempotency_key":{}}', "idempotency_key"),
        (b'{"records":[{"data":1}],"config":[]}', "config"),
        (b'{"records":[{"data":1}],"config":{"ttl_ms":-1}}', "config.ttl_ms"),
        (b'{"records":[{"data":1}],"config":{"ttl_ms":%b}}' % BEYOND_U64, "config.ttl_ms"),
        (b'{"records":[{"data":1}],"config":{"discard":"none"}}', "config.discard"),
        (b'{"records":[{"data":1}],"disable_backpressure":null}', "disable_backpressure"),
    ],
)
def test_a_write_that_is_wrong_names_the_field(body: bytes, field: str) -> None:
    assert refusal(body, WriteRequest).detail == {"field": field}


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"7", b"null", b"true"])
def test_a_body_is_an_object(body: bytes) -> None:
    assert "expected object" in refusal(body, DiffRequest).message


@pytest.mark.parametrize(
    "body",
    [
        b" ",
        b"{",
        b'{"records":[{"data":',
        b"{'a':1}",
        b'{"records":[{"data":1}]}}',
        b'{"records":[{"data":01}]}',
        b'{"records":[{"data":NaN}]}',
        b'{"records":[{"data":"\x01"}]}',
        b'{"records":[{"data":"\\q"}]}',
        rb'{"records":[{"data":"\ud800"}]}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    assert "not valid JSON" in refusal(body, WriteRequest).message


@pytest.mark.parametrize("place", [b'"data":"%b"', b'"data":1,"tag":"%b"', b'"data":1,"ignored":"%b"'])
def test_invalid_utf_8_is_refused_wherever_it_stands(place: bytes) -> None:
    body = b'{"records":[{%b}]}' % (place % b"\xff")
    refused = refusal(body, WriteRequest)
    assert f"byte {body.index(0xFF)}" in refused.message


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_refused(opening: bytes) -> None:
    body = b'{"records":[{"data":' + opening * 200_000
    assert "nested too deeply" in refusal(body, WriteRequest).message


@pytest.mark.parametrize("node", [b'"a"', b'["a","b"]', b"[]", b"null"])
def test_a_node_filter_is_a_string_or_a_list_of_them(node: bytes) -> None:
    assert decode(b'{"node":%b}' % node, DiffRequest).from_seq == 0


@pytest.mark.parametrize("node", [b"1", b"{}", b"[1]", b"true"])
def test_a_node_filter_of_another_type_is_refused(node: bytes) -> None:
    field = refusal(b'{"node":%b}' % node, DiffRequest).detail["field"]
    assert str(field).startswith("node")
