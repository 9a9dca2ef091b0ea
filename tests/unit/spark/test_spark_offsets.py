"""Offsets: stable as text, honest about recreated topics, shared in proportion, cut without holes."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.spark import offsets
from topics.spark.errors import InvalidOption
from topics.spark.offsets import Position, SeqRange


def test_the_text_does_not_depend_on_the_order_of_topics() -> None:
    one = offsets.to_json({"b": Position(1, 2), "a": Position(3, 4)})
    other = offsets.to_json({"a": Position(3, 4), "b": Position(1, 2)})
    assert json.dumps(one) == json.dumps(other) == '{"a": {"epoch": 3, "seq": 4}, "b": {"epoch": 1, "seq": 2}}'


def test_offsets_come_back_from_their_text() -> None:
    value = {"a": Position(3, 4)}
    assert offsets.from_json(json.loads(json.dumps(offsets.to_json(value)))) == value


@pytest.mark.parametrize("value", [{"a": 1}, {"a": {"seq": 1}}, {"a": {"epoch": "x", "seq": 1}}])
def test_a_checkpoint_of_another_source_is_refused(value: dict[str, dict[str, int]]) -> None:
    with pytest.raises(InvalidOption):
        offsets.from_json(value)


def test_a_range_is_what_lies_between() -> None:
    between = offsets.ranges_between(
        {"a": Position(1, 5), "b": Position(2, 7)}, {"a": Position(1, 9), "b": Position(2, 7)}
    )
    assert between == [SeqRange("a", 1, 5, 9)]


def test_a_topic_that_appeared_is_read_from_its_beginning() -> None:
    assert offsets.ranges_between({}, {"a": Position(1, 3)}) == [SeqRange("a", 1, 0, 3)]


def test_a_recreated_topic_is_a_loss_and_a_beginning() -> None:
    between = offsets.ranges_between({"a": Position(1, 5)}, {"a": Position(2, 9)})
    assert between == [SeqRange("a", 2, 0, 9, lost_from=6)]


def test_a_head_that_went_back_is_a_loss_too() -> None:
    between = offsets.ranges_between({"a": Position(1, 5)}, {"a": Position(1, 3)})
    assert between == [SeqRange("a", 1, 0, 3, lost_from=6)]


def test_a_recreated_topic_that_is_empty_is_still_told() -> None:
    between = offsets.ranges_between({"a": Position(1, 5)}, {"a": Position(2, 0)})
    assert between == [SeqRange("a", 2, 0, 0, lost_from=6)]


def test_a_limit_is_shared_in_proportion() -> None:
    end = {"a": Position(1, 900), "b": Position(1, 100), "c": Position(1, 0)}
    assert offsets.limited({}, end, 100) == {"a": Position(1, 90), "b": Position(1, 10), "c": Position(1, 0)}


def test_a_small_topic_does_not_starve_beside_a_busy_one() -> None:
    end = {"busy": Position(1, 1_000_000), "small": Position(1, 1)}
    assert offsets.limited({}, end, 10) == {"busy": Position(1, 9), "small": Position(1, 1)}


topic_sizes = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 500), min_size=1)


@example({"a": 1, "b": 1, "c": 2}, 3)
@example({"a": 1, "b": 500, "c": 500, "d": 499}, 300)
@given(topic_sizes, st.integers(1, 300))
def test_a_limited_batch_moves_on_and_keeps_the_limit(sizes: dict[str, int], bound: int) -> None:
    end = {topic: Position(1, size) for topic, size in sizes.items()}
    limited = offsets.limited({}, end, bound)
    waiting = [topic for topic, size in sizes.items() if size]
    total = sum(position.seq for position in limited.values())
    assert total == min(sum(sizes.values()), max(bound, len(waiting)))
    for topic, size in sizes.items():
        assert min(1, size) <= limited[topic].seq <= size


@given(topic_sizes, st.integers(1, 20), st.one_of(st.none(), st.integers(1, 50)))
def test_pieces_cover_their_ranges_without_holes(
    sizes: dict[str, int], pieces_min: int, records_max: int | None
) -> None:
    ranges = [SeqRange(topic, 1, 3, 3 + size) for topic, size in sizes.items() if size]
    pieces = offsets.pieces_of(ranges, pieces_min, records_max)
    for whole in ranges:
        own = [piece for piece in pieces if piece.topic == whole.topic]
        assert (own[0].start, own[-1].end) == (whole.start, whole.end)
        assert all(before.end == after.start for before, after in pairwise(own))
    assert all(piece.size > 0 for piece in pieces)
    assert len(pieces) >= min(pieces_min, sum(sizes.values()))
    assert records_max is None or all(piece.size <= records_max for piece in pieces)


def test_a_loss_is_told_by_one_piece_only() -> None:
    pieces = offsets.pieces_of([SeqRange("a", 2, 0, 9, lost_from=6)], 3, None)
    assert [piece.lost_from for piece in pieces] == [6, None, None]
    assert offsets.pieces_of([SeqRange("a", 2, 0, 0, lost_from=6)], 3, None) == [SeqRange("a", 2, 0, 0, lost_from=6)]
