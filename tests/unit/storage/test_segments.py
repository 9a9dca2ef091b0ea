"""The readers of all segments: a bounded number of them, and cold ones only when they are at hand."""

import errno
import os
from collections.abc import Callable
from typing import NoReturn

import pytest
from sealed_segments import COLD, HOT, RECORDS, TOPIC_ID, reader_of, seal, segments_of

from topics.errors import StorageFailed, TooManyOpenFiles
from topics.storage.fs import MappedBytes
from topics.storage.segment_reader import SegmentReader
from topics.storage.segments import Key
from topics.testing.fake_disk import FakeDisk


class Missed(Exception):
    """Raised to the caller who must wait."""


class Fetches:
    """Notes what was missed, and has it fetched when told."""

    def __init__(self) -> None:
        self.jobs: dict[Key, Callable[[], SegmentReader]] = {}

    def miss(self, key: Key, job: Callable[[], SegmentReader]) -> NoReturn:
        self.jobs[key] = job
        raise Missed


@pytest.fixture
def disk() -> FakeDisk:
    disk = FakeDisk()
    for first_seq in (1, 11, 21):
        seal(disk, HOT, first_seq)
        seal(disk, COLD, first_seq)
    return disk


def test_a_hot_segment_is_opened_once(disk: FakeDisk) -> None:
    segments = segments_of(disk)
    first = segments.reader(TOPIC_ID, 1, cold=False)
    assert segments.reader(TOPIC_ID, 1, cold=False) is first
    assert (first.first_seq, first.count) == (1, len(RECORDS))


def test_the_hot_segment_used_longest_ago_is_closed_first(disk: FakeDisk) -> None:
    segments = segments_of(disk, open_max=2)
    one = segments.reader(TOPIC_ID, 1, cold=False)
    eleven = segments.reader(TOPIC_ID, 11, cold=False)
    segments.reader(TOPIC_ID, 1, cold=False)
    segments.reader(TOPIC_ID, 21, cold=False)
    assert segments.reader(TOPIC_ID, 1, cold=False) is one
    assert segments.reader(TOPIC_ID, 11, cold=False) is not eleven


def test_a_segment_that_is_gone_is_closed(disk: FakeDisk) -> None:
    segments = segments_of(disk)
    before = segments.reader(TOPIC_ID, 1, cold=False)
    segments.forget(TOPIC_ID, 1)
    segments.forget(TOPIC_ID, 999)
    assert segments.reader(TOPIC_ID, 1, cold=False) is not before


def test_what_is_removed_is_closed_and_its_room_in_memory_given_back(disk: FakeDisk) -> None:
    segments = segments_of(disk)
    before = {
        (first_seq, cold): segments.reader(TOPIC_ID, first_seq, cold=cold)
        for first_seq in (1, 11)
        for cold in (False, True)
    }
    segments.close([(TOPIC_ID, 1, False), (TOPIC_ID, 11, True), (TOPIC_ID, 999, True)], [])
    kept = {key for key, reader in before.items() if segments.reader(TOPIC_ID, key[0], cold=key[1]) is reader}
    assert kept == {(1, True), (11, False)}
    segments.close([], [TOPIC_ID])
    for (first_seq, cold), reader in before.items():
        assert segments.reader(TOPIC_ID, first_seq, cold=cold) is not reader


def test_a_cold_segment_is_read_from_the_cold_tier(disk: FakeDisk) -> None:
    reader = segments_of(disk).reader(TOPIC_ID, 1, cold=True)
    assert reader.data.path.startswith(COLD)
    assert len(reader.slices(0, 100)) == len(RECORDS)


def test_who_asks_for_a_cold_segment_that_is_not_at_hand_must_wait(disk: FakeDisk) -> None:
    segments, fetches = segments_of(disk), Fetches()
    segments.on_miss = fetches.miss
    assert not segments.is_loaded(TOPIC_ID, 1)
    with pytest.raises(Missed):
        segments.require_loaded(TOPIC_ID, 1)
    for key, job in fetches.jobs.items():
        segments.loaded(key, job())
    segments.require_loaded(TOPIC_ID, 1)
    assert segments.is_loaded(TOPIC_ID, 1)
    assert not segments.is_loaded(TOPIC_ID, 11)


def test_without_anybody_to_fetch_it_the_caller_fetches_it(disk: FakeDisk) -> None:
    segments = segments_of(disk)
    segments.on_miss = None
    segments.require_loaded(TOPIC_ID, 1)
    segments.reader(TOPIC_ID, 1, cold=True)
    assert segments.is_loaded(TOPIC_ID, 1)


def test_a_fetched_segment_needs_the_cold_tier_no_more(disk: FakeDisk) -> None:
    segments = segments_of(disk)
    reader = segments.reader(TOPIC_ID, 1, cold=True)
    disk.remove_tree(COLD)
    assert len(reader.slices(0, 100)) == len(RECORDS)
    assert reader.find_tag(b"b") == [3]
    assert not reader.deleted(0)


def test_cold_segments_at_hand_are_bounded_by_their_bytes(disk: FakeDisk) -> None:
    size = reader_of(disk, COLD, 1).data.size
    segments = segments_of(disk, cold_bytes_max=2 * size)
    for first_seq in (1, 11):
        segments.reader(TOPIC_ID, first_seq, cold=True)
    segments.reader(TOPIC_ID, 1, cold=True)
    segments.reader(TOPIC_ID, 21, cold=True)
    assert [segments.is_loaded(TOPIC_ID, first_seq) for first_seq in (1, 11, 21)] == [True, False, True]


def test_one_cold_segment_is_kept_however_large_it_is(disk: FakeDisk) -> None:
    segments = segments_of(disk, cold_bytes_max=1)
    segments.reader(TOPIC_ID, 1, cold=True)
    assert segments.is_loaded(TOPIC_ID, 1)
    segments.reader(TOPIC_ID, 11, cold=True)
    assert not segments.is_loaded(TOPIC_ID, 1)


def test_a_segment_fetched_twice_counts_once(disk: FakeDisk) -> None:
    """A caller who could wait fetched it while it was being fetched for others."""
    size = reader_of(disk, COLD, 1).data.size
    segments = segments_of(disk, cold_bytes_max=2 * size)
    reader = segments.reader(TOPIC_ID, 1, cold=True)
    for _ in range(5):
        segments.loaded((TOPIC_ID, 1), reader)
    segments.reader(TOPIC_ID, 11, cold=True)
    assert [segments.is_loaded(TOPIC_ID, first_seq) for first_seq in (1, 11)] == [True, True]


# Without descriptors


class Exhausted(FakeDisk):
    """Refuses as many maps as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0
        self.refuses_with = errno.EMFILE

    def map(self, path: str) -> MappedBytes:
        if self.refusals:
            self.refusals -= 1
            raise OSError(self.refuses_with, os.strerror(self.refuses_with))
        return super().map(path)


@pytest.fixture
def exhausted() -> Exhausted:
    disk = Exhausted()
    for first_seq in (1, 11, 21):
        seal(disk, HOT, first_seq)
    return disk


def test_open_maps_make_room_for_another_when_no_descriptor_is_left(exhausted: Exhausted) -> None:
    segments = segments_of(exhausted)
    one = segments.reader(TOPIC_ID, 1, cold=False)
    eleven = segments.reader(TOPIC_ID, 11, cold=False)
    exhausted.refusals = 1
    assert segments.reader(TOPIC_ID, 21, cold=False).count == len(RECORDS)
    assert segments.reader(TOPIC_ID, 11, cold=False) is eleven
    assert segments.reader(TOPIC_ID, 1, cold=False) is not one


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_reader_is_told_when_no_descriptor_is_left_and_may_try_again(exhausted: Exhausted, number: int) -> None:
    segments = segments_of(exhausted)
    exhausted.refuses_with, exhausted.refusals = number, 2
    with pytest.raises(TooManyOpenFiles):
        segments.reader(TOPIC_ID, 1, cold=False)
    assert segments.reader(TOPIC_ID, 1, cold=False).count == len(RECORDS)


def test_a_table_of_tags_that_cannot_be_opened_is_told_too_and_not_taken_for_missing(exhausted: Exhausted) -> None:
    reader = segments_of(exhausted).reader(TOPIC_ID, 1, cold=False)
    exhausted.refusals = 1
    with pytest.raises(TooManyOpenFiles):
        reader.find_tag(b"a")
    assert not reader.tags_rebuilt


def test_a_disk_that_does_not_give_the_bytes_is_an_error_readers_are_told(exhausted: Exhausted) -> None:
    exhausted.refuses_with, exhausted.refusals = errno.EIO, 1
    with pytest.raises(StorageFailed, match="cannot be read: Input/output error"):
        segments_of(exhausted).reader(TOPIC_ID, 1, cold=False)
