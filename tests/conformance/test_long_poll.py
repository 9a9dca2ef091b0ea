"""A diff with wait_ms waits for records instead of returning empty."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from conformance.client import Reply, Topic, assert_error, eventually, success
from conformance.conftest import StartServer

LONG_MS = 30_000  # longer than any test waits: a reply in time proves that the reader was woken


@pytest.fixture
def wait_for(topic: Topic) -> Iterator[Callable[..., "Future[Reply]"]]:
    """Starts a long poll in the background and returns once the server has seen it."""
    with ThreadPoolExecutor(8) as pool:

        def start(**body: Any) -> "Future[Reply]":
            waiting = pool.submit(topic.api.post, f"{topic.path}/diff", {"wait_ms": LONG_MS, **body})
            eventually(lambda: topic.state()["last_read_ts"] is not None)
            return waiting

        yield start


def test_records_that_are_there_are_returned_at_once(topic: Topic) -> None:
    topic.fill(2)
    assert topic.seqs(wait_ms=LONG_MS) == [1, 2]


@pytest.mark.parametrize("wait_ms", [30_001, 2**32 - 1, 2**64 - 1])
def test_a_wait_beyond_30_seconds_is_not_refused(topic: Topic, wait_ms: int) -> None:
    topic.fill(1)
    assert topic.seqs(wait_ms=wait_ms) == [1]


def test_a_wait_of_zero_returns_at_once(topic: Topic) -> None:
    topic.configure()
    assert topic.diff(wait_ms=0)["caught_up"] is True


def test_an_empty_wait_ends_after_its_time(topic: Topic) -> None:
    topic.fill(1)
    began = time.monotonic()
    page = topic.diff(from_seq=1, wait_ms=150)
    assert time.monotonic() - began >= 0.14
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 1, True)


def test_a_write_ends_the_wait(topic: Topic, wait_for: Callable[..., "Future[Reply]"]) -> None:
    topic.configure()
    waiting = wait_for()
    topic.write({"data": "news"})
    page = success(waiting.result())
    assert [record["data"] for record in page["records"]] == ["news"]
    assert (page["next_from_seq"], page["head_seq"], page["caught_up"]) == (1, 1, True)


def test_a_write_wakes_every_reader(topic: Topic, wait_for: Callable[..., "Future[Reply]"]) -> None:
    topic.configure()
    waiting = [wait_for() for _ in range(5)]
    topic.fill(1)
    assert [len(success(reader.result())["records"]) for reader in waiting] == [1] * 5


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_write_in_any_durability_class_ends_the_wait(
    topic: Topic, wait_for: Callable[..., "Future[Reply]"], durability: str
) -> None:
    topic.configure(durability=durability)
    waiting = wait_for()
    topic.fill(1)
    assert len(success(waiting.result())["records"]) == 1


def test_a_whole_batch_is_delivered_to_the_reader_it_woke(
    topic: Topic, wait_for: Callable[..., "Future[Reply]"]
) -> None:
    topic.configure()
    waiting = wait_for()
    topic.fill(3)
    assert [record["$seq"] for record in success(waiting.result())["records"]] == [1, 2, 3]


def test_deleting_the_topic_ends_the_wait(topic: Topic, wait_for: Callable[..., "Future[Reply]"]) -> None:
    topic.configure()
    waiting = wait_for()
    topic.remove()
    assert_error(waiting.result(), 404, "topic_not_found")


def test_an_absent_topic_is_not_waited_for(topic: Topic) -> None:
    reply = topic.api.post(f"{topic.path}/diff", {"wait_ms": LONG_MS})
    assert_error(reply, 404, "topic_not_found")


def test_a_gap_is_reported_without_waiting(topic: Topic) -> None:
    topic.configure()
    assert topic.diff(from_seq=5, wait_ms=LONG_MS)["tombstone"]["reason"] == "recreated"


def test_lost_records_are_reported_without_waiting(topic: Topic) -> None:
    topic.configure(ttl_ms=40)
    topic.fill(2)
    eventually(lambda: topic.state()["count"] == 0)
    assert topic.diff(wait_ms=LONG_MS)["tombstone"]["reason"] == "ttl"


def test_a_reader_that_hangs_up_does_no_harm(topic: Topic) -> None:
    topic.configure()
    with topic.api.connection() as connection:
        body = b'{"wait_ms":30000}'
        connection.send(connection.json_request(f"POST {topic.path}/diff", body))
        eventually(lambda: topic.state()["last_read_ts"] is not None)
    topic.fill(1)
    assert topic.seqs() == [1]


def test_a_stopping_server_answers_its_waiting_readers(server: StartServer) -> None:
    process = server()
    topic = Topic(process.api, "waited-for")
    topic.configure()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(topic.api.post, f"{topic.path}/diff", {"wait_ms": LONG_MS})
        eventually(lambda: topic.state()["last_read_ts"] is not None)
        process.stop()
        assert waiting.result().status in {200, 503}
