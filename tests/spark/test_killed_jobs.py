"""Jobs killed at random points: what was committed stays, and the next run makes it whole. Nothing lost, nothing twice.

TOPICS_TEST_KILLS sets how many kills there are; by default one job is killed, another one with another seed.
"""

import os
import random
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

from spark.archives import archived_rows, backup_of
from spark.job_process import FORGOTTEN
from spark.killing import SEED, run_and_kill
from spark.readings import history
from spark.server import RestartableServer
from topics.clock import SystemClock
from topics.spark.archive.table import ArchiveTable
from topics.spark.jobs.audit import AuditSpec, audit

KILLS = int(os.environ.get("TOPICS_TEST_KILLS", "1"))
STEPS = {"archiving": 3, "compacting": 2, "replaying": 2, "forgetting": 1}
"""How many steps of a job it may be killed after, and a moment later."""
JOBS = tuple(STEPS)
RECORDS = 12_000


def test_a_job_killed_anywhere_loses_nothing_and_repeats_nothing(
    spark: SparkSession, own_server: RestartableServer, tmp_path: Path
) -> None:
    topic = own_server.topic("shop")
    for start in range(0, RECORDS, 2000):
        topic.write(*({"data": {"n": n}, "tag": f"t{n % 9}"} for n in range(start, start + 2000)))
    topic.delete_records(match="t5")
    chance = random.Random(SEED)
    written, _ = history(topic)
    arguments = [own_server.url, topic.name, str(tmp_path)]
    first = chance.randrange(len(JOBS))
    for number in range(first, first + KILLS):
        job = JOBS[number % len(JOBS)]
        run_and_kill("spark.job_process", arguments, job, chance.randrange(STEPS[job]), chance.random() * 1.5)
    assert not run_and_kill("spark.job_process", arguments, "never", 0, 0.0), "it was to run to its end"

    source, _ = history(topic)
    assert sorted(source) == [seq for seq in sorted(written) if written[seq]["$tag"] != FORGOTTEN]
    rows = archived_rows(spark, tmp_path / "archive", topic.name)
    assert [row[0] for row in rows] == sorted(source), f"seed {SEED}"
    again, losses = history(own_server.topic(f"{topic.name}.again"))
    assert losses == []
    replayed = [(int(record["meta"]["replay_seq"]), record["data"]) for _, record in sorted(again.items())]
    assert replayed == [(seq, written[seq]["data"]) for seq in sorted(written)], f"seed {SEED}"
    # Another reader agrees, the counts of the table are those of the source, and what was left over can be removed.
    assert pl.read_delta(str(tmp_path / "archive" / "records"))["seq"].sort().to_list() == sorted(source)
    store = ArchiveTable(str(tmp_path / "archive"), SystemClock())
    store.vacuum(0)
    state = store.state
    root = tmp_path / "archive"
    on_disk = {str(path.relative_to(root)) for path in (root / "records").glob("topic=*/**/*.parquet")}
    assert on_disk == {file.path for file in state.files}
    cut = state.topics[topic.name]
    assert (cut.to_seq, cut.records, cut.lost) == (RECORDS, len(source), 0)
    [audited, again_audited] = audit(spark, AuditSpec(backup_of(own_server, tmp_path / "b"), archive=str(root))).topics
    assert (audited.read + audited.deleted + audited.lost, audited.problems) == (RECORDS, ()), f"seed {SEED}"
    assert (again_audited.read, again_audited.problems) == (len(written), ())
