"""`topics pipeline`: what is wrong is said before Spark starts, in one line, with status 2."""

import subprocess
import sys
from pathlib import Path

import pytest

from topics.cli import pipeline
from topics.cli.main import main
from topics.cli.pipeline_replay import milliseconds
from topics.cli.values import InvalidArguments
from topics.spark import session
from topics.testing.running_server import server as running_server


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(pipeline, "_session", start)
    monkeypatch.setattr(session, "has_java", lambda: True)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["pipeline", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("topics: ")
    assert captured.err.count("\n") == 1
    return captured.err


NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["archive", "--to", "x"], "name topics, or give --prefix"),
        (["archive", "a", "--prefix", "b", "--to", "x"], "a and --prefix contradict each other"),
        (["archive", "a", "--to", "x", "--cold", "y"], "--cold goes with --data"),
        (["archive", "a", "--to", "x", "--conf", "nonsense"], "write it as name=value"),
        (["archive", "a", "--to", "x", "--data", "y", "--url", NOBODY], "--data and --url contradict each other"),
        (["archive", "a", "--to", "x", "--url", "ftp://x"], "must look like http://host:port"),
        (["archive", "a", "--to", "x", "--url", NOBODY], "does not answer"),
        (["archive", "a", "--to", "x", "--data", "nowhere"], "is not a data directory"),
        (["compact", "nowhere"], "is not an archive"),
        (["compact", "ftp://b/x"], "ftp://b/x is neither a directory nor an address that begins with s3://"),
        (["compact", "s3://b/x", "--storage", "AWS_REGION"], "write it as name=value, such as AWS_REGION="),
        (["compact", "s3://b/x", "--storage", "AWS_SECRET_ACCESS_KEY=x"], "is a secret: set it as an environment"),
        (["convert", "s3://b/x"], "is in a store: convert the archive in a directory, and copy it there"),
        (["replay", "--from", "nowhere", "--into", "a", "--url", NOBODY], "does not answer"),
        (["replay", "--from", "x", "--into", "a", "--from-time", "soon"], "--from-time soon: write it as"),
        (["audit", "--data", "nowhere"], "is not a data directory"),
        (["import", "x.jsonl", "--into", "a b"], "is not a topic name"),
        (["import", "x.jsonl", "--into", "a", "--tag", "$.items[x]"], "is not a JSON path"),
        (["import", "x.jsonl", "--into", "a", "--url", NOBODY], "does not answer"),
        (["export", "a", "--to", "x", "--url", NOBODY], "does not answer"),
        (["rollup", "a", "--window", "soon", "--into", "b"], "is not a duration"),
        (["rollup", "a", "--window", "1m", "--into", "b", "--url", NOBODY], "does not answer"),
        (["query", "SELECT 1", "--json"], "rows as JSON are --format json"),
        (["query", "SELECT 1", "--archive", "nowhere"], "is not an archive"),
        (["query", "SELECT 1", "--url", NOBODY], "does not answer"),
        (["init", "x", "--topic", "a b"], "is not a topic name"),
        (["run", "nowhere"], "has no spark-pipeline.yml"),
        (["run", "nowhere", "--master", "yarn"], "sc://host:15002"),
    ],
)
def test_bad_arguments_are_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["archive", "a", "--to", "x", "--checkpoint", "y"],
        ["import", "x.jsonl", "--into", "a", "--checkpoint", "y"],
        ["compact", "x", "--url", NOBODY],
        ["audit", "--data", "x", "--url", NOBODY],
        ["run", "x", "--url", NOBODY],
    ],
)
def test_an_option_that_means_nothing_to_a_job_is_not_one_of_its_options(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *words])
    assert ended.value.code == 2
    assert f"there is no option {words[-2]}" in capsys.readouterr().err


def test_the_address_is_the_option_else_the_variable_else_this_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOPICS_URL", NOBODY)
    for words in (["export", "a", "--to", str(tmp_path / "x")], ["query", "SELECT 1"]):
        assert "127.0.0.1:9" in refused(capsys, *words)
        assert "127.0.0.1:7" in refused(capsys, *words, "--url", "http://127.0.0.1:7")


def test_a_job_that_writes_says_where_before_it_begins_and_a_missing_topic_ends_a_query_before_spark(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = tmp_path / "x.jsonl"
    rows.write_text('{"a":1}\n')
    with running_server() as server:
        monkeypatch.setenv("TOPICS_URL", server.url)
        with pytest.raises(AssertionError, match="Spark was started"):
            main(["pipeline", "import", str(rows), "--into", "orders", "--rejects", str(tmp_path / "r")])
        assert capsys.readouterr().err == f"topics: import writes to orders on {server.url}\n"
        with server.client() as client:
            client.append("orders", {"n": 1})
        assert "did you mean orders?" in refused(capsys, "query", "SELECT * FROM ordes")


def test_without_java_it_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "has_java", lambda: False)
    assert "apt-get install openjdk-17-jre-headless" in refused(capsys, "compact", "x")


def test_without_pyspark_it_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "find_spec", lambda package: None)
    assert 'pip install "topics-engine[spark]"' in refused(capsys, "compact", "x")


def test_the_server_and_the_list_of_jobs_do_without_spark() -> None:
    code = (
        "import sys, topics.cli.serve, topics.cli.pipeline; from topics.cli.main import main\n"
        "try: main(['pipeline', '--help'])\n"
        "except SystemExit: pass\n"
        "found = [name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules]\n"
        "sys.exit(str(found) if found else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_times_are_read_as_people_and_programs_write_them() -> None:
    assert milliseconds("--from-time", None) is None
    assert milliseconds("--from-time", "1794797317293") == 1794797317293
    assert milliseconds("--from-time", "2026-11-16T00:00:00Z") == 1794787200000
    assert milliseconds("--from-time", "2026-11-16T01:00:00+01:00") == 1794787200000
    assert milliseconds("--from-time", "2026-11-16") == 1794787200000
    with pytest.raises(InvalidArguments):
        milliseconds("--from-time", "tomorrow")
