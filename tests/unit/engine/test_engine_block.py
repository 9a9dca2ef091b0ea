"""A block of consecutive seqs: live positions, timestamps and the tag index."""

from array import array
from collections.abc import Callable

import pytest
from engine_on_a_fake_clock import record

from topics.engine.admission import WriteLimits, admit
from topics.engine.block import Block
from topics.engine.image import columns_from, stored_bytes, unread_tail
from topics.model.image import SegmentImage
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch

TAGS = ["a", "b", None, "a:1", "a:2", "a", "ab", "é"]


def block_of(*records: NewRecord, ts: int = 1000) -> Block:
    block = Block(first_seq=11)
    append(block, *records, ts=ts)
    return block


def append(block: Block, *records: NewRecord, ts: int) -> None:
    batch = admit(list(records), None, block.first_seq + len(block), ts, WriteLimits())
    block.extend(batch, array("q", [ts]) * len(records))


@pytest.fixture
def tagged() -> Block:
    return block_of(*(record(tag=tag) for tag in TAGS))


def test_the_last_seq_counts_from_the_first() -> None:
    assert block_of(record(), record()).last_seq == 12


def test_a_killed_position_gives_back_its_bytes() -> None:
    block = block_of(record(b"12"), record(b"345"))
    before = block.live_bytes
    freed = block.kill(1, deleted=True)
    assert freed == block.sizes[1]
    assert (block.live_count, block.live_bytes) == (1, before - freed)


def test_a_killed_position_keeps_no_text() -> None:
    block = block_of(record(b"12", tag="t", node="n"))
    block.kill(0, deleted=True)
    assert (block.fragments, block.tags, block.nodes) == ([None], [None], [None])


def test_live_positions_are_found_from_both_ends() -> None:
    block = block_of(*[record()] * 5)
    for position in (0, 1, 4):
        block.kill(position, deleted=True)
    assert (block.first_live(0), block.first_live(3), block.last_live()) == (2, 3, 3)


def test_past_the_last_live_position_comes_the_end() -> None:
    block = block_of(record(), record())
    block.kill(1, deleted=True)
    assert block.first_live(1) == 2


@pytest.mark.parametrize(("oldest_ts", "expired"), [(0, 0), (1000, 0), (1001, 2), (1005, 2), (1006, 3), (9999, 3)])
def test_what_is_older_than_a_time_is_a_prefix(oldest_ts: int, expired: int) -> None:
    block = block_of(record(), record(), ts=1000)
    append(block, record(), ts=1005)
    assert block.expired_before(oldest_ts) == expired


@pytest.mark.parametrize(
    ("match", "positions"),
    [
        (TagMatch("a", is_prefix=False), [0, 5]),
        (TagMatch("c", is_prefix=False), []),
        (TagMatch("a", is_prefix=True), [0, 3, 4, 5, 6]),
        (TagMatch("a:", is_prefix=True), [3, 4]),
        (TagMatch("", is_prefix=True), [0, 1, 3, 4, 5, 6, 7]),
        (TagMatch("é", is_prefix=True), [7]),
        (TagMatch("z", is_prefix=True), []),
    ],
)
def test_tags_match_exactly_or_by_prefix(tagged: Block, match: TagMatch, positions: list[int]) -> None:
    assert sorted(tagged.matching(match)) == positions


def test_a_dead_position_matches_nothing(tagged: Block) -> None:
    tagged.kill(0, deleted=True)
    assert tagged.matching(TagMatch("a", is_prefix=False)) == [5]


def test_a_tag_that_comes_later_is_found_by_its_prefix(tagged: Block) -> None:
    assert len(tagged.matching(TagMatch("a:", is_prefix=True))) == 2
    append(tagged, record(tag="a:3"), ts=1000)
    assert sorted(tagged.matching(TagMatch("a:", is_prefix=True))) == [3, 4, 8]


def test_a_tag_that_comes_again_is_found_in_all_its_places(tagged: Block) -> None:
    """The index grows when it is asked, by what came since."""
    for count in range(1, 4):
        append(tagged, record(tag="again"), record(), ts=1000)
        assert len(tagged.matching(TagMatch("again", is_prefix=False))) == count
    append(tagged, record(tag="again"), record(tag="again"), ts=1000)
    assert tagged.matching(TagMatch("again", is_prefix=True)) == [8, 10, 12, 14, 15]


def test_a_block_knows_whether_any_record_has_meta_or_tags() -> None:
    plain = block_of(record())
    assert (plain.has_meta, plain.has_tags) == (False, False)
    append(plain, record(meta=b"{}", tag=""), ts=1000)
    append(plain, record(), ts=1000)
    assert (plain.has_meta, plain.has_tags) == (True, True)


# Blocks that are read when somebody first looks


def flushed() -> Block:
    """As a start brings it back: all of it is in a snapshot, and one record was deleted."""
    block = block_of(
        record(b"1", tag="a"), record(b"22", node="n", meta=b"{}"), record(b"333"), record(b"4", tag="a:1")
    )
    block.kill(2, deleted=False)
    block.flushed_count, block.flushed_bytes, block.unflagged = 4, block.written_bytes, [2]
    return block


def unread(read: Callable[[], Block] = flushed) -> Block:
    block = flushed()
    counts = (len(block), block.written_bytes, block.live_count, block.live_bytes, block.first_ts, block.last_ts)
    return unread_tail(SegmentImage(block.first_seq, *counts, sealed=False, deleted=block.unflagged), read)


def never() -> Block:
    raise AssertionError("nobody has asked for a record")


def everything_in(block: Block) -> list[object]:
    return [getattr(block, slot) for slot in Block.__slots__ if slot != "unread"]


def test_an_unread_block_knows_its_counts_without_reading() -> None:
    block, same = unread(never), flushed()
    for name in ("first_seq", "last_seq", "live_count", "live_bytes", "written_bytes", "flushed_count", "unflagged"):
        assert getattr(block, name) == getattr(same, name), name
    assert (len(block), block.cold, block.ready, block.closed) == (len(same), False, True, False)


def test_an_unread_block_takes_records_and_gives_those_without_reading() -> None:
    block, same = unread(never), flushed()
    for each in (block, same):
        append(each, record(b"5", tag="t", meta=b"{}"), record(b"6"), ts=1001)
        each.add(b"{}", 40, "n", None, 1002)
    for name in ("last_seq", "live_count", "live_bytes", "written_bytes", "memory_bytes", "first_ts", "last_ts"):
        assert getattr(block, name) == getattr(same, name), name
    for start in (4, 5, 6):
        assert columns_from(block, start) == columns_from(same, start)
        assert stored_bytes(block, start) == stored_bytes(same, start)
    assert not columns_from(block, 7).fragments
    assert block.unread is not None


def test_what_an_unread_block_has_taken_comes_behind_what_is_read() -> None:
    block, same = unread(), flushed()
    for each in (block, same):
        append(each, record(b"5", tag="t", meta=b"{}"), record(b"6"), ts=1001)
    block.kill(4, deleted=True)
    same.kill(4, deleted=True)
    assert everything_in(block) == everything_in(same)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda block: block.kill(0, deleted=True), id="a record is deleted"),
        pytest.param(lambda block: block.kill_all([0, 2, 3]), id="several are"),
        pytest.param(lambda block: block.add(b"{}", 40, None, None, 1001), id="a record is added"),
        pytest.param(lambda block: block.add(b"{}", 40, "n", "t", 1001), id="one with a tag is"),
        pytest.param(lambda block: append(block, record(), record(tag="t", meta=b"{}"), ts=1001), id="a batch is"),
        pytest.param(lambda block: block.matching(TagMatch("a", is_prefix=True)), id="a tag is looked for"),
        pytest.param(lambda block: block.window(0, 10), id="live positions are"),
        pytest.param(lambda block: block.render([0, 1, 3], ReadOptions(9, 999, include_tags=True)), id="it is read"),
        pytest.param(lambda block: block.columns(range(4)), id="all columns are"),
        pytest.param(lambda block: block.expired_before(1001), id="the clock has come so far"),
        pytest.param(lambda block: (block.first_ts, block.last_ts, block.memory_bytes), id="it is looked at"),
        pytest.param(lambda block: (block.first_live(2), block.last_live(), block.is_live(2)), id="from both ends"),
    ],
)
def test_an_unread_block_does_what_any_other_does(use: Callable[[Block], object]) -> None:
    block, same = unread(), flushed()
    assert use(block) == use(same)
    assert everything_in(block) == everything_in(same)


def test_a_block_that_cannot_be_read_says_so_each_time_and_stays_as_it_was() -> None:
    def damaged() -> Block:
        raise OSError("damaged")

    block = unread(damaged)
    for _ in range(2):
        with pytest.raises(OSError, match="damaged"):
            block.kill_all([0])
    assert (len(block), block.live_count) == (4, 3)


def test_a_block_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="fragmnts"):
        _ = unread(never).fragmnts  # type: ignore[attr-defined]
