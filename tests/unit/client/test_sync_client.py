"""The socket shell: keep-alive, trying again, and what it never shows."""

import http.server
import threading
from collections.abc import Iterator

import pytest
from msgspec import UNSET, Raw
from msgspec.json import encode

from topics import errors
from topics.client.calls import NewRecord
from topics.client.errors import ExportCut, ServerUnreachable
from topics.client.events import Event
from topics.client.retries import RetryPolicy
from topics.client.sync_client import Client
from topics.model.config import DEFAULT_CONFIG
from topics.wire.responses import (
    Performance,
    TopicPage,
    TopicState,
    TopicSummary,
    WatchedTopic,
    WatchResponse,
    WriteResponse,
)

STATE = encode(TopicState("t", "log", 3, 1, 4, 3, 99, DEFAULT_CONFIG, 0, None, None, 1, Performance(0.1)))
APPENDED = encode(WriteResponse("t", 1, 1, 1, 1, created=False, deduped=False, performance=Performance(0.1)))
NOT_READY = b'{"error":{"code":"not_ready","message":"recovering"}}'
DROP = b"drop"


class ScriptedServer(http.server.ThreadingHTTPServer):
    """Answers with what it was told, in order, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[tuple[int, bytes, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        status, body, headers = self.server.script.pop(0)
        if body == DROP:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    thread = threading.Thread(target=scripted.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield scripted
    scripted.shutdown()
    scripted.server_close()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(server: ScriptedServer, pauses: list[float]) -> Iterator[Client]:
    with Client(server.url, "s3cret", policy=RetryPolicy(attempts_max=3)) as client:

        async def pause(duration_s: float) -> None:
            pauses.append(duration_s)

        client.caller.port.pause = pause  # type: ignore[method-assign]
        yield client


def test_one_connection_is_kept(server: ScriptedServer, client: Client) -> None:
    server.script = [(200, STATE, {})] * 3
    assert [client.topic("t").head_seq for _ in range(3)] == [3, 3, 3]
    assert server.connections == 1


def test_a_server_that_is_not_ready_is_waited_for(server: ScriptedServer, client: Client, pauses: list[float]) -> None:
    server.script = [(503, NOT_READY, {"Retry-After": "1"}), (200, STATE, {})]
    assert client.topic("t").head_seq == 3
    assert [1.0 < pause < 1.1 for pause in pauses] == [True]


def test_waiting_has_an_end(server: ScriptedServer, client: Client) -> None:
    server.script = [(503, NOT_READY, {"Retry-After": "1"})] * 3
    with pytest.raises(errors.NotReady):
        client.topic("t")


def test_an_append_over_a_broken_connection_is_sent_again_with_the_same_key(
    server: ScriptedServer, client: Client
) -> None:
    server.script = [(0, DROP, {}), (200, APPENDED, {})]
    client.append_many("t", [NewRecord(Raw(b"1"))])
    assert len(server.bodies) == 2
    assert server.bodies[0] == server.bodies[1]
    assert b'"idempotency_key":"' in server.bodies[0]


def test_a_server_that_is_gone_is_an_error_that_names_it(server: ScriptedServer, client: Client) -> None:
    server.script = [(0, DROP, {})] * 3
    with pytest.raises(ServerUnreachable, match=server.url):
        client.topic("t")


def test_topics_are_listed_page_by_page(server: ScriptedServer, client: Client) -> None:
    server.script = [
        (200, encode(TopicPage([TopicSummary(name, 1, 1, 1, 9, False, 0)], Performance(0.1), cursor)), {})
        for name, cursor in (("a", "c"), ("b", UNSET))
    ]
    assert [listed.topic for listed in client.topics()] == ["a", "b"]


def test_an_export_gives_records_and_then_its_end(server: ScriptedServer, client: Client) -> None:
    lines = b'{"$seq":1,"$ts":2,"data":1}\n{"$end":{"next_from_seq":1,"tombstones":[]}}\n'
    server.script = [(200, lines, {})]
    export = client.export("t")
    assert next(export).seq == 1
    with pytest.raises(StopIteration) as stop:
        next(export)
    assert stop.value.value.next_from_seq == 1


@pytest.mark.parametrize(
    "lines",
    [
        b'{"$seq":1,"$ts":2,"data":1}\n',
        b'{"$end":{"next_from_seq":1,"tombstones":[],"error":"the topic was deleted"}}\n',
    ],
)
def test_an_export_that_is_not_whole_is_an_error(server: ScriptedServer, client: Client, lines: bytes) -> None:
    server.script = [(200, lines, {})]
    with pytest.raises(ExportCut):
        list(client.export("t"))


def test_a_watch_whose_session_the_server_has_forgotten_gets_a_new_one(server: ScriptedServer, client: Client) -> None:
    opened = encode(WatchResponse("w", "/v0/watch/w", 60_000, {"t": WatchedTopic(0, 3, 1)}, Performance(0.1)))
    record = b'event: record\ndata: {"topic":"t","records":[{"$seq":1,"$ts":2,"data":5}],"to_seq":1}\n\n'
    server.script = [
        (200, STATE, {}),
        (200, opened, {}),
        (404, b'{"error":{"code":"not_found","message":"the watch session does not exist"}}', {}),
        (200, opened, {}),
        (200, record, {"Content-Type": "text/event-stream"}),
    ]
    with client.watch("t") as items:
        event = next(items)
        assert isinstance(event, Event)
        assert event.seq == 1


def test_the_key_is_not_shown(client: Client) -> None:
    assert "s3cret" not in repr(client)
