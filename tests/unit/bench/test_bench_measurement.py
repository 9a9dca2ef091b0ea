"""Figures beside their bounds, in the report and in the exit status."""

import json

from topics.bench.command import _verdict
from topics.bench.measurement import Figure, MeasurementResult
from topics.bench.media_workload import MediaRoom
from topics.bench.plan import LoadSettings
from topics.bench.report import render_figures, render_json
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
    }


def test_measurements_are_selected_by_name_and_with_everything_else() -> None:
    assert {"recovery", "memory"} <= set(selections())
    assert select("recovery", "disk", MediaRoom()) == []
    assert [each.name for each in select_measurements("recovery", "disk", 10)] == ["recovery"]
    assert [each.name for each in select_measurements(EVERYTHING, "disk", None)] == ["recovery", "memory"]
    assert select_measurements("write", "disk", None) == []
