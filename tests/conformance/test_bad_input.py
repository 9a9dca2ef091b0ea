"""Whatever is wrong with a request, it is refused with a 4xx that names the field, and nothing changes."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.client import Reply, Topic, assert_error, to_json

BEYOND_U64 = 2**64
NO_INTEGER: list[Any] = [-1, 1.5, 1.0, "1", "", True, False, [], [1], {}]
NO_REQUIRED_INTEGER: list[Any] = [*NO_INTEGER, None]
NO_BOOLEAN: list[Any] = [0, 1, "true", "", None, [], {}]
NO_STRING: list[Any] = [1, 1.5, True, [], {}]
NO_OBJECT: list[Any] = [1, "x", True, [], ["k"]]


def each(fields: str, values: list[Any]) -> list[tuple[str, Any]]:
    """Every one of the named fields with every one of the values."""
    return [(field, value) for field in fields.split() for value in values]


CONFIG = [
    *each("ttl_ms cap_records cap_bytes idempotency_window_ms", [*NO_REQUIRED_INTEGER, BEYOND_U64]),
    *each("lease_ms claim_jitter_ms max_deliveries", [*NO_REQUIRED_INTEGER, BEYOND_U64]),
    *each("durable auto_priority auto_create dedupe_node leases_durable", NO_BOOLEAN),
    *each("type discard durability", ["nonsense", "", "LOG", "Old", "disk ", 1, True, None, [], {}]),
    *each("priority", [1.5, 1.0, "1", True, [], {}]),
    *each("dead_letter", [*NO_STRING, "", "bad name", "-a", "a" * 256]),
]

WRITE = [
    *each("records", [None, [], {}, "x", 1, True, {"data": 1}]),
    *each("records", [[None], [1], ["x"], [True], [[]], [[1]]]),
    *each("node idempotency_key", NO_STRING),
    *each("create", [0, 1, "true", [], {}]),
    *each("config", NO_OBJECT),
    *each("disable_backpressure", NO_BOOLEAN),
]

RECORD = [
    *each("tag node", NO_STRING),
    *each("meta", NO_OBJECT),
    *each("meta", [{str(number): number for number in range(65)}]),
]

DIFF = [
    *each("from_seq", [*NO_REQUIRED_INTEGER, BEYOND_U64]),
    *each("limit wait_ms", NO_REQUIRED_INTEGER),
    *each("include_tags include_meta", NO_BOOLEAN),
    *each("node", [1, 1.5, True, {}, [1], [None], ["a", 1], [["a"]]]),
]

DELETE = [
    *each("before_seq", [*NO_INTEGER, BEYOND_U64]),
    *each("match", [1, True, {}, [], ["tag"], ["tag", "Eq"], ["tag", "Eq", "t", "more"], [["tag", "Eq", "t"]]]),
    *each("match", [["tag", "Eq", 1], ["tag", "Eq", None], ["tag", None, "t"], [1, "Eq", "t"], ["node", "Eq", "t"]]),
    *each("match", [["tag", "eq", "t"], ["tag", "Regex", "t"], ["tag", "Glob", "t"], ["tag", "Glob", ""]]),
    *each("match", [["tag", "Glob", "*t"], ["tag", "Glob", "t*t"], ["tag", "Glob", "t**"], ["tag", "Glob", "*t*"]]),
    *each("match", ["t*t*"]),
]

NOT_AN_OBJECT = [b"[]", b'"x"', b"1", b"true", b"null", b"[{}]"]

NOT_JSON = [
    b" ",
    b"{",
    b"}",
    b"{}x",
    b"{}{}",
    b"{,}",
    b"{'a':1}",
    b'{"a"}',
    b'{"a":}',
    b'{"a":1,}',
    b'{"a":01}',
    b'{"a":+1}',
    b'{"a":.5}',
    b'{"a":1.}',
    b'{"a":0x1}',
    b'{"a":NaN}',
    b'{"a":Infinity}',
    b'{"a":nul}',
    b'{"a":"x}',
    b'{"a":"\\x"}',
    b'{"a":"\\u12"}',
    b'{"a":"\x00"}',
    b'{"a":"\n"}',
    b'{"a":1}\x00',
    b"\x00",
    b"// {}",
    b"a=1&b=2",
    '{"a":1}'.encode("utf-16"),
]

NOT_UTF8 = [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80b"]

LONE_SURROGATES = [b"\\ud800", b"\\udc00", b"\\ud800x", b"\\ud800\\ud800", b"\\udc00\\ud800", b"x\\udfff"]


@pytest.fixture
def kept(topic: Topic) -> Topic:
    """A topic whose config and single record must survive whatever is sent to it."""
    topic.configure(ttl_ms=3_600_000)
    topic.write({"data": "kept", "tag": "t"})
    return topic


def snapshot(topic: Topic) -> list[Any]:
    state = topic.state()
    watermarks = ["config", "head_seq", "earliest_seq", "count", "bytes", "last_write_ts"]
    return [*(state[field] for field in watermarks), topic.diff(include_tags=True)["records"]]


def refuse(topic: Topic, send: Callable[[], Reply], mentions: str = "") -> None:
    """Sends something that must be refused, and checks that the topic is as before."""
    before = snapshot(topic)
    assert_error(send(), 400, "invalid_request", mentions)
    assert snapshot(topic) == before


@pytest.mark.parametrize(("field", "value"), CONFIG)
def test_a_bad_config_field_is_refused(kept: Topic, field: str, value: Any) -> None:
    refuse(kept, lambda: kept.api.put(kept.path, {"cap_records": 1, field: value}), field)


@pytest.mark.parametrize(("field", "value"), CONFIG)
def test_a_bad_config_field_creates_no_topic(topic: Topic, field: str, value: Any) -> None:
    assert_error(topic.api.put(topic.path, {field: value}), 400, "invalid_request", field)
    assert not topic.exists()


@pytest.mark.parametrize(("field", "value"), CONFIG)
def test_a_bad_inline_config_field_creates_no_topic(topic: Topic, field: str, value: Any) -> None:
    body = {"records": [{"data": 1}], "config": {field: value}}
    assert_error(topic.api.post(topic.path, body), 400, "invalid_request", field)
    assert not topic.exists()


@pytest.mark.parametrize(("field", "value"), WRITE)
def test_a_bad_field_of_a_write_is_refused(kept: Topic, field: str, value: Any) -> None:
    refuse(kept, lambda: kept.api.post(kept.path, {"records": [{"data": 1}], field: value}), field)


@pytest.mark.parametrize(("field", "value"), RECORD)
def test_a_bad_field_of_a_record_is_refused(kept: Topic, field: str, value: Any) -> None:
    refuse(kept, lambda: kept.api.post(kept.path, {"records": [{"data": 1}, {"data": 2, field: value}]}), field)


@pytest.mark.parametrize(("field", "value"), RECORD)
def test_a_bad_field_of_a_record_creates_no_topic(topic: Topic, field: str, value: Any) -> None:
    body = {"records": [{"data": 1}, {"data": 2, field: value}]}
    assert_error(topic.api.post(topic.path, body), 400, "invalid_request", field)
    assert not topic.exists()


def test_a_write_without_records_is_refused(kept: Topic) -> None:
    refuse(kept, lambda: kept.api.post(kept.path, {}), "records")


def test_a_record_without_data_is_refused(kept: Topic) -> None:
    refuse(kept, lambda: kept.api.post(kept.path, {"records": [{"data": 1}, {"tag": "t"}]}), "data")


def test_a_write_without_a_body_is_refused(kept: Topic) -> None:
    refuse(kept, lambda: kept.api.post(kept.path))


@pytest.mark.parametrize(("field", "value"), DIFF)
def test_a_bad_field_of_a_diff_is_refused(kept: Topic, field: str, value: Any) -> None:
    refuse(kept, lambda: kept.api.post(f"{kept.path}/diff", {field: value}), field)


@pytest.mark.parametrize(("field", "value"), DELETE)
def test_a_bad_field_of_a_delete_is_refused(kept: Topic, field: str, value: Any) -> None:
    refuse(kept, lambda: kept.api.post(f"{kept.path}/delete", {field: value}), field)


@pytest.mark.parametrize(("field", "value"), [("match", ["tag", "Regex", "t"]), ("before_seq", -1)])
def test_one_good_selector_does_not_excuse_a_bad_one(kept: Topic, field: str, value: Any) -> None:
    body = {"before_seq": 2, "match": "t", field: value}
    refuse(kept, lambda: kept.api.post(f"{kept.path}/delete", body), field)


@pytest.mark.parametrize("number", [b"1e2", b"1E0", b"-0.0", b"1e400", b"1" * 40, b"-1" + b"0" * 40])
@pytest.mark.parametrize(
    ("method", "suffix", "field"),
    [("PUT", "", "cap_records"), ("POST", "/diff", "from_seq"), ("POST", "/delete", "before_seq")],
)
def test_a_number_that_is_no_u64_is_refused(kept: Topic, method: str, suffix: str, field: str, number: bytes) -> None:
    body = b'{"' + field.encode() + b'":' + number + b"}"
    send = kept.api.put_bytes if method == "PUT" else kept.api.post_bytes
    refuse(kept, lambda: send(kept.path + suffix, body), field)


ENDPOINTS = [("PUT", ""), ("POST", ""), ("POST", "/diff"), ("POST", "/delete")]


@pytest.mark.parametrize("body", [*NOT_JSON, *NOT_AN_OBJECT])
@pytest.mark.parametrize(("method", "suffix"), ENDPOINTS)
def test_a_body_that_is_no_json_object_is_refused(kept: Topic, method: str, suffix: str, body: bytes) -> None:
    send = kept.api.put_bytes if method == "PUT" else kept.api.post_bytes
    refuse(kept, lambda: send(kept.path + suffix, body))


@pytest.mark.parametrize("text", [*NOT_UTF8, *LONE_SURROGATES])
@pytest.mark.parametrize(
    "template",
    [
        b'{"records":[{"data":"%s"}]}',
        b'{"records":[{"data":{"%s":[1]}}]}',
        b'{"records":[{"data":[[["%s"]]]}]}',
        b'{"records":[{"data":1,"meta":{"k":"%s"}}]}',
        b'{"records":[{"data":1,"meta":{"%s":"v"}}]}',
        b'{"records":[{"data":1,"tag":"%s"}]}',
        b'{"records":[{"data":1,"node":"%s"}]}',
        b'{"records":[{"data":1}],"idempotency_key":"%s"}',
        b'{"records":[{"data":1}],"unknown":"%s"}',
        b'{"records":[{"data":1}],"%s":1}',
    ],
)
def test_text_that_is_no_unicode_is_refused_anywhere_in_a_write(kept: Topic, template: bytes, text: bytes) -> None:
    refuse(kept, lambda: kept.api.post_bytes(kept.path, template % text))


@pytest.mark.parametrize("text", [*NOT_UTF8, *LONE_SURROGATES])
@pytest.mark.parametrize(
    ("method", "suffix", "template"),
    [
        ("PUT", "", b'{"unknown":"%s"}'),
        ("PUT", "", b'{"dead_letter":"%s"}'),
        ("POST", "/diff", b'{"node":"%s"}'),
        ("POST", "/diff", b'{"unknown":["%s"]}'),
        ("POST", "/delete", b'{"match":"%s"}'),
        ("POST", "/delete", b'{"match":["tag","Glob","%s*"]}'),
    ],
)
def test_text_that_is_no_unicode_is_refused_elsewhere(
    kept: Topic, method: str, suffix: str, template: bytes, text: bytes
) -> None:
    send = kept.api.put_bytes if method == "PUT" else kept.api.post_bytes
    refuse(kept, lambda: send(kept.path + suffix, template % text))


def test_a_surrogate_escape_after_an_escaped_backslash_is_only_text(topic: Topic) -> None:
    assert topic.api.post_bytes(topic.path, b'{"records":[{"data":"\\\\ud800"}]}').status == 201
    assert topic.diff()["records"][0]["data"] == "\\ud800"


@pytest.mark.parametrize(
    "deep",
    [b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"[" * 100_000],
    ids=["arrays", "objects", "unclosed"],
)
@pytest.mark.parametrize(
    ("method", "suffix", "template"),
    [
        ("POST", "", b'{"records":[{"data":%s}]}'),
        ("POST", "", b'{"records":[{"data":1,"meta":{"k":%s}}]}'),
        ("POST", "", b'{"records":[{"data":1}],"unknown":%s}'),
        ("POST", "", b"%s"),
        ("PUT", "", b'{"unknown":%s}'),
        ("POST", "/diff", b'{"node":%s}'),
        ("POST", "/delete", b'{"match":%s}'),
    ],
)
def test_bottomless_nesting_is_refused(kept: Topic, method: str, suffix: str, template: bytes, deep: bytes) -> None:
    send = kept.api.put_bytes if method == "PUT" else kept.api.post_bytes
    refuse(kept, lambda: send(kept.path + suffix, template % deep))


def test_every_proper_prefix_of_a_write_is_refused(kept: Topic) -> None:
    body = to_json({"records": [{"data": {"a": [1.5, "é"]}, "tag": "t"}], "node": "n"})
    before = snapshot(kept)
    statuses = {kept.api.post_bytes(kept.path, body[:length]).status for length in range(len(body))}
    assert statuses == {400}
    assert snapshot(kept) == before


def test_one_bad_record_refuses_the_whole_batch(kept: Topic) -> None:
    records = [{"data": position} for position in range(1000)]
    refuse(kept, lambda: kept.api.post(kept.path, {"records": [*records, {"data": 1, "tag": 5}]}), "tag")
