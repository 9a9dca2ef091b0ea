"""Extensions of reading: an end, a time to begin at, and a choice by tag that moves the cursor silently."""

import time
from typing import Any

import pytest

from conformance.client import Topic, assert_error, success
from conformance.sse import watching


def tagged(topic: Topic, count: int) -> None:
    """Tags k0, k1, k2, k0, …; every seventh record has none."""
    topic.write(
        *({"data": number} if number % 7 == 6 else {"data": number, "tag": f"k{number % 3}"} for number in range(count))
    )


def matching(count: int, tag: str) -> list[int]:
    return [number + 1 for number in range(count) if number % 7 != 6 and f"k{number % 3}" == tag]


# to_seq


@pytest.mark.parametrize(
    ("from_seq", "to_seq", "seqs", "next_from_seq"),
    [(0, 3, [1, 2, 3], 3), (2, 3, [3], 3), (3, 3, [], 3), (5, 3, [], 5), (0, 0, [], 0), (8, 99, [9, 10], 10)],
)
def test_a_read_ends_at_to_seq(topic: Topic, from_seq: int, to_seq: int, seqs: list[int], next_from_seq: int) -> None:
    topic.fill(10)
    reply = topic.diff(from_seq=from_seq, to_seq=to_seq)
    assert [record["$seq"] for record in reply["records"]] == seqs
    assert reply["next_from_seq"] == next_from_seq
    assert reply["head_seq"] == 10
    assert reply["caught_up"] == (next_from_seq == 10)


def test_to_seq_within_deleted_records_is_reached_silently(topic: Topic) -> None:
    topic.fill(10)
    topic.delete_records(before_seq=6)
    reply = topic.diff(from_seq=0, to_seq=3)
    assert (reply["records"], reply["tombstone"]) == ([], None)
    assert reply["next_from_seq"] >= 3


def test_a_loss_is_told_also_when_it_goes_beyond_to_seq(topic: Topic) -> None:
    topic.configure(cap_records=2)
    topic.fill(10)
    reply = topic.diff(from_seq=0, to_seq=3)
    assert reply["records"] == []
    assert (reply["tombstone"]["gap_from"], reply["tombstone"]["gap_to"]) == (1, 8)


# from_ts


def test_a_read_begins_at_a_time(topic: Topic) -> None:
    topic.fill(3)
    time.sleep(0.01)  # the next records are of a later millisecond
    topic.fill(3)
    times = {record["$seq"]: record["$ts"] for record in topic.diff()["records"]}
    assert times[4] > times[3]
    assert topic.seqs(from_ts=times[4]) == [4, 5, 6]
    assert topic.seqs(from_ts=times[3] + 1) == [4, 5, 6]
    assert topic.seqs(from_ts=times[3]) == [1, 2, 3, 4, 5, 6]
    assert topic.seqs(from_ts=0) == [1, 2, 3, 4, 5, 6]
    assert topic.seqs(from_ts=times[4], from_seq=5) == [6]
    late = topic.diff(from_ts=times[6] + 1)
    assert (late["records"], late["caught_up"]) == ([], True)


# match


def test_only_matching_records_come_and_the_cursor_passes_the_others(topic: Topic) -> None:
    tagged(topic, 30)
    reply = topic.diff(match=["tag", "Eq", "k1"])
    assert [record["$seq"] for record in reply["records"]] == matching(30, "k1")
    assert (reply["next_from_seq"], reply["caught_up"], reply["tombstone"]) == (30, True, None)


@pytest.mark.parametrize(
    ("match", "count"), [("k1", None), ("k*", None), (["tag", "Glob", "k*"], None), ("*", None), ("nobody", 0)]
)
def test_the_language_of_deletes_is_understood(topic: Topic, match: Any, count: int | None) -> None:
    tagged(topic, 21)
    tags = {"k1"} if match == "k1" else {"k0", "k1", "k2"}
    expected = sorted(seq for tag in tags for seq in matching(21, tag)) if count is None else []
    assert topic.seqs(match=match) == expected


def test_pages_of_matching_records_make_the_whole(topic: Topic) -> None:
    tagged(topic, 50)
    found: list[int] = []
    from_seq = 0
    while True:
        reply = topic.diff(match="k2", limit=3, from_seq=from_seq)
        found += [record["$seq"] for record in reply["records"]]
        if reply["caught_up"]:
            break
        assert reply["next_from_seq"] > from_seq
        from_seq = reply["next_from_seq"]
    assert found == matching(50, "k2")


def test_match_and_node_and_to_seq_go_together(topic: Topic) -> None:
    topic.write(
        {"data": 1, "tag": "a", "node": "me"},
        {"data": 2, "tag": "a"},
        {"data": 3, "tag": "b"},
        {"data": 4, "tag": "a"},
    )
    assert topic.seqs(match="a", node="me", to_seq=3) == [2]


@pytest.mark.parametrize(
    "body",
    [
        {"match": ["tag", "Glob", "a*b"]},
        {"match": ["node", "Eq", "a"]},
        {"match": []},
        {"match": 5},
        {"to_seq": -1},
        {"to_seq": 1.0},
        {"from_ts": "now"},
        {"from_ts": 2**64},
    ],
)
def test_bad_input_is_refused(topic: Topic, body: dict[str, Any]) -> None:
    topic.fill(1)
    assert_error(topic.api.post(f"{topic.path}/diff", body), 400, "invalid_request", next(iter(body)))


def test_a_long_poll_waits_for_a_matching_record(topic: Topic) -> None:
    topic.configure()
    reply = topic.diff(match="wanted", wait_ms=20)
    assert (reply["records"], reply["caught_up"]) == ([], True)
    topic.write({"data": 1, "tag": "other"}, {"data": 2, "tag": "wanted"})
    assert topic.seqs(match="wanted", wait_ms=5000) == [2]


# On a watch


def test_a_watch_delivers_only_matching_records_and_its_cursor_passes_the_others(topic: Topic) -> None:
    tagged(topic, 30)
    with watching(topic.api, {topic.name: {}}, match="k1") as stream:
        frames = stream.until("caught-up")
        seqs = [seq for frame in frames if frame.event == "record" for seq in frame.seqs]
        assert seqs == matching(30, "k1")
        assert frames[-1].cursors == {topic.name: 30}
        assert {frame.event for frame in frames} == {"record", "caught-up"}
        topic.write({"data": 0, "tag": "k0"}, {"data": 1, "tag": "k1"})
        assert stream.record().seqs == [32]


def test_a_bad_match_on_a_watch_is_refused(topic: Topic) -> None:
    topic.fill(1)
    reply = topic.api.post("/v0/watch", {"topics": {topic.name: {}}, "match": ["tag", "Like", "a"]})
    assert_error(reply, 400, "invalid_request", "match")


# epoch


def test_a_cursor_of_an_earlier_topic_is_told_by_its_epoch(topic: Topic) -> None:
    topic.fill(3)
    first = topic.state()["epoch"]
    assert topic.diff(from_seq=2, epoch=first)["tombstone"] is None
    success(topic.api.delete(topic.path))
    topic.fill(5)
    reply = topic.diff(from_seq=2, epoch=first)
    assert (reply["tombstone"]["reason"], reply["tombstone"]["gap_from"], reply["tombstone"]["gap_to"]) == (
        "recreated",
        1,
        5,
    )
    assert [record["$seq"] for record in reply["records"]] == [1, 2, 3, 4, 5]
    assert topic.diff(from_seq=2, epoch=topic.state()["epoch"])["tombstone"] is None


def test_a_watch_from_a_place_of_an_earlier_topic_is_told_by_its_epoch(topic: Topic) -> None:
    topic.fill(3)
    first = topic.state()["epoch"]
    success(topic.api.delete(topic.path))
    topic.fill(5)
    with watching(topic.api, {topic.name: {"from_seq": 2, "epoch": first}}) as stream:
        tombstone = stream.until("tombstone")[-1].json
        assert (tombstone["reason"], tombstone["gap_to"]) == ("recreated", 5)
        assert stream.record().seqs == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("epoch", [-1, 2**64, "1", 1.0, True])
def test_something_else_than_an_epoch_is_refused(topic: Topic, epoch: Any) -> None:
    topic.fill(1)
    assert_error(topic.api.post(f"{topic.path}/diff", {"epoch": epoch}), 400, "invalid_request")
