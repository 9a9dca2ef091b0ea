"""What a row of a file becomes: a record as it was, or a reason a person understands."""

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from topics import limits
from topics.spark.jobs.import_rows import Fields, Parsed, RowPlan, chunk_batches, parse_row

PLAIN = RowPlan("source", Fields(), done=0)


def parsed(line: bytes, **fields: str) -> Parsed:
    return parse_row(RowPlan("source", Fields(**fields), done=0), 7, line, None)


def record(line: bytes, **fields: str) -> dict[str, Any]:
    found = parsed(line, **fields)
    assert found.reason is None
    assert found.record is not None
    value: dict[str, Any] = json.loads(found.record)
    return value


def test_the_payload_stays_byte_for_byte() -> None:
    found = parsed(b'  {"b": 1.0, "a" : 1e400}\r')
    assert found.record == b'{"data":{"b": 1.0, "a" : 1e400},"meta":{"import":"source:7"}}'


def test_fields_become_tag_node_key_and_time() -> None:
    line = b'{"id": 12, "who": {"till": "t1"}, "sku": "A", "at": "2026-03-01T01:00:00+01:00"}'
    found = record(line, key="id", tag="sku", node="$.who.till", time="at")
    assert (found["tag"], found["node"]) == ("A", "t1")
    assert found["meta"] == {"key": "12", "time": "1772323200000"}


def test_a_name_with_dots_is_a_column_before_it_is_a_path() -> None:
    assert record(b'{"a.b": "column", "a": {"b": "path"}}', tag="a.b")["tag"] == "column"


@pytest.mark.parametrize(
    ("path", "tag"),
    [
        ("$.items[0].s", "first"),
        ("items[1].s", "second"),
        ("$['items'][1]['s']", "second"),
        ("$.items[2].s", None),
        ("$.items.s", None),
        ("$.n[0]", None),
    ],
)
def test_a_path_may_lead_through_lists(path: str, tag: str | None) -> None:
    line = b'{"items": [ {"s": "first"}, {"s": "second"} ], "n": 1}'
    assert record(line, tag=path).get("tag") == tag


def test_the_payload_may_be_one_column() -> None:
    assert record(b'{"data": {"x": 1}, "tag": "t"}', data="data", tag="tag")["data"] == {"x": 1}


@pytest.mark.parametrize("missing", [b"{}", b'{"sku": null}'])
def test_a_row_without_a_tag_has_none(missing: bytes) -> None:
    assert "tag" not in record(missing, tag="sku")


@pytest.mark.parametrize("time", ["1772323200000", '"1772323200000"', '"2026-03-01T00:00:00Z"'])
def test_times_are_iso_8601_or_milliseconds(time: str) -> None:
    assert record(b'{"at": %s}' % time.encode(), time="at")["meta"]["time"] == "1772323200000"


@pytest.mark.parametrize(
    ("line", "fields", "reason"),
    [
        (b"nope", {}, "is not JSON"),
        (b'{"a": 1', {}, "is not JSON"),
        (b'{"a": "\xff"}', {}, "is not UTF-8 (byte 8)"),
        (b'{"a": "\\ud800"}', {}, "is not JSON"),
        (b"[1]", {"tag": "a"}, "is not a JSON object"),
        (b'{"a": {}}', {"tag": "a"}, "has an object or a list at a"),
        (b'{"a": 1}', {"key": "id"}, "has no key id"),
        (b'{"a": 1}', {"data": "b"}, "has no b"),
        (b'{"a": 1}', {"time": "at"}, "has no time at"),
        (b'{"at": "soon"}', {"time": "at"}, "has 'soon' as its time at"),
        (b'{"at": true}', {"time": "at"}, "has True as its time at"),
        (b'{"a": "%s"}' % (b"x" * limits.RECORD_BYTES_MAX), {}, "has more than 1048576 bytes"),
        (b'{"a": "%s"}' % (b"x" * 257), {"tag": "a"}, "has a tag of more than 256 bytes"),
        (b'{"a": "%s"}' % (b"x" * 129), {"node": "a"}, "has a node of more than 128 bytes"),
        (b'{"a": "%s"}' % (b"x" * limits.META_BYTES_MAX), {"key": "a"}, "has a key that is too long"),
    ],
)
def test_a_bad_row_has_a_reason(line: bytes, fields: dict[str, str], reason: str) -> None:
    found = parsed(line, **fields)
    assert found.record is None
    assert reason in (found.reason or "")


def test_what_spark_could_not_read_keeps_its_text() -> None:
    found = parse_row(PLAIN, 3, b"1,2,3", "does not fit the columns a int")
    assert (found.reason, found.text) == ("does not fit the columns a int", "1,2,3")


def test_a_blank_row_is_neither_a_record_nor_a_reject() -> None:
    assert parse_row(PLAIN, 3, b"  ", None) == Parsed(3, None, None, None, None)


def chunks(plan: RowPlan, rows: list[Parsed]) -> list[dict[str, Any]]:
    return pa.Table.from_batches(chunk_batches(plan, rows)).to_pylist() if rows else []


def numbered(count: int) -> list[Parsed]:
    return [parse_row(PLAIN, row, b"%d" % row, None) for row in range(1, count + 1)]


def test_chunks_end_at_the_same_rows_wherever_they_begin() -> None:
    plan = RowPlan("source", Fields(), done=0, chunk_records_max=10)
    whole = chunks(plan, numbered(35))
    assert [(chunk["first_row"], chunk["last_row"]) for chunk in whole] == [(1, 10), (11, 20), (21, 30), (31, 35)]
    late = chunks(plan, numbered(35)[14:])
    assert [(chunk["first_row"], chunk["last_row"]) for chunk in late] == [(15, 20), (21, 30), (31, 35)]


def test_rows_that_are_done_are_skipped_and_counted() -> None:
    plan = RowPlan("source", Fields(), done=12, chunk_records_max=10)
    found = chunks(plan, numbered(20))
    assert sum(chunk["skipped"] for chunk in found) == 12
    assert [chunk["first_row"] for chunk in found if chunk["records"]] == [13]


def test_large_rows_make_small_chunks() -> None:
    plan = RowPlan("source", Fields(), done=0, chunk_bytes_max=100)
    assert all(chunk["records"] <= 3 for chunk in chunks(plan, numbered(20)))


def test_rejects_come_with_their_rows() -> None:
    rows = [*numbered(2), parse_row(PLAIN, 3, b"nope", None)]
    [chunk] = chunks(PLAIN, rows)
    [[row, reason, text]] = msgspec.json.decode(chunk["rejects"])
    assert (row, text) == (3, "nope")
    assert reason.startswith("is not JSON")
