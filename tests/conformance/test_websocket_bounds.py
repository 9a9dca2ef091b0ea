"""/v0/ws: sizes, slots, and a server that stops."""

import contextlib

import pytest
from websockets.exceptions import ConnectionClosed

from conformance.client import Topic, assert_error, eventually
from conformance.conftest import StartServer
from conformance.process import ServerProcess
from conformance.sse import open_connections, torn
from conformance.websocket import HANDSHAKE, UPGRADE, connected, handshake


@pytest.fixture(scope="module")
def small(server: StartServer) -> ServerProcess:
    """Takes short messages and few topics on a connection."""
    return server(TOPICS_MAX_BODY_BYTES="1000", TOPICS_MAX_WATCH_TOPICS="2", TOPICS_MAX_SSE_CONNECTIONS="2")


def test_a_message_of_the_largest_size_is_taken(small: ServerProcess) -> None:
    with connected(small.api) as client:
        client.connection.send('{"op":"ping"}'.ljust(1000))
        assert client.frame() == {"op": "pong"}


def test_a_message_that_is_too_large_ends_the_connection(small: ServerProcess) -> None:
    with connected(small.api) as client:
        client.connection.send("x" * 1001)
        assert client.close_code() == 1009


def test_fragments_that_are_too_large_together_end_the_connection(small: ServerProcess) -> None:
    with connected(small.api) as client:
        with contextlib.suppress(ConnectionClosed):  # it may be over before the last frame, an empty one, is sent
            client.connection.send(iter(["x" * 600, "x" * 600]))
        assert client.close_code() == 1009


def test_a_connection_has_no_more_topics_than_the_cap(small: ServerProcess) -> None:
    for name in ["a", "b", "c"]:
        Topic(small.api, name).configure()
    with connected(small.api) as client:
        client.subscribe(topic="a")
        client.subscribe(topic="b")
        assert client.error("subscribe", request_id="c", topic="c") == ("invalid_request", "c")
        client.subscribe(topic="b")  # one it has already
        client.ask("unsubscribe", topic="a")
        client.subscribe(topic="c")


# Slots


def test_there_are_no_more_connections_than_the_cap(small: ServerProcess) -> None:
    with connected(small.api), connected(small.api) as client:
        reply = handshake(small.api, *UPGRADE)
        detail = assert_error(reply, 429, "throttled")
        assert detail == {"limit": "max_sse_connections", "max": 2}
        assert client.ask("ping")["op"] == "pong"
    eventually(lambda: open_connections(small.api) == 0)


def test_a_refused_handshake_keeps_no_slot(small: ServerProcess) -> None:
    eventually(lambda: open_connections(small.api) == 0)
    for lines in ([], UPGRADE[:-1], UPGRADE[:1] + UPGRADE[2:]):
        assert handshake(small.api, *lines).status in {400, 426}
    assert handshake(small.api, *UPGRADE, method="HEAD").status == 426
    assert open_connections(small.api) == 0


@pytest.mark.parametrize("message", ["close", b"binary" * 500, "x" * 2000])
def test_a_connection_that_ends_gives_its_slot_back(small: ServerProcess, message: str | bytes) -> None:
    for _ in range(3):
        with connected(small.api) as client:
            if message == "close":
                client.connection.close()
            else:
                client.connection.send(message)
        eventually(lambda: open_connections(small.api) == 0)


def test_a_connection_that_is_torn_down_gives_its_slot_back(small: ServerProcess) -> None:
    for _ in range(3):
        with torn(small.api, HANDSHAKE):
            assert open_connections(small.api) == 1
        eventually(lambda: open_connections(small.api) == 0)


# The server stops


def test_a_server_that_stops_says_so_and_goes_away(server: StartServer) -> None:
    process = server()
    with connected(process.api) as client:
        assert client.ask("ping")["op"] == "pong"
        process.stop()
        frame = client.frame()
        assert (frame["op"], frame["code"]) == ("error", "shutting_down")
        assert client.close_code() == 1001
