"""A block in a sealed segment answers as the block in memory it was made from."""

from array import array
from collections.abc import Callable, Sequence

import pytest
from sealed_segments import COLD, FIRST_SEQ, FRAGMENTS, RECORDS, TOPIC_ID, reader_of, seal, segments_of, text_of_records

from topics.engine.block import AnyBlock, Block
from topics.model.read_options import ReadOptions
from topics.model.record import RECORD_OVERHEAD_BYTES, Batch, fragment_of
from topics.model.tag_match import TagMatch
from topics.storage.errors import CorruptFile
from topics.storage.sealed_block import ClearedBlock, SealedBlock
from topics.testing.fake_disk import FakeDisk

SIZES = [RECORD_OVERHEAD_BYTES + len(node or b"") + len(tag or b"") + len(data) for _, node, tag, data in RECORDS]
OPTIONS = ReadOptions(limit=100, bytes_max=1 << 20)
COUNT = len(RECORDS)


def sealed(disk: FakeDisk | None = None, *, cold: bool = False) -> SealedBlock:
    disk = disk or FakeDisk()
    seal(disk, COLD) if cold else seal(disk)
    return reopened(disk, cold=cold)


def reopened(
    disk: FakeDisk,
    live_count: int = COUNT,
    *,
    dead_below: int = 0,
    cold: bool = False,
    unflagged: Sequence[int] = (),
) -> SealedBlock:
    return SealedBlock(
        segments_of(disk),
        TOPIC_ID,
        FIRST_SEQ,
        COUNT,
        live_count,
        sum(SIZES),
        100,
        110,
        sum(SIZES),
        cold=cold,
        dead_below=dead_below,
        unflagged=unflagged,
    )


def with_text() -> SealedBlock:
    disk = FakeDisk()
    seal(disk, text=text_of_records())
    return reopened(disk)


def with_damaged_text() -> SealedBlock:
    disk = FakeDisk()
    text = bytearray(text_of_records())
    text[-3] ^= 1
    seal(disk, text=bytes(text))
    return reopened(disk)


def in_memory() -> Block:
    rendered = [
        fragment_of(seq, ts, None if node is None else node.decode(), payload)
        for seq, (ts, node, _, payload) in enumerate(RECORDS, FIRST_SEQ)
    ]
    batch = Batch(
        [fragment for fragment, _ in rendered],
        SIZES,
        [None if node is None else node.decode() for _, node, _, _ in RECORDS],
        [None if tag is None else tag.decode() for _, _, tag, _ in RECORDS],
        [at for _, at in rendered],
        sum(SIZES),
    )
    block = Block(FIRST_SEQ)
    block.extend(batch, array("q", [ts for ts, *_ in RECORDS]))
    return block


def shown(block: AnyBlock, options: ReadOptions = OPTIONS, start: int = 0, size: int = 100) -> list[bytes]:
    return block.render(block.window(start, size)[0], options)


def test_it_shows_the_records_as_they_were_written() -> None:
    assert shown(sealed()) == FRAGMENTS


@pytest.mark.parametrize("dead", [[], [0], [4], [1, 2], [0, 2, 4], [1, 3, 4], [0, 1, 2, 3]])
@pytest.mark.parametrize("before", [[], [1], [3, 4]])
@pytest.mark.parametrize("block", [sealed, in_memory])
def test_records_deleted_together_are_as_gone_as_one_by_one(
    block: Callable[[], AnyBlock], before: list[int], dead: list[int]
) -> None:
    together, single = block(), block()
    for position in before:
        together.kill(position, deleted=True)
        single.kill(position, deleted=True)
    still = [position for position in dead if position not in before]
    size = sum(single.kill(position, deleted=True) for position in still)
    assert together.kill_all(dead, together.size(dead)) == (len(still), size)
    assert shown(together) == shown(single)
    assert (together.live_count, together.live_bytes) == (single.live_count, single.live_bytes)
    assert together.unflagged == single.unflagged


@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize("dead", [range(1), range(1, 3), range(4, 5), range(5)])
@pytest.mark.parametrize("before", [[], [1], [3, 4]])
@pytest.mark.parametrize("block", [sealed, in_memory])
def test_a_range_goes_as_its_positions_one_by_one(
    block: Callable[[], AnyBlock], before: list[int], dead: range, deleted: bool
) -> None:
    together, single = block(), block()
    if isinstance(together, Block) and isinstance(single, Block):
        together.flushed_count = single.flushed_count = 2
    for each in (together, single):
        each.kill_all(before)
    still = [position for position in dead if position not in before]
    size = sum(single.kill(position, deleted=deleted) for position in still)
    assert together.kill_all(dead, deleted=deleted) == (len(still), size)
    assert shown(together) == shown(single)
    assert [together.is_live(position) for position in range(COUNT)] == [
        single.is_live(position) for position in range(COUNT)
    ]
    assert (together.live_count, together.live_bytes) == (single.live_count, single.live_bytes)
    assert together.unflagged == single.unflagged


@pytest.mark.parametrize("dead", [[], [0], [4], [1, 2], [0, 2, 4], [0, 1, 2, 3]])
@pytest.mark.parametrize(
    "options",
    [
        OPTIONS,
        OPTIONS._replace(include_tags=True),
        OPTIONS._replace(include_meta=False),
        OPTIONS._replace(include_data=False, include_tags=True),
        OPTIONS._replace(own_nodes=frozenset({"me", ""})),
        OPTIONS._replace(own_nodes=frozenset({"you"}), include_meta=False, include_tags=True),
    ],
)
@pytest.mark.parametrize("made", [sealed, with_text, with_damaged_text])
def test_it_answers_as_the_block_in_memory(
    made: Callable[[], SealedBlock], options: ReadOptions, dead: list[int]
) -> None:
    pair: tuple[AnyBlock, AnyBlock] = (made(), in_memory())
    for block in pair:
        for position in dead:
            block.kill(position, deleted=True)
    ours, theirs = pair
    assert (len(ours), ours.first_seq, ours.last_seq) == (len(theirs), theirs.first_seq, theirs.last_seq)
    assert (ours.first_ts, ours.last_ts) == (theirs.first_ts, theirs.last_ts)
    assert (ours.live_count, ours.live_bytes) == (theirs.live_count, theirs.live_bytes)
    assert ours.last_live() == theirs.last_live()
    for start in range(COUNT):
        assert ours.first_live(start) == theirs.first_live(start)
        assert ours.is_live(start) == theirs.is_live(start)
        for size in range(1, COUNT + 1):
            assert [*ours.window(start, size)[0]] == [*theirs.window(start, size)[0]]
            assert ours.window(start, size)[1] == theirs.window(start, size)[1]
            assert shown(ours, options, start, size) == shown(theirs, options, start, size)
    for ts in (-5, 0, 99, 100, 101, 107, 108, 110, 111):
        assert ours.expired_before(ts) == theirs.expired_before(ts)
    for match in (
        TagMatch("a:1", is_prefix=False),
        TagMatch("a:", is_prefix=True),
        TagMatch("", is_prefix=True),
        TagMatch("z", is_prefix=False),
    ):
        assert sorted(ours.matching(match)) == sorted(theirs.matching(match))


@pytest.mark.parametrize("chosen", [range(5), range(1, 3), [0, 2, 4], []], ids=str)
def test_its_columns_are_those_of_the_block_in_memory(chosen: Sequence[int]) -> None:
    found, expected = sealed().columns(chosen), in_memory().columns(chosen)
    assert [list(column) for column in found] == [list(column) for column in expected]
    assert len(found.fragments) == len(chosen)


@pytest.mark.parametrize("dead", [[], [0], [2, 3]])
def test_killing_many_is_killing_each(dead: list[int]) -> None:
    """Also where some of them died since they were counted."""
    for one_by_one, at_once in ((sealed(), sealed()), (in_memory(), in_memory())):
        for block in (one_by_one, at_once):
            for position in dead:
                block.kill(position, deleted=True)
        positions = range(4)
        held = sum(one_by_one.kill(position, deleted=True) for position in positions if position not in dead)
        assert at_once.kill_all(positions, sum(SIZES[:4])) == (4 - len(dead), held)
        assert (at_once.live_count, at_once.live_bytes) == (one_by_one.live_count, one_by_one.live_bytes)
        assert sorted(at_once.unflagged) == sorted(one_by_one.unflagged)
        assert shown(at_once) == shown(one_by_one)


def test_a_delete_is_remembered_until_its_byte_is_set_and_a_loss_is_not() -> None:
    block = sealed()
    assert block.kill(1, deleted=True) == SIZES[1]
    assert block.kill(0, deleted=False) == SIZES[0]
    assert (block.unflagged, block.flushed_count) == ([1], COUNT)


def test_delete_bytes_and_the_earliest_seq_say_what_is_dead_after_a_restart() -> None:
    disk = FakeDisk()
    seal(disk)
    reader_of(disk).flag_deleted([3])
    block = reopened(disk, 3, dead_below=1)
    assert [block.is_live(position) for position in range(COUNT)] == [False, True, True, False, True]


@pytest.mark.parametrize("flagged", [[], [2], [2, 3]], ids=str)
def test_a_delete_the_image_lists_counts_whether_its_byte_is_set_or_not(flagged: list[int]) -> None:
    disk = FakeDisk()
    seal(disk)
    reader_of(disk).flag_deleted(flagged)
    block = reopened(disk, 2, dead_below=1, unflagged=[2, 3])
    assert shown(block) == [FRAGMENTS[1], FRAGMENTS[4]]
    assert block.unflagged == [2, 3]  # the next snapshot lists them, too


@pytest.mark.parametrize("flagged", [[], [2, 3]], ids=str)
def test_delete_bytes_that_do_not_add_up_to_what_the_image_says_are_damage(flagged: list[int]) -> None:
    disk = FakeDisk()
    seal(disk)
    reader_of(disk).flag_deleted(flagged)
    block = reopened(disk, 4)
    with pytest.raises(CorruptFile, match="records are not marked deleted where 4 should be left"):
        block.is_live(0)


def test_a_block_with_nothing_alive_passes_a_reader_on() -> None:
    block = sealed()
    for position in range(COUNT):
        block.kill(position, deleted=True)
    assert block.window(0, 10) == ([], COUNT)


def test_a_hot_block_is_always_ready() -> None:
    block = sealed()
    assert block.ready
    block.prepare()


def test_a_cold_block_is_ready_once_it_was_fetched() -> None:
    block = sealed(cold=True)
    assert not block.ready
    assert shown(block) == FRAGMENTS  # who may wait, waits
    assert block.ready


def test_a_cleared_block_is_a_place_in_the_order_and_nothing_else() -> None:
    block: AnyBlock = ClearedBlock(11, 3, 1000, 1005)
    assert (len(block), block.first_seq, block.last_seq, block.first_ts, block.last_ts) == (3, 11, 13, 1000, 1005)
    assert (block.live_count, block.live_bytes, block.flushed_count, block.unflagged) == (0, 0, 3, [])
    assert (block.ready, block.cold, block.is_live(0)) == (True, False, False)
    block.prepare()
    assert block.first_live(0) == block.expired_before(0) == 3
    assert (block.window(0, 10), block.matching(TagMatch("", is_prefix=True)), block.render([], OPTIONS)) == (
        ([], 3),
        [],
        [],
    )


def test_nothing_in_a_cleared_block_can_be_taken() -> None:
    block = ClearedBlock(11, 3, 1000, 1005)
    with pytest.raises(AssertionError, match="seq 12 is dead already"):
        block.kill(1, deleted=True)
    with pytest.raises(AssertionError):
        block.last_live()
