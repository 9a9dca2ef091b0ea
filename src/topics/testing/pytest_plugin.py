"""Fixtures for whoever has topics installed: pytest finds them by an entry point.

    def test_orders(topics_client):
        topics_client.append("orders", {"sku": 1})

`topics_server` is one server for the whole run, since starting one takes half a second: give each test topics of its
own, or start a server in it with `topics.testing.server()`. Nothing of topics is imported before a test asks for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from topics.client.sync_client import Client
    from topics.testing.running_server import RunningServer


@pytest.fixture(scope="session")
def topics_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RunningServer]":
    """A real server, with default settings."""
    from topics.testing.running_server import server  # noqa: PLC0415 - most runs never need it

    with server(tmp_path_factory.mktemp("topics")) as running:
        yield running


@pytest.fixture
def topics_client(topics_server: "RunningServer") -> "Iterator[Client]":
    """A client of `topics_server`."""
    with topics_server.client() as client:
        yield client
