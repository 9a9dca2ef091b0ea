"""The load on queues: what a worker sends, how it reads replies that come in pieces, and the figures made of it."""

import asyncio
from array import array

import pytest

from topics.bench.closed_loop import Tally
from topics.bench.errors import MalformedReply
from topics.bench.plan import LoadSettings, QueuePlan
from topics.bench.queue_workers import Dialect, HttpDialect, RespDialect, Workers
from topics.bench.samples import Counts, sample_of
from topics.bench.targets import Target, TargetKind
from topics.testing.fake_clock import FakeClock

TARGET = Target("topics", TargetKind.TOPICS, "127.0.0.1", 1)
PLAN = QueuePlan(target=TARGET, settings=LoadSettings(1, 1.0), topic="jobs", workers=2, jobs_per_claim=8)
BODY = b'{"topic":"jobs","claimed":[{"$seq":7,"data":{}},{"$seq":12,"data":{}}],"count":2}'
HTTP_REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
ENTRY = b"*2\r\n$3\r\n%b\r\n*4\r\n$3\r\ntag\r\n$1\r\nt\r\n$4\r\ndata\r\n$2\r\n{}\r\n"
RESP_REPLY = b"*1\r\n*2\r\n$4\r\njobs\r\n*2\r\n" + ENTRY % b"1-0" + ENTRY % b"1-1"


def complete_after(dialect: Dialect, reply: bytes, ends: list[int]) -> list[bool]:
    """Whether the reply is complete after each of the pieces that end there."""
    return [dialect.feed(reply[start:end]) for start, end in zip([0, *ends], [*ends, len(reply)], strict=True)]


def test_a_worker_claims_and_acks_over_http() -> None:
    dialect = HttpDialect(PLAN, 1)
    assert dialect.claim.endswith(b'{"node":"w1","max":8}')
    assert dialect.claim.startswith(b"POST /v0/topics/jobs/claim ")
    assert dialect.ack([b"7", b"12"]).startswith(b"POST /v0/topics/jobs/ack ")
    assert dialect.ack([b"7", b"12"]).endswith(b'{"node":"w1","seqs":[7,12]}')


def test_jobs_are_found_in_a_whole_http_reply_only() -> None:
    dialect = HttpDialect(PLAN, 1)
    assert complete_after(dialect, HTTP_REPLY, [5, 30, len(HTTP_REPLY) - 1]) == [False, False, False, True]
    assert dialect.jobs() == [b"7", b"12"]


def test_jobs_are_found_in_a_whole_redis_reply_only() -> None:
    dialect = RespDialect(PLAN, 1)
    complete = complete_after(dialect, RESP_REPLY, [3, 20, 40, len(RESP_REPLY) - 2])
    assert complete == [False, False, False, False, True]
    assert dialect.jobs() == [b"1-0", b"1-1"]


def test_an_empty_queue_has_no_jobs() -> None:
    http, resp = HttpDialect(PLAN, 1), RespDialect(PLAN, 1)
    assert http.feed(b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"claimed":[]}')
    assert resp.feed(b"*-1\r\n")
    assert (http.jobs(), resp.jobs()) == ([], [])


def test_the_reply_to_an_ack_is_followed_by_a_claim_that_starts_afresh() -> None:
    dialect = RespDialect(PLAN, 1)
    assert dialect.feed(RESP_REPLY)
    assert complete_after(dialect, b":2\r\n", [2]) == [False, True]
    assert dialect.feed(b"*-1\r\n")
    assert dialect.jobs() == []


def test_a_refusal_is_no_reply() -> None:
    with pytest.raises(MalformedReply, match="NOGROUP"):
        RespDialect(PLAN, 1).feed(b"-NOGROUP no such group\r\n")
    http = HttpDialect(PLAN, 1)
    assert http.feed(b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\n{}")
    assert http.failure == b"HTTP/1.1 409 Conflict {}"


def test_figures_are_of_jobs_acked_and_claims_timed() -> None:
    counts = Counts(array("Q", [1_000_000, 3_000_000]), 4, 40, 2_000_000_000, by_worker=(10, 30))
    sample = sample_of(counts, 1_000_000_000)
    assert (sample.records, sample.records_per_s, sample.requests) == (40, 20.0, 4)
    assert (sample.p50_ms, sample.p99_ms, sample.generator_busy, sample.unevenness) == (1.0, 3.0, 0.5, 1.5)


def test_every_worker_counts_claims_and_acks_and_the_jobs_it_acked() -> None:
    workers = Workers(PLAN, FakeClock())
    tally = Tally(requests_max=100)
    for worker in workers.clients:
        worker.connection_made(asyncio.Transport())
    busy = workers.clients[1]
    busy.next_request()
    busy.note_success(tally, 7)
    busy.data_received(HTTP_REPLY)
    busy.next_request()
    busy.note_success(tally, 8)
    counts = workers.counts(tally, 1000)
    assert (counts.requests, counts.records, counts.by_worker, list(counts.latencies_ns)) == (2, 2, (0, 2), [7])
    assert workers.counts(tally, 1000).by_worker == (0, 0)
