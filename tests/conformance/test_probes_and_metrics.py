"""GET /v0/health, /v0/ready and /v0/metrics."""

import re
from dataclasses import dataclass, field

import pytest

from conformance.client import Api, Topic, eventually, success
from conformance.conftest import StartServer
from conformance.process import ServerProcess

METRICS = {
    "topics_topics": "gauge",
    "topics_topics_by_class": "gauge",
    "topics_routers": "gauge",
    "topics_records_live": "gauge",
    "topics_bytes_live": "gauge",
    "topics_queue_topics": "gauge",
    "topics_queue_leases_in_flight": "gauge",
    "topics_sse_connections": "gauge",
    "topics_watch_sessions": "gauge",
    "topics_ready": "gauge",
    "topics_recovery_progress": "gauge",
    "topics_uptime_ms": "gauge",
    "topics_topic_head_seq": "gauge",
    "topics_topic_earliest_seq": "gauge",
    "topics_topic_records_live": "gauge",
    "topics_topic_bytes_live": "gauge",
    "topics_topic_queue_ready": "gauge",
    "topics_topic_queue_in_flight": "gauge",
    "topics_wal_frames_total": "counter",
    "topics_wal_batches_total": "counter",
    "topics_wal_fsyncs_total": "counter",
    "topics_wal_bytes_written_total": "counter",
    "topics_wal_rotations_total": "counter",
    "topics_wal_queue_depth": "gauge",
    "topics_wal_queue_depth_peak": "gauge",
    "topics_wal_submit_full_total": "counter",
    "topics_wal_read_only": "gauge",
    "topics_wal_fsync_latency_us": "histogram",
}

SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?P<labels>\{[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*")*,?\})?'
    r" (?P<value>[+-]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|Inf|NaN))"
)


@dataclass
class Exposition:
    """A parsed Prometheus text exposition."""

    helps: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    samples: dict[str, float] = field(default_factory=dict)


def family_of(sample: str, types: dict[str, str]) -> str:
    name = sample.partition("{")[0]
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if types.get(base) == "histogram" else name


def scrape(api: Api) -> Exposition:
    reply = api.get("/v0/metrics")
    assert reply.status == 200
    text = reply.body.decode()
    assert text.endswith("\n")
    parsed = Exposition()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, explanation = line.split(" ", 3)
            assert name not in parsed.helps, line
            parsed.helps[name] = explanation
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in parsed.types, line
            parsed.types[name] = kind
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            key = sample["name"] + (sample["labels"] or "")
            assert key not in parsed.samples, line
            assert family_of(key, parsed.types) in parsed.types, f"no TYPE before {line}"
            parsed.samples[key] = float(sample["value"])
    return parsed


@pytest.fixture(scope="module")
def measured(server: StartServer) -> ServerProcess:
    """A server with one topic of each durability class (one of them a queue) and six records."""
    process = server()
    for durability in ["ephemeral", "memory", "disk", "fsync"]:
        Topic(process.api, durability).configure(durability=durability)
    Topic(process.api, "jobs:a").configure(type="queue")
    Topic(process.api, "disk").fill(3)
    Topic(process.api, "fsync").fill(1)
    Topic(process.api, "jobs:a").fill(2)
    Topic(process.api, "disk").delete_records(before_seq=2)
    return process


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health_reports_that_the_server_is_up(api: Api, path: str) -> None:
    health = success(api.get(path))
    assert health["status"] == "ok"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", health["version"])
    assert isinstance(health["uptime_ms"], int)


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_ready_reports_that_the_replay_is_complete(topic: Topic, path: str) -> None:
    topic.configure()
    ready = success(topic.api.get(path))
    assert ready["status"] == "ready"
    assert ready["wal_replay_complete"] is True
    assert ready["topics"] >= 1


def test_ready_has_the_id_of_the_server(api: Api) -> None:
    server_id = success(api.get("/v0/ready"))["server_id"]
    assert re.fullmatch("[0-9a-f]{32}", server_id)
    assert success(api.get("/v0/ready"))["server_id"] == server_id


def test_ready_counts_the_topics(measured: ServerProcess) -> None:
    assert success(measured.api.get("/v0/ready"))["topics"] == 5


@pytest.mark.parametrize("headers", [{}, {"Accept": "*/*"}, {"Accept": "text/plain"}])
def test_metrics_are_prometheus_text_by_default(api: Api, headers: dict[str, str]) -> None:
    reply = api.get("/v0/metrics", headers)
    assert reply.status == 200
    assert reply.media_type == "text/plain"
    assert "version=0.0.4" in reply.headers["Content-Type"]


def test_metrics_are_json_when_asked_for(api: Api) -> None:
    reply = api.get("/v0/metrics", {"Accept": "application/json"})
    assert reply.status == 200
    assert reply.json != {}


@pytest.mark.parametrize(("name", "kind"), METRICS.items())
def test_a_documented_metric_is_exposed_with_its_type(measured: ServerProcess, name: str, kind: str) -> None:
    exposition = scrape(measured.api)
    assert exposition.types[name] == kind
    assert any(family_of(sample, exposition.types) == name for sample in exposition.samples)


def test_every_family_has_a_help_and_a_type(measured: ServerProcess) -> None:
    exposition = scrape(measured.api)
    assert set(exposition.helps) == set(exposition.types)
    assert all(exposition.helps.values())


def test_the_samples_of_a_family_stand_together(measured: ServerProcess) -> None:
    exposition = scrape(measured.api)
    families = [family_of(sample, exposition.types) for sample in exposition.samples]
    runs = [name for position, name in enumerate(families) if position == 0 or families[position - 1] != name]
    assert len(runs) == len(set(runs))


def test_topics_are_counted_by_durability_class(measured: ServerProcess) -> None:
    samples = scrape(measured.api).samples
    by_class = {name: samples[f'topics_topics_by_class{{class="{name}"}}'] for name in ["ephemeral", "memory", "fsync"]}
    assert by_class == {"ephemeral": 1, "memory": 1, "fsync": 1}
    assert samples['topics_topics_by_class{class="disk"}'] == 2
    assert (samples["topics_topics"], samples["topics_queue_topics"]) == (5, 1)


def test_live_records_are_counted(measured: ServerProcess) -> None:
    samples = scrape(measured.api).samples
    assert samples["topics_records_live"] == 5
    assert samples["topics_bytes_live"] > 0


def test_a_topic_is_described_by_its_own_gauges(measured: ServerProcess) -> None:
    state = Topic(measured.api, "disk").state()
    samples = scrape(measured.api).samples
    shown = {
        gauge: samples[f'topics_topic_{gauge}{{topic="disk"}}']
        for gauge in ["head_seq", "earliest_seq", "records_live", "bytes_live"]
    }
    assert shown == {"head_seq": 3, "earliest_seq": 2, "records_live": 2, "bytes_live": state["bytes"]}


def test_a_queue_is_described_by_its_counters(measured: ServerProcess) -> None:
    samples = scrape(measured.api).samples
    assert samples['topics_topic_queue_ready{topic="jobs:a"}'] == 2
    assert samples['topics_topic_queue_in_flight{topic="jobs:a"}'] == 0


def test_the_per_topic_gauges_are_complete(measured: ServerProcess) -> None:
    assert scrape(measured.api).samples.get("topics_topic_metrics_truncated", 0) == 0


def test_a_ready_server_says_so(measured: ServerProcess) -> None:
    samples = scrape(measured.api).samples
    assert (samples["topics_ready"], samples["topics_recovery_progress"], samples["topics_wal_read_only"]) == (1, 1, 0)


def test_an_fsync_write_is_counted(topic: Topic) -> None:
    topic.configure(durability="fsync")
    before = scrape(topic.api).samples
    topic.fill(1)
    after = scrape(topic.api).samples
    for counter in ["frames", "batches", "fsyncs", "bytes_written"]:
        assert after[f"topics_wal_{counter}_total"] > before[f"topics_wal_{counter}_total"], counter


def test_a_disk_write_reaches_the_log(topic: Topic) -> None:
    topic.configure()
    before = scrape(topic.api).samples["topics_wal_frames_total"]
    topic.fill(1)
    eventually(lambda: scrape(topic.api).samples["topics_wal_frames_total"] > before)


def test_the_sync_latency_is_a_cumulative_histogram(measured: ServerProcess) -> None:
    samples = scrape(measured.api).samples
    name = "topics_wal_fsync_latency_us"
    bounds = {
        float(bound.replace("+Inf", "inf")): value
        for sample, value in samples.items()
        for bound in re.findall(rf'{name}_bucket{{le="([^"]+)"}}', sample)
    }
    counts = [bounds[bound] for bound in sorted(bounds)]
    assert counts == sorted(counts)
    assert bounds[float("inf")] == samples[f"{name}_count"]
    assert samples[f"{name}_sum"] > 0


def test_a_scrape_touches_no_topic(topic: Topic) -> None:
    topic.configure()
    scrape(topic.api)
    assert topic.state()["last_read_ts"] is None
