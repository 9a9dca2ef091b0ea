"""Queues crashed at every mutating call of the file system: no job lost, none back, none in two places.

As in `test_crash_sweep.py`, the default run takes a sample of the calls.
"""

import errno
from collections import Counter
from contextlib import suppress

import pytest

from fault.queue_workload import QueueWorkload, queues_of
from fault.sweep import survivors
from fault.test_crash_sweep import sample
from fault.workload import SHARD_COUNTS, WorkloadEnded, new_server
from sampling import EXHAUSTIVE
from topics.errors import ConfigurationError, StorageFailed
from topics.storage.errors import DiskFailed
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash
from topics.testing.simulated_server import SimulatedServer

OPERATIONS = 90
SEEDS = (0, 1, 2, 3)
CRASHES_PER_SEED = 11
FAILURES_PER_SEED = 12


def _calls_of(seed: int) -> int:
    disk = FakeDisk()
    QueueWorkload(disk, seed).run(OPERATIONS)
    return disk.mutating_calls


def _recovered(disk: FakeDisk, workload: QueueWorkload, shards: int) -> SimulatedServer:
    server = new_server(disk, FakeClock(workload.clock.now_ms()), shards)
    server.start()
    return server


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("torn_bytes", [0, 60], ids=["before", "within"])
def test_a_crash_at_any_call_loses_no_job_and_brings_none_back(
    seed: int, torn_bytes: int, tried: "Counter[str]"
) -> None:
    for call in sample(_calls_of(seed) - (0 if EXHAUSTIVE else torn_bytes // 60), CRASHES_PER_SEED):
        disk = FakeDisk()
        disk.stop_at(call, torn_bytes=torn_bytes)
        workload = QueueWorkload(disk, seed)
        with pytest.raises(SimulatedCrash):
            workload.run(OPERATIONS)
        shards = SHARD_COUNTS[call % len(SHARD_COUNTS)]
        for survivor, left in survivors(disk, call):
            server = _recovered(left, workload, shards)
            workload.check(server, all_written=survivor == "killed" and not torn_bytes)
            state = queues_of(server)
            again = _recovered(left.crash_keep_all(), workload, shards)
            # The first may have come after a clean stop, which keeps leases; the second comes after a crash.
            assert workload.under_way == "restart" or queues_of(again) == state
            assert again.stop()
            tried["crashes of queues"] += 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("and_after", [False, True], ids=["once", "disk-gone"])
def test_a_failing_call_loses_no_job_and_brings_none_back(seed: int, and_after: bool, tried: "Counter[str]") -> None:
    for call in sample(_calls_of(seed), FAILURES_PER_SEED):
        disk = FakeDisk()
        disk.fail_at(call, errno.EIO, and_after=and_after)
        workload = QueueWorkload(disk, seed)
        with suppress(WorkloadEnded, DiskFailed, StorageFailed, ConfigurationError):
            workload.run(OPERATIONS)
        for survivor, left in survivors(disk, call):
            server = _recovered(left, workload, SHARD_COUNTS[call % len(SHARD_COUNTS)])
            workload.check(server, all_written=False)
            assert server.stop(), survivor
            tried["failing calls of queues"] += 1


@pytest.mark.parametrize("seed", range(12))
def test_a_workload_of_queues_without_faults_keeps_every_promise(seed: int) -> None:
    workload = QueueWorkload(FakeDisk(), seed)
    workload.run(OPERATIONS)
