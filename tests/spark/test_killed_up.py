"""`topics pipeline up` killed at random points: run once more, all is there. Roll-ups have a test of their own.

TOPICS_TEST_KILLS sets how many kills there are, TOPICS_TEST_SEED repeats them.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl

from spark.killing import SEED
from spark.readings import history
from spark.server import RestartableServer
from topics.spark.archive import table

KILLS = int(os.environ.get("TOPICS_TEST_KILLS", "1"))
DEADLINE_S = 300.0
RECORDS = 3000
FILE = """
[jobs.keep]
run = "archive shop --to archive --round 1000"
every = "1s"

[jobs.merge]
run = "compact archive"
every = "2s"

[jobs.own]
python = "own.py:keep"
topic = "shop"
every = "1s"
"""
OWN = """
def keep(frame):
    with open("seen", "a") as file:
        file.writelines(f"\\n{row.seq:08d}" for row in frame.select("seq").collect())
"""
WORDS = [sys.executable, "-m", "topics.cli.main", "pipeline", "up", "pipelines.toml", "--master", "local[2]"]


def killed(directory: Path, url: str, server: RestartableServer, after_reports: int, delay_s: float) -> None:
    """Python and its JVM, some reports after its start and a moment later."""
    reports = server.topic("topics:pipelines")
    wanted = (reports.state()["head_seq"] if reports.exists() else 0) + after_reports
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [*WORDS, "--url", url], stdout=log, stderr=log, cwd=directory, start_new_session=True
        )
    deadline = time.monotonic() + DEADLINE_S
    try:
        while not reports.exists() or reports.state()["head_seq"] < wanted:
            assert process.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < deadline, (directory / "log").read_text()
            time.sleep(0.1)
        time.sleep(delay_s)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_killed_anywhere_nothing_is_lost_or_archived_twice(own_server: RestartableServer, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    topic = own_server.topic("shop")
    (tmp_path / "pipelines.toml").write_text(FILE)
    (tmp_path / "own.py").write_text(OWN)
    written = 0
    for _ in range(KILLS):
        topic.write(*({"data": {"n": n}, "tag": f"t{n % 9}"} for n in range(written, written + RECORDS)))
        written += RECORDS
        topic.delete_records(match="t5")
        killed(tmp_path, own_server.url, own_server, chance.randrange(1, 6), chance.random() * 2)
    command = [*WORDS, "--url", own_server.url, "--once"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr

    root = str(tmp_path / "archive")
    source, _ = history(topic)
    cut = table.load(root).topics["shop"]
    assert cut.records + cut.deleted + cut.lost == cut.to_seq == written, f"seed {SEED}"
    assert pl.read_delta(table.records_dir(root))["seq"].sort().to_list() == sorted(source), f"seed {SEED}"
    # The function had everything, and what it had when it was killed again.
    # What was cut off in the middle of a line is none.
    seen = {int(line) for line in (tmp_path / "seen").read_text().split() if len(line) == len("00000000")}
    assert seen == set(source), f"seed {SEED}"
