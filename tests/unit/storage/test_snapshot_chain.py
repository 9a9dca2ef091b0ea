"""Base and increments: what they make together, which damage is passed over, folds, and crashes at every call."""

import errno
from collections.abc import Callable

import pytest
from msgspec import structs

from topics import limits
from topics.model.config import DEFAULT_CONFIG
from topics.model.image import TopicImage
from topics.storage import snapshot, snapshot_chain
from topics.storage.errors import CorruptFile, DiskFailed
from topics.storage.snapshot import Head, NewTail, TopicEntry
from topics.storage.snapshot_chain import LoadedState, Saving, encode_image, fold, load_latest, numbers, tail_bytes
from topics.testing.fake_disk import FakeDisk, SimulatedCrash

DIRECTORY = "/data/meta"

IMAGE = TopicImage(
    topic_id=1,
    name="t1",
    config=DEFAULT_CONFIG,
    exchange=False,
    head_seq=0,
    earliest_seq=1,
    last_ts=1000,
    cap_lost_seq=0,
    ttl_lost_seq=0,
    crash_lost_seq=0,
    source_trim_lost_seq=0,
    lost_ranges=[],
    ceiling=64,
    last_write_ts=1000,
    keys=[],
    cursors={},
    losses=[],
    queue=None,
    routers=[],
    hops={},
)


def entry(topic_id: int, head_seq: int, *tails: NewTail) -> TopicEntry:
    image = structs.replace(IMAGE, topic_id=topic_id, name=f"t{topic_id}", head_seq=head_seq)
    return TopicEntry(topic_id, encode_image(image), list(tails))


def head(number: int) -> Head:
    return Head(number, number - 1, 100, {"": 10 * number}, 1, clean=False)


def increment(disk: FakeDisk, number: int, *topics: TopicEntry, removed: tuple[int, ...] = ()) -> None:
    saving = Saving(disk, snapshot_chain.increment_path(DIRECTORY, number), head(number))
    for topic in topics:
        saving.add(topic)
    saving.commit(removed)


def three() -> FakeDisk:
    """Three increments: topic 1 grows, 2 goes, 3 comes."""
    disk = FakeDisk()
    increment(disk, 1, entry(1, 1, NewTail.at_hand(1, 0, b"aa")), entry(2, 5, NewTail.at_hand(5, 0, b"x")))
    increment(disk, 2, entry(1, 2, NewTail.at_hand(1, 2, b"bb")), removed=(2,))
    increment(disk, 3, entry(1, 4, NewTail.at_hand(1, 4, b""), NewTail.at_hand(3, 0, b"cc")), entry(3, 9))
    return disk


def shown(loaded: LoadedState | None) -> tuple[int, dict[int, int], dict[tuple[int, int], bytes]]:
    assert loaded is not None
    heads = {image.topic_id: image.head_seq for image in loaded.images}
    return loaded.number, heads, {key: tail_bytes(pieces) for key, pieces in loaded.tails.items()}


SECOND = (2, {1: 2}, {(1, 1): b"aabb"})
THIRD = (3, {1: 4, 3: 9}, {(1, 1): b"aabb", (1, 3): b"cc"})


def damage(disk: FakeDisk, path: str) -> None:
    disk.open_append(path).write_at(disk.size(path) - 1, b"?")


def folded_twice() -> FakeDisk:
    """Bases 2 and 3."""
    disk = three()
    fold(disk, DIRECTORY, 2)
    fold(disk, DIRECTORY, 3)
    return disk


def test_without_snapshots_there_is_nothing_to_load() -> None:
    assert load_latest(FakeDisk(), DIRECTORY) is None


def test_increments_are_laid_over_each_other() -> None:
    assert shown(load_latest(three(), DIRECTORY)) == THIRD
    assert shown(load_latest(three(), DIRECTORY, 2)) == SECOND


def test_a_tail_that_is_not_listed_is_no_more() -> None:
    disk = three()
    increment(disk, 4, entry(1, 4, NewTail.at_hand(3, 2, b"dd")))
    assert shown(load_latest(disk, DIRECTORY)) == (4, {1: 4, 3: 9}, {(1, 3): b"ccdd"})


def test_numbers_are_compared_as_numbers() -> None:
    disk = FakeDisk()
    for number in (9_999, 10_000):
        snapshot_chain.save_base(disk, DIRECTORY, head(number), lambda saving: None)
    assert numbers(disk, DIRECTORY).bases == [10_000, 9_999]


def test_a_fold_gives_the_same_state_and_keeps_what_it_was_made_of() -> None:
    disk = three()
    assert fold(disk, DIRECTORY, 3) == 3
    assert disk.list_dir(DIRECTORY) == [*(f"increment.000{n}.bin" for n in (1, 2, 3)), "snapshot.0003.bin"]
    assert shown(load_latest(disk, DIRECTORY)) == THIRD
    increment(disk, 4, entry(1, 5, NewTail.at_hand(3, 2, b"dd")))
    assert shown(load_latest(disk, DIRECTORY)) == (4, {1: 5, 3: 9}, {(1, 3): b"ccdd"})


def test_a_fold_writes_anew_what_shares_a_chunk_with_a_changed_topic_and_copies_the_rest_as_it_is() -> None:
    disk = FakeDisk()
    large = limits.SNAPSHOT_CHUNK_BYTES // 3
    topics = [entry(n, 1, NewTail.at_hand(1, 0, b"%d" % n * large)) for n in range(1, 10)]
    increment(disk, 1, *topics, entry(10, 1, NewTail.at_hand(1, 0, b"hot" * large)), entry(11, 2))
    increment(disk, 2, entry(5, 2, NewTail.at_hand(1, large, b"more")), entry(12, 3), removed=(8,))
    before = load_latest(disk, DIRECTORY)
    assert fold(disk, DIRECTORY, 2) == 2
    after = load_latest(disk, DIRECTORY)
    assert after is not None
    assert after.path.endswith("snapshot.0002.bin")
    assert shown(after) == shown(before)
    old = snapshot.load(disk, snapshot_chain.increment_path(DIRECTORY, 1))
    new = snapshot.load(disk, after.path)
    bodies = [file.at(chunk.body) for file in (old, new) for chunk in file.chunks]
    assert len(old.chunks) == 5
    assert list(new.topic_ids()) == [1, 2, 3, 10, 11, 4, 5, 6, 7, 9, 12]
    assert bodies[0] == bodies[5], "as it was"

    increment(disk, 3, entry(5, 3, NewTail.at_hand(1, large + 4, b"yet more")))
    assert fold(disk, DIRECTORY, 3) == 3
    assert shown(load_latest(disk, DIRECTORY))[2][5, 1] == b"5" * large + b"moreyet more"


def test_the_next_fold_removes_what_only_older_bases_need() -> None:
    disk = folded_twice()
    assert disk.list_dir(DIRECTORY) == ["increment.0003.bin", "snapshot.0002.bin", "snapshot.0003.bin"]
    assert fold(disk, DIRECTORY, 3) == 0, "there is nothing new"


def test_a_disk_without_room_keeps_only_the_newest_base_and_the_same_state() -> None:
    for disk in (three(), folded_twice()):
        snapshot_chain.give_back(disk, DIRECTORY, 3)
        assert disk.list_dir(DIRECTORY) == ["snapshot.0003.bin"]
        assert shown(load_latest(disk, DIRECTORY)) == THIRD
        increment(disk, 4, entry(1, 5, NewTail.at_hand(3, 2, b"dd")))
        assert shown(load_latest(disk, DIRECTORY)) == (4, {1: 5, 3: 9}, {(1, 3): b"ccdd"})


def test_nothing_older_is_given_back_beside_a_damaged_base() -> None:
    disk = folded_twice()
    damage(disk, snapshot_chain.base_path(DIRECTORY, 3))
    files = disk.list_dir(DIRECTORY)
    snapshot_chain.give_back(disk, DIRECTORY, 3)
    assert set(files) <= set(disk.list_dir(DIRECTORY)) | {"snapshot.0003.bin"}
    assert shown(load_latest(disk, DIRECTORY)) == THIRD


def test_a_fold_goes_no_further_than_it_is_told() -> None:
    disk = three()
    assert fold(disk, DIRECTORY, 2) == 2
    assert shown(load_latest(disk, DIRECTORY, 2)) == SECOND
    assert shown(load_latest(disk, DIRECTORY)) == THIRD


def test_a_fold_that_is_stopped_leaves_nothing() -> None:
    disk = three()
    assert fold(disk, DIRECTORY, 3, lambda: True) == 0
    assert disk.list_dir(DIRECTORY) == [f"increment.000{n}.bin" for n in (1, 2, 3)]


def test_a_damaged_newest_increment_is_passed_over_and_told() -> None:
    disk = three()
    damage(disk, f"{DIRECTORY}/increment.0003.bin")
    loaded = load_latest(disk, DIRECTORY)
    assert shown(loaded) == SECOND
    assert loaded is not None
    assert [error.path for error in loaded.damaged] == [f"{DIRECTORY}/increment.0003.bin"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_damaged_increment_that_others_follow_is_an_error(number: int) -> None:
    disk = three()
    damage(disk, f"{DIRECTORY}/increment.000{number}.bin")
    with pytest.raises(CorruptFile) as caught:
        load_latest(disk, DIRECTORY)
    assert caught.value.path == f"{DIRECTORY}/increment.000{number}.bin"


def test_a_missing_increment_is_an_error() -> None:
    disk = three()
    disk.remove(f"{DIRECTORY}/increment.0002.bin")
    with pytest.raises(CorruptFile) as caught:
        load_latest(disk, DIRECTORY)
    assert caught.value.path == f"{DIRECTORY}/increment.0002.bin"


def test_a_damaged_base_is_passed_over_for_what_it_was_folded_from() -> None:
    for disk in (folded_twice(), three()):
        fold(disk, DIRECTORY, 3)
        damage(disk, f"{DIRECTORY}/snapshot.0003.bin")
        loaded = load_latest(disk, DIRECTORY)
        assert shown(loaded) == THIRD
        assert loaded is not None
        assert [error.path for error in loaded.damaged] == [f"{DIRECTORY}/snapshot.0003.bin"]


def test_the_next_fold_takes_a_damaged_base_away() -> None:
    disk = folded_twice()
    damage(disk, f"{DIRECTORY}/snapshot.0003.bin")
    increment(disk, 4)
    assert fold(disk, DIRECTORY, 4) == 4
    assert numbers(disk, DIRECTORY).bases == [4, 2]
    damage(disk, f"{DIRECTORY}/snapshot.0004.bin")
    assert shown(load_latest(disk, DIRECTORY)) == (4, *THIRD[1:])


def test_an_increment_that_does_not_fit_is_an_error() -> None:
    disk = three()
    increment(disk, 4, entry(1, 5, NewTail.at_hand(3, 3, b"dd")))
    with pytest.raises(CorruptFile) as caught:
        load_latest(disk, DIRECTORY)
    assert caught.value.reason == "a tail of topic 1 goes on behind 3 bytes that are not there"


def test_many_small_increments_are_worth_a_fold() -> None:
    disk = FakeDisk()
    for number in range(1, 257):
        increment(disk, number)
    assert not snapshot_chain.outgrown(disk, DIRECTORY)
    increment(disk, 257)
    assert snapshot_chain.outgrown(disk, DIRECTORY)
    fold(disk, DIRECTORY, 257)
    assert not snapshot_chain.outgrown(disk, DIRECTORY)


def save_fourth(disk: FakeDisk) -> None:
    increment(disk, 4, entry(3, 10, NewTail.at_hand(10, 0, b"z" * 2000)))


def fold_all(disk: FakeDisk) -> None:
    fold(disk, DIRECTORY, 3)


@pytest.mark.parametrize("made", [three, folded_twice])
@pytest.mark.parametrize("step", [save_fourth, fold_all])
def test_a_crash_at_every_call_leaves_the_old_or_the_new_state(
    made: Callable[[], FakeDisk], step: Callable[[FakeDisk], None]
) -> None:
    whole = made()
    before = whole.mutating_calls
    step(whole)
    states = [shown(load_latest(made(), DIRECTORY)), shown(load_latest(whole, DIRECTORY))]
    for call in range(before + 1, whole.mutating_calls + 1):
        for applied, torn_bytes in ((False, 0), (False, 700), (True, 0)):
            disk = made()
            disk.stop_at(call, applied=applied, torn_bytes=torn_bytes)
            with pytest.raises(SimulatedCrash):
                step(disk)
            for survivor in (
                disk.crash_keep_all(),
                disk.crash_drop_all(),
                *(disk.crash(call * 8 + seed) for seed in range(8)),
            ):
                loaded = load_latest(survivor, DIRECTORY)
                assert shown(loaded) in states
                assert loaded is not None
                assert loaded.damaged == ()


def test_a_failed_save_leaves_the_earlier_state() -> None:
    whole = three()
    before = whole.mutating_calls
    save_fourth(whole)
    for call in range(before + 1, whole.mutating_calls + 1):
        disk = three()
        disk.fail_at(call, errno.ENOSPC, written_bytes=5)
        with pytest.raises(DiskFailed):
            save_fourth(disk)
        assert shown(load_latest(disk.crash_drop_all(), DIRECTORY)) == THIRD
