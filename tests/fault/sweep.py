"""Crashes a workload at one point, recovers in many ways, and checks every promise afterwards."""

from collections.abc import Iterator
from itertools import count

from msgspec import Raw

from fault.history import state_of
from fault.workload import SHARD_COUNTS, Workload, new_server
from topics.model.config import Durability
from topics.model.record import NewRecord
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash
from topics.testing.simulated_server import SimulatedServer

TORN_BYTES = (1, 60, 300)
SURVIVOR_SEEDS = range(3)


def run_until(seed: int, operations: int, call: int, *, applied: bool = False, torn_bytes: int = 0) -> Workload:
    """The workload, stopped at that mutating call: before it, after it, or within its write."""
    disk = FakeDisk()
    disk.stop_at(call, applied=applied, torn_bytes=torn_bytes)
    workload = Workload(disk, seed)
    try:
        workload.run(operations)
    except SimulatedCrash:
        workload.history.note_floors(workload.server.engine)
        return workload
    raise AssertionError(f"seed {seed} makes fewer than {call} calls")


def calls_of(seed: int, operations: int) -> int:
    """How many mutating calls the workload makes when nothing happens to it."""
    return _whole_run(seed, operations).mutating_calls


def writes_of(seed: int, operations: int) -> list[int]:
    """Which of these calls write bytes, and so can be torn."""
    return _whole_run(seed, operations).write_calls


def _whole_run(seed: int, operations: int) -> FakeDisk:
    disk = FakeDisk()
    Workload(disk, seed).run(operations)
    return disk


def survivors(disk: FakeDisk, call: int) -> Iterator[tuple[str, FakeDisk]]:
    """What a restart may find: a killed process, the worst power cut, and those between that differ from it."""
    yield "killed", disk.crash_keep_all()
    worst = disk.crash_drop_all()
    found = [worst.dump()]
    yield "power cut", worst
    for seed in SURVIVOR_SEEDS:
        between = disk.crash(1000 * call + seed)
        if (files := between.dump()) not in found:
            found.append(files)
            yield f"power cut {seed}", between


def recovered(disk: FakeDisk, workload: Workload, shards: int) -> SimulatedServer:
    server = new_server(disk, FakeClock(workload.clock.now_ms()), shards)
    server.start()
    return server


def check_recovery(workload: Workload, disk: FakeDisk, call: int) -> None:
    """Recovers what survived, several times over, and compares with what clients were told."""
    shards = SHARD_COUNTS[call % len(SHARD_COUNTS)]
    now_ms = workload.clock.now_ms()
    untouched = disk.crash_keep_all()
    server = recovered(disk, workload, shards)
    workload.history.check(server, now_ms)
    state = state_of(server)
    calls = disk.mutating_calls

    # Recovering again, after a kill or a power cut right behind the first time, gives the same. Of what it has
    # reserved and not used nobody knows after a power cut, so a `disk` topic tells that as lost.
    assert state_of(recovered(disk.crash_keep_all(), workload, shards)) == state
    assert _records_of(recovered(disk.crash_drop_all(), workload, shards)) == _records_of(server)

    # A crash during recovery does no harm either.
    interrupted = untouched.crash_keep_all()
    interrupted.stop_at(1 + 7919 * call % calls, applied=call % 2 == 0)
    try:
        recovered(interrupted, workload, shards)
    except SimulatedCrash:
        after = (interrupted.crash_keep_all, interrupted.crash_drop_all, lambda: interrupted.crash(call))[call % 3]()
        again = recovered(after, workload, SHARD_COUNTS[(call + 1) % len(SHARD_COUNTS)])
        workload.history.check(again, now_ms)
    check_it_works(server, disk, workload, shards)


def check_it_works(server: SimulatedServer, disk: FakeDisk, workload: Workload, shards: int) -> None:
    """Writes, deletes, checkpoints, and restarts with all of that still there."""
    numbers = count()
    for topic in sorted(server.engine.topics, key=lambda each: each.name):
        head_seq = topic.log.head_seq
        records = [NewRecord(Raw(b"%d" % next(numbers)), tag=tag) for tag in ("a:1", "b:1", None)]
        assert server.write(topic.name, records).first_seq == head_seq + 1
        server.delete_records(topic.name, match="a:1")
        assert head_seq + 1 not in server.read_all(topic.name).records
    assert server.checkpoint()
    for topic in sorted(server.engine.topics, key=lambda each: each.name):
        server.write(topic.name, 2)
        server.delete_records(topic.name, before_seq=topic.log.head_seq - 2)
    server.sync()
    state = _kept_state(server)
    killed = recovered(disk.crash_keep_all(), workload, shards)
    assert _kept_state(killed) == state
    server.stop()
    assert _kept_state(recovered(disk, workload, shards)) == state


def _kept_state(server: SimulatedServer) -> dict[str, object]:
    resident = {topic.name for topic in server.engine.topics if topic.config.durability is Durability.EPHEMERAL}
    return {name: state for name, state in state_of(server).items() if name not in resident}


def _records_of(server: SimulatedServer) -> dict[str, object]:
    return {
        topic.name: (topic.topic_id, topic.config, server.read_all(topic.name).records, dict(topic.keys.items()))
        for topic in server.engine.topics
    }
