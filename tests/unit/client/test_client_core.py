"""The protocol without sockets: requests as bytes, refusals as errors, and when to try again."""

import json
from random import Random

import pytest
from msgspec import Raw

from topics import errors
from topics.api.error_mapping import STATUSES, render_error
from topics.client import calls, core
from topics.client.calls import NewRecord
from topics.client.core import Address, Answer
from topics.client.errors import ServerUnreachable, UnexpectedReply
from topics.client.http1 import Requests
from topics.client.retries import Retries, RetryPolicy
from topics.wire.responses import ExportEnd, RecordReply


def answer(status: int, body: object = None, **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(body).encode())


# Requests


def test_a_name_is_quoted_in_the_path() -> None:
    assert calls.topic("a:b/../c").path == "/v0/topics/a%3Ab%2F..%2Fc?touch=false"


def test_a_diff_says_only_what_was_asked_for() -> None:
    assert json.loads(calls.diff("t", 7).body or b"") == {
        "from_seq": 7,
        "limit": 1000,
        "include_tags": True,
        "include_meta": True,
    }


def test_a_diff_has_its_bounds_and_filters() -> None:
    body = calls.diff("t", 7, to_seq=9, from_ts=5, match=("tag", "Eq", "x"), node=("a", "b")).body
    sent = json.loads(body or b"")
    assert (sent["to_seq"], sent["from_ts"], sent["match"], sent["node"]) == (9, 5, ["tag", "Eq", "x"], ["a", "b"])


def test_an_append_carries_payloads_byte_for_byte() -> None:
    call = calls.append_many("t", [NewRecord(Raw(b'{"b": 1.0, "a":1e400}'), tag="x")], key="key")
    assert call.body == b'{"records":[{"data":{"b": 1.0, "a":1e400},"tag":"x"}],"idempotency_key":"key"}'


def test_the_key_is_sent_as_a_bearer() -> None:
    address = Address.of("http://here:4000/log")
    assert Requests(address, "s3cret").render(calls.topic("t")) == (
        b"GET /log/v0/topics/t?touch=false HTTP/1.1\r\nhost: here:4000\r\nuser-agent: topics-python\r\n"
        b"authorization: Bearer s3cret\r\naccept: application/json\r\n\r\n"
    )
    assert b"authorization" not in Requests(address, None).render(calls.topic("t"))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost:4000", Address("localhost", 4000, False, "")),
        ("http://localhost", Address("localhost", 80, False, "")),
        ("https://example.org/log/", Address("example.org", 443, True, "/log")),
    ],
)
def test_an_address_is_read_from_a_url(url: str, address: Address) -> None:
    assert Address.of(url) == address


@pytest.mark.parametrize(
    "url", ["", "localhost:4000", "ftp://x", "http://", "http://x:y", "http://me:pw@x", "http://x?a=1"]
)
def test_something_else_than_a_url_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        Address.of(url)


# Replies


def test_a_reply_becomes_its_struct_and_unknown_fields_are_ignored() -> None:
    body = {
        "records": [{"$seq": 3, "$ts": 5, "data": {"a": 1}, "new": 1}],
        "next_from_seq": 3,
        "head_seq": 3,
        "earliest_seq": 1,
    }
    reply = core.result(calls.diff("t", 0), answer(200, body))
    assert [(record.seq, record.ts, bytes(record.data)) for record in reply.records] == [(3, 5, b'{"a": 1}')]
    assert reply.tombstone is None


def test_a_reply_of_something_else_says_so() -> None:
    with pytest.raises(UnexpectedReply):
        core.result(calls.topic("t"), Answer(200, {}, b"<html>"))


def test_a_line_of_an_export_is_a_record_or_the_end() -> None:
    record = calls.export_line(b'{"$seq":1,"$ts":2,"data":{"$end":0}}\n')
    assert isinstance(record, RecordReply)
    end = calls.export_line(b'{"$end":{"next_from_seq":9,"tombstones":[{"gap_from":1,"gap_to":2,"reason":"cap"}]}}\n')
    assert isinstance(end, ExportEnd)
    assert (end.next_from_seq, end.tombstones[0].gap_to) == (9, 2)


# Refusals


@pytest.mark.parametrize("kind", STATUSES, ids=lambda kind: kind.__name__)
def test_every_error_of_the_server_comes_back_as_itself(kind: type[errors.TopicsError]) -> None:
    raised = _an(kind)
    response = render_error(raised)
    headers = {name.decode(): value.decode() for name, value in response.headers}
    error = core.refusal(Answer(response.status, headers, b"".join([response.body])))
    assert type(error) is kind
    assert error.detail == raised.detail


def _an(kind: type[errors.TopicsError]) -> errors.TopicsError:
    if kind is errors.TopicNotFound:
        return errors.TopicNotFound("t")
    if kind is errors.NotAQueue:
        return errors.NotAQueue("t")
    if kind is errors.CursorNotFound:
        return errors.CursorNotFound("t", "c")
    if kind is errors.RouterNotFound:
        return errors.RouterNotFound("r")
    if kind is errors.RouterCycle:
        return errors.RouterCycle(["a", "b", "a"])
    if kind is errors.ProducerDiffers:
        return errors.ProducerDiffers("t", "p", 7)
    if kind is errors.MethodNotAllowed:
        return errors.MethodNotAllowed("PATCH", ("GET", "PUT"))
    if kind is errors.Throttled:
        return errors.Throttled("slow down", retry_after_s=3, limit="max_topics")
    return kind("no", field="x")


def test_an_unknown_code_keeps_status_and_code() -> None:
    error = core.refusal(answer(418, {"error": {"code": "teapot", "message": "short"}}))
    assert isinstance(error, UnexpectedReply)
    assert (error.status, error.code) == (418, "teapot")


def test_an_error_page_of_somebody_else_is_shown_in_part() -> None:
    assert "bad gateway" in core.refusal(Answer(502, {}, b"<h1>bad gateway</h1>")).message


# Trying again


class Highest(Random):
    """No jitter: every pause is as long as it may be."""

    def randint(self, a: int, b: int) -> int:
        return b


def retries(attempts_max: int = 3, now_ms: int = 0) -> Retries:
    return Retries(RetryPolicy(attempts_max, 10_000, 100, 1000), lambda: now_ms, Highest())


def test_an_answer_is_final() -> None:
    assert retries().after_answer(answer(200)) is None
    assert retries().after_answer(answer(400)) is None


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_with_a_time_is_tried_again_after_it(status: int) -> None:
    assert retries().after_answer(answer(status, retry_after="2")) == 2100


@pytest.mark.parametrize("after", [{}, {"retry_after": "soon"}])
def test_a_refusal_without_a_time_is_final(after: dict[str, str]) -> None:
    assert retries().after_answer(answer(503, **after)) is None


def test_a_server_that_wants_too_long_is_not_waited_for() -> None:
    assert retries().after_answer(answer(503, retry_after="11")) is None


def test_pauses_grow_up_to_a_bound() -> None:
    attempt = retries(attempts_max=6)
    assert [attempt.after_failure("no", "it") for _ in range(5)] == [100, 200, 400, 800, 1000]


def test_pauses_differ_so_that_not_all_come_back_at_once() -> None:
    policy = RetryPolicy(3, 10_000, 100, 1000)
    pauses = {Retries(policy, lambda: 0, Random(seed)).after_failure("no", "it") for seed in range(20)}
    assert len(pauses) > 5
    assert all(50 <= pause <= 100 for pause in pauses)


def test_failures_end_in_an_error_that_says_where_and_why() -> None:
    attempt = retries(attempts_max=1)
    with pytest.raises(ServerUnreachable, match="http://x does not answer: refused; tried 1 times"):
        attempt.after_failure("refused", "http://x")
