"""Single histories of routers and crashes, each with what it has to come to."""

import json

import pytest
from msgspec import Raw

from topics.model.gap import GapReason
from topics.model.record import NewRecord
from topics.model.router import Guarantee, RouterSettings
from topics.model.tag_match import TagMatch
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import SimulatedServer


def started(disk: FakeDisk, clock: FakeClock | None = None, *, shards: int = 2) -> SimulatedServer:
    server = SimulatedServer(disk, clock or FakeClock(), segment_events_max=4, wal_shards=shards)
    server.start()
    return server


def frames(server: SimulatedServer) -> int:
    server.sync()
    return server.store.wal_metrics().frames_total


def losses(server: SimulatedServer, topic: str) -> list[tuple[int, int, GapReason]]:
    return [(gap.gap_from, gap.gap_to, gap.reason) for gap in server.read_all(topic).gaps]


def test_a_record_copied_to_a_thousand_topics_is_one_frame() -> None:
    server = started(FakeDisk())
    for number in range(1000):
        server.put_router(f"r{number}", "a", f"d{number}")
    before = frames(server)
    server.write("a", 1)
    for number in range(1000):
        assert sorted(server.read_all(f"d{number}").records) == [1]
    assert frames(server) == before + 1


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_copies_of_durable_records_survive_any_crash_with_their_seqs(shards: int) -> None:
    disk = FakeDisk()
    server = started(disk, shards=shards)
    server.put("a", {"durability": "fsync"})
    for source, dest in ("ab", "bc", "cd"):
        server.put_router(f"{source}->{dest}", source, dest)
    server.write("a", 6)
    before = server.read_all("d")
    for survivor in (disk.crash_keep_all(), disk.crash_drop_all()):
        after = started(survivor, shards=shards).read_all("d")
        assert (after.records, after.gaps[:0]) == (before.records, [])


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("other_topics", range(4))  # so that a and b are born in one shard or in two
def test_a_direct_write_is_durable_with_the_copies_before_it(other_topics: int, durability: str) -> None:
    """One of them lost, nobody could say whether the filter behind it had let it through."""
    disk = FakeDisk()
    server = started(disk)
    for number in range(other_topics):
        server.put(f"other-{number}", {})
    server.put("a", {})
    server.put("b", {"durability": durability})
    server.put_router("a->b", "a", "b")
    server.put_router("b->c", "b", "c", RouterSettings(filter=TagMatch("kept", is_prefix=False)))
    server.lazy = True
    server.write("a", 1)
    assert sorted(server.read_all("b").records) == [1]
    server.write("b", [NewRecord(Raw(b"2"), "kept")])
    before = server.read_all("c").records
    assert sorted(before) == [1]
    assert started(disk.crash_drop_all()).read_all("c").records == before


def test_a_direct_write_keeps_its_place_between_copies() -> None:
    disk = FakeDisk()
    server = started(disk, shards=3)
    server.put("a", {"durability": "fsync"})
    server.put_router("a->b", "a", "b")
    server.write("a", 2)
    server.read_all("b")
    server.write("b", [NewRecord(Raw(b'"direct"'))])
    server.write("a", 2)
    before = server.read_all("b")
    assert json.loads(before.records[3])["data"] == "direct"
    assert started(disk.crash_keep_all(), shards=1).read_all("b") == before


def test_copies_of_what_a_power_cut_took_are_told_as_lost() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put_router("a->b", "a", "b")
    server.sync()
    server.write("a", 3)
    seen = server.read_all("b")
    after = started(disk.crash_drop_all())
    assert after.read_all("b").head_seq >= seen.head_seq
    assert [(first, reason) for first, _, reason in losses(after, "b")] == [(1, GapReason.CRASH)]
    again = after.write("a", 1)
    assert max(after.read_all("b").records) > seen.head_seq
    assert again.first_seq > 3


def test_a_source_that_was_deleted_leaves_its_copies_behind() -> None:
    disk = FakeDisk()
    server = started(disk, shards=3)
    server.put("a", {"durability": "fsync"})
    server.put_router("a->b", "a", "b")
    server.put_router("b->c", "b", "c")
    server.write("a", 3)
    before = server.read_all("c")
    assert server.delete_topic("a").routers_removed == ("a->b",)
    assert server.delete_topic("b").routers_removed == ("b->c",)
    after = started(disk.crash_keep_all(), shards=1)
    assert (after.read_all("c"), len(after.engine.routers)) == (before, 0)


def test_records_evicted_from_the_source_since_are_copied_again() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync", "cap_records": 2})
    server.put_router("a->b", "a", "b")
    for _ in range(5):
        server.write("a", 1)
        server.read_all("b")
    before = server.read_all("b")
    assert (sorted(before.records), before.gaps) == ([1, 2, 3, 4, 5], [])
    assert started(disk.crash_keep_all()).read_all("b") == before


def test_what_was_trimmed_and_told_stays_so() -> None:
    """A start still finds the records in the log, but their copies were never made."""
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync", "cap_records": 2})
    server.put_router("a->b", "a", "b")
    server.write("a", 6)
    server.read_all("b")
    server.sync()
    before = server.read_all("b")
    assert losses(server, "b") == [(1, 1, GapReason.SOURCE_TRIM)]
    for survivor in (disk.crash_keep_all(), disk.crash_drop_all()):
        assert started(survivor).read_all("b").records == before.records


def test_stamps_are_the_same_after_a_crash_and_none_is_there_twice() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync"})
    server.put_router("r", "a", "b", RouterSettings(guarantee=Guarantee.EXACTLY_ONCE))
    stamps: list[str] = []
    for number in range(4):
        server.write("a", 3)
        server.read_all("b")
        if number % 2:
            server.checkpoint()
        disk = disk.crash_drop_all()
        server = started(disk)
        stamps = [json.loads(text)["meta"]["_topics_router"] for text in server.read_all("b").records.values()]
        assert stamps == [f"r/1/1/{seq}" for seq in range(1, 3 * number + 4)]


def test_routers_settings_and_counts_come_back() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync"})
    server.put_router("r", "a", "b")
    server.put_router("gone", "a", "c")
    server.write("a", 2)
    server.read_all("b")
    server.put_router("r", "a", "b", RouterSettings(preserve_tag=False))
    server.delete_router("gone")
    for survivor in (disk.crash_keep_all(), disk.crash_drop_all()):
        (router,) = started(survivor).engine.routers
        assert (router.name, router.settings.preserve_tag, router.forwarded_total) == ("r", False, 2)


def test_a_router_and_its_successor_of_the_same_name_are_told_apart() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync"})

    def renew(step: str) -> None:
        if step == "barrier":
            server.put_router("r", "a", "b")
            server.write("a", 1)
            server.read_all("b")
            server.delete_router("r")
            server.put_router("r", "a", "b")
            server.write("a", 1)
            server.read_all("b")

    assert server.checkpoint(during=renew)
    before = server.read_all("b")
    assert sorted(before.records) == [1, 2]
    assert started(disk.crash_keep_all()).read_all("b") == before


def test_copies_that_wait_behind_a_write_are_not_lost_by_a_checkpoint() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync", "cap_records": 1})
    server.put_router("a->b", "a", "b")
    server.write("a", 3)

    def read(step: str) -> None:
        if step == "barrier":
            server.read_all("b")  # the jump over what was trimmed waits for the disk, and the copy for the jump

    assert server.checkpoint(during=read)
    server.sync()
    before = server.read_all("b")
    assert sorted(before.records) == [2]
    assert started(disk.crash_keep_all()).read_all("b") == before


def test_a_delete_in_a_dest_comes_behind_the_copies_it_took() -> None:
    disk = FakeDisk()
    server = started(disk, shards=3)
    server.put("a", {"durability": "fsync"})
    server.put_router("a->b", "a", "b")
    server.write("a", 4)
    assert server.delete_records("b", before_seq=3).count == 2
    before = server.read_all("b")
    assert sorted(before.records) == [3, 4]
    for shards in (1, 3):
        assert started(disk.crash_keep_all(), shards=shards).read_all("b") == before


def test_a_server_killed_again_before_its_first_checkpoint_keeps_copies_and_operations_in_order() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync"})
    server.put_router("a->b", "a", "b")
    server.write("a", 4)
    server.read_all("b")
    disk = disk.crash_keep_all()
    server = SimulatedServer(disk, FakeClock(), segment_events_max=4, wal_shards=2)
    server.start(serve_first=True)
    server.delete_records("b", before_seq=3)
    server.write("a", 1)
    before = server.read_all("b")
    assert sorted(before.records) == [3, 4, 5]
    assert started(disk.crash_keep_all()).read_all("b") == before


@pytest.mark.parametrize("forwarded", range(4))
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_copies_keep_their_seqs_behind_lost_ones_when_killed_again_before_the_first_checkpoint(
    forwarded: int, shards: int
) -> None:
    """Of three records that were lost so many had been copied, and how many is known only at the next start."""
    disk, clock = FakeDisk(), FakeClock()
    server = started(disk, clock, shards=shards)
    server.put_router("a->b", "a", "b")
    server.write("a", 4)
    server.read_all("b")
    server.step()
    server.lazy = True
    server.write("a", 3)
    dest = server.engine.find_topic("b")
    assert dest is not None
    if forwarded:
        server.engine.forward(dest, forwarded)
    assert dest.log.head_seq == 4 + forwarded
    disk = disk.crash_keep_all()
    server = SimulatedServer(disk, clock, segment_events_max=4, wal_shards=shards)
    server.start(serve_first=True)
    server.write("a", [NewRecord(Raw(b'"after"'))])
    server.read_all("b")
    server.step()
    before = server.read_all("b")
    assert b"after" in before.records[before.head_seq]
    assert sorted(before.records)[:4] == [1, 2, 3, 4]
    assert before.head_seq == max(before.records)
    server.step()
    assert started(disk.crash_keep_all(), clock, shards=shards).read_all("b") == before


def test_a_router_that_copied_nothing_is_as_far_as_it_was() -> None:
    """What its filter left out and its source evicted since is no loss."""
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync", "cap_records": 2})
    server.put_router("a->b", "a", "b", RouterSettings(filter=TagMatch("x", is_prefix=False)))
    server.checkpoint()
    for _ in range(5):
        server.write("a", 1)
        server.read_all("b")
    server.checkpoint()
    server.checkpoint()
    after = started(disk.crash_keep_all())
    assert (after.read_all("b").head_seq, after.read_all("b").gaps) == (0, [])


def test_a_cap_set_for_a_while_comes_behind_the_copies_it_took() -> None:
    disk = FakeDisk()
    server = started(disk, shards=3)
    server.put("a", {"durability": "fsync"})
    server.put_router("a->b", "a", "b")
    server.write("a", 5)
    server.read_all("b")
    server.put("b", {"cap_records": 2})
    server.put("b", {"cap_records": 0})
    server.write("a", 1)
    before = server.read_all("b")
    assert (sorted(before.records), losses(server, "b")) == ([4, 5, 6], [(1, 3, GapReason.CAP)])
    assert started(disk.crash_keep_all()).read_all("b") == before


def test_what_was_deleted_before_it_was_forwarded_is_not_copied_after_a_crash_either() -> None:
    disk = FakeDisk()
    server = started(disk, shards=3)
    server.put("a", {"durability": "fsync"})
    server.put("b", {"cap_records": 1, "discard": "reject"})
    server.put_router("a->b", "a", "b")
    server.write("a", [NewRecord(Raw(b"%d" % number), tag="x" if number == 1 else None) for number in range(4)])
    server.delete_records("a", match="x")
    server.put("b", {"cap_records": 0})
    before = server.read_all("b")
    assert [json.loads(text)["data"] for text in before.records.values()] == [0, 2, 3]
    server.sync()
    assert started(disk.crash_keep_all()).read_all("b") == before


def ring_on(disk: FakeDisk, *names: str, **config: object) -> SimulatedServer:
    server = started(disk, shards=3)
    for name in names:
        server.put(name, {"durability": "fsync", **config})
    for source, dest in zip(names, (*names[1:], names[0]), strict=True):
        server.put_router(f"{source}->{dest}", source, dest, RouterSettings(allow_cycle=True))
    return server


def forward(server: SimulatedServer, turns: int = 20) -> None:
    for _ in range(turns):
        server.engine.forward_pending()
        server.sync()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_topics_that_mirror_each_other_are_the_same_after_a_kill(checkpoint: bool) -> None:
    disk = FakeDisk()
    names = ("eu", "us", "asia")
    server = ring_on(disk, *names)
    for number, name in enumerate(names * 3):
        server.write(name, 2)
        if number % 3 != 1:
            forward(server, 1)
        if checkpoint and number == 4:
            server.checkpoint()
    forward(server)
    before = {name: server.read_all(name) for name in names}
    assert [len(reading.records) for reading in before.values()] == [18, 18, 18]
    after = started(disk.crash_keep_all(), shards=1)
    forward(after)
    assert {name: after.read_all(name) for name in names} == before


def test_the_news_of_a_loss_goes_around_a_cycle_once() -> None:
    names = ("eu", "us", "asia")
    server = ring_on(FakeDisk(), *names)
    server.put("eu", {"cap_records": 1})
    server.write("eu", 3)
    forward(server)
    heads = {name: server.read_all(name).head_seq for name in names}
    forward(server)
    assert {name: server.read_all(name).head_seq for name in names} == heads == {"eu": 3, "us": 2, "asia": 2}
    assert losses(server, "asia") == [(1, 1, GapReason.SOURCE_TRIM)]


def test_a_cycle_comes_to_rest_after_a_power_cut() -> None:
    disk = FakeDisk()
    names = ("eu", "us", "asia")
    server = ring_on(disk, *names, durability="disk")
    server.sync()
    for name in names:
        server.write(name, 2)
    forward(server, 1)
    after = started(disk.crash_drop_all())
    forward(after)
    heads = {name: after.read_all(name).head_seq for name in names}
    forward(after)
    assert {name: after.read_all(name).head_seq for name in names} == heads
