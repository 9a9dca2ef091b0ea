"""What was acknowledged or shown does not change because live and replayed differ: they are one function over one
log."""

import errno
import json
import os
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from fault import one_history
from fault.one_history import KINDS, TOPICS, Step, run
from topics.errors import TopicsError
from topics.model.record import NewRecord
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash
from topics.testing.simulated_server import SimulatedServer

EXAMPLES = int(os.environ.get("TOPICS_TEST_HISTORIES", "60"))
FULL_AT_ONE = {"durability": "fsync", "cap_records": 1, "discard": "reject"}

numbers = st.integers(0, 59)
steps = st.builds(Step, st.sampled_from(KINDS), st.sampled_from(TOPICS), numbers, numbers, numbers)
histories = settings(
    max_examples=EXAMPLES, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)


@histories
@given(steps=st.lists(steps, max_size=20), shards=st.integers(1, 3), crash=st.integers(0, 1000))
def test_after_every_operation_the_log_folded_is_the_live_state(steps: list[Step], shards: int, crash: int) -> None:
    run(steps, shards, crash)


@pytest.mark.parametrize("seed", range(EXAMPLES // 20))
def test_a_long_history_folded_is_the_live_state_at_any_moment(seed: int) -> None:
    run(one_history.seeded(seed, 120), 1 + seed % 3, seed, lambda number: number % 10 == seed % 10)


def started(disk: FakeDisk, *, lazy: bool = False, shards: int = 1) -> SimulatedServer:
    server = SimulatedServer(disk, FakeClock(), lazy=lazy, wal_shards=shards, segment_events_max=4)
    server.start()
    return server


def tagged(tag: str | None, *numbers: int) -> list[NewRecord]:
    return [NewRecord(Raw(b"%d" % number), tag) for number in numbers]


def data_of(server: SimulatedServer, topic: str) -> dict[int, int]:
    return {seq: json.loads(text)["data"] for seq, text in server.read_all(topic).records.items()}


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_delete_sent_behind_a_waiting_write_loses_nothing_in_a_kill(durability: str) -> None:
    """The write waits for the disk: it is `fsync`, or beyond the reserved seqs. The delete used to overtake it, and
    made room that a replay did not have."""
    disk = FakeDisk()
    server = started(disk)
    server.put("t", {"durability": durability, "cap_records": 100})
    server.write("t", tagged("old", *range(50)))
    server.write("t", tagged(None, *range(50, 100)))
    waiting = server.hand_over("t", tagged(None, *range(100, 600)))
    assert waiting.commit is not None
    deleted = server.engine.delete_records("t", None, TagMatch("old", is_prefix=False))
    server.wait(waiting.commit)
    server.wait(deleted.commit)
    before = server.read_all("t")
    assert len(before.records) == 100
    assert started(disk.crash_keep_all()).read_all("t") == before


def test_a_checkpoint_cut_short_anywhere_gives_no_seq_of_a_dest_another_record() -> None:
    """Delete bytes used to be set before the snapshot that knows of them: the one before it found a newer source."""

    def story(disk: FakeDisk) -> SimulatedServer:
        server = started(disk)
        server.put("a", {"durability": "fsync"})
        server.put("b", FULL_AT_ONE)
        server.put_router("a->b", "a", "b")
        for number in range(6):
            server.write("a", tagged("x" if number % 2 else None, number))
        server.read_all("b")
        server.checkpoint()
        server.checkpoint()
        server.delete_records("a", match="x")
        server.delete_records("b", before_seq=2)
        server.read_all("b")
        return server

    whole = FakeDisk()
    server = story(whole)
    calls = whole.mutating_calls
    assert server.checkpoint()
    for call in range(calls + 1, whole.mutating_calls + 1):
        disk = FakeDisk()
        server = story(disk)
        seen = data_of(server, "b")
        disk.stop_at(call, applied=call % 2 == 0)
        with suppress(SimulatedCrash):
            server.checkpoint()
        for survivor in (disk.crash_keep_all(), disk.crash_drop_all(), disk.crash(call)):
            after = data_of(started(survivor), "b")
            assert {seq: after[seq] for seq in seen.keys() & after.keys()} == seen, call


def test_deletes_that_a_kill_takes_give_no_seq_of_a_dest_another_record() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "disk"})
    server.put("b", {"durability": "disk", "cap_records": 1, "discard": "reject"})
    server.put_router("a->b", "a", "b")
    server.write("a", tagged(None, 0, 1, 2))
    assert data_of(server, "b") == {1: 0}
    server.lazy = True
    server.delete_records("a", before_seq=3)
    server.delete_records("b", before_seq=2)
    server.read_all("b")
    seen = data_of(server, "b")
    after = started(disk.crash_keep_all())
    now = data_of(after, "b")
    assert {seq: now.get(seq, number) for seq, number in seen.items()} == seen
    server.lazy = False
    assert data_of(server, "b") == {2: 2}


def test_a_failed_disk_leaves_the_seq_of_a_dropped_write_to_nobody() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync"})
    server.put("b", {"durability": "fsync"})
    server.put_router("a->b", "a", "b")
    server.write("a", tagged(None, 0))
    assert data_of(server, "b") == {1: 0}
    for topic in "ab":
        assert server.engine.find_topic(topic) is not None
    server.lazy = True
    waiting = server.hand_over("b", tagged(None, 7))
    assert waiting.first_seq == 2
    disk.fail_at(disk.mutating_calls + 2, errno.EIO, and_after=True)
    with pytest.raises(TopicsError):
        server.wait(waiting.commit)
    server.engine.forward_pending()
    assert data_of(server, "b") == {1: 0}
    after = data_of(started(disk.crash_keep_all()), "b")
    assert after in ({1: 0}, {1: 0, 2: 7})
