"""Jobs that run by themselves, without Spark: what is reported, what a failure touches, and how they stop."""

import threading
from importlib import import_module
from pathlib import Path

import pytest
from msgspec import json

from topics.cli import pipeline
from topics.cli.main import main
from topics.cli.pipeline_file import read_file
from topics.cli.pipeline_job import Common, PipelineJob
from topics.cli.values import InvalidArguments
from topics.errors import TopicsError
from topics.limits import PIPELINE_REPORTS_MAX
from topics.spark import session
from topics.spark.archive.place import Place
from topics.spark.jobs import supervise as supervising
from topics.spark.jobs.reports import REPORTS, Account, Report, TopicReports
from topics.spark.jobs.spark_messages import message_of
from topics.spark.jobs.supervise import Outcome, Supervised, supervise
from topics.spark.options import Server
from topics.testing.fake_clock import FakeClock
from topics.testing.running_server import server as running_server

COMMON = Common("http://127.0.0.1:9", None, "local[1]", {}, None)


def jobs_of_the_command() -> dict[str, PipelineJob]:
    return {name: import_module(module).JOB for name, module in pipeline.JOBS.items()}


def test_a_job_that_fails_is_tried_again_later_each_time_and_touches_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "BACK_OFF_S", 0.001)
    stop = threading.Event()
    told: list[Report] = []
    runs = {"bad": 0, "good": 0}

    def bad() -> Outcome:
        runs["bad"] += 1
        if runs["bad"] <= 3:
            raise TopicsError("the disk is full")
        return Outcome(0)

    def good() -> Outcome:
        runs["good"] += 1
        if runs["good"] >= 3 and runs["bad"] >= 5:
            stop.set()
        return Outcome(7, 1, (Account("a", 5, 1, 1, 7),))

    jobs = [Supervised("first", "archive", 0.001, bad), Supervised("second", "rollup", 0.001, good)]
    assert supervise(jobs, told.append, stop) == {"first": 0, "second": 0}
    failed = [report for report in told if report.state == "failed"]
    assert [(report.pipeline, report.error, report.wait_ms) for report in failed] == [
        ("first", "the disk is full", wait_ms) for wait_ms in (1, 2, 4)
    ]
    done = next(report for report in told if report.state == "done" and report.pipeline == "second")
    assert (done.rows, done.lag, done.topics) == (7, 1, (Account("a", 5, 1, 1, 7),))
    assert {report.pipeline for report in told if report.state == "stopped"} == {"first", "second"}


def test_once_is_one_run_of_each_and_tells_who_failed() -> None:
    def broken() -> Outcome:
        raise ValueError("no such thing")

    jobs = [Supervised("a", "python", 60, broken), Supervised("b", "compact", 60, lambda: Outcome(1))]
    told: list[Report] = []
    assert supervise(jobs, told.append, threading.Event(), once=True) == {"a": 1, "b": 0}
    assert sorted((report.pipeline, report.state) for report in told) == [
        ("a", "failed"),
        ("b", "done"),
    ]


def test_a_run_that_takes_long_is_told_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "STARTED_TOLD_S", 0.001)
    told: list[Report] = []
    heard = threading.Event()

    def tell(report: Report) -> None:
        told.append(report)
        heard.set()

    def long() -> Outcome:
        assert heard.wait(60)
        return Outcome(1)

    supervise([Supervised("a", "archive", 60, long)], tell, threading.Event(), once=True)
    assert [(report.state, report.run) for report in told] == [("started", 1), ("done", 1)]


def test_what_an_audit_finds_is_told_and_looked_at_again_when_it_is_due() -> None:
    account = Account("a", 5, 1, 0, 7)
    told: list[Report] = []
    jobs = [Supervised("a", "audit", 3600, lambda: Outcome(5, None, (account,), "1 problem"))]
    assert supervise(jobs, told.append, threading.Event(), once=True) == {"a": 1}
    [report] = told
    assert (report.state, report.error, report.topics, report.wait_ms) == ("failed", "1 problem", (account,), 3_600_000)


def test_an_idle_job_is_told_of_once_a_minute_and_work_at_once() -> None:
    clock = FakeClock()
    stop = threading.Event()
    told: list[tuple[int | None, int]] = []
    found = iter([0, 0, 0, 4, 0, 0])

    def run() -> Outcome:
        clock.advance(25_000)
        rows = next(found, None)
        if rows is None:
            stop.set()
        return Outcome(rows or 0)

    supervise(
        [Supervised("a", "archive", 0, run)], lambda report: told.append((report.rows, report.run)), stop, clock=clock
    )
    assert told == [(0, 1), (4, 4), (0, 5), (None, 7)]


def test_jobs_of_one_archive_take_turns() -> None:
    turn = threading.Lock()
    at_work: list[int] = [0]
    most: list[int] = []

    def run() -> Outcome:
        at_work[0] += 1
        most.append(at_work[0])
        threading.Event().wait(0.01)
        at_work[0] -= 1
        return Outcome(1)

    jobs = [Supervised(f"j{number}", "compact", 60, run, turn) for number in range(4)]
    supervise(jobs, lambda report: None, threading.Event(), once=True)
    assert most == [1, 1, 1, 1]


def test_reports_are_events_that_status_shows_and_audits_are_told_a_topic_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(session, "has_java", lambda: True)
    said: list[str] = []
    with running_server() as server:
        monkeypatch.setenv("TOPICS_URL", server.url)
        assert main(["pipeline", "status"]) == 0
        assert "no pipeline has reported yet" in capsys.readouterr().out
        reports = TopicReports(Server(server.url, None), said.append)
        request.addfinalizer(reports.close)
        reports.begin()
        reports.tell(Report(pipeline="shop", job="archive", state="done", run=1, rows=1200, rows_per_s=10, lag=0))
        reports.tell(Report(pipeline="shop", job="archive", state="started", run=2))
        account = Account("orders", 5, 1, 1, 7)
        reports.tell(Report(pipeline="nightly", job="audit", state="done", run=1, rows=5, topics=(account,)))
        with server.client() as client:
            records = [json.decode(record.data) for record in client.diff(REPORTS, 0).records]
            assert client.topic(REPORTS).config.cap_records == PIPELINE_REPORTS_MAX
        assert records[0] == {
            "pipeline": "shop", "job": "archive", "state": "done", "run": 1, "rows": 1200, "rows_per_s": 10, "lag": 0,
        }  # fmt: skip
        assert records[-1]["audit"] == {"topic": "orders", "read": 5, "deleted": 1, "lost": 1, "head": 7}
        assert main(["pipeline", "status"]) == 0
        shown = capsys.readouterr().out
        assert "nightly   audit    done" in shown
        assert "shop      archive  started  1,200      10    0" in shown
        reports.tell(Report(pipeline="shop", job="archive", state="failed", run=2, error="no room", wait_ms=1000))
        assert main(["pipeline", "status"]) == 1
        assert "shop: no room" in capsys.readouterr().out
        reports.tell(Report(pipeline="shop", job="archive", state="done", run=3, rows=0, wait_ms=-200_000))
        assert main(["pipeline", "status"]) == 1
        assert "shop      archive  done, silent" in capsys.readouterr().out
        with server.client() as client:
            client.append(REPORTS, [1, 2])
            client.append(REPORTS, {"pipeline": 3})
        reports.tell(Report(pipeline="shop", job="archive", state="stopped", run=3))
        assert main(["pipeline", "status"]) == 0
    assert said == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there are no jobs in it"),
        ("jobs = 3", "there are no jobs in it"),
        ("[job.a]\nrun = 'compact x'", "there is no job in it; did you mean jobs?"),
        ("[jobs.'../a']\nrun = 'compact x'\nevery = '1d'", "a name has letters"),
        ("[jobs.a]\nrun = 'compact x'\nevery = 3", "are texts in quotes"),
        ("[jobs.a]\nrun = 'compact x'\nevery = '10ms'", "every is 1s at least"),
        ("[jobs.a]\nrun = 'compact x'\nevery = '1d'\ntopic = 't'", "topic goes with python"),
        ("[jobs.a]\nrun = 'compakt x'\nevery = '1d'", "did you mean compact?"),
        ("[jobs.a]\nrun = 'compact \"x'\nevery = '1d'", "run cannot be read: No closing quotation"),
        ("[jobs.a]\nrun = 'compact x --file-mbs 3'\nevery = '1d'", "did you mean --file-mb?"),
        ("[jobs.a]\nrun = 'export t --to dir'\nevery = '1d'", "put {time} into --to"),
        ("[jobs.a]\nrun = 'compact x'", "it needs every"),
        ("[jobs.a]\nrun = 'compact x'\nevry = '1d'", "there is no evry; did you mean every?"),
        ("[jobs.a]\nrun = 'compact x'\nevery = 'soon'", "is not a duration"),
        ("[jobs.a]\nrun = 'serve'\nevery = '1d'", "run begins with one of archive, audit"),
        ("[jobs.a]\nrun = 'compact --file-mb'\nevery = '1d'", "job a: argument --file-mb"),
        ("[jobs.a]\nrun = 'archive x --to y --follow --data d'\nevery = '1d'", "--follow is what every does"),
        ("[jobs.a]\nrun = 'compact nowhere'\nevery = '1d'", "is not an archive"),
        ("[jobs.a]\npython = 'x.py'\nevery = '1d'", "python is FILE.py:FUNCTION"),
        ("[jobs.a]\npython = 'none.py:f'\ntopic = 't'\nevery = '1d'", "there is no Python file none.py"),
        ("[jobs.a", "pipelines.toml"),
        ("storage = 3", "options of a store are texts in quotes"),
        ("[storage]\nAWS_SECRET_ACCESS_KEY = 'x'", "is a secret: set it as an environment variable"),
        ("[storge]\nAWS_REGION = 'x'", "there is no storge in it; did you mean storage?"),
    ],
)
def test_a_file_that_cannot_work_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines.toml").write_text(text)
    with pytest.raises(TopicsError) as refused:
        read_file("pipelines.toml", COMMON, jobs_of_the_command())
    assert said in refused.value.message


def test_options_of_a_store_in_the_file_hold_where_the_environment_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "here")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "to be restored")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    path = tmp_path / "pipelines.toml"
    path.write_text("[storage]\nAWS_REGION = 'there'\nAWS_ENDPOINT_URL = 'http://store'\n")
    with pytest.raises(InvalidArguments, match="there are no jobs in it"):
        read_file(str(path), COMMON, {})
    options = Place.of("s3://bucket/archive").options
    assert (options["AWS_REGION"], options["AWS_ENDPOINT_URL"]) == ("here", "http://store")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArguments, match="No such file"):
        read_file(str(tmp_path / "none.toml"), COMMON, {})


def test_what_one_job_of_the_file_makes_need_not_be_there_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def keep(frame): ...")
    (tmp_path / "pipelines.toml").write_text(
        "[jobs.hours]\nrun = 'rollup shop --window 1h --into shop.hours'\nevery = '1m'\n"
        "[jobs.days]\nrun = 'rollup shop.hours --window 1d --into days/shop'\nevery = '1m'\n"
        "[jobs.own]\npython = 'own.py:keep'\ntopic = 'shop.hours'\nevery = '1m'\n"
        "[jobs.keep]\nrun = 'archive shop --to archive'\nevery = '1m'\n"
        "[jobs.merge]\nrun = 'compact ./archive'\nevery = '1d'\n"
        "[jobs.out]\nrun = 'export shop --to out/{time}'\nevery = '1d'\n"
    )
    with running_server() as server:
        common = Common(server.url, None, "local[1]", {}, None)
        with pytest.raises(InvalidArguments, match='job hours: topic "shop" does not exist'):
            read_file("pipelines.toml", common, jobs_of_the_command())
        with server.client() as client:
            client.append("shop", {"n": 1})
        jobs = {job.name: job for job in read_file("pipelines.toml", common, jobs_of_the_command())}
        # Its turn has come before anybody archived: there is nothing to do, and that is no failure.
        assert jobs["merge"].run(None) == jobs["days"].run(None) == jobs["own"].run(None) == Outcome(0)  # type: ignore[arg-type]
    assert [name for name, job in jobs.items() if job.archive == str(tmp_path / "archive")] == ["keep", "merge"]


def test_what_a_function_raised_is_told_without_the_stacks_of_two_languages() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy. \
Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "own.py", line 7, in fail
    raise RuntimeError("not today")
RuntimeError: not today
. SQLSTATE: 39000
=== Streaming Query ===
"""
    assert message_of(RuntimeError(text)) == "RuntimeError: not today"
    assert message_of(RuntimeError(text.replace("RuntimeError: not", "topics.errors.X: not"))) == "not today"
    failed = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: No room. SQLSTATE: XXKST"
    assert message_of(RuntimeError(f"{failed}\n=== Streaming Query ===\nplan")) == "No room. SQLSTATE: XXKST"
