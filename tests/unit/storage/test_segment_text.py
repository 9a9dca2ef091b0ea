"""The texts of a sealed segment: one slice for neighbours, and never a wrong one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import limits
from topics.model.record import with_tag
from topics.storage.segment_text import RUN_RECORDS, SegmentText, encode_text, open_text

FIRST_SEQ = 41


def encoded(
    fragments: list[bytes | None], nodes: list[str | None] | None = None, tags: list[str | None] | None = None
) -> bytes:
    none: list[str | None] = [None] * len(fragments)
    text = encode_text(FIRST_SEQ, fragments, nodes or none, tags or none, has_meta=True)
    assert text is not None
    return text


def opened(
    fragments: list[bytes | None], nodes: list[str | None] | None = None, tags: list[str | None] | None = None
) -> SegmentText:
    text = open_text(encoded(fragments, nodes, tags), FIRST_SEQ, len(fragments))
    assert text is not None
    return text


TEXTS = [b'{"$seq":%d}' % seq for seq in range(FIRST_SEQ, FIRST_SEQ + 3 * RUN_RECORDS + 7)]


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, len(TEXTS)), (5, 6), (RUN_RECORDS - 1, 2 * RUN_RECORDS + 1)])
def test_neighbours_are_one_text_with_commas_between_them(start: int, stop: int) -> None:
    assert opened([*TEXTS]).slice(start, stop, tags=True) == b",".join(TEXTS[start:stop])
    assert opened([*TEXTS]).texts(start, stop) == TEXTS[start:stop]


def test_a_record_that_was_dead_has_no_text_and_keeps_its_place() -> None:
    text = opened([b"a", None, b"c"])
    assert [text.slice(position, position + 1, tags=True) for position in range(3)] == [b"a", b"", b"c"]


def test_tags_come_along_or_are_left_out() -> None:
    tags: list[str | None] = ["a", None, 'q"', None, "b"]
    text = opened([b'{"$seq":%d}' % number for number in range(4)] + [None], tags=tags)
    assert text.slice(0, 4, tags=True) == b'{"$seq":0,"$tag":"a"},{"$seq":1},{"$seq":2,"$tag":"q\\""},{"$seq":3}'
    assert text.slice(0, 4, tags=False) == b'{"$seq":0},{"$seq":1},{"$seq":2},{"$seq":3}'
    assert text.slice(2, 3, tags=False) == b'{"$seq":2}'
    assert text.texts(1, 3) == [b'{"$seq":1}', b'{"$seq":2,"$tag":"q\\""}']


@given(
    tags=st.lists(st.none() | st.text("xy", max_size=4), min_size=1, max_size=40),
    budget=st.integers(0, 200),
    bounds=st.tuples(st.integers(0, 39), st.integers(1, 40)),
    wanted=st.booleans(),
)
def test_what_fits_is_what_fits_record_by_record(
    tags: list[str | None], budget: int, bounds: tuple[int, int], wanted: bool
) -> None:
    fragments = [b"{%b}" % (b"x" * (number % 7)) for number in range(len(tags))]
    sent = [
        text if tag is None or not wanted else with_tag(text, tag) for text, tag in zip(fragments, tags, strict=True)
    ]
    start = min(bounds[0], len(tags) - 1)
    stop = min(start + bounds[1], len(tags))
    fitting, taken = 0, 0
    while start + fitting < stop and taken + len(sent[start + fitting]) <= budget:
        taken += len(sent[start + fitting])
        fitting += 1
    text = opened([*fragments], tags=tags)
    assert text.fitting(start, stop, budget, tags=wanted) == (fitting, taken)
    assert text.slice(start, stop, tags=wanted) == b",".join(sent[start:stop])


def test_a_damaged_byte_is_never_served() -> None:
    fragments: list[bytes | None] = [*TEXTS[: RUN_RECORDS + 3]]
    whole = encoded(fragments)
    for offset in range(len(whole)):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << offset % 8
        text = open_text(bytes(damaged), FIRST_SEQ, len(fragments))
        for start, stop in ((0, RUN_RECORDS), (RUN_RECORDS, len(fragments))):
            assert text is None or text.slice(start, stop, tags=True) in (None, b",".join(TEXTS[start:stop]))


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
