"""`topics.testing.server()`: a real server for users' tests, as a context manager and as pytest fixtures."""

from pathlib import Path

import pytest

from topics import testing
from topics.client.errors import ServerUnreachable
from topics.errors import Throttled, Unauthorized
from topics.testing.running_server import ServerDied

pytest_plugins = ["pytester"]


def test_a_server_keeps_its_address_and_its_data_over_a_restart() -> None:
    with testing.server() as server, server.client() as client:
        url = server.url
        client.append("orders", {"sku": 1})
        server.restart()
        server.kill()
        server.start()
        assert server.url == url
        assert [event.data for event in client.read("orders", losses="raise")] == [{"sku": 1}]
        directory = server.directory
    assert not directory.exists()


def test_settings_are_those_of_the_server(tmp_path: Path) -> None:
    with testing.server(tmp_path, max_topics=1, api_keys="s3cret", probe_auth=1) as server:
        with server.client("s3cret", deadline_s=0.5) as client:
            client.create("one")
            with pytest.raises(Throttled):
                client.create("two")
        with server.client("wrong") as client, pytest.raises(Unauthorized):
            client.topic("one")
    assert (tmp_path / "data").exists()


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(ServerDied, match="TOPICS_MAX_TOPICS"), testing.server(max_topics="many"):
        pass


def test_nothing_is_left_when_the_test_fails() -> None:
    running = testing.server()
    server = running.__enter__()
    assert running.__exit__(RuntimeError, RuntimeError("the test"), None) is False
    with server.client(deadline_s=0.1) as client, pytest.raises(ServerUnreachable):
        client.health()


def test_pytest_finds_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_one(topics_client):
            assert topics_client.append("orders", 1).first_seq == 1

        def test_two(topics_server, topics_client):
            assert topics_server.url == topics_client.url
            assert topics_client.topic("orders").head_seq == 1
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
