"""Which server the suite talks to.

`TOPICS_CONFORMANCE_URL` (with `TOPICS_CONFORMANCE_KEY`, a full-access key) names a running one; without
it the suite starts its own. Tests that need special settings always start their own and are skipped
when a URL is given.
"""

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from conformance.client import Api, Topic
from conformance.process import ServerProcess, output_of_refused_start
from conformance.websocket import Client, connected

EXTERNAL_URL = os.environ.get("TOPICS_CONFORMANCE_URL")

StartServer = Callable[..., ServerProcess]
RefusedStart = Callable[..., str]


def skip_if_external() -> None:
    if EXTERNAL_URL is not None:
        pytest.skip("needs a server with special settings, but TOPICS_CONFORMANCE_URL names a running one")


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The server under test, with default settings."""
    if EXTERNAL_URL is not None:
        yield Api.at(EXTERNAL_URL, os.environ.get("TOPICS_CONFORMANCE_KEY"))
        return
    process = ServerProcess(tmp_path_factory.mktemp("server"), {})
    yield process.api
    process.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Starts servers with special settings: `server(TOPICS_MAX_TOPICS="2")`. They stop with the module."""
    skip_if_external()
    running: list[ServerProcess] = []

    def start(**settings: str) -> ServerProcess:
        process = ServerProcess(tmp_path_factory.mktemp("server"), settings)
        running.append(process)
        return process

    yield start
    for process in running:
        process.stop()


@pytest.fixture(scope="module")
def refused_start(tmp_path_factory: pytest.TempPathFactory) -> RefusedStart:
    """Runs a server with settings it must refuse, and returns its output."""
    skip_if_external()
    return lambda **settings: output_of_refused_start(tmp_path_factory.mktemp("server"), settings)


@pytest.fixture
def new_topic(api: Api) -> Iterator[Callable[..., Topic]]:
    """Makes topic names nobody else uses; `new_topic("a:")` gives one that begins so."""
    named: list[Topic] = []

    def name(prefix: str = "conformance-") -> Topic:
        topic = Topic(api, prefix + uuid.uuid4().hex)
        named.append(topic)
        return topic

    yield name
    for topic in named:
        topic.remove()


@pytest.fixture
def topic(new_topic: Callable[..., Topic]) -> Topic:
    """The name of a topic that does not exist yet."""
    return new_topic()


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    """A WebSocket to the server under test."""
    with connected(api) as client:
        yield client
