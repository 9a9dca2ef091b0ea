"""Resource caps (429) and the configurable limits of a request (400)."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conformance.client import Reply, Topic, assert_error, eventually
from conformance.conftest import StartServer
from conformance.process import ServerProcess


def assert_throttled(reply: Reply, limit: str, maximum: int) -> None:
    detail = assert_error(reply, 429, "throttled")
    assert (detail["limit"], detail["max"]) == (limit, maximum)
    assert int(reply.headers["Retry-After"]) >= 1


# Topics


@pytest.fixture
def saturated(two_topics: ServerProcess) -> ServerProcess:
    for name in ["a", "b"]:
        Topic(two_topics.api, name).configure()
    Topic(two_topics.api, "c").remove()
    return two_topics


@pytest.fixture(scope="module")
def two_topics(server: StartServer) -> ServerProcess:
    return server(TOPICS_MAX_TOPICS="2")


def test_a_topic_beyond_the_cap_cannot_be_created(saturated: ServerProcess) -> None:
    assert_throttled(saturated.api.put("/v0/topics/c", {}), "max_topics", 2)
    assert not Topic(saturated.api, "c").exists()


def test_a_topic_beyond_the_cap_cannot_be_created_by_a_write(saturated: ServerProcess) -> None:
    assert_throttled(saturated.api.post("/v0/topics/c", {"records": [{"data": 1}]}), "max_topics", 2)
    assert not Topic(saturated.api, "c").exists()


def test_a_saturated_server_can_still_be_configured(saturated: ServerProcess) -> None:
    assert Topic(saturated.api, "a").configure(ttl_ms=60000)["config"]["ttl_ms"] == 60000


def test_a_saturated_server_still_takes_writes(saturated: ServerProcess) -> None:
    assert Topic(saturated.api, "a").fill(1)["created"] is False


def test_a_deleted_topic_leaves_room_for_another(saturated: ServerProcess) -> None:
    Topic(saturated.api, "b").remove()
    assert Topic(saturated.api, "c").configure()["created"] is True


def test_a_cap_of_zero_is_no_cap(server: StartServer) -> None:
    process = server(TOPICS_MAX_TOPICS="0", TOPICS_MAX_TOTAL_BYTES="0")
    for name in ["a", "b", "c"]:
        Topic(process.api, name).fill(10)
    assert process.api.get("/v0/ready").json["topics"] == 3


# Bytes


@pytest.fixture(scope="module")
def ten_kilobytes(server: StartServer) -> ServerProcess:
    return server(TOPICS_MAX_TOTAL_BYTES="10000")


@pytest.fixture
def heavy(ten_kilobytes: ServerProcess) -> Topic:
    """A topic that holds most of the bytes its server may hold."""
    for name in ["heavy", "light"]:
        Topic(ten_kilobytes.api, name).remove()
    topic = Topic(ten_kilobytes.api, "heavy")
    topic.write({"data": "x" * 7000})
    return topic


def test_a_write_beyond_the_total_is_refused(heavy: Topic) -> None:
    light = Topic(heavy.api, "light")
    light.configure()
    reply = light.api.post(light.path, {"records": [{"data": "x" * 4000}]})
    assert_throttled(reply, "max_total_bytes", 10_000)
    assert light.state()["head_seq"] == 0


def test_a_write_beyond_the_total_creates_no_topic(heavy: Topic) -> None:
    light = Topic(heavy.api, "light")
    assert_throttled(light.api.post(light.path, {"records": [{"data": "x" * 4000}]}), "max_total_bytes", 10_000)
    assert not light.exists()


def test_a_write_within_the_total_is_accepted(heavy: Topic) -> None:
    assert Topic(heavy.api, "light").write({"data": "x" * 1000})["seqs"] == [1]


def test_deleted_records_free_their_bytes(heavy: Topic) -> None:
    heavy.delete_records(before_seq=2)
    assert Topic(heavy.api, "light").write({"data": "x" * 4000})["seqs"] == [1]


def test_a_deleted_topic_frees_its_bytes(heavy: Topic) -> None:
    heavy.remove()
    assert Topic(heavy.api, "light").write({"data": "x" * 4000})["seqs"] == [1]


# Requests in flight


def test_a_key_may_have_only_so_many_requests_in_flight(server: StartServer) -> None:
    process = server(TOPICS_API_KEYS="busy-secret,other-secret", TOPICS_MAX_INFLIGHT_PER_KEY="1")
    busy = Topic(process.api.with_key("busy-secret"), "watched")
    other = Topic(process.api.with_key("other-secret"), "watched")
    other.configure()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(busy.api.post, f"{busy.path}/diff", {"wait_ms": 30_000})
        eventually(lambda: other.state()["last_read_ts"] is not None)
        assert_throttled(busy.api.get(busy.path), "max_inflight_per_key", 1)
        other.fill(1)
        assert waiting.result().status == 200
    assert busy.seqs() == [1]


# Limits of one request


@pytest.fixture(scope="module")
def strict(server: StartServer) -> ServerProcess:
    return server(
        TOPICS_MAX_BATCH_RECORDS="3",
        TOPICS_MAX_RECORD_BYTES="100",
        TOPICS_MAX_META_BYTES="50",
        TOPICS_MAX_TAG_BYTES="4",
        TOPICS_MAX_NODE_BYTES="5",
        TOPICS_MAX_LIMIT="5",
    )


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([{"data": 1}] * 4, "batch_too_large"),
        ([{"data": "x" * 101}], "record_too_large"),
        ([{"data": "x" * 80, "meta": {"k": "v" * 20}}], "record_too_large"),
        ([{"data": 1, "meta": {"k": "v" * 51}}], "invalid_request"),
        ([{"data": 1, "tag": "12345"}], "invalid_request"),
        ([{"data": 1, "node": "123456"}], "invalid_request"),
    ],
)
def test_a_request_beyond_a_configured_limit_is_refused(
    strict: ServerProcess, records: list[dict[str, Any]], code: str
) -> None:
    assert_error(strict.api.post("/v0/topics/refused", {"records": records}), 400, code)
    assert not Topic(strict.api, "refused").exists()


@pytest.mark.parametrize(
    "records",
    [
        [{"data": 1}] * 3,
        [{"data": "x" * 98}],
        [{"data": 1, "meta": {"k": "v" * 40}}],
        [{"data": 1, "tag": "1234"}],
        [{"data": 1, "node": "12345"}],
    ],
)
def test_a_request_at_a_configured_limit_is_accepted(strict: ServerProcess, records: list[dict[str, Any]]) -> None:
    assert Topic(strict.api, "accepted").write(*records)["count"] == len(records)


def test_a_read_is_clamped_to_the_configured_limit(strict: ServerProcess) -> None:
    topic = Topic(strict.api, "read")
    for _ in range(4):
        topic.fill(2)
    assert topic.seqs(limit=100) == [1, 2, 3, 4, 5]
    assert topic.seqs() == [1, 2, 3, 4, 5]
