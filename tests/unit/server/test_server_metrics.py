"""Metrics: every documented name, true values, and the same content as text and as JSON."""

import asyncio
import json
import re

import pytest
from msgspec import Raw

from topics import limits
from topics.api.readiness import Phase, Readiness
from topics.api.route_timings import RouteTimings
from topics.engine.engine import Engine, Write
from topics.engine.queues import Claimer
from topics.model.config import Durability, TopicConfigPatch, TopicType
from topics.model.record import NewRecord
from topics.server.metrics import LiveMetrics, ProcessMetrics, ServerMetrics, WalMetrics
from topics.storage.group_commit import SYNC_BUCKETS_US
from topics.testing.fake_clock import FakeClock

NAMES = [
    "topics_topics",
    "topics_topics_by_class",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_pressure",
    "topics_ready",
    "topics_recovery_progress",
    "topics_uptime_ms",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_topic_queue_ready",
    "topics_topic_queue_in_flight",
    "topics_topic_queue_dead_lettered",
    "topics_topic_metrics_truncated",
    "topics_router_lag",
    "topics_router_forwarded_total",
    "topics_router_metrics_truncated",
    "topics_wal_frames_total",
    "topics_wal_batches_total",
    "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total",
    "topics_wal_rotations_total",
    "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak",
    "topics_wal_submit_full_total",
    "topics_wal_read_only",
    "topics_unsealed_bytes",
    "topics_unsealed_bytes_max",
    "topics_wal_fsync_latency_us",
    "topics_connections",
    "topics_long_polls",
    "topics_received_bytes_total",
    "topics_sent_bytes_total",
    "topics_lost_records_total",
    "topics_cursor_lag",
    "topics_cursor_lag_ms",
    "topics_cursor_metrics_truncated",
    "topics_memory_bytes",
    "topics_open_files",
    "topics_open_files_max",
    "topics_disk_free_bytes",
    "topics_loop_lag_ms",
    "topics_checkpoints_total",
    "topics_checkpoint_failures_total",
    "topics_checkpoint_ms_total",
    "topics_checkpoint_last_ms",
    "topics_checkpoint_last_ts",
    "topics_recovery_ms",
    "topics_recovery_lost_seqs",
    "topics_requests_total",
    "topics_request_duration_us",
]


class Observed:
    """An engine, and metrics over it with changeable journal and live counters."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.engine = Engine(self.clock)
        self.queues = self.engine.queues
        self.readiness = Readiness()
        self.wal = WalMetrics()
        self.live = LiveMetrics()
        self.process = ProcessMetrics(
            1, 2, 3, 4, checkpoint_last_ms=5, checkpoint_last_ts=6, recovery_ms=7, recovery_lost_seqs=8
        )
        self.routes: dict[tuple[str, str], RouteTimings] = {}
        self.metrics = ServerMetrics(
            self.engine,
            self.queues,
            self.clock,
            self.readiness,
            wal=lambda: self.wal,
            live=lambda: self.live,
            process=lambda: self.process,
            routes=lambda: self.routes,
            started_ns=self.clock.monotonic_ns(),
        )

    def write(self, topic: str, count: int) -> None:
        self.engine.append(topic, Write([NewRecord(Raw(b"0"))] * count))

    def text(self, *prefixes: str) -> str:
        return asyncio.run(self.metrics.text(prefixes or ("",))).decode()

    def sample(self, name: str) -> str:
        """The value of one sample, by its name with labels."""
        found = [line.rpartition(" ")[2] for line in self.text().splitlines() if line.rpartition(" ")[0] == name]
        assert len(found) == 1, (name, found)
        return found[0]


@pytest.fixture
def at() -> Observed:
    return Observed()


def test_every_documented_name_is_described_once(at: Observed) -> None:
    types = re.findall(r"^# TYPE (\S+) (gauge|counter|histogram)$", at.text(), re.MULTILINE)
    helps = re.findall(r"^# HELP (\S+) .", at.text(), re.MULTILINE)
    assert [name for name, _ in types] == helps
    assert sorted(helps) == sorted(NAMES)


def test_totals_are_counters(at: Observed) -> None:
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", at.text(), re.MULTILINE):
        assert (kind == "counter") == name.endswith("_total"), name


def test_every_line_is_a_comment_or_a_sample(at: Observed) -> None:
    at.write("a:b.c", 1)
    text = at.text()
    assert text.endswith("\n")
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \S+ .+|[a-z_]+(\{([a-z]+="[^"\\]*",?)+\})? -?[0-9.e+-]+', line), line


def test_the_engine_is_counted(at: Observed) -> None:
    at.write("a", 3)
    at.write("b", 1)
    at.engine.delete_records("a", 2, None)
    assert at.sample("topics_topics") == "2"
    assert at.sample("topics_records_live") == "3"
    assert at.sample("topics_bytes_live") == str(at.engine.state.bytes_live)
    assert at.sample('topics_topic_head_seq{topic="a"}') == "3"
    assert at.sample('topics_topic_earliest_seq{topic="a"}') == "2"
    assert at.sample('topics_topic_records_live{topic="a"}') == "2"
    assert at.sample('topics_topic_bytes_live{topic="b"}') == str(at.engine.topic("b").log.bytes)


def test_topics_are_counted_by_class(at: Observed) -> None:
    at.engine.put_topic("a", TopicConfigPatch(durability=Durability.FSYNC))
    at.engine.put_topic("b", TopicConfigPatch())
    counts = {name: at.sample(f'topics_topics_by_class{{class="{name}"}}') for name in Durability}
    assert counts == {"ephemeral": "0", "memory": "0", "disk": "1", "fsync": "1"}


def test_queues_have_counters_of_their_own(at: Observed) -> None:
    at.engine.put_topic("q", TopicConfigPatch(type=TopicType.QUEUE))
    at.write("q", 2)
    at.write("log", 1)
    at.queues.claim(at.engine.topic("q"), (Claimer("w", 1),))
    assert at.sample("topics_queue_topics") == "1"
    assert at.sample("topics_queue_leases_in_flight") == "1"
    assert at.sample('topics_topic_queue_ready{topic="q"}') == "1"
    assert at.sample('topics_topic_queue_in_flight{topic="q"}') == "1"
    assert at.sample('topics_topic_queue_dead_lettered{topic="q"}') == "0"
    assert 'topics_topic_queue_ready{topic="log"}' not in at.text()


@pytest.mark.parametrize(
    ("phase", "progress", "ready", "recovered"),
    [(Phase.RECOVERING, 0.25, "0", "0.25"), (Phase.READY, 0.0, "1", "1.0"), (Phase.STOPPING, 0.0, "0", "1.0")],
)
def test_readiness_and_recovery_are_shown(
    at: Observed, phase: Phase, progress: float, ready: str, recovered: str
) -> None:
    at.readiness.phase = phase
    at.readiness.replay_progress = progress
    assert (at.sample("topics_ready"), at.sample("topics_recovery_progress")) == (ready, recovered)


def test_uptime_is_what_has_passed_whatever_the_wall_clock_says(at: Observed) -> None:
    at.clock.advance(1500)
    at.clock.set_wall(0)
    assert at.sample("topics_uptime_ms") == "1500"


def test_what_other_parts_count_is_shown(at: Observed) -> None:
    at.live = LiveMetrics(sse_connections=3, watch_sessions=4, pressure=0.12345)
    at.wal = WalMetrics(frames_total=5, queue_depth_peak=6, read_only=1)
    shown = [
        at.sample(name)
        for name in (
            "topics_sse_connections",
            "topics_watch_sessions",
            "topics_pressure",
            "topics_wal_frames_total",
            "topics_wal_queue_depth_peak",
            "topics_wal_read_only",
        )
    ]
    assert shown == ["3", "4", "0.1235", "5", "6", "1"]


def test_the_histogram_is_cumulative_and_ends_with_all(at: Observed) -> None:
    counts = (2, 3, *[0] * (len(SYNC_BUCKETS_US) - 2), 4)
    at.wal = WalMetrics(fsync_latency_us_counts=counts, fsync_latency_us_sum=777)
    name = "topics_wal_fsync_latency_us"
    assert at.sample(f'{name}_bucket{{le="50"}}') == "2"
    assert at.sample(f'{name}_bucket{{le="100"}}') == "5"
    assert at.sample(f'{name}_bucket{{le="1000000"}}') == "5"
    assert at.sample(f'{name}_bucket{{le="+Inf"}}') == "9"
    assert (at.sample(f"{name}_count"), at.sample(f"{name}_sum")) == ("9", "777")


def test_json_has_the_same_names(at: Observed) -> None:
    at.write("a", 2)
    at.routes["GET", "/v0/topics"] = timings = RouteTimings()
    timings.add(200, 1000)
    histograms = {"topics_wal_fsync_latency_us", "topics_loop_lag_ms", "topics_request_duration_us"}
    names = set(NAMES) - histograms
    assert set(json.loads(asyncio.run(at.metrics.json(("",))))) == names | {
        f"{histogram}{part}" for histogram in histograms for part in ("_bucket", "_sum", "_count")
    }


def test_json_has_the_same_values(at: Observed) -> None:
    at.write("a", 2)
    snapshot = json.loads(asyncio.run(at.metrics.json(("",))))
    assert snapshot["topics_topics"] == 1
    assert snapshot["topics_topic_head_seq"] == {"a": 2}
    assert snapshot["topics_topics_by_class"]["disk"] == 1


def test_only_topics_the_caller_may_see_are_shown(at: Observed) -> None:
    for name in ("mine:1", "mine:2", "other", "yours"):
        at.write(name, 1)
    text = at.text("mine:", "yours")
    assert re.findall(r'topics_topic_head_seq{topic="(.*)"}', text) == ["mine:1", "mine:2", "yours"]
    assert "other" not in text
    assert set(json.loads(asyncio.run(at.metrics.json(("mine:",))))["topics_topic_head_seq"]) == {"mine:1", "mine:2"}


def test_topics_beyond_the_most_that_are_shown_are_said_to_be_left_out(at: Observed) -> None:
    assert at.sample("topics_topic_metrics_truncated") == "0"
    for number in range(limits.METRICS_TOPICS_MAX):
        at.engine.put_topic(f"t{number:05}", TopicConfigPatch())
    assert at.sample("topics_topic_metrics_truncated") == "0"
    at.engine.put_topic("t99999", TopicConfigPatch())
    assert at.sample("topics_topic_metrics_truncated") == "1"
    assert 'topics_topic_head_seq{topic="t99999"}' not in at.text()
    assert at.sample("topics_topics") == str(limits.METRICS_TOPICS_MAX + 1)


def test_totals_follow_topics_that_are_made_changed_and_deleted(at: Observed) -> None:
    at.engine.put_topic("a", TopicConfigPatch(durability=Durability.FSYNC))
    at.engine.put_topic("b", TopicConfigPatch(type=TopicType.QUEUE))
    assert at.sample('topics_topics_by_class{class="fsync"}') == "1"
    at.engine.put_topic("a", TopicConfigPatch(durability=Durability.MEMORY))
    assert at.sample('topics_topics_by_class{class="fsync"}') == "0"
    assert at.sample('topics_topics_by_class{class="memory"}') == "1"
    assert at.sample("topics_queue_topics") == "1"
    at.engine.delete_topic("a")
    at.engine.delete_topic("b")
    assert at.sample('topics_topics_by_class{class="memory"}') == "0"
    assert at.sample("topics_queue_topics") == "0"
    assert at.sample("topics_queue_leases_in_flight") == "0"


def test_losses_are_counted_by_their_reason(at: Observed) -> None:
    at.engine.put_topic("capped", TopicConfigPatch(cap_records=2))
    at.write("capped", 7)
    at.engine.put_topic("short", TopicConfigPatch(ttl_ms=1000))
    at.write("short", 3)
    at.clock.advance(2000)
    at.engine.expire_due()
    assert at.sample('topics_lost_records_total{reason="cap"}') == "5"
    assert at.sample('topics_lost_records_total{reason="ttl"}') == "3"
    assert at.sample('topics_lost_records_total{reason="crash"}') == "0"


def test_deletes_are_no_losses(at: Observed) -> None:
    at.write("a", 3)
    at.engine.delete_records("a", 3, None)
    assert at.sample('topics_lost_records_total{reason="cap"}') == "0"


def test_named_cursors_lag_in_records_and_in_time(at: Observed) -> None:
    at.write("a", 3)
    at.engine.put_cursor("a", "reader", 1)
    at.clock.advance(1500)
    assert at.sample('topics_cursor_lag{topic="a",cursor="reader"}') == "2"
    assert at.sample('topics_cursor_lag_ms{topic="a",cursor="reader"}') == "1500"
    assert at.sample("topics_cursor_metrics_truncated") == "0"


def test_cursors_beyond_the_bound_are_left_out_and_that_is_told(at: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METRICS_CURSORS_MAX", 2)
    at.write("a", 1)
    for name in ("x", "y", "z"):
        at.engine.put_cursor("a", name, 0)
    assert at.text().count("topics_cursor_lag{") == 2
    assert at.sample("topics_cursor_metrics_truncated") == "1"


def test_requests_are_counted_by_route_and_status(at: Observed) -> None:
    at.routes["POST", "/v0/topics/{topic}"] = timings = RouteTimings()
    for duration_us in (10, 60, 70, 2_000_000, 60_000_000):
        timings.add(200, duration_us * 1000)
    timings.add(404, 50_000)
    labels = 'method="POST",route="/v0/topics/{topic}",status="200"'
    assert at.sample(f"topics_requests_total{{{labels}}}") == "5"
    assert at.sample(f"topics_requests_total{{{labels.replace('200', '404')}}}") == "1"
    bucket = f"topics_request_duration_us_bucket{{{labels},le="
    assert at.sample(f'{bucket}"65.536"}}') == "2"
    assert at.sample(f'{bucket}"262.144"}}') == "3"
    assert at.sample(f'{bucket}"+Inf"}}') == "5"
    assert at.sample(f"topics_request_duration_us_sum{{{labels}}}") == "62000140"
    assert at.sample(f"topics_request_duration_us_count{{{labels}}}") == "5"


def test_what_is_not_known_is_left_out(at: Observed) -> None:
    at.process = ProcessMetrics()
    assert "topics_memory_bytes" not in at.text()
    assert "topics_recovery_ms" not in at.text()


def test_a_page_of_many_topics_lets_others_in_between(at: Observed) -> None:
    for number in range(limits.METRICS_SLICE_TOPICS * 3):
        at.write(f"t{number}", 1)
    turns = 0

    async def look() -> None:
        nonlocal turns
        task = asyncio.ensure_future(at.metrics.text(("",)))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(look())
    assert turns > 3
