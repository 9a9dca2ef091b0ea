"""A project as `init` writes it, run by Spark's own command, twice."""

import re
from pathlib import Path

import pytest

from spark.readings import history
from spark.server import RestartableServer
from spark.settings import LIGHT_JVM
from topics.spark.jobs.progress import Silent
from topics.spark.jobs.project import (
    InitSpec,
    NotAProject,
    PipelineFailed,
    ProjectExists,
    RunSpec,
    init_project,
    run_project,
)
from topics.spark.session import has_java

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": LIGHT_JVM,
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


# Now and then Spark 4.3 itself ends a run with this, from within Scala's collections. The next one goes on.
SPARK_BROKE = re.compile("Illegal size .* of collection")
ATTEMPTS = 3


def run(project: Path) -> list[str]:
    said: list[str] = []
    for attempt in range(ATTEMPTS):
        try:
            run_project(None, RunSpec(str(project), "local[2]", SETTINGS, None, False, said.append), Silent())
        except PipelineFailed as failed:
            if attempt == ATTEMPTS - 1 or not SPARK_BROKE.search(failed.message):
                raise
        else:
            break
    return said


def test_a_new_project_runs_as_it_is_and_goes_on_where_it_was(
    server: RestartableServer, name: str, tmp_path: Path
) -> None:
    if not has_java():
        pytest.skip("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    source = server.topic(f"{name}shop")
    source.write(*({"data": {"kind": "order", "total": n, "at": f"2026-03-01T00:0{n}:00Z"}} for n in range(5)))
    source.write({"data": "no object"})
    project = tmp_path / "shop"
    init_project(None, InitSpec(str(project), source.name, server.url), Silent())
    bronze = project / "transformations" / "bronze.py"
    # As the comment in it says: the time of the event instead of the record's.
    text = bronze.read_text().replace("ts AS at", "try_cast(get_json_object(data, '$.at') AS timestamp) AS at")
    bronze.write_text(text)

    assert any("Run is COMPLETED" in line for line in run(project))
    silver, gold = server.topic(f"{source.name}.silver"), server.topic(f"{source.name}.gold")
    records, _ = history(silver)
    assert [record["data"]["total"] for record in records.values()] == [0.0, 1.0, 2.0, 3.0, 4.0]
    records, _ = history(gold)
    before = len(records)
    assert sorted(record["data"]["total"] for record in records.values()) == [0.0, 1.0, 2.0]

    source.write({"data": {"kind": "order", "total": 9, "at": "2026-03-01T01:00:00Z"}})
    assert any("Run is COMPLETED" in line for line in run(project))
    assert silver.state()["count"] == 6
    records, _ = history(gold)
    assert sorted(record["data"]["total"] for record in records.values()) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(records) == before + 2


def test_a_pipeline_that_fails_says_why(server: RestartableServer, name: str, tmp_path: Path) -> None:
    if not has_java():
        pytest.skip("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    project = tmp_path / "shop"
    init_project(None, InitSpec(str(project), f"{name}missing", server.url), Silent())
    (project / "transformations" / "gold.py").write_text("raise ValueError('a mistake in gold')\n")
    with pytest.raises(PipelineFailed, match="a mistake in gold"):
        run(project)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(ProjectExists):
        init_project(None, InitSpec(str(tmp_path), "shop", "http://127.0.0.1:1"), Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_directory_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAProject):
        run(tmp_path)
