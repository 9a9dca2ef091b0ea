"""The session of this directory has two executors, each a process of its own. It begins and ends with the directory."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

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
