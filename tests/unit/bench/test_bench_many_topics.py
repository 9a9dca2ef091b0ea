"""The load on many topics: every topic in turn, deletes of what is beyond the kept records, and once if so asked."""

import json

import pytest

from topics.bench.closed_loop import Tally
from topics.bench.many_topics_load import ManyTopics, TopicsConnection
from topics.bench.many_topics_workload import ManyTopicsWorkload
from topics.bench.plan import LoadSettings, ManyTopicsPlan
from topics.bench.targets import Target, TargetKind
from topics.testing.fake_clock import FakeClock

TARGET = Target("topics", TargetKind.TOPICS, "127.0.0.1", 1)


def plan_with(topics: list[str], kept_records: int | None = None, *, once: bool = False) -> ManyTopicsPlan:
    settings = LoadSettings(2, 1.0)
    return ManyTopicsPlan(
        target=TARGET, settings=settings, topics=topics, records_per_request=10, kept_records=kept_records, once=once
    )


def asked(connection: TopicsConnection, requests: int) -> list[tuple[str, dict[str, object]]]:
    """The path and the body of each request."""
    found = []
    for _ in range(requests):
        request = connection.next_request()
        assert request is not None
        head, _, body = request.partition(b"\r\n\r\n")
        found.append((head.split()[1].decode(), json.loads(body)))
    return found


def test_topics_are_written_in_turn() -> None:
    connection = TopicsConnection(plan_with(["a", "b"]), ["a", "b"], FakeClock())
    assert [path for path, _ in asked(connection, 3)] == ["/v0/topics/a", "/v0/topics/b", "/v0/topics/a"]


def test_a_topic_keeps_its_last_records() -> None:
    connection = TopicsConnection(plan_with(["a"], 20), ["a"], FakeClock())
    requests = asked(connection, 10)
    assert [path for path, _ in requests].count("/v0/topics/a/delete") == 2
    # 40 written, then 80: what is before the last 20 goes.
    assert [body["before_seq"] for path, body in requests if path.endswith("/delete")] == [21, 61]


def test_topics_that_are_written_once_come_to_an_end() -> None:
    connection = TopicsConnection(plan_with(["a", "b"], once=True), ["a", "b"], FakeClock())
    asked(connection, 2)
    assert connection.next_request() is None


def test_deletes_are_requests_but_no_records() -> None:
    load = ManyTopics(plan_with(["a"], 20), FakeClock())
    (connection,) = load.clients
    tally = Tally(100)
    for _ in range(5):  # four writes and the delete behind them
        connection.next_request()
        connection.note_success(tally, 1000)
    counts = load.counts(tally, 1)
    assert (counts.requests, counts.records) == (5, 40)


@pytest.mark.parametrize(("deletes", "at_least"), [(False, 1.3), (True, 1.4)])
def test_its_mark_is_against_the_older_checkout(deletes: bool, at_least: float) -> None:
    (mark,) = ManyTopicsWorkload("disk", deletes=deletes).expectations
    assert (mark.peer, mark.at_least) == (TargetKind.TOPICS, at_least)
