"""A workload crashed at every mutating call of the file system, and failing ones: every promise holds afterwards.

The default run takes a sample of the calls, the first and the last always; TOPICS_TEST_EXHAUSTIVE=1 takes them all.
"""

import errno
from collections import Counter

import pytest

from fault.sweep import TORN_BYTES, calls_of, check_recovery, run_until, survivors, writes_of
from fault.workload import Workload, WorkloadEnded
from sampling import EXHAUSTIVE
from topics.errors import ConfigurationError, StorageFailed
from topics.storage.errors import DiskFailed
from topics.testing.fake_disk import FakeDisk

OPERATIONS = 70
SEEDS = (0, 1, 7)
CRASHES_PER_SEED = 8
FAILURES_PER_SEED = 4


def sample(calls: int, size: int) -> list[int]:
    """Calls spread evenly from the first to the last."""
    if EXHAUSTIVE or size >= calls:
        return list(range(1, calls + 1))
    return sorted({1 + (calls - 1) * number // (size - 1) for number in range(size)})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_crash_before_or_after_any_call_breaks_no_promise(seed: int, applied: bool, tried: "Counter[str]") -> None:
    # Different calls for the two kinds, so that a sample reaches more of them.
    for call in sample(calls_of(seed, OPERATIONS) - (0 if EXHAUSTIVE else applied), CRASHES_PER_SEED):
        workload = run_until(seed, OPERATIONS, call, applied=applied)
        for survivor, disk in survivors(workload.disk, call):
            check_recovery(workload, disk, call)
            tried["crashes " + survivor.rstrip(" 0123456789")] += 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_within_a_write_breaks_no_promise(seed: int, tried: "Counter[str]") -> None:
    writes = writes_of(seed, OPERATIONS)
    for number, index in enumerate(sample(len(writes), CRASHES_PER_SEED)):
        call = writes[index - 1]
        for torn_bytes in TORN_BYTES if EXHAUSTIVE else TORN_BYTES[number % len(TORN_BYTES) :][:1]:
            workload = run_until(seed, OPERATIONS, call, torn_bytes=torn_bytes)
            for _, disk in survivors(workload.disk, call):
                check_recovery(workload, disk, call)
                tried["crashes within a write"] += 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("error_number", "written_bytes", "and_after"),
    [(errno.EIO, 0, False), (errno.ENOSPC, 40, False), (errno.EIO, 0, True)],
    ids=["io-error", "short-write", "disk-gone"],
)
def test_a_failing_call_breaks_no_promise(
    seed: int, error_number: int, written_bytes: int, and_after: bool, tried: "Counter[str]"
) -> None:
    """Acknowledged is only what is durable for its class, reads go on, later writes change nothing or succeed."""
    for call in sample(calls_of(seed, OPERATIONS), FAILURES_PER_SEED):
        disk = FakeDisk()
        disk.fail_at(call, error_number, written_bytes=written_bytes, and_after=and_after)
        workload = Workload(disk, seed)
        workload.disk_fails = True
        try:
            workload.run(OPERATIONS, after_each=workload.check)
        except (WorkloadEnded, DiskFailed, StorageFailed, ConfigurationError):
            # It stopped, or did not start: a start on a disk that is well again follows.
            workload.history.note_floors(workload.server.engine)
        for _, survivor in survivors(disk, call):
            check_recovery(workload, survivor, call)
            tried["failing calls"] += 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    dumps = []
    for _ in range(2):
        disk = FakeDisk()
        Workload(disk, seed).run(OPERATIONS)
        dumps.append(disk.dump())
    assert dumps[0] == dumps[1]


@pytest.mark.parametrize("seed", range(20))
def test_a_workload_without_faults_keeps_every_promise_at_every_moment(seed: int) -> None:
    workload = Workload(FakeDisk(), seed)
    workload.run(OPERATIONS, after_each=workload.check)
