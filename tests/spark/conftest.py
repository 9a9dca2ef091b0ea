"""One Spark session and one server process for the whole directory; every test has topics of its own."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.server import RestartableServer
from spark.settings import LOG_SETTINGS, MASTER, SESSION_SETTINGS
from topics.spark.session import has_java, local_session

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark's JVM logs to, from level INFO on."""
    return tmp_path_factory.mktemp("log") / "spark.log"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, spark_log: Path) -> Iterator[SparkSession]:
    if not has_java():
        pytest.skip("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    log_settings = spark_log.with_suffix(".properties")
    log_settings.write_text(LOG_SETTINGS.format(path=spark_log))
    java_options = (
        f"{SESSION_SETTINGS['spark.driver.extraJavaOptions']} -Dlog4j2.configurationFile={log_settings.as_uri()}"
    )
    settings = SESSION_SETTINGS | {
        "spark.sql.warehouse.dir": warehouse,
        "spark.driver.extraJavaOptions": java_options,
    }
    session = local_session("topics-tests", master=MASTER, settings=settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableServer]:
    running = RestartableServer(tmp_path_factory.mktemp("server"))
    yield running
    running.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RestartableServer]:
    """A server to restart or kill."""
    running = RestartableServer(tmp_path / "server")
    yield running
    running.stop()


@pytest.fixture
def name() -> str:
    """A name no other test has; also good as a prefix."""
    return f"test{next(_numbers)}."


@pytest.fixture
def topic(server: RestartableServer, name: str) -> Topic:
    return server.topic(f"{name}a")
