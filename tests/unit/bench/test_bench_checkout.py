"""An older checkout beside this one: started from its own sources, measured in turns, and compared with its spread."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from stub_checkout import make_checkout

from topics.bench.command import add_arguments, run
from topics.bench.comparison import Ratio, TargetResult, WorkloadResult, compare
from topics.bench.errors import BenchError
from topics.bench.plan import AnyPlan, LoadSettings
from topics.bench.report import render_json, render_text
from topics.bench.samples import RATE, PairedRatio, Sample
from topics.bench.targets import Target, TargetKind, own_server
from topics.bench.workload import Workload

# As much of a server as a start needs: it says where it runs from.
HANDLER = """
import json, os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"source": __file__, "data": os.environ["TOPICS_DATA_DIR"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "older", HANDLER)


class FakeWorkload(Workload):
    """Gives each target its samples in turn, and notes who was asked when."""

    name = group = "fake"
    summary = "nothing"
    kinds = frozenset({TargetKind.TOPICS, TargetKind.REDIS})

    def __init__(self, samples: dict[str, list[Sample]], *, fixed_rate: bool = False) -> None:
        super().__init__("disk")
        self.fixed_rate = fixed_rate
        self.asked: list[list[str]] = []
        self._samples = samples

    def plan(self, target: Target, settings: LoadSettings) -> AnyPlan:
        raise NotImplementedError

    def run_round(self, targets: Sequence[Target], settings: LoadSettings) -> list[Sample]:
        self.asked.append([target.name for target in targets])
        return [self._samples[target.name].pop(0) for target in targets]

    def clean_up(self, target: Target) -> None: ...


OURS = Target("topics", TargetKind.TOPICS, "127.0.0.1", 1)
OLDER = Target("checkout older", TargetKind.TOPICS, "127.0.0.1", 2)
REDIS = Target("redis", TargetKind.REDIS, "127.0.0.1", 3)


def sample_with(records: int, p50_ms: float = 1.0, cpu_s: float | None = None) -> Sample:
    return Sample(records, records, 1.0, p50_ms, 2.0, 3.0, 0, None, 0.5, target_cpu_s=cpu_s)


def round_of(*turns: Sample) -> Sample:
    return replace(sample_with(sum(turn.records for turn in turns)), turns=turns)


def compared(workload: Workload, *targets: Target, rounds: int = 1) -> WorkloadResult:
    return compare(workload, targets, LoadSettings(1, 1.0), rounds, lambda text: None)


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_the_server_of_a_checkout_runs_from_its_sources_on_data_of_its_own(checkout: Path) -> None:
    with own_server(checkout) as target, target.http() as control:
        told = json.loads(control.call("GET", "/v0/ready"))
        assert told["source"] == str(checkout / "src/topics/cli/main.py")
        assert not told["data"].startswith(str(checkout))
        assert (target.name, target.kind) == ("checkout older", TargetKind.TOPICS)
    assert not Path(told["data"]).parent.exists()


def test_neither_the_search_path_nor_the_working_directory_come_before_the_checkout(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impostor = tmp_path / "impostor" / "topics"
    impostor.mkdir(parents=True)
    (impostor / "__init__.py").write_text("raise SystemExit('the wrong package')")
    monkeypatch.chdir(impostor.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(impostor.parent), os.environ.get("PYTHONPATH", "")]))
    with own_server(checkout) as target, target.http() as control:
        assert json.loads(control.call("GET", "/v0/ready"))["source"].startswith(str(checkout))


def test_a_checkout_is_an_option_and_there_is_none_by_default() -> None:
    assert arguments().against_checkout is None
    assert arguments("--against-checkout", "../base").against_checkout == Path("../base")


def test_a_directory_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="has no src/topics"), own_server(tmp_path):
        pass


def test_a_checkout_is_compared_with_this_server_or_not_at_all(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["write-1", "--against-checkout", str(checkout), "--targets", "empty"]
    assert run(arguments(*words)) == 2
    assert "add topics to --targets" in capsys.readouterr().err


def test_what_is_no_workload_is_refused_and_not_measured_without_the_checkout(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments("routers", "--against-checkout", str(checkout))) == 2
    assert "routers measures this checkout alone" in capsys.readouterr().err


def test_servers_of_this_project_share_a_round_and_others_have_their_own() -> None:
    workload = FakeWorkload({name: [sample_with(1)] * 3 for name in ("topics", "checkout older", "redis")})
    compared(workload, OURS, OLDER, REDIS, rounds=3)
    together = ["topics", "checkout older"]
    assert workload.asked == [together, ["redis"], ["redis"], together, together, ["redis"]]


def test_a_ratio_is_the_median_of_turns_taken_side_by_side() -> None:
    ours = [round_of(sample_with(100), sample_with(30)), round_of(sample_with(210))]
    older = [round_of(sample_with(100), sample_with(20)), round_of(sample_with(200))]
    (ratio,) = compared(FakeWorkload({"topics": ours, "checkout older": older}), OURS, OLDER, rounds=2).ratios
    assert (ratio.subject, ratio.peer, ratio.of, ratio.value) == ("topics", "checkout older", RATE, 1.05)
    assert ratio.pairs == PairedRatio((1.0, 1.05, 1.5))


def test_the_processor_time_of_a_record_is_compared_where_it_is_known() -> None:
    ours, older = round_of(sample_with(200, cpu_s=1.0)), round_of(sample_with(100, cpu_s=1.0))
    ratios = compared(FakeWorkload({"topics": [ours], "checkout older": [older]}), OURS, OLDER).ratios
    assert [(ratio.of, ratio.value) for ratio in ratios] == [(RATE, 2.0), ("CPU a record", 0.5)]


def test_at_a_fixed_rate_times_are_compared() -> None:
    samples = {"topics": [round_of(sample_with(10, 2.0))], "checkout older": [round_of(sample_with(10, 1.0))]}
    (ratio,) = compared(FakeWorkload(samples, fixed_rate=True), OURS, OLDER).ratios
    assert (ratio.of, ratio.value) == ("p50", 2.0)


def test_a_peer_of_another_kind_has_a_ratio_without_a_spread() -> None:
    workload = FakeWorkload({"topics": [sample_with(3)], "redis": [sample_with(2)]})
    (ratio,) = compared(workload, OURS, REDIS).ratios
    assert (ratio.value, ratio.pairs) == (1.5, None)


def test_the_likely_range_leaves_out_turns_that_stand_apart() -> None:
    assert PairedRatio((0.9, 1.0, 1.0, 1.0, 1.1)).likely is None
    assert PairedRatio((0.5, 0.99, 1.0, 1.01, 1.02, 7.0)).likely == (0.5, 7.0)
    # Of 15 tosses fewer than four are heads, or fewer than four tails, in 3.5 of 100 cases.
    assert PairedRatio(tuple(float(rank) for rank in range(1, 16))).likely == (4.0, 12.0)


def result_with(*ratios: Ratio) -> WorkloadResult:
    return WorkloadResult("write-1", "", (TargetResult("topics", TargetKind.TOPICS, (sample_with(1),)),), ratios)


def ratio_of(*pairs: float, of: str = RATE) -> Ratio:
    together = PairedRatio(pairs)
    return Ratio("topics", "checkout older", together.median, None, of, together)


def test_the_report_shows_a_ratio_with_its_spread() -> None:
    text = render_text([result_with(ratio_of(0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.5))], [])
    assert text.endswith("\n  topics / checkout older = 1.000, likely 0.970 to 1.500  (7 turns: 0.970 to 1.500)\n")


def test_the_report_of_few_turns_claims_nothing_beyond_them() -> None:
    text = render_text([result_with(ratio_of(0.5, 1.0, 1.5, of="p50"))], [])
    assert text.endswith("\n  topics / checkout older, p50 = 1.000  (3 turns: 0.500 to 1.500)  less is faster\n")


def test_the_json_document_has_the_pairs_of_a_ratio() -> None:
    document = json.loads(render_json([result_with(ratio_of(0.5, 1.0, 1.5))], [], LoadSettings(1, 1.0), "disk"))
    (ratio,) = document["workloads"][0]["ratios"]
    assert (ratio["of"], ratio["pairs"], ratio["likely"]) == (RATE, [0.5, 1.0, 1.5], None)
