"""Curves: where a line bends, what is said of it, and a picture that can be read."""

import argparse
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from topics.bench.command import add_parser
from topics.bench.curve_measurement import decades
from topics.bench.curve_picture import draw, keep_curve
from topics.bench.curves import Curve, Line, bend_of, render_curves, slope_of, told

FLAT = Line("CPU of a write", "µs", ((10, 40.0), (100, 41.0), (1000, 40.0)))
PROPORTIONAL = Line("p50", "ms", ((1, 0.5), (10, 5.0), (100, 50.0)))
BENT = Line("start", "ms", ((10, 200.0), (100, 200.0), (1000, 200.0), (10_000, 2000.0), (100_000, 20_000.0)))
CURVE = Curve("topics", "topics", (FLAT, BENT))


def test_slopes_are_those_of_logarithmic_axes() -> None:
    assert slope_of(PROPORTIONAL.points) == pytest.approx(1.0)
    assert slope_of(BENT.points[:3]) == pytest.approx(0.0)


def test_a_line_bends_where_its_slope_changes_for_good() -> None:
    bend = bend_of(BENT)
    assert bend is not None
    assert bend.size == 1000
    assert [bend.before, bend.after] == pytest.approx([0.0, 1.0])


def test_a_line_that_falls_and_then_stays_bends_too() -> None:
    bend = bend_of(Line("CPU of a record", "µs", ((1, 40.0), (10, 8.0), (100, 7.5), (1000, 7.4))))
    assert bend is not None
    assert bend.size == 10


@pytest.mark.parametrize("costs", [(40, 44, 38, 43, 41), (1, 11, 95, 1050, 9800), (40, 60, 40, 60, 40)])
def test_a_line_that_is_only_uneven_does_not_bend(costs: tuple[float, ...]) -> None:
    sizes = (1, 10, 100, 1000, 10_000)
    assert bend_of(Line("", "", tuple(zip(sizes, costs, strict=True)))) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (FLAT, "CPU of a write: 40 µs at 10, 40 at 1 000; flat throughout"),
        (PROPORTIONAL, "p50: 0.5 ms at 1, 50 at 100; grows as size^1.0 throughout"),
        (BENT, "start: 200 ms at 10, 20 000 at 100 000; flat up to 1 000, grows as size^1.0 from there"),
    ],
)
def test_a_line_is_told_in_words(line: Line, words: str) -> None:
    assert told(line) == words


def test_the_report_names_every_line() -> None:
    text = render_curves([CURVE])
    assert text.startswith("topics – cost over topics\n\n  CPU of a write: ")
    assert text.count("\n  ") == 2


def test_the_picture_is_xml_with_a_ring_at_each_bend_and_text_that_is_escaped() -> None:
    odd = Curve("odd", "a < b & c", (BENT, Line("one point", "ms", ((5, 1.0),))))
    root = ElementTree.fromstring(draw(odd))
    rings = [each for each in root.iter() if each.tag.endswith("circle") and each.get("fill") == "none"]
    assert len(rings) == 1
    assert "Cost over a < b & c" in [each.text for each in root.iter()]
    xs = [float(each.get("cx", "0")) for each in root.iter() if each.tag.endswith("circle")]
    assert all(0 <= x <= 760 for x in xs)


def test_a_curve_is_kept_as_numbers_and_as_a_picture(tmp_path: Path) -> None:
    keep_curve(tmp_path, CURVE)
    kept = json.loads((tmp_path / "topics.json").read_text())
    assert kept["lines"][0]["points"][0] == [10, 40.0]
    assert (tmp_path / "topics.svg").read_text() == draw(CURVE)


def test_sizes_grow_tenfold_up_to_the_largest() -> None:
    assert decades(10, 100_000) == [10, 100, 1000, 10_000, 100_000]
    assert decades(10, 2500) == [10, 100, 1000, 2500]
    assert decades(10, 10) == decades(10, 5) == [10]


def test_curves_are_those_of_everything_or_of_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["bench", "write", "--curves", str(tmp_path / "new")])
    assert arguments.run(arguments) == 2
    assert "none of write" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
