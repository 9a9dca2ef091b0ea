"""The load on queues: what a worker sends, how it reads replies that come in pieces, and the figures made of it."""

from array import array

import pytest

from topics.bench.errors import MalformedReply
from topics.bench.queue_load import HttpDialect, QueuePlan, QueueResult, RespDialect
from topics.bench.queue_workload import queue_sample

PLAN = QueuePlan("127.0.0.1", 1, "http", None, "jobs", 2, 8, 2, 1.0)
BODY = b'{"topic":"jobs","claimed":[{"$seq":7,"data":{}},{"$seq":12,"data":{}}],"count":2}'
HTTP_REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
ENTRY = b"*2\r\n$3\r\n%b\r\n*4\r\n$3\r\ntag\r\n$1\r\nt\r\n$4\r\ndata\r\n$2\r\n{}\r\n"
RESP_REPLY = b"*1\r\n*2\r\n$4\r\njobs\r\n*2\r\n" + ENTRY % b"1-0" + ENTRY % b"1-1"


def test_a_worker_claims_and_acks_over_http() -> None:
    dialect = HttpDialect(PLAN)
    assert dialect.claim(1).endswith(b'{"node":"w1","max":8}')
    assert dialect.claim(1).startswith(b"POST /v0/topics/jobs/claim ")
    assert dialect.ack(1, [b"7", b"12"]).endswith(b'{"node":"w1","seqs":[7,12]}')


def test_jobs_are_found_in_a_whole_http_reply_only() -> None:
    dialect = HttpDialect(PLAN)
    assert [dialect.jobs_in(HTTP_REPLY[:end]) for end in (5, 30, len(HTTP_REPLY) - 1)] == [None] * 3
    assert dialect.jobs_in(HTTP_REPLY) == [b"7", b"12"]


def test_jobs_are_found_in_a_whole_redis_reply_only() -> None:
    dialect = RespDialect(PLAN)
    assert [dialect.jobs_in(RESP_REPLY[:end]) for end in (3, 20, 40, len(RESP_REPLY) - 2)] == [None] * 4
    assert dialect.jobs_in(RESP_REPLY) == [b"1-0", b"1-1"]


def test_an_empty_queue_has_no_jobs() -> None:
    assert RespDialect(PLAN).jobs_in(b"*-1\r\n") == []
    assert HttpDialect(PLAN).jobs_in(b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"claimed":[]}') == []


def test_a_refusal_is_no_reply() -> None:
    with pytest.raises(MalformedReply, match="NOGROUP"):
        RespDialect(PLAN).jobs_in(b"-NOGROUP no such group\r\n")
    with pytest.raises(MalformedReply, match="409"):
        HttpDialect(PLAN).jobs_in(b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\n{}")


def test_figures_are_of_jobs_acked_and_claims_timed() -> None:
    latencies = array("Q", [1_000_000, 3_000_000]).tobytes()
    sample = queue_sample(QueueResult(latencies, 2_000_000_000, 1_000_000_000, [10, 30], 0, None))
    assert (sample.records, sample.records_per_s, sample.requests) == (40, 20.0, 4)
    assert (sample.p50_ms, sample.p99_ms, sample.generator_busy, sample.unevenness) == (1.0, 3.0, 0.5, 1.5)
