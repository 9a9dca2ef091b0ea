"""Every example of docs/pipelines.md, run one after the other as a reader would, and what it says they print.

The jobs run in this process, in the session of all tests: a JVM for each would take minutes.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acceptance.document_commands import prints, steps_of
from spark.server import RestartableServer
from spark.store import use_store
from topics.cli import pipeline
from topics.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "pipelines.md").read_text()
JOB = ["topics", "pipeline"]
FILE = re.compile(r"^```(?:toml|python)\n# (?P<name>[\w.]+)\n.*?^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"^```python\n(?P<code>import .*?)^```$", re.DOTALL | re.MULTILINE)
RELATIVE = re.compile(r"(?<=[ '\"(])(shop\.jsonl|exports/|big-orders(?=\"))")
INTO = "--into shop.halfhours"
TIMES = re.compile(r"[0-9.]+ s\b|[0-9,]+ records/s|[0-9.]+ MB\b")


def commands_of(block: str) -> Iterator[str]:
    """A line, or more where a quote or a backslash goes on."""
    text = ""
    for line in block.splitlines(keepends=True):
        text += line
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            continue
        if words and not text.endswith("\\\n"):
            yield text
        text = text if text.endswith("\\\n") else ""


def written_files() -> dict[str, str]:
    """Files the document shows, with their name in the first line."""
    return {found["name"]: found[0].partition("\n")[2].removesuffix("```") for found in FILE.finditer(TEXT)}


def placed(text: str, here: Path) -> str:
    """Spark runs where the tests were started, not where the reader is."""
    return RELATIVE.sub(rf"{here}/\1", text).replace(INTO, f"{INTO} --checkpoint {here}/halfhours")


def masked(text: str) -> str:
    """Without times, speeds and directories. A line below a heading is as long as this machine's names are."""
    return re.sub("─+", "─", TIMES.sub("…", text.replace("…/", "")))


class Reader:
    """Somebody who types what the document says, in a directory of their own."""

    def __init__(self, server: RestartableServer, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = server
        self._capsys = capsys

    def types(self, command: str) -> str:
        words = shlex.split(command.replace("\\\n", " "), comments=True)
        if words[:2] != JOB:
            path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
            shell = ["bash", "-ec", command]
            done = subprocess.run(shell, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"PATH": path})
            return done.stdout
        into = None
        if ">" in words:
            words, into = words[: words.index(">")], words[-1]
        # The document says so: an audit is of a stopped server.
        stopped = "audit" in words
        if stopped:
            self._server.stop()
        self._capsys.readouterr()
        status = main(words[1:])
        printed = self._capsys.readouterr()
        if stopped:
            self._server.start()
        assert status == 0, printed
        if into is not None:
            Path(into).write_text(printed.out)
            return ""
        return printed.out


def test_every_example_runs_and_prints_what_the_document_says(
    spark: SparkSession,
    own_server: RestartableServer,
    store_endpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "docs").symlink_to(DOCS)
    (here / "topics-data").symlink_to(own_server.data_path)
    for name, text in written_files().items():
        (here / name).write_text(placed(text, here))
    monkeypatch.chdir(here)
    monkeypatch.setenv("TOPICS_URL", own_server.url)
    use_store(store_endpoint, monkeypatch, "shop-archives")
    monkeypatch.setattr(pipeline, "_session", lambda *_: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    reader = Reader(own_server, capsys)
    steps = steps_of(TEXT)
    assert len(steps) > 10
    wrong = []
    for step in steps:
        printed = "".join(reader.types(command) for command in commands_of(placed(step.commands, here)))
        printed = printed.replace(f"{here}/", "")
        if step.printed is not None and not prints(masked(step.printed), masked(printed)):
            wrong.append(f"$ {step.commands}{printed}")
    assert not wrong, "\n".join(wrong)
    shown = (DOCS / "shop-halfhours.svg").read_text()
    assert (here / "halfhours.svg").read_text() == shown
    for found in CODE.finditer(TEXT):
        exec(compile(found["code"], "pipelines.md", "exec"), {})


def test_a_job_is_in_the_document() -> None:
    assert [name for name in pipeline.JOBS if f"pipeline {name}" not in TEXT] == []
