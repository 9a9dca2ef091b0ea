"""`topics pipeline` as a user runs it: a process, its output, its exit status, and Ctrl-C."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.archives import archived_rows
from spark.server import RestartableServer
from topics.spark.archive import table
from topics.spark.jobs.archive import ArchiveSummary

DEADLINE_S = 180.0


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "topics.cli.main", "pipeline", *words]


def test_ctrl_c_ends_a_following_archive_in_order_and_the_next_run_goes_on_from_there(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(100)
    words = ["archive", topic.name, "--to", str(tmp_path / "a"), "--url", server.url, "--master", "local[1]"]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(command(*words, "--follow", "--interval", "0.2"), stdout=log, stderr=log)
        deadline = time.monotonic() + DEADLINE_S
        while len(list((tmp_path / "a").glob("records/_delta_log/*.json"))) < 3:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # As a terminal does it: while it waits for more, or while it archives what has come.
        topic.fill(50)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    text = (tmp_path / "log").read_text()
    assert "topics: interrupted; all that was finished stays" in text
    assert "Traceback" not in text
    archived = table.load(str(tmp_path / "a")).topics[topic.name].to_seq

    finished = subprocess.run(command(*words, "--json"), capture_output=True, check=True, timeout=DEADLINE_S)
    summary = msgspec.json.decode(finished.stdout, type=ArchiveSummary)
    assert summary.records == 150 - archived
    assert [row[0] for row in archived_rows(spark, tmp_path / "a", topic.name)] == list(range(1, 151))
