"""`topics pipeline up` as a user runs it: several jobs in one process, one of them broken, and what they report."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from conformance.client import Topic
from spark.readings import history
from spark.server import RestartableServer

DEADLINE_S = 300.0
NAMES = ("keep", "merge", "totals", "files", "own", "broken")
TOO_SLOW = "Python worker failed to connect back"
"""A busy machine: Spark gives a process ten seconds. It is tried again."""
FILE = """
[jobs.keep]
run = "archive {topic} --to archive"
every = "3 seconds"

[jobs.merge]
run = "compact archive"
every = "3s"

[jobs.totals]
run = "rollup {topic} --window 1h --agg count --into {topic}.hours --emit changed"
every = "3s"

[jobs.files]
run = "export {topic} --to 'exports/{{time}}'"
every = "1h"

[jobs.own]
python = "own.py:keep"
topic = "{topic}"
every = "3s"

[jobs.broken]
python = "own.py:fail"
topic = "{topic}"
every = "3s"
"""
OWN = """
def keep(frame):
    with open("seen", "a") as file:
        file.writelines(f"{row.seq}\\n" for row in frame.select("seq").collect())

def fail(frame):
    raise RuntimeError("not today")
"""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "topics.cli.main", "pipeline", *words]


def test_every_job_runs_and_reports_and_a_broken_one_is_alone_with_it(
    own_server: RestartableServer, tmp_path: Path
) -> None:
    topic = own_server.topic("shop")
    topic.fill(50)
    (tmp_path / "pipelines.toml").write_text(FILE.format(topic=topic.name))
    (tmp_path / "own.py").write_text(OWN)

    def status() -> dict[str, str]:
        words = command("status", "--json", "--url", own_server.url)
        shown = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=False, timeout=DEADLINE_S).stdout)
        return {job["pipeline"]: job["state"] for job in shown["jobs"]}

    words = command("up", "pipelines.toml", "--url", own_server.url, "--master", "local[2]")
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=tmp_path)
        try:

            def told() -> list[dict[str, Any]]:
                assert process.poll() is None, (tmp_path / "log").read_text()
                reports, _ = history(own_server.topic("topics:pipelines"))
                return [record["data"] for _, record in sorted(reports.items())]

            def rows(name: str) -> int:
                return sum(report.get("rows") or 0 for report in told() if report["pipeline"] == name)

            def failures() -> int:
                return sum(report.get("error") == "RuntimeError: not today" for report in told())

            until(lambda: own_server.topic("topics:pipelines").exists())
            until(lambda: all(rows(name) == 50 for name in ("keep", "totals", "own", "files")))
            topic.fill(25)
            until(lambda: all(rows(name) == 75 for name in ("keep", "totals", "own")) and failures() >= 2)
            assert set(status()) == set(NAMES)
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 1, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()
    text = (tmp_path / "log").read_text()
    assert re.search("^topics: broken: failed, again in [0-9]+ s: RuntimeError: not today$", text, re.MULTILINE)
    assert "6 jobs ended; failed: broken" in text
    reports = [record["data"] for _, record in sorted(history(own_server.topic("topics:pipelines"))[0].items())]
    assert {report["pipeline"]: report["state"] for report in reports} == dict.fromkeys(NAMES, "stopped")
    assert status() == dict.fromkeys(NAMES, "stopped")
    # Archive and compaction of one directory never get into each other's way.
    failed = {(report["pipeline"], report["error"]) for report in reports if report["state"] == "failed"}
    assert {name for name, error in failed if TOO_SLOW not in error} == {"broken"}
    assert [report for report in reports if report["pipeline"] == "merge" and report["state"] == "done"]
    kept = [report for report in reports if report["pipeline"] == "keep" and report["state"] == "done"]
    assert kept[-1]["topics"] == [{"topic": "shop", "read": 75, "deleted": 0, "lost": 0, "head": 75}]
    assert kept[-1]["lag"] == 0
    assert pl.read_delta(str(tmp_path / "archive" / "records"))["seq"].sort().to_list() == list(range(1, 76))
    # What was seen once does not come again, and it goes on where it was.
    assert list(map(int, (tmp_path / "seen").read_text().split())) == list(range(1, 76))
    hours = history(Topic(topic.api, "shop.hours"))[0]
    newest = {record["$tag"]: record["data"]["count"] for _, record in sorted(hours.items())}
    assert sum(newest.values()) == 75
    assert len(list((tmp_path / "exports").iterdir())) == 1
