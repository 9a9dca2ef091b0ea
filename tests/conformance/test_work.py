"""The work stream: jobs are leased to a connection and pushed over it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from conformance.client import Topic, assert_error, eventually
from conformance.conftest import StartServer
from conformance.queue import Queue
from conformance.sse import EventStream, open_connections, streaming, torn, try_to_open

NewTopic = Callable[..., Topic]


@pytest.fixture
def queue(topic: Topic) -> Queue:
    topic.configure(type="queue")
    return Queue(topic)


def work(queue: Queue, node: str = "w", **query: Any) -> AbstractContextManager[EventStream]:
    return streaming(queue.topic.api, path_of(queue, node=node, **query))


def path_of(queue: Queue, **query: Any) -> str:
    return f"{queue.topic.path}/work?" + "&".join(f"{name}={value}" for name, value in query.items())


def pushed(stream: EventStream, count: int) -> list[int]:
    """The seqs of the next jobs; heartbeats between them are passed over."""
    seqs: list[int] = []
    while len(seqs) < count:
        frame = stream.next()
        if frame.event == "job":
            seqs.append(frame.json["$seq"])
    return seqs


def test_a_stream_opens_with_a_retry_and_a_heartbeat(queue: Queue) -> None:
    with work(queue) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert (stream.headers["Cache-Control"], stream.headers["X-Accel-Buffering"]) == ("no-store", "no")
        assert stream.opening.retry == "2000"
        (comment,) = stream.next().comments
        assert comment.strip().startswith("hb ")


def test_a_job_frame_is_a_claimed_job_with_its_topic(queue: Queue) -> None:
    queue.topic.write({"data": {"a": 1}, "tag": "t", "meta": {"k": "v"}})
    with work(queue) as stream:
        frame = stream.until("job")[-1]
    job = frame.json
    assert frame.id == "1"
    assert set(job) == {"topic", "$seq", "$ts", "$tag", "lease_id", "deadline", "deliveries", "data", "meta"}
    assert (job["topic"], job["$seq"], job["deliveries"], job["data"]) == (queue.topic.name, 1, 1, {"a": 1})


def test_acked_jobs_are_replaced_up_to_max(queue: Queue) -> None:
    queue.topic.fill(4)
    with work(queue, max=2) as stream:
        assert pushed(stream, 2) == [1, 2]
        assert queue.counters() == (2, 2, 0)
        queue.ack(1)
        assert pushed(stream, 1) == [3]
        queue.nack(2, delay_ms=60_000)
        assert pushed(stream, 1) == [4]


def test_one_job_at_once_where_no_number_is_given(queue: Queue) -> None:
    queue.topic.fill(2)
    with work(queue) as stream:
        assert pushed(stream, 1) == [1]
        assert queue.counters() == (1, 1, 0)


def test_new_jobs_are_pushed_as_they_come(queue: Queue) -> None:
    with work(queue, max=5) as stream:
        stream.next()
        queue.topic.fill(1)
        assert pushed(stream, 1) == [1]
        queue.topic.fill(2)
        assert pushed(stream, 2) == [2, 3]


def test_a_lease_that_runs_out_is_pushed_again(queue: Queue) -> None:
    queue.topic.fill(1)
    with work(queue, lease_ms=100) as stream:
        frames = [stream.until("job")[-1] for _ in range(2)]
    assert [frame.json["deliveries"] for frame in frames] == [1, 2]


def test_a_connection_that_ends_releases_its_jobs_and_no_others(queue: Queue) -> None:
    queue.topic.fill(3)
    queue.seqs("w", max=1)
    with work(queue, max=2) as stream:
        assert pushed(stream, 2) == [2, 3]
    eventually(lambda: queue.counters() == (2, 1, 0))
    assert [job["deliveries"] for job in queue.jobs("other")] == [2, 2]


def test_a_torn_connection_releases_its_jobs(queue: Queue) -> None:
    queue.topic.fill(1)
    with queue.topic.api.connection() as connection:
        request = connection.head(f"GET {path_of(queue, node='w')}", "Accept: text/event-stream")
    with torn(queue.topic.api, request):
        eventually(lambda: queue.counters() == (0, 1, 0))
    eventually(lambda: queue.counters() == (1, 0, 0))


def test_streams_and_claims_share_the_jobs(queue: Queue) -> None:
    queue.topic.configure(claim_jitter_ms=400)
    with work(queue, max=10) as stream:
        stream.next()
        queue.topic.fill(10)
        polled = queue.jobs("poll", max=10)
        assert (len(polled), len(pushed(stream, 5))) == (5, 5)


def test_a_queue_that_is_deleted_and_recreated_as_a_log_ends_its_streams(queue: Queue) -> None:
    with work(queue) as stream:
        stream.next()
        queue.topic.remove()
        queue.topic.configure()
        (error,) = [frame.json for frame in stream.rest() if frame.event == "error"]
    assert error["code"] == 409


def test_leases_tell_what_was_pushed(queue: Queue) -> None:
    queue.topic.fill(2)
    queue.seqs("poll", max=1)
    with work(queue) as stream:
        pushed(stream, 1)
        leases = queue.topic.api.get(f"{queue.topic.path}/leases").json["leases"]
    assert [(lease["$seq"], lease["pushed"]) for lease in leases] == [(1, False), (2, True)]


# Refusals


@pytest.mark.parametrize("query", [{}, {"node": ""}, {"node": "w", "max": "x"}, {"node": "w", "lease_ms": "-1"}])
def test_a_bad_query_is_refused(queue: Queue, query: dict[str, Any]) -> None:
    assert_error(try_to_open(queue.topic.api, path_of(queue, **query)), 400, "invalid_request")


def test_a_stream_is_asked_for_as_one(queue: Queue) -> None:
    reply = try_to_open(queue.topic.api, path_of(queue, node="w"), {"Accept": "application/json"})
    assert_error(reply, 406, "not_acceptable")


def test_only_a_queue_has_a_work_stream(topic: Topic) -> None:
    assert_error(try_to_open(topic.api, f"{topic.path}/work?node=w"), 404, "topic_not_found")
    topic.configure()
    assert_error(try_to_open(topic.api, f"{topic.path}/work?node=w"), 409, "not_a_queue")


def test_a_work_stream_needs_read_and_write_and_takes_a_token(server: StartServer) -> None:
    api = server(TOPICS_API_KEYS="root-secret,r-secret:read,w-secret:write,rw-secret:rw").api
    queue = Queue(Topic(api.with_key("root-secret"), "jobs"))
    queue.topic.configure(type="queue")
    for key in ("r", "w"):
        assert_error(try_to_open(api.with_key(f"{key}-secret"), path_of(queue, node="n")), 403, "forbidden")
    assert_error(try_to_open(api, path_of(queue, node="n")), 401, "unauthorized")
    with streaming(api, path_of(queue, node="n", token="rw-secret")) as stream:
        assert stream.opening.retry == "2000"


def test_work_streams_count_as_live_connections(server: StartServer) -> None:
    api = server(TOPICS_MAX_SSE_CONNECTIONS="1").api
    queue = Queue(Topic(api, "jobs"))
    queue.topic.configure(type="queue")
    with work(queue) as stream:
        stream.next()
        reply = try_to_open(api, path_of(queue, node="w"))
        assert assert_error(reply, 429, "throttled") == {"limit": "max_sse_connections", "max": 1}
    eventually(lambda: open_connections(api) == 0)


def test_a_refused_stream_keeps_no_slot(server: StartServer) -> None:
    api = server(TOPICS_MAX_SSE_CONNECTIONS="1").api
    Topic(api, "log").configure()
    assert_error(try_to_open(api, "/v0/topics/log/work?node=w"), 409, "not_a_queue")
    assert open_connections(api) == 0
