"""Deletes, reads and claims over more of the cold tier than fits in memory read every segment once, however little is
kept at hand."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import pytest
from msgspec import Raw

from topics import limits
from topics.engine.journal import Busy, Commit
from topics.engine.log_reading import ReadBatch
from topics.engine.queues import Claimer
from topics.model.read_options import ReadOptions
from topics.model.record import NewRecord
from topics.storage.segment_reader import SegmentReader
from topics.storage.segments import Key
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import SimulatedServer

SEGMENTS = 30
RECORDS = 4  # of each
COLD = "/cold"
READS_MAX = 20  # of a file: somebody who goes on and on is stopped


class CountingDisk(FakeDisk):
    """Counts how often the records of each cold segment are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def read(self, path: str) -> bytes:
        if path.startswith(COLD) and path.endswith(".data"):
            self.reads[path] += 1
            assert self.reads[path] < READS_MAX, f"{path} is read again and again"
        return super().read(path)


class At:
    """Every segment but the last ones is cold, and two of them fit in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "COLD_LOADED_BYTES_MAX", 2 * RECORDS * 100)
        self.disk = CountingDisk()
        self.server = SimulatedServer(
            self.disk, FakeClock(), segment_events_max=RECORDS, cold_dir=COLD, hot_retain_segments=1
        )
        self.server.start()
        self.server.put("t", {"durability": "fsync"})
        for _ in range(SEGMENTS + 1):
            self.server.write("t", [NewRecord(Raw(b'"%s"' % (b"." * 50)), tag=tag) for tag in ("a", "b", "a", "b")])
        for _ in range(3):
            self.server.checkpoint()
        self._segments = self.server.store._segments
        self._segments.on_miss = self._fetch
        self.disk.reads.clear()

    def _fetch(self, key: Key, job: Callable[[], SegmentReader]) -> NoReturn:
        """As the real one does it on a thread: whoever asked comes again when it is there."""
        self._segments.loaded(key, job())
        commit = Commit()
        commit.resolve(None, 0)
        raise Busy(commit)

    def seqs_after(self, from_seq: int) -> list[int]:
        """A page of them."""
        while True:
            with suppress(Busy):  # it is there by now
                return seqs_of(self.server.engine.read("t", from_seq, ReadOptions(1000, limits.MIB))[1])

    @property
    def cold_segments(self) -> int:
        return sum(block.cold for block in self.server.engine.topic("t").log.blocks)


def seqs_of(batch: ReadBatch) -> list[int]:
    return [json.loads(fragment)["$seq"] for fragment in batch.fragments]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    return At(monkeypatch)


def test_a_delete_by_tag_reads_every_segment_once(at: At) -> None:
    cold = at.cold_segments
    assert cold > SEGMENTS - 3
    assert at.server.delete_records("t", match="a").count == 2 * (SEGMENTS + 1)
    assert sum(at.disk.reads.values()) <= cold
    assert max(at.disk.reads.values()) == 1


def test_a_second_delete_by_tag_reads_every_segment_once_more_at_most(at: At) -> None:
    at.server.delete_records("t", match="a")
    at.disk.reads.clear()
    at.server.delete_records("t", match="b", before_seq=SEGMENTS * RECORDS // 2)
    assert sum(at.disk.reads.values()) <= at.cold_segments + 1
    assert max(at.disk.reads.values()) <= 2


def test_a_delete_by_seq_reads_only_the_segment_it_ends_in(at: At) -> None:
    at.server.delete_records("t", before_seq=SEGMENTS * RECORDS // 2 + 2)
    assert sum(at.disk.reads.values()) <= 2


def test_acks_of_jobs_in_more_segments_than_fit_read_each_once(at: At) -> None:
    """Leased long ago, and their segments have moved since."""
    server = at.server
    server.put("jobs", {"durability": "fsync", "type": "queue"})
    for _ in range(SEGMENTS + 1):
        server.write("jobs", RECORDS)
    (claim,) = server.claim("jobs", Claimer("w", SEGMENTS * RECORDS))
    seqs = [job.seq for job in claim.jobs][::RECORDS]
    assert len(seqs) == SEGMENTS
    for _ in range(3):
        server.checkpoint()
    at.disk.reads.clear()
    server.ack("jobs", "w", seqs)
    assert server.engine.topic("jobs").log.count == (SEGMENTS + 1) * RECORDS - SEGMENTS
    assert SEGMENTS - 3 < sum(at.disk.reads.values()) <= SEGMENTS
    assert max(at.disk.reads.values()) == 1


def test_a_page_over_more_segments_than_fit_ends_where_the_next_has_to_be_fetched(at: At) -> None:
    found: list[int] = []
    while len(found) < SEGMENTS * RECORDS:
        after = found[-1] if found else 0
        seqs = at.seqs_after(after)
        assert seqs
        found += seqs
    assert found == [*range(1, len(found) + 1)]
    assert max(at.disk.reads.values()) == 1


def test_jobs_in_more_segments_than_fit_are_claimed_some_at_a_time(at: At) -> None:
    server = at.server
    server.put("jobs", {"durability": "fsync", "type": "queue"})
    for _ in range(SEGMENTS + 1):
        server.write("jobs", RECORDS)
    for _ in range(3):
        server.checkpoint()
    at.disk.reads.clear()
    claimed: list[int] = []
    while len(claimed) < SEGMENTS * RECORDS:
        (claim,) = server.claim("jobs", Claimer("w", SEGMENTS * RECORDS))
        assert claim.jobs
        claimed += [job.seq for job in claim.jobs]
    assert sorted(claimed) == [*range(1, len(claimed) + 1)]
    assert max(at.disk.reads.values()) == 1


def test_jobs_that_come_again_in_more_segments_than_fit_are_claimed_some_at_a_time(at: At) -> None:
    server = at.server
    server.put("jobs", {"durability": "fsync", "type": "queue"})
    for _ in range(SEGMENTS + 1):
        server.write("jobs", RECORDS)
    (claim,) = server.claim("jobs", Claimer("w", SEGMENTS * RECORDS))
    for _ in range(3):
        server.checkpoint()
    server.nack("jobs", "w", [job.seq for job in claim.jobs])
    at.disk.reads.clear()
    claimed: list[int] = []
    while len(claimed) < (SEGMENTS + 1) * RECORDS:
        (claim,) = server.claim("jobs", Claimer("w", SEGMENTS * RECORDS))
        assert claim.jobs
        claimed += [job.seq for job in claim.jobs]
    assert sorted(claimed) == [*range(1, len(claimed) + 1)]
    assert max(at.disk.reads.values()) == 1


def test_a_cap_that_takes_more_segments_than_fit_reads_each_once_at_most(at: At) -> None:
    at.server.put("t", {"cap_records": RECORDS})
    at.server.write("t", 1)
    assert at.server.engine.topic("t").log.count == RECORDS
    assert max(at.disk.reads.values(), default=0) <= 1
