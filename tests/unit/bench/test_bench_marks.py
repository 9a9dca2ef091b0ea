"""Marks in one table, and beside an earlier run."""

import json
from pathlib import Path

import pytest

from topics.bench.comparison import Ratio, TargetResult, WorkloadResult, ratios_of
from topics.bench.errors import BenchError
from topics.bench.marks import lines_of, read_earlier, render_marks
from topics.bench.measurement import Figure, MeasurementResult
from topics.bench.plan import LoadSettings
from topics.bench.recovery_measurement import AT_ONCE, LATER, STOPPED, figures_of
from topics.bench.report import render_json
from topics.bench.samples import P50, P99, Sample
from topics.bench.targets import Target, TargetKind
from topics.bench.workloads import select, select_measurements
from topics.bench.write_workload import WriteWorkload

RESULTS = [
    WorkloadResult(
        "write-100",
        "",
        (),
        (
            Ratio("topics", "redis", 1.234, 1.0),
            Ratio("topics", "redis", 2.5, None, P99, most=2.0),
            Ratio("topics", "nats", 3.0, None),
        ),
        figures=(Figure("busiest worker", 1.1, "times the mean"),),
    )
]
MEASURED = [MeasurementResult("start", "", (Figure("empty start", 0.45, "times", 0.5),))]


def sample(records: int, p50_ms: float = 1.0, p99_ms: float = 2.0) -> Sample:
    return Sample(records, records, 1.0, p50_ms, p99_ms, 3.0, 0, None, 0.5)


def test_the_table_has_every_mark_and_says_how_many_are_missed() -> None:
    assert render_marks(lines_of(RESULTS, MEASURED)) == (
        "marks – 2 met, 1 missed\n"
        "\n"
        "  what                    now         mark\n"
        "  write-100: ÷ redis      1.23        ≥ 1    met\n"
        "  write-100: p99 ÷ redis  2.5         ≤ 2    missed\n"
        "  start: empty start      0.45 times  ≤ 0.5  met\n"
    )


def test_without_marks_there_is_no_table() -> None:
    assert render_marks(lines_of([], [MeasurementResult("floors", "", (Figure("one sync", 1.0, "ms"),))])) == ""


def test_an_earlier_run_is_shown_beside_what_is_in_both(tmp_path: Path) -> None:
    kept = tmp_path / "earlier.json"
    kept.write_bytes(render_json(RESULTS, [], LoadSettings(1, 1.0), "disk", MEASURED))
    earlier = read_earlier(kept)
    assert earlier == {
        ("write-100", "÷ redis"): 1.234,
        ("write-100", "p99 ÷ redis"): 2.5,
        ("write-100", "÷ nats"): 3.0,
        ("write-100", "busiest worker"): 1.1,
        ("start", "empty start"): 0.45,
    }
    now = [MeasurementResult("start", "", (Figure("empty start", 0.9, "times", 0.5), Figure("new", 1.0, "s", 2.0)))]
    lines = render_marks(lines_of([], now), earlier).splitlines()
    assert lines[3].split("  ")[-1] == "0.45 times (+100%)"
    assert lines[4].endswith("–")


@pytest.mark.parametrize("content", [b"", b"{}", json.dumps({"workloads": 3, "measurements": []}).encode()])
def test_a_file_that_is_no_run_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(BenchError, match="not a run kept with --json"):
        read_earlier(tmp_path / "run.json")


def test_a_p99_can_have_a_mark_of_its_own() -> None:
    ours = TargetResult("topics", TargetKind.TOPICS, (sample(100, p99_ms=5.0),))
    redis = TargetResult("redis", TargetKind.REDIS, (sample(50, p99_ms=1.0),))
    rate, p99 = ratios_of(WriteWorkload("disk", 100), [ours, redis])
    assert (rate.value, rate.least, rate.missed) == (2.0, 1.0, False)
    assert (p99.of, p99.value, p99.most, p99.missed) == (P99, 5.0, 2.0, True)


def test_marks_against_today_s_server_are_those_of_a_checkout_and_not_of_any_url() -> None:
    (workload,) = select("fanout-100", "disk")
    ours = TargetResult("topics", TargetKind.TOPICS, (sample(1, 1.0),), fixed_rate=True)
    for older, most in ((True, 0.55), (False, None)):
        other = TargetResult("other", TargetKind.TOPICS, (sample(1, 2.0),), fixed_rate=True, older=older)
        (ratio,) = ratios_of(workload, [ours, other])
        assert (ratio.of, ratio.value, ratio.most) == (P50, 0.5, most)


def test_a_synced_write_is_held_against_a_peer_that_syncs() -> None:
    always = Target("redis (always)", TargetKind.REDIS, "127.0.0.1", 1, sync_always=True)
    everysec = Target("redis (everysec)", TargetKind.REDIS, "127.0.0.1", 1)
    (alone,) = select("fsync-1-alone", "disk")
    (plain,) = select("write-1", "disk")
    assert [alone.offered_by(always), alone.offered_by(everysec)] == [True, False]
    assert [plain.offered_by(always), plain.offered_by(everysec)] == [False, True]
    assert alone.connections == 1


def test_starts_are_compared_round_by_round() -> None:
    rounds = {
        "topics": [{AT_ONCE: 1.0, LATER: 1.0, STOPPED: 1.0}, {AT_ONCE: 3.0, LATER: 1.0, STOPPED: 1.0}],
        "checkout older": [{AT_ONCE: 2.0, LATER: 1.0, STOPPED: 1.0}, {AT_ONCE: 6.0, LATER: 1.0, STOPPED: 0.5}],
    }
    ratios = {figure.name: figure for figure in figures_of(rounds) if figure.unit == "times"}
    at_once = ratios[f"topics ÷ checkout older: start after {AT_ONCE}"]
    assert (at_once.value, at_once.at_most, at_once.missed) == (0.5, 0.55, False)
    assert ratios[f"topics ÷ checkout older: start after {STOPPED}"].missed
    assert not [figure for figure in figures_of({"topics": rounds["topics"]}) if figure.unit == "times"]


def test_every_row_that_has_a_mark_is_part_of_everything() -> None:
    marked = {workload.name for workload in select("all", "disk") if workload.expectations}
    assert marked == {
        *("write-1", "write-100", "fsync-1-alone", "fsync-1", "diff-tail", "diff-deep", "queue"),
        *("fanout-100", "fanout-1000", "topics-1000", "topics-1000-deletes"),
    }
    assert {"start", "recovery", "memory"} <= {each.name for each in select_measurements("all", "disk")}
