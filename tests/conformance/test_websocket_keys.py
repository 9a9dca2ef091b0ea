"""/v0/ws: what each key may do."""

from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from conformance.client import Api, Topic, assert_error, eventually
from conformance.conftest import StartServer
from conformance.process import ServerProcess
from conformance.sse import open_connections
from conformance.websocket import UPGRADE, connected, gist, handshake


@pytest.fixture(scope="module")
def guarded(server: StartServer) -> ServerProcess:
    return server(
        TOPICS_API_KEYS="root-secret,read-secret:read,write-secret:write,maker-secret:write+admin,"
        "delete-secret:delete,tenant-secret::t42:",
        TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="1",
    )


@pytest.fixture
def keyed(guarded: ServerProcess) -> Callable[[str], Api]:
    root = Topic(guarded.api.with_key("root-secret"), "a")
    root.fill(1)

    def api(name: str) -> Api:
        own = guarded.api.with_key(f"{name}-secret")
        eventually(lambda: open_connections(root.api) == 0)  # each key has one at a time
        return own

    return api


@pytest.mark.parametrize("key", [None, "wrong"])
def test_a_connection_needs_a_key(guarded: ServerProcess, key: str | None) -> None:
    with pytest.raises(InvalidStatus) as refused, connected(guarded.api.with_key(key)):
        pass
    assert refused.value.response.status_code == 401


@pytest.mark.parametrize("key", ["read", "write", "delete", "maker", "tenant"])
def test_every_key_may_connect(keyed: Callable[[str], Api], key: str) -> None:
    with connected(keyed(key)) as client:
        assert client.ask("ping")["op"] == "pong"


def test_subscribing_needs_the_read_scope(keyed: Callable[[str], Api]) -> None:
    with connected(keyed("write")) as client:
        assert client.error("subscribe", request_id="s", topic="a") == ("forbidden", "s")
    with connected(keyed("read")) as client:
        assert gist(client.subscribe(topic="a"))[-1] == "caught_up"


def test_publishing_needs_the_write_scope(keyed: Callable[[str], Api]) -> None:
    with connected(keyed("read")) as client:
        assert client.error("publish", request_id="p", topic="a", records=[{"data": 1}]) == ("forbidden", "p")
    with connected(keyed("write")) as client:
        assert client.ask("publish", topic="a", records=[{"data": 1}])["op"] == "ack"


@pytest.mark.parametrize("topic", ["a", "config-of-a-new-topic"])
def test_publishing_with_a_config_needs_the_admin_scope(keyed: Callable[[str], Api], topic: str) -> None:
    command: dict[str, Any] = {"topic": topic, "records": [{"data": 1}], "config": {"ttl_ms": 60_000}}
    with connected(keyed("write")) as client:
        assert client.error("publish", request_id="p", **command) == ("forbidden", "p")
    with connected(keyed("maker")) as client:
        assert client.ask("publish", **command)["op"] == "ack"


def test_topics_are_within_the_keys_prefixes(keyed: Callable[[str], Api]) -> None:
    with connected(keyed("tenant")) as client:
        assert client.ask("publish", topic="t42:own", records=[{"data": 1}])["op"] == "ack"
        assert gist(client.subscribe(topic="t42:own")) == [[1], "caught_up"]
        assert client.error("publish", request_id="p", topic="a", records=[{"data": 1}]) == ("forbidden", "p")
        assert client.error("subscribe", request_id="s", topic="a") == ("forbidden", "s")
        assert client.error("subscribe", request_id="m", topics={"t42:own": {}, "a": {}}) == ("forbidden", "m")
        config = {"type": "queue", "dead_letter": "elsewhere"}
        refused = client.error("publish", request_id="d", topic="t42:q", records=[{"data": 1}], config=config)
        assert refused == ("forbidden", "d")


def test_a_key_has_no_more_connections_than_its_cap(keyed: Callable[[str], Api]) -> None:
    api = keyed("read")
    with connected(api) as client:
        reply = handshake(api, *UPGRADE)
        assert assert_error(reply, 429, "throttled") == {"limit": "max_sse_connections_per_key", "max": 1}
        assert int(reply.headers["Retry-After"]) >= 1
        assert client.ask("ping")["op"] == "pong"
