"""Blocks become segments as soon as they are full, without a checkpoint, and what waits for that has a budget."""

import asyncio
import errno

import pytest
from msgspec import Raw

from topics import limits
from topics.engine.block import Block
from topics.errors import Throttled
from topics.model.record import NewRecord
from topics.storage.sealed_block import ClearedBlock, SealedBlock
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import DATA_DIR, SimulatedServer

FSYNC = {"durability": "fsync"}
LARGE = 70_000
"""Bytes of a record whose block counts for the budget."""


class At:
    def __init__(self, **overrides: object) -> None:
        self.disk, self.clock = FakeDisk(), FakeClock()
        self._overrides = {"segment_events_max": 4, "segment_age_ms_max": 1000} | overrides
        self.server = self.started(self.disk)
        self.sealer = self.server.store.sealer

    def started(self, disk: FakeDisk, *, serve_first: bool = False) -> SimulatedServer:
        server = SimulatedServer(disk, self.clock, wal_file_bytes=1 << 22, **self._overrides)  # type: ignore[arg-type]
        server.start(serve_first=serve_first)
        return server

    def blocks(self, topic: str = "orders") -> list[type]:
        return [type(block) for block in self.server.engine.topic(topic).log.blocks]

    def segment_files(self) -> list[str]:
        return [path for path in self.disk.dump() if path.startswith(f"{DATA_DIR}/topics/")]


def large() -> list[NewRecord]:
    return [NewRecord(Raw(b'"%b"' % (b"x" * LARGE)))]


def test_a_full_block_leaves_memory_without_a_checkpoint() -> None:
    at = At()
    at.server.write("orders", 6, config=FSYNC)
    before = at.server.read_all("orders").records
    at.server.write("orders", 1)
    assert at.server.seal()
    assert at.blocks() == [SealedBlock, Block]
    assert {seq: at.server.read_all("orders").records[seq] for seq in before} == before


def run_and_stop(at: At) -> None:
    async def run() -> None:
        at.sealer.stop()
        await at.sealer.run()

    asyncio.run(run())


def test_a_stop_seals_what_is_full_and_leaves_the_rest_to_the_last_snapshot() -> None:
    at = At()
    at.server.write("orders", 4, config=FSYNC)
    at.server.write("orders", 4)
    at.server.write("orders", 1)
    at.server.write("invoices", 3, config=FSYNC)
    at.clock.advance(2000)  # old, and no reason to let a stop wait
    run_and_stop(at)
    assert at.blocks() == [SealedBlock, SealedBlock, Block]
    assert at.blocks("invoices") == [Block]
    at.server.stop()
    assert sorted(at.started(at.disk).read_all("orders").records) == [*range(1, 10)]


def test_a_stop_seals_no_more_than_it_can_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEAL_BATCH_BYTES", 1)
    monkeypatch.setattr(limits, "SEAL_AT_STOP_BYTES", 1)
    at = At()
    for _ in range(3):
        at.server.write("orders", 4, config=FSYNC)
    run_and_stop(at)
    assert at.blocks() == [SealedBlock, Block, Block]


def test_a_stop_does_not_wait_for_a_disk_that_refuses_segments() -> None:
    at = At()
    at.server.write("orders", 4, config=FSYNC)
    at.server.write("orders", 4)
    at.disk.fail_at(at.disk.mutating_calls + 1, errno.ENOSPC)
    run_and_stop(at)
    assert at.blocks() == [Block, Block]
    at.server.stop()
    assert sorted(at.started(at.disk).read_all("orders").records) == [*range(1, 9)]


def test_a_small_topic_has_no_files() -> None:
    at = At()
    at.server.write("orders", 3, config=FSYNC)
    at.server.seal()
    at.server.checkpoint()
    at.server.stop()
    assert at.segment_files() == []
    assert sorted(at.started(at.disk).read_all("orders").records) == [1, 2, 3]


def test_a_segment_no_snapshot_points_to_means_nothing_after_a_crash() -> None:
    at = At()
    at.server.write("orders", 5, config=FSYNC)
    at.server.write("orders", 1)
    at.server.seal()
    for survivor in (at.disk.crash_keep_all(), at.disk.crash_drop_all()):
        assert sorted(at.started(survivor).read_all("orders").records) == [1, 2, 3, 4, 5, 6]


def test_an_old_block_is_sealed_and_a_young_one_waits() -> None:
    at = At()
    at.server.write("orders", 1, config=FSYNC)
    at.clock.advance(999)
    at.server.write("young", 1, config=FSYNC)
    assert at.sealer.begin() == []
    at.clock.advance(1)
    at.server.seal()
    assert (at.blocks(), at.blocks("young")) == ([SealedBlock], [Block])


def test_what_is_deleted_while_its_block_is_written_stays_deleted() -> None:
    at = At()
    at.server.write("orders", 4, config=FSYNC)
    at.server.write("orders", 1)
    jobs = at.sealer.begin()
    written = at.sealer.write(jobs)
    at.server.delete_records("orders", before_seq=3)
    assert at.sealer.settle(jobs, written) == []
    assert sorted(at.server.read_all("orders").records) == [3, 4, 5]
    at.server.checkpoint()
    for survivor in (at.disk.crash_keep_all(), at.disk.crash_drop_all()):
        assert sorted(at.started(survivor).read_all("orders").records) == [3, 4, 5]


def unread(at: At) -> list[bool]:
    """Of each block in memory, whether nobody has looked at its records since the start."""
    blocks = at.server.engine.topic("orders").log.blocks
    return [block.unread is not None for block in blocks if isinstance(block, Block)]


def after_a_crash(at: At) -> At:
    """A server that has a full block and a begun one to bring back, and a record behind the snapshot."""
    at.server.write("orders", 4, config=FSYNC)
    at.server.write("orders", 2)
    at.server.checkpoint(clean=True)  # one that seals nothing
    at.server.write("orders", 1)
    at.disk = at.disk.crash_keep_all()
    at.server = at.started(at.disk, serve_first=True)
    at.sealer = at.server.store.sealer
    return at


def test_a_start_reads_no_block_and_neither_do_writes_checkpoints_and_sealing() -> None:
    at = after_a_crash(At())
    assert unread(at) == [True, True]
    for _ in range(2):  # the first goes into the block that was begun
        at.server.write("orders", 1)
    at.server.checkpoint(clean=True)
    assert (at.blocks(), unread(at)) == ([Block, Block, Block], [True, True, False])
    jobs = at.sealer.begin()
    written = at.sealer.write(jobs)
    assert unread(at) == [True, True, False]
    at.sealer.settle(jobs, written)
    assert at.blocks() == [SealedBlock, SealedBlock, Block]
    for survivor in (at.disk, at.disk.crash_keep_all(), at.disk.crash_drop_all()):
        server = at.server if survivor is at.disk else at.started(survivor)
        assert sorted(server.read_all("orders").records) == [*range(1, 10)]


@pytest.mark.parametrize("when", ["before", "meanwhile", "settled"])
def test_what_is_deleted_of_a_block_a_start_has_brought_back_stays_deleted(when: str) -> None:
    at = after_a_crash(At())
    if when == "before":
        at.server.delete_records("orders", before_seq=3)
    jobs = at.sealer.begin()
    written = at.sealer.write(jobs)
    if when == "meanwhile":
        at.server.delete_records("orders", before_seq=3)
    at.sealer.settle(jobs, written)
    if when == "settled":
        at.server.delete_records("orders", before_seq=3)
    assert sorted(at.server.read_all("orders").records) == [*range(3, 8)]
    at.server.checkpoint()
    for survivor in (at.disk.crash_keep_all(), at.disk.crash_drop_all()):
        assert sorted(at.started(survivor).read_all("orders").records) == [*range(3, 8)]


@pytest.mark.parametrize("gone", ["evicted", "topic deleted"])
def test_what_goes_while_it_is_written_leaves_no_files(gone: str) -> None:
    at = At()
    at.server.write("orders", 4, config=FSYNC)
    at.server.write("orders", 1)
    jobs = at.sealer.begin()
    written = at.sealer.write(jobs)
    if gone == "evicted":
        at.server.put("orders", {"cap_records": 1})
    else:
        at.server.delete_topic("orders")
    at.sealer.remove(at.sealer.settle(jobs, written))
    assert at.segment_files() == []


def test_what_the_disk_refuses_and_is_deleted_before_it_is_tried_again_leaves_no_files() -> None:
    """At every call of the batch: what was written before it is a segment, of the rest there is nothing."""
    for call in range(1, 100):
        at = At()
        at.server.write("orders", 4, config=FSYNC)
        at.server.write("more", 4, config=FSYNC)
        for topic in ("orders", "more"):
            at.server.write(topic, 1)
        last = at.disk.mutating_calls + call
        at.disk.fail_at(last, errno.ENOSPC)
        at.server.seal()
        if at.disk.mutating_calls < last:
            break
        for topic in ("orders", "more"):
            at.server.put(topic, {"cap_records": 1})
        for _ in range(2):
            at.server.checkpoint()
        assert at.segment_files() == [], call
    assert call > 10


def test_a_sealed_segment_that_goes_before_any_snapshot_points_to_it_is_removed() -> None:
    at = At()
    at.server.write("orders", 4, config=FSYNC)
    at.server.write("orders", 1)
    at.server.seal()
    at.server.put("orders", {"cap_records": 1})
    for _ in range(2):
        at.server.checkpoint()
    assert at.segment_files() == []


def test_a_block_whose_records_are_all_deleted_is_only_a_place() -> None:
    at = At()
    at.server.write("orders", 4, config=FSYNC)
    at.server.write("orders", [NewRecord(Raw(b"0"), tag="y")] * 4)
    at.server.write("orders", 1)
    at.server.delete_records("orders", match="y")
    at.server.seal()
    assert at.blocks() == [SealedBlock, ClearedBlock, Block]
    at.server.checkpoint()
    assert sorted(at.started(at.disk.crash_keep_all()).read_all("orders").records) == [1, 2, 3, 4, 9]


def test_of_what_was_never_written_nothing_has_to_be_removed(caplog: pytest.LogCaptureFixture) -> None:
    at = At()
    at.server.write("orders", 4, config=FSYNC)
    at.server.write("orders", [NewRecord(Raw(b"0"), tag="y")] * 4)
    at.server.write("orders", 1)
    at.server.delete_records("orders", match="y")
    empty = at.sealer.begin()[1:]
    written = at.sealer.write(empty)
    at.server.delete_topic("orders")
    at.sealer.remove(at.sealer.settle(empty, written))
    assert at.segment_files() == []
    assert caplog.messages == []


def test_beyond_the_budget_writes_are_told_to_come_back_and_nothing_is_lost() -> None:
    at = At(unsealed_bytes_max=4 * LARGE)
    for _ in range(4):
        at.server.write("orders", large(), config=FSYNC)
    with pytest.raises(Throttled) as refused:
        at.server.write("orders", large())
    assert refused.value.detail["retry_after_ms"] == limits.UNSEALED_RETRY_AFTER_MS
    assert "limit" not in refused.value.detail, "waiting helps"
    at.server.seal()
    at.server.write("orders", large())
    assert sorted(at.server.read_all("orders").records) == [1, 2, 3, 4, 5]


def test_when_half_of_the_budget_is_used_up_the_largest_open_blocks_are_sealed() -> None:
    at = At(unsealed_bytes_max=4 * LARGE)
    at.server.write("small", 1, config=FSYNC)
    at.server.write("orders", large(), config=FSYNC)
    at.server.seal()
    assert at.blocks() == [Block], "there is room"
    at.server.write("more", large(), config=FSYNC)
    at.server.write("orders", large())
    at.server.seal()
    assert (at.blocks(), at.blocks("more"), at.blocks("small")) == ([SealedBlock], [SealedBlock], [Block])
    assert at.server.engine.state.unsealed_bytes == 0


def test_while_the_disk_refuses_segments_the_budget_holds_and_nothing_acknowledged_is_lost() -> None:
    at = At(unsealed_bytes_max=4 * LARGE)
    acknowledged = 0
    for _ in range(20):
        try:
            at.server.write("orders", large(), config=FSYNC)
            acknowledged += 1
        except Throttled:
            at.disk.fail_at(at.disk.mutating_calls + 1)
            assert not at.server.seal()
        assert at.server.engine.state.count_unsealed() <= 5 * (LARGE + 300)
    assert acknowledged == 4
    assert at.server.seal(), "the disk takes it again"
    at.server.write("orders", large())
    for survivor in (at.disk.crash_keep_all(), at.disk.crash_drop_all()):
        assert sorted(at.started(survivor).read_all("orders").records) == [1, 2, 3, 4, 5]


def test_on_a_slow_disk_the_budget_holds_and_nothing_acknowledged_is_lost() -> None:
    """Writers go on while blocks are written, each time until they are told to come back."""
    at = At(unsealed_bytes_max=8 * LARGE)
    acknowledged = refused = 0
    for turn in range(12):
        jobs = at.sealer.begin()
        for topic in ("orders", "others", "orders", "more") * 4:
            try:
                at.server.write(topic, large(), config=FSYNC if turn % 2 else {"durability": "disk"})
                acknowledged += 1
            except Throttled:
                refused += 1
            assert at.server.engine.state.count_unsealed() <= 9 * (LARGE + 300)
        at.sealer.remove(at.sealer.settle(jobs, at.sealer.write(jobs)))
        if turn % 3 == 2:
            at.server.checkpoint()
        survivor = at.started(at.disk.crash_keep_all())
        assert sum(len(survivor.read_all(topic).records) for topic in ("orders", "others", "more")) == acknowledged
    assert refused > acknowledged > 40, "the disk was the bottleneck, and everybody got on"


def test_a_few_large_records_in_each_of_many_topics_count() -> None:
    at = At(unsealed_bytes_max=10 * LARGE, segment_events_max=100)
    half = [NewRecord(Raw(b'"%b"' % (b"x" * (LARGE // 2))))]
    for number in range(10):
        at.server.write(f"t{number}", half)
        at.server.write(f"t{number}", half)
    with pytest.raises(Throttled):
        at.server.write("t10", half)


def test_what_is_never_written_does_not_count() -> None:
    at = At(unsealed_bytes_max=LARGE)
    for _ in range(10):
        at.server.write("ephemeral", large(), config={"durability": "ephemeral"})
    assert (at.server.engine.state.unsealed_bytes, at.sealer.begin()) == (0, [])


def test_records_that_go_give_their_part_of_the_budget_back() -> None:
    at = At(unsealed_bytes_max=4 * LARGE)
    for _ in range(4):
        at.server.write("orders", large(), config=FSYNC)
    at.server.delete_topic("orders")
    at.server.write("others", large(), config=FSYNC)


def test_what_a_checkpoint_holds_counts_until_it_is_written_even_if_its_blocks_are_sealed_meanwhile() -> None:
    at = At(unsealed_bytes_max=4 * LARGE)
    for _ in range(4):
        at.server.write("orders", large(), config=FSYNC)
    state, checkpointer = at.server.engine.state, at.server.store.checkpointer
    progress = checkpointer.begin(clean=False)
    while checkpointer.capture_some(progress):
        pass
    at.server.seal()
    assert at.blocks() == [SealedBlock]
    assert state.count_unsealed() >= 4 * LARGE
    with pytest.raises(Throttled):
        at.server.write("others", large(), config=FSYNC)
    checkpointer.write_head(progress)
    checkpointer.write(progress.captures)
    checkpointer.settle(progress, checkpointer.commit(progress))
    assert state.count_unsealed() == 0
    at.server.write("others", large(), config=FSYNC)


def test_a_large_budget_keeps_a_part_for_files_being_written() -> None:
    budget = 3 * limits.UNSEALED_SPARE_BYTES
    at = At(unsealed_bytes_max=budget)
    state = at.server.engine.state
    at.server.write("orders", large(), config=FSYNC)
    (block,) = at.server.engine.topic("orders").log.blocks
    assert isinstance(block, Block)
    block.counted_bytes = budget - limits.UNSEALED_SPARE_BYTES
    state.count_unsealed()
    at.server.write("others", 1)
    block.counted_bytes += LARGE
    state.count_unsealed()
    with pytest.raises(Throttled):
        at.server.write("others", 1)
