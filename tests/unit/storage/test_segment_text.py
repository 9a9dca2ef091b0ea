"""The texts of a sealed segment: one slice for neighbours, and never a wrong one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import limits
from topics.storage.segment_text import RUN_RECORDS, SegmentText, encode_text, open_text

FIRST_SEQ = 41


def encoded(fragments: list[bytes | None], nodes: list[str | None] | None = None) -> bytes:
    text = encode_text(FIRST_SEQ, fragments, nodes or [None] * len(fragments), has_tags=False, has_meta=True)
    assert text is not None
    return text


def opened(fragments: list[bytes | None], nodes: list[str | None] | None = None) -> SegmentText:
    text = open_text(encoded(fragments, nodes), FIRST_SEQ, len(fragments))
    assert text is not None
    return text


TEXTS = [b'{"$seq":%d}' % seq for seq in range(FIRST_SEQ, FIRST_SEQ + 3 * RUN_RECORDS + 7)]


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, len(TEXTS)), (5, 6), (RUN_RECORDS - 1, 2 * RUN_RECORDS + 1)])
def test_neighbours_are_one_text_with_commas_between_them(start: int, stop: int) -> None:
    assert opened([*TEXTS]).slice(start, stop) == b",".join(TEXTS[start:stop])


def test_a_record_that_was_dead_has_no_text_and_keeps_its_place() -> None:
    text = opened([b"a", None, b"c"])
    assert [text.slice(position, position + 1) for position in range(3)] == [b"a", b"", b"c"]


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    budget=st.integers(0, 60),
    bounds=st.tuples(st.integers(0, 39), st.integers(1, 40)),
)
def test_what_fits_is_what_fits_record_by_record(sizes: list[int], budget: int, bounds: tuple[int, int]) -> None:
    fragments: list[bytes | None] = [b"x" * size for size in sizes]
    start = min(bounds[0], len(sizes) - 1)
    stop = min(start + bounds[1], len(sizes))
    fitting, taken = 0, 0
    while start + fitting < stop and taken + sizes[start + fitting] <= budget:
        taken += sizes[start + fitting]
        fitting += 1
    assert opened(fragments).fitting(start, stop, budget) == (fitting, taken)


def test_a_damaged_byte_is_never_served() -> None:
    fragments: list[bytes | None] = [*TEXTS[: RUN_RECORDS + 3]]
    whole = encoded(fragments)
    for offset in range(len(whole)):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << offset % 8
        text = open_text(bytes(damaged), FIRST_SEQ, len(fragments))
        for start, stop in ((0, RUN_RECORDS), (RUN_RECORDS, len(fragments))):
            assert text is None or text.slice(start, stop) in (None, b",".join(TEXTS[start:stop]))


@pytest.mark.parametrize("size", [0, 20, 40, -1])
def test_a_short_file_is_none(size: int) -> None:
    assert open_text(encoded([b"a", b"b"])[:size], FIRST_SEQ, 2) is None


def test_the_texts_of_another_segment_are_none() -> None:
    whole = encoded([b"a", b"b"])
    assert open_text(whole, FIRST_SEQ + 1, 2) is None
    assert open_text(whole, FIRST_SEQ, 3) is None


def test_nodes_are_listed_unless_they_are_many() -> None:
    few: list[str | None] = ["eu", None, "us", "eu"]
    assert opened([b"a"] * 4, few).nodes == frozenset({"eu", "us"})
    many: list[str | None] = [f"n{number}" for number in range(limits.SEALED_TEXT_NODES_MAX + 1)]
    assert opened([b"a"] * len(many), many).nodes is None
