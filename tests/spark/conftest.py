"""One Spark session and one server process for the whole directory; every test has topics of its own."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.readings import Batches
from spark.server import RestartableServer
from spark.settings import LIGHT_JVM_FOR_ALL, LOG_SETTINGS, MASTER, SESSION_SETTINGS
from spark.store import running_store
from topics.spark.session import has_java, local_session

NewSession = Callable[[str], SparkSession]

_numbers = itertools.count(1)

os.environ.update(LIGHT_JVM_FOR_ALL)


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark's JVM logs to, from level INFO on."""
    return tmp_path_factory.mktemp("log") / "spark.log"


@pytest.fixture(scope="session")
def new_session(tmp_path_factory: pytest.TempPathFactory, spark_log: Path) -> NewSession:
    """Starts a session; a process has one at a time."""
    if not has_java():
        pytest.skip("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    log_settings = spark_log.with_suffix(".properties")
    log_settings.write_text(LOG_SETTINGS.format(path=spark_log))
    java_options = (
        f"{SESSION_SETTINGS['spark.driver.extraJavaOptions']} -Dlog4j2.configurationFile={log_settings.as_uri()}"
    )
    settings = SESSION_SETTINGS | {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.extraJavaOptions": java_options,
    }
    return lambda master: local_session("topics-tests", master=master, settings=settings)


@pytest.fixture(scope="session")
def spark(new_session: NewSession) -> Iterator[SparkSession]:
    session = new_session(MASTER)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableServer]:
    running = RestartableServer(tmp_path_factory.mktemp("server"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def store_endpoint() -> Iterator[str]:
    with running_store() as endpoint:
        yield endpoint


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RestartableServer]:
    """A server to restart or kill."""
    running = RestartableServer(tmp_path / "server")
    yield running
    running.stop()


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path / "checkpoint")


@pytest.fixture
def name() -> str:
    """A name no other test has; also good as a prefix."""
    return f"test{next(_numbers)}."


@pytest.fixture
def topic(server: RestartableServer, name: str) -> Topic:
    return server.topic(f"{name}a")
