"""The report: columns that line up, ratios with their least, errors that are shown."""

import json

from topics.bench.comparison import Ratio, TargetResult, WorkloadResult
from topics.bench.measurement import Figure
from topics.bench.plan import LoadSettings
from topics.bench.report import render_json, render_text
from topics.bench.samples import Sample
from topics.bench.targets import TargetKind


def sample_with(
    requests: int, *, errors: int = 0, first_error: str | None = None, generator_busy: float = 0.5
) -> Sample:
    return Sample(requests, requests * 100, 2.0, 0.25, 1.5, 2.125, errors, first_error, generator_busy)


def result_with(*targets: TargetResult, ratios: tuple[Ratio, ...] = ()) -> WorkloadResult:
    return WorkloadResult("write-100", "100 records a call, disk class", targets, ratios)


OURS = TargetResult("topics", TargetKind.TOPICS, (sample_with(20_000), sample_with(24_690), sample_with(26_000)))
PEER = TargetResult("redis (everysec)", TargetKind.REDIS, (sample_with(8_000),))


def test_the_table_shows_the_median_round_in_aligned_columns() -> None:
    assert render_text([result_with(OURS, PEER)], []) == (
        "write-100 – 100 records a call, disk class\n"
        "\n"
        "  target            requests/s  records/s  p50 ms  p99 ms  p99.9 ms  errors  load cpu\n"
        "  ────────────────  ──────────  ─────────  ──────  ──────  ────────  ──────  ────────\n"
        "  topics                12 345  1 234 500   0.250   1.500     2.125       0       50%\n"
        "  redis (everysec)       4 000    400 000   0.250   1.500     2.125       0       50%\n"
    )


def test_a_ratio_says_whether_it_is_met() -> None:
    ratios = (
        Ratio("topics", "redis", 3.086, 2.0),
        Ratio("topics", "empty", 0.4, 0.5),
        Ratio("topics", "b", 1.0, None),
    )
    text = render_text([result_with(OURS, ratios=ratios)], [])
    assert "  topics / redis = 3.09  (met: at least 2)\n" in text
    assert "  topics / empty = 0.40  (missed: at least 0.5)\n" in text
    assert text.endswith("  topics / b = 1.00\n")


def test_a_latency_says_whether_it_is_met() -> None:
    figures = (Figure("p99 of topics", 0.9, "ms", 1.0), Figure("p99 of other", 1.25, "ms", 1.0))
    text = render_text([WorkloadResult("fanout-1", "", (OURS,), (), figures=figures)], [])
    assert "  p99 of topics = 0.90 ms  (met: at most 1 ms)\n" in text
    assert "  p99 of other = 1.25 ms  (missed: at most 1 ms)\n" in text


def test_at_a_fixed_rate_the_round_with_the_middle_p99_is_shown() -> None:
    rounds = tuple(Sample(100, 100, 2.0, 0.1, p99_ms, 3.0, 0, None, 0.5) for p99_ms in (2.5, 0.5, 1.5))
    target = TargetResult("topics", TargetKind.TOPICS, rounds, fixed_rate=True)
    assert target.typical.p99_ms == 1.5


def test_errors_of_all_rounds_are_counted_and_the_first_is_shown() -> None:
    rounds = (sample_with(10, errors=2, first_error="HTTP/1.1 429 slow down"), sample_with(20, errors=5))
    text = render_text([result_with(TargetResult("topics", TargetKind.TOPICS, rounds))], [])
    assert "       7  " in text
    assert "  first error of topics: HTTP/1.1 429 slow down\n" in text


def test_notes_come_last() -> None:
    text = render_text([result_with(OURS)], ["redis was not measured"])
    assert text.endswith("\n\nnote: redis was not measured\n")


def test_a_generator_without_time_left_is_pointed_out() -> None:
    busy = TargetResult("topics", TargetKind.TOPICS, (sample_with(10, generator_busy=0.99),))
    assert "had no time left in write-100 on topics" in render_text([result_with(busy)], [])


def test_the_json_document_has_every_round_and_ratio() -> None:
    result = result_with(OURS, PEER, ratios=(Ratio("topics", "redis", 3.0, 2.0),))
    document = json.loads(render_json([result], ["a note"], LoadSettings(16, 2.0), "disk"))
    (workload,) = document["workloads"]
    assert [len(target["rounds"]) for target in workload["targets"]] == [3, 1]
    assert workload["targets"][0]["median"]["requests_per_s"] == 12_345.0
    assert workload["ratios"] == [
        {"subject": "topics", "peer": "redis", "of": "records/s", "value": 3.0, "at_least": 2.0, "at_most": None}
    ]
    assert document["settings"]["durability"] == "disk"
    assert document["notes"] == ["a note"]
