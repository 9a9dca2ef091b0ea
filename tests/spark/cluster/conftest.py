"""The session of this directory has two executors, each a separate process. It begins and ends with the directory."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from sampling import EXHAUSTIVE
from spark.conftest import NewSession
from spark.settings import CLUSTER


@pytest.fixture(scope="package")
def spark(new_session: NewSession) -> Iterator[SparkSession]:
    if (running := SparkSession.getActiveSession()) is not None:
        running.stop()
    session = new_session(CLUSTER)
    # Executors run, and log, in a directory beside Spark itself. There is no setting for that.
    work_dir = Path(pyspark.__file__).parent / "work" / session.sparkContext.applicationId
    yield session
    session.stop()
    shutil.rmtree(work_dir, ignore_errors=True)


ALWAYS = re.compile(r"file|copied_once|comes_again|every_column|filters_narrow_what_is_read\[True")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes a sample of the tests that `test_source_and_sink` repeats."""
    if EXHAUSTIVE:
        return
    repeated = [item for item in items if item.path.name == "test_source_and_sink.py"]
    left_out = [item for number, item in enumerate(repeated) if number % 4 and not ALWAYS.search(item.name)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
