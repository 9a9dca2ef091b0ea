"""A topic with a damaged segment: whoever reads that is told, and it is nobody else's trouble. What has to go by itself
or is decided already never depends on a file that may be damaged."""

from collections.abc import Callable

import pytest
from test_api_handlers import Served

from topics.storage.sealed_block import SealedBlock
from topics.testing.fake_disk import FakeDisk

TTL_MS = 60_000
AGE_MS = 10_000
"""Between the first and the second half of the segment."""


def zero(disk: FakeDisk, path: str) -> None:
    disk.open_append(path).write_at(0, bytes(disk.size(path)))


def cut(disk: FakeDisk, path: str) -> None:
    disk.open_append(path).truncate(disk.size(path) // 3)


Damage = Callable[[FakeDisk, str], None]
DAMAGES: list[Damage] = [zero, cut, FakeDisk.remove]


def with_damaged_segment(damage: Damage, **config: object) -> Served:
    """Topic `t` has records 1 and 2, ten seconds later 3 and 4, in one segment, and 5 in memory."""
    at = Served(TOPICS_SEGMENT_MAX_EVENTS="4")
    at.write("other", topic="other")
    at.ok("PUT /v0/topics/t", {"durability": "fsync", **config})
    at.write("first", "second")
    at.clock.advance(AGE_MS)
    at.write("third", "fourth")
    at.write("fifth")
    sealer = at.server.store.sealer
    jobs = sealer.begin()
    sealer.settle(jobs, sealer.write(jobs))
    assert isinstance(at.server.engine.topic("t").log.blocks[0], SealedBlock)
    paths = [path for path in at.disk.dump() if "/topics/" in path and "seg-" in path]
    for path in paths:
        if path.endswith(".data"):
            damage(at.disk, path)
        else:
            at.disk.remove(path)
    return at


def state(at: Served) -> dict[str, int]:
    found = at.ok("GET /v0/topics/t?touch=false")
    return {name: found[name] for name in ("earliest_seq", "head_seq", "count")}


def everybody_is_served(at: Served) -> None:
    assert [topic["topic"] for topic in at.ok("GET /v0/topics")["topics"]] == ["other", "t"]
    assert at.reply("GET /v0/metrics").status == 200
    assert at.ok("POST /v0/topics/other/diff", {"cursor": 0})["records"]
    at.server.engine.expire_due()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_ttl_takes_a_damaged_segment_as_a_whole_and_nobody_else_notices(damage: Damage) -> None:
    at = with_damaged_segment(damage, ttl_ms=TTL_MS)
    at.clock.advance(TTL_MS - AGE_MS // 2)  # the first half is too old
    everybody_is_served(at)
    assert at.write("sixth")["seqs"] == [6]
    assert state(at) == {"earliest_seq": 1, "head_seq": 6, "count": 6}
    assert at.call("POST /v0/topics/t/diff", {"cursor": 0})[0] >= 500, "who reads it is told"
    at.clock.advance(AGE_MS)  # and now all of it, and the fifth
    everybody_is_served(at)
    assert at.write("seventh")["seqs"] == [7]
    assert state(at) == {"earliest_seq": 6, "head_seq": 7, "count": 2}
    found = at.ok("POST /v0/topics/t/diff", {"cursor": 0})
    assert [record["data"] for record in found["records"]] == ["sixth", "seventh"]
    assert (found["tombstone"]["gap_from"], found["tombstone"]["gap_to"]) == (1, 5)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("cap", [{"cap_records": 6}, {"cap_bytes": 270}])
def test_a_cap_takes_a_damaged_segment_as_a_whole(damage: Damage, cap: dict[str, int]) -> None:
    at = with_damaged_segment(damage, **cap)
    for number in range(6, 20):
        assert at.write("more")["seqs"] == [number]
        everybody_is_served(at)
    found = state(at)
    assert found["earliest_seq"] > 4
    assert found["count"] <= 9
    assert len(at.ok("POST /v0/topics/t/diff", {"cursor": found["earliest_seq"] - 1})["records"]) == found["count"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("what", [{"match": "tag"}, {"match": "tag", "before_seq": 3}])
def test_a_delete_that_has_to_look_into_a_damaged_segment_is_refused_and_changes_nothing(
    damage: Damage, what: dict[str, object]
) -> None:
    at = with_damaged_segment(damage)
    before = state(at)
    assert at.call("POST /v0/topics/t/delete", what)[0] >= 500
    assert state(at) == before
    assert at.write("sixth")["seqs"] == [6]
    everybody_is_served(at)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_delete_by_seq_needs_nothing_of_a_damaged_segment(damage: Damage) -> None:
    at = with_damaged_segment(damage)
    assert at.ok("POST /v0/topics/t/delete", {"before_seq": 3})["deleted"] == 2
    assert state(at) == {"earliest_seq": 3, "head_seq": 5, "count": 3}
    everybody_is_served(at)
    assert at.ok("POST /v0/topics/t/delete", {"before_seq": 5})["deleted"] == 2
    assert state(at) == {"earliest_seq": 5, "head_seq": 5, "count": 1}
    log = at.server.engine.topic("t").log
    assert log.bytes == sum(block.live_bytes for block in log.blocks) > 0
    assert [record["data"] for record in at.ok("POST /v0/topics/t/diff", {"cursor": 4})["records"]] == ["fifth"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_jobs_of_a_damaged_segment_can_be_acked(damage: Damage) -> None:
    at = Served(TOPICS_SEGMENT_MAX_EVENTS="4")
    at.ok("PUT /v0/topics/t", {"durability": "fsync", "type": "queue"})
    at.write(1, 2, 3, 4)
    at.write(5)
    at.ok("POST /v0/topics/t/claim", {"node": "w", "max": 5})
    sealer = at.server.store.sealer
    jobs = sealer.begin()
    sealer.settle(jobs, sealer.write(jobs))
    for path in [path for path in at.disk.dump() if "/topics/" in path and path.endswith(".data")]:
        damage(at.disk, path)
    assert at.ok("POST /v0/topics/t/ack", {"node": "w", "seqs": [2, 4, 5]})["acked"] == 3
    assert at.ok("POST /v0/topics/t/ack", {"node": "w", "seqs": [1, 3]})["acked"] == 2
    log = at.server.engine.topic("t").log
    assert (log.count, log.bytes, at.server.engine.state.bytes_live) == (0, 0, 0)
