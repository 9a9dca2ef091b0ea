"""A reader that names its node does not get its own records back."""

from typing import Any

import pytest

from conformance.client import Topic


@pytest.fixture
def shared(topic: Topic) -> Topic:
    """Five records by nodes: 1 a, 2 b, 3 nobody, 4 a, 5 ab."""
    topic.write(*({"data": 1, "node": node} for node in ["a", "b", None, "a", "ab"]))
    return topic


@pytest.mark.parametrize(
    ("node", "seen"),
    [
        ("a", [2, 3, 5]),
        ("b", [1, 3, 4, 5]),
        ("A", [1, 2, 3, 4, 5]),
        ("", [1, 2, 3, 4, 5]),
        ("unknown", [1, 2, 3, 4, 5]),
        (None, [1, 2, 3, 4, 5]),
        ([], [1, 2, 3, 4, 5]),
        (["a"], [2, 3, 5]),
        (["a", "b"], [3, 5]),
        (["a", "a", "unknown"], [2, 3, 5]),
        (["a", "b", "ab"], [3]),
    ],
)
def test_records_of_the_named_nodes_are_left_out(shared: Topic, node: Any, seen: list[int]) -> None:
    assert shared.seqs(node=node) == seen


def test_the_filter_is_silent(shared: Topic) -> None:
    assert shared.diff(node="a")["tombstone"] is None


def test_the_cursor_advances_past_filtered_records(topic: Topic) -> None:
    topic.write(*({"data": 1} for _ in range(5)), node="own")
    page = topic.diff(node="own")
    assert page["records"] == []
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (5, True, 0)


def test_a_reader_of_mostly_its_own_records_reaches_the_end(topic: Topic) -> None:
    topic.write(*({"data": 1} for _ in range(50)), node="own")
    topic.write({"data": 2}, node="other")
    topic.write(*({"data": 1} for _ in range(50)), node="own")
    cursor, seen = 0, []
    while True:
        page = topic.diff(node="own", from_seq=cursor, limit=7)
        seen += [record["$seq"] for record in page["records"]]
        if page["caught_up"]:
            break
        assert page["next_from_seq"] > cursor
        cursor = page["next_from_seq"]
    assert seen == [51]


def test_the_batch_node_is_filtered_like_a_record_node(topic: Topic) -> None:
    topic.write({"data": 1}, {"data": 2, "node": "other"}, node="own")
    assert topic.seqs(node="own") == [2]


def test_a_topic_can_opt_out_of_the_filter(topic: Topic) -> None:
    topic.configure(dedupe_node=False)
    topic.write({"data": 1}, node="own")
    assert topic.seqs(node="own") == [1]


def test_opting_out_applies_to_records_already_there(shared: Topic) -> None:
    shared.configure(dedupe_node=False)
    assert shared.seqs(node="a") == [1, 2, 3, 4, 5]


def test_filtered_records_still_count(shared: Topic) -> None:
    page = shared.diff(node="a")
    assert (page["head_seq"], shared.state()["count"]) == (5, 5)
