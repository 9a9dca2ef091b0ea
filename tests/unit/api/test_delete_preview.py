"""What a delete would remove is told, and nothing is removed."""

from typing import Any

import pytest
from test_api_handlers import Served

from topics import limits


@pytest.fixture
def at() -> Served:
    served = Served(TOPICS_SEGMENT_MAX_EVENTS="4")
    for number in range(1, 12):
        served.ok("POST /v0/topics/t", {"records": [{"data": number, "tag": "odd" if number % 2 else "even"}]})
    return served


def preview(at: Served, **body: Any) -> dict[str, Any]:
    return at.ok("POST /v0/topics/t/delete/preview", body)


BODIES: list[dict[str, Any]] = [
    {"before_seq": 0},
    {"before_seq": 1},
    {"before_seq": 4},
    {"before_seq": 5},
    {"before_seq": 9},
    {"before_seq": 10_000},
    {"match": "odd"},
    {"match": ["tag", "Glob", "e*"], "before_seq": 7},
    {"match": "none"},
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("deleted_before", [None, {"match": "even", "before_seq": 6}, {"before_seq": 3}])
def test_a_delete_removes_what_its_preview_told(
    at: Served, body: dict[str, Any], deleted_before: dict[str, Any] | None
) -> None:
    if deleted_before is not None:
        at.ok("POST /v0/topics/t/delete", deleted_before)
    before = {record["$seq"] for record in at.ok("POST /v0/topics/t/diff", {"limit": 100})["records"]}
    bytes_before = at.server.engine.topic("t").log.bytes
    told = preview(at, **body)
    assert {record["$seq"] for record in at.ok("POST /v0/topics/t/diff", {"limit": 100})["records"]} == before
    done = at.ok("POST /v0/topics/t/delete", body)
    gone = sorted(before - {record["$seq"] for record in at.ok("POST /v0/topics/t/diff", {"limit": 100})["records"]})
    assert (told["count"], told["bytes"]) == (done["deleted"], bytes_before - done["bytes"])
    assert told["count"] == len(gone)
    assert (told["first_seq"], told["last_seq"]) == ((gone[0], gone[-1]) if gone else (None, None))
    assert [record["$seq"] for record in told["sample"]] == gone[: limits.DELETE_PREVIEW_RECORDS_MAX]


def test_a_sample_has_whole_records_with_their_tags(at: Served) -> None:
    (record,) = preview(at, before_seq=2)["sample"]
    assert (record["$seq"], record["data"], record["$tag"]) == (1, 1, "odd")


def test_a_sample_of_large_records_has_a_bound(at: Served) -> None:
    at.ok("POST /v0/topics/t", {"records": [{"data": "x" * 40_000, "tag": "large"}] * 3})
    told = preview(at, match="large")
    assert (told["count"], len(told["sample"])) == (3, 1)


def test_a_preview_is_no_read(at: Served) -> None:
    assert preview(at, before_seq=5)["count"] == 4
    assert at.server.engine.topic("t").last_read_ts is None


@pytest.mark.parametrize("body", [{}, {"match": 7}, {"before_seq": -1}])
def test_what_a_delete_refuses_its_preview_refuses(at: Served, body: dict[str, Any]) -> None:
    refused = at.error("POST /v0/topics/t/delete", body)
    assert refused == (400, "invalid_request")
    assert at.error("POST /v0/topics/t/delete/preview", body) == refused


def test_there_is_no_preview_without_a_topic(at: Served) -> None:
    assert at.error("POST /v0/topics/none/delete/preview", {"before_seq": 1}) == (404, "topic_not_found")


def test_a_preview_needs_the_right_to_read() -> None:
    at = Served(TOPICS_API_KEYS="all,reader:read,deleter:delete")
    at.ok("POST /v0/topics/t", {"records": [{"data": 1}]}, authorization="Bearer all")
    target, body = "POST /v0/topics/t/delete/preview", {"before_seq": 9}
    assert at.ok(target, body, authorization="Bearer reader")["count"] == 1
    assert at.error(target, body, authorization="Bearer deleter") == (403, "forbidden")
