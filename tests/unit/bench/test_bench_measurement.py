"""Figures beside their bounds, in the report and in the exit status."""

import json

from topics.bench.command import _verdict
from topics.bench.live_workload import MediaRoom
from topics.bench.measurement import Figure, MeasurementResult
from topics.bench.plan import LoadSettings
from topics.bench.report import render_figures, render_json
from topics.bench.spark_measurement import _result
from topics.bench.workloads import EVERYTHING, select, select_measurements, selections

RESULT = MeasurementResult(
    "recovery",
    "10 records",
    (
        Figure("after SIGKILL", 1.5, "s", 2.0),
        Figure("after a clean stop", 0.4, "s", 0.3),
        Figure("rate", 123456.7, "records/s"),
    ),
    ("a note",),
)


def test_figures_are_shown_beside_what_they_should_not_exceed() -> None:
    assert render_figures([RESULT]) == (
        "recovery – 10 records\n"
        "\n"
        "  after SIGKILL                  1.50 s  (met: at most 2 s)\n"
        "  after a clean stop             0.40 s  (missed: at most 0.3 s)\n"
        "  rate                123 457 records/s\n"
        "\n"
        "  a note\n"
    )


def test_a_missed_bound_fails_a_check_and_nothing_else() -> None:
    assert [_verdict([], [RESULT], check=check) for check in (False, True)] == [0, 1]


def test_figures_are_in_the_json_document() -> None:
    document = json.loads(render_json([], [], LoadSettings(1, 1.0), "disk", [RESULT]))
    assert document["measurements"][0]["figures"][1] == {
        "name": "after a clean stop",
        "value": 0.4,
        "unit": "s",
        "at_most": 0.3,
        "at_least": None,
    }


def test_measurements_are_selected_by_name_and_with_everything_else() -> None:
    assert {"recovery", "memory", "routers"} <= set(selections())
    assert select("recovery", "disk", MediaRoom()) == []
    assert [each.name for each in select_measurements("recovery", "disk")] == ["recovery"]
    everything = [each.name for each in select_measurements(EVERYTHING, "disk")]
    assert everything == ["floors", "start", "recovery", "memory", "routers"]
    assert select_measurements("write", "disk") == []


def test_spark_is_measured_only_when_it_is_asked_for() -> None:
    assert "spark" in selections()
    assert [each.name for each in select_measurements("spark", "disk")] == ["spark"]


def test_a_figure_below_what_it_should_reach_is_missed() -> None:
    low, high = Figure("ratio", 0.9, "×", at_least=1.0), Figure("ratio", 1.0, "×", at_least=1.0)
    assert (low.missed, high.missed) == (True, False)
    shown = render_figures([MeasurementResult("spark", "10 records", (low, high))]).splitlines()
    assert shown[2:4] == ["  ratio  0.90 ×  (missed: at least 1 ×)", "  ratio     1 ×  (met: at least 1 ×)"]


def test_ratios_of_spark_s_readers_are_those_of_rounds_that_ran_side_by_side() -> None:
    rates = {"files": [100.0, 20.0, 300.0], "http": [50.0, 10.0, 150.0], "json": [50.0, 20.0, 100.0]}
    rates |= {f"{name} {what}": rates[name] for name in ("files", "json") for what in ("counted", "grouped")}
    figures = {figure.name: figure for figure in _result(1000, rates, [7.0, 9.0, 8.0], [10.0, 9.0, 10.0], []).figures}
    assert figures["whole records, sealed segments"].value == 100.0
    assert figures["sealed segments / JSON reader"].value == 2.0
    assert figures["over HTTP / JSON reader"].value == 1.0
    assert figures["written by 200 rows"].value == 8.0
    assert figures["written / the client's producer"].value == 0.8
    assert not any(figure.missed for figure in figures.values())
