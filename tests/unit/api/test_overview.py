"""The overview and the map: true figures of every topic, and looking changes nothing."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from test_api_handlers import Served

from topics import limits
from topics.server.vitals import LoopLag, VitalSigns
from topics.storage.group_commit import SYNC_BUCKETS_US
from topics.testing.fake_disk import FREE_BYTES, FakeDisk
from topics.wire.overview import OverviewPage, TopicMap


@pytest.fixture
def at() -> Served:
    return Served()


def row(at: Served, topic: str = "t") -> dict[str, Any]:
    (found,) = [row for row in at.ok("GET /v0/overview")["topics"] if row["topic"] == topic]
    return dict(found)


def test_a_topic_is_shown_with_what_is_live_lost_and_deleted(at: Served) -> None:
    at.write(*range(10), config={"cap_records": 6})
    at.ok("POST /v0/topics/t/delete", {"before_seq": 7})
    shown = row(at)
    assert (shown["head_seq"], shown["earliest_seq"], shown["evict_floor"]) == (10, 7, 5)
    assert (shown["count"], shown["lost"], shown["deleted"]) == (4, 4, 2)
    assert shown["lost_by_reason"] == {"cap": 4}
    assert shown["bytes"] == at.server.engine.topic("t").log.bytes


def test_the_shares_add_up_to_the_head_also_where_deleted_records_were_lost_later(at: Served) -> None:
    at.write(*range(4))
    at.ok("POST /v0/topics/t/delete", {"before_seq": 3})
    at.ok("PUT /v0/topics/t", {"cap_records": 1})
    at.write(1, 2, 3)
    shown = row(at)
    assert shown["count"] + shown["lost"] + shown["deleted"] == shown["head_seq"] == 7


def test_times_classes_and_priorities_are_shown(at: Served) -> None:
    at.ok("PUT /v0/topics/t", {"durability": "fsync", "priority": 600})
    empty = row(at)
    assert (empty["first_ts"], empty["last_ts"], empty["last_write_ts"]) == (None, None, None)
    first_ts = at.clock.now_ms()
    at.write(1)
    at.clock.advance(1000)
    at.write(2)
    shown = row(at)
    assert (shown["type"], shown["durability"]) == ("log", "fsync")
    assert (shown["first_ts"], shown["last_ts"]) == (first_ts, first_ts + 1000)
    assert shown["last_write_ts"] == first_ts + 1000
    assert (shown["effective_priority"], shown["priority_band"]) == (600, 3)
    assert "queue" not in shown


def test_a_cursor_lags_in_records_and_in_the_time_the_next_one_has_waited(at: Served) -> None:
    at.write(1)
    at.clock.advance(1000)
    at.write(2, 3)
    at.clock.advance(500)
    for name, seq in {"slow": 0, "quick": 3, "middle": 1}.items():
        at.ok(f"PUT /v0/topics/t/cursors/{name}", {"seq": seq})
    assert row(at)["cursors"] == [
        {"name": "slow", "seq": 0, "lag": 3, "lag_ms": 1500},
        {"name": "middle", "seq": 1, "lag": 2, "lag_ms": 500},
        {"name": "quick", "seq": 3, "lag": 0, "lag_ms": 0},
    ]


def test_of_many_cursors_those_furthest_behind_are_shown(at: Served) -> None:
    at.write(*range(20))
    for seq in range(limits.OVERVIEW_CURSORS_MAX + 3):
        at.ok(f"PUT /v0/topics/t/cursors/c{seq}", {"seq": 20 - seq})
    shown = row(at)
    assert shown["cursors_total"] == limits.OVERVIEW_CURSORS_MAX + 3
    assert [cursor["seq"] for cursor in shown["cursors"]] == list(range(10, 10 + limits.OVERVIEW_CURSORS_MAX))
    mapped = at.ok("GET /v0/topics/t/map")["cursors"]
    assert len(mapped) == limits.OVERVIEW_CURSORS_MAX + 3


def test_a_cursor_whose_records_are_all_gone_has_a_lag_but_no_time(at: Served) -> None:
    at.write(1, 2)
    at.ok("PUT /v0/topics/t/cursors/c", {"seq": 0})
    at.ok("POST /v0/topics/t/delete", {"before_seq": 3})
    at.clock.advance(1000)
    assert row(at)["cursors"] == [{"name": "c", "seq": 0, "lag": 2, "lag_ms": 0}]


def test_a_queue_is_shown_with_its_jobs(at: Served) -> None:
    at.ok("PUT /v0/topics/t", {"type": "queue"})
    at.write(1, 2, 3)
    at.ok("POST /v0/topics/t", {"records": [{"data": 4, "delay_ms": 60_000}]})
    at.ok("POST /v0/topics/t/claim", {"node": "n", "max": 1})
    assert row(at)["queue"] == {"ready": 2, "in_flight": 1, "delayed": 1, "dead_lettered": 0}


def test_routers_are_counted_at_both_ends(at: Served) -> None:
    at.write(1, topic="a")
    at.ok("PUT /v0/routers/r", {"source": "a", "dest": "b"})
    assert (row(at, "a")["routers_in"], row(at, "a")["routers_out"]) == (0, 1)
    assert (row(at, "b")["routers_in"], row(at, "b")["routers_out"]) == (1, 0)
    assert at.ok("GET /v0/topics/b/map")["routers"] == [{"router": "r", "source": "a", "dest": "b", "lag": 0}]


def test_looking_is_not_reading(at: Served) -> None:
    at.write(1)
    at.ok("GET /v0/overview")
    at.ok("GET /v0/topics/t/map")
    assert at.server.engine.topic("t").last_read_ts is None
    assert row(at)["last_read_ts"] is None


def test_pages_go_on_where_the_last_one_ended(at: Served) -> None:
    names = [f"t{number:03}" for number in range(150)]
    for name in names:
        at.write(1, topic=name)
    found: list[str] = []
    cursor = ""
    while True:
        page = at.ok(f"GET /v0/overview?page_size=70&cursor={cursor}")
        found += [shown["topic"] for shown in page["topics"]]
        cursor = page.get("next_cursor", "").replace("=", "%3D")
        if not cursor:
            break
        assert len(page["topics"]) == 70
    assert found == names


def test_a_page_of_many_topics_lets_others_in_between() -> None:
    at = Served()
    for number in range(limits.OVERVIEW_SLICE_TOPICS * 3):
        at.write(1, topic=f"t{number:03}")
    turns: list[int] = []

    async def look() -> None:
        answer = at.handle("GET /v0/overview")
        assert not hasattr(answer, "status")
        task = asyncio.ensure_future(answer)
        while not task.done():
            turns.append(len(turns))
            await asyncio.sleep(0)
        assert task.result().status == 200

    asyncio.run(look())
    assert len(turns) >= 3


@pytest.mark.parametrize(("size", "shown"), [("0", 3), ("2", 2), ("99999999", 3)])
def test_page_sizes_are_bounded(at: Served, size: str, shown: int) -> None:
    for topic in ("a", "b", "c"):
        at.write(1, topic=topic)
    assert len(at.ok(f"GET /v0/overview?page_size={size}")["topics"]) == shown


def test_a_cursor_nobody_gave_out_is_refused(at: Served) -> None:
    assert at.error("GET /v0/overview?cursor=nonsense") == (400, "invalid_request")


def test_a_key_sees_what_its_prefixes_allow() -> None:
    at = Served(TOPICS_API_KEYS="all,some:read:a|x")
    for topic in ("a1", "a2", "b"):
        at.ok(f"POST /v0/topics/{topic}", {"records": [{"data": 1}]}, authorization="Bearer all")
    for router, dest in {"other": "a2", "a-out": "b", "a-in": "a2"}.items():
        at.ok(f"PUT /v0/routers/{router}", {"source": "a1", "dest": dest}, authorization="Bearer all")
    shown = at.ok("GET /v0/overview", authorization="Bearer some")["topics"]
    assert [each["topic"] for each in shown] == ["a1", "a2"]
    shown = at.ok("GET /v0/overview?prefix=a2", authorization="Bearer some")["topics"]
    assert [each["topic"] for each in shown] == ["a2"]
    assert at.ok("GET /v0/overview?prefix=b", authorization="Bearer some")["topics"] == []
    assert at.error("GET /v0/topics/b/map", authorization="Bearer some") == (403, "forbidden")
    routers = at.ok("GET /v0/topics/a1/map", authorization="Bearer some")["routers"]
    assert [router["router"] for router in routers] == ["a-in"]


def test_the_process_is_shown_with_every_page(at: Served) -> None:
    at.write(1, 2)
    at.clock.advance(2000)
    server = at.ok("GET /v0/overview")["server"]
    assert (server["topics"], server["records"], server["uptime_ms"]) == (1, 2, 2000)
    assert server["ts"] == at.clock.now_ms()
    assert server["wal"]["fsync"]["p99_us"] in SYNC_BUCKETS_US
    assert (server["read_only_shards"], server["recovery"]) == ([], None)
    assert server["checkpoints"] == {"count": 0, "failures": 0, "last_ts": None, "last_duration_ms": None}


def test_the_latencies_of_syncs_are_told_by_their_buckets(at: Served) -> None:
    histogram = at.wal.sync_histogram
    for duration_us in [80] * 98 + [700, 3_000_000]:
        histogram.add(duration_us * 1000)
    fsync = at.ok("GET /v0/overview")["server"]["wal"]["fsync"]
    assert (fsync["count"], fsync["p50_us"], fsync["p99_us"]) == (100, 100, 1000)


def test_a_map_tells_ranges_of_what_is_lost_and_what_is_deleted(at: Served) -> None:
    at.ok("PUT /v0/topics/t", {"cap_records": 8})
    for number in range(12):
        at.ok("POST /v0/topics/t", {"records": [{"data": number, "tag": "odd" if number % 2 else "even"}]})
    at.ok("POST /v0/topics/t/delete", {"before_seq": 6})
    at.ok("POST /v0/topics/t/delete", {"match": ["tag", "Eq", "odd"], "before_seq": 11})
    shown = at.ok("GET /v0/topics/t/map")
    (loss,) = shown["losses"]
    assert (loss["gap_from"], loss["gap_to"], loss["reason"]) == (1, 4, "cap")
    # 5 went below `before_seq`, 6, 8 and 10 by their tag; 7 is the first live one.
    assert shown["deleted_ranges"] == [
        {"first_seq": 5, "last_seq": 6},
        {"first_seq": 8, "last_seq": 8},
        {"first_seq": 10, "last_seq": 10},
    ]
    assert (shown["count"], shown["lost"], shown["deleted"], shown["truncated"]) == (4, 4, 4, [])
    (block,) = shown["blocks"]
    assert (block["last_seq"], block["count"], block["place"]) == (12, 4, "memory")


def test_a_map_keeps_to_its_bound_and_says_so(at: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAP_ENTRIES_MAX", 2)
    for number in range(8):
        at.ok("POST /v0/topics/t", {"records": [{"data": number, "tag": "odd" if number % 2 else "even"}]})
    at.ok("POST /v0/topics/t/delete", {"match": ["tag", "Eq", "odd"]})
    shown = at.ok("GET /v0/topics/t/map")
    assert shown["deleted_ranges"] == [{"first_seq": 6, "last_seq": 6}, {"first_seq": 8, "last_seq": 8}]
    assert shown["truncated"] == ["deleted_ranges"]


def test_an_emptied_topic_has_a_map(at: Served) -> None:
    at.write(1, 2)
    at.ok("POST /v0/topics/t/delete", {"before_seq": 3})
    shown = at.ok("GET /v0/topics/t/map")
    assert shown["deleted_ranges"] == [{"first_seq": 1, "last_seq": 2}]
    assert shown["blocks"] == []


def test_there_is_no_map_of_a_topic_that_is_not_there(at: Served) -> None:
    assert at.error("GET /v0/topics/none/map") == (404, "topic_not_found")


def test_a_long_poll_is_a_watcher() -> None:
    at = Served()

    async def look() -> tuple[dict[str, Any], dict[str, Any]]:
        await at.finished(at.handle("POST /v0/topics/t", {"records": [{"data": 1}]}))
        polling = asyncio.ensure_future(at.handle("POST /v0/topics/t/diff", {"from_seq": 1, "wait_ms": 1000}))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        page = json.loads((await at.finished(at.handle("GET /v0/overview"))).body)
        mapped = json.loads((await at.finished(at.handle("GET /v0/topics/t/map"))).body)
        polling.cancel()
        return page, mapped

    page, mapped = asyncio.run(look())
    assert page["topics"][0]["watchers"] == 1
    assert page["server"]["connections"]["long_polls"] == 1
    assert mapped["watchers"] == [{"kind": "long_poll", "seq": None, "lag": None, "lag_ms": None}]


def test_vitals_that_the_system_does_not_tell_are_unknown() -> None:
    disk = FakeDisk()
    disk.make_dir("/data")
    vitals = VitalSigns(disk, "/data").look()
    assert (vitals.memory_bytes, vitals.files_open, vitals.disk_free_bytes) == (None, None, FREE_BYTES)


def test_the_lag_of_the_loop_is_that_of_the_last_ten_seconds() -> None:
    lag = LoopLag()
    lag.add(80.0)
    lag.add(0.5)
    assert (lag.last_ms, lag.recent_max_ms) == (0.5, 80.0)
    for _ in range(limits.LOOP_LAG_SAMPLES):
        lag.add(0.5)
    assert lag.recent_max_ms == 0.5
    assert sum(lag.counts) == limits.LOOP_LAG_SAMPLES + 2


def test_a_page_is_what_its_schema_says(at: Served) -> None:
    at.write(1, topic="a")
    at.ok("PUT /v0/topics/q", {"type": "queue"})
    for target in ("GET /v0/overview?page_size=1", "GET /v0/overview"):
        page = msgspec.json.decode(at.reply(target).body, type=OverviewPage)
        assert list(at.ok(target)) == [
            name for name in OverviewPage.__struct_fields__ if getattr(page, name) is not UNSET
        ]
    msgspec.json.decode(at.reply("GET /v0/topics/a/map").body, type=TopicMap)


def test_every_answer_is_timed_under_its_route(at: Served) -> None:
    at.write(1)
    at.ok("PUT /v0/topics/f", {"durability": "fsync"})
    at.ok("POST /v0/topics/f", {"records": [{"data": 1}]})
    at.error("POST /v0/topics/t", {"records": 1})
    at.error("GET /v0/topics/none")
    at.error("GET /v0/nothing")
    counted = {
        (*route, timings.status): timings.requests
        for route, statuses in at.server.application.timings().items()
        for timings in statuses
    }
    assert counted == {
        ("POST", "/v0/topics/{topic}", 201): 1,
        ("POST", "/v0/topics/{topic}", 200): 1,
        ("POST", "/v0/topics/{topic}", 400): 1,
        ("PUT", "/v0/topics/{topic}", 201): 1,
        ("GET", "/v0/topics/{topic}", 404): 1,
        ("", "refused", 404): 1,
    }
