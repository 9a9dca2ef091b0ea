"""Everything works through the proxy of the security guide: TLS, large writes, long polls, both kinds of stream."""

import http.client
import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.nginx import PROGRAM, Proxy, nginx
from acceptance.server import Server
from acceptance.terminal import environment
from topics import Client, Event

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="nginx is not installed: apt-get install nginx-light"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: apt-get install openssl"),
]
KEY = "s3cret"
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    directory: Path = tmp_path_factory.mktemp("proxy")
    server = Server(directory, TOPICS_API_KEYS=KEY)
    try:
        with nginx(directory, server.api.port) as proxy:
            yield proxy
    finally:
        server.stop()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    with Client(proxy.url, KEY, tls=proxy.tls, deadline_s=PATIENCE_S) as client:
        yield client


def test_a_large_batch_goes_through_and_comes_back(client: Client) -> None:
    client.append_many("large", ["x" * 500_000] * 10)
    assert [len(event.data) for event in client.read("large") if isinstance(event, Event)] == [500_000] * 10


def test_an_event_stream_delivers_while_it_is_open(client: Client) -> None:
    client.create("news")
    with client.watch("news") as watch:
        for number in range(3):
            client.append("news", number)
            event = next(event for event in watch if isinstance(event, Event))
            assert event.data == number


def test_a_websocket_is_a_websocket(client: Client) -> None:
    client.create("chat")
    with client.session() as session:
        session.subscribe("chat", tail=True)
        session.publish("chat", "hello")
        assert next(event for event in session if isinstance(event, Event)).data == "hello"


def test_a_long_poll_waits_as_long_as_it_may(proxy: Proxy, client: Client) -> None:
    client.create("quiet")
    request = urllib.request.Request(
        f"{proxy.url}/v0/topics/quiet/diff",
        json.dumps({"wait_ms": 1500}).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {KEY}"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S, context=proxy.tls) as reply:
        assert json.load(reply)["caught_up"] is True
        assert reply.headers["strict-transport-security"]


def test_the_command_line_trusts_the_authority_it_is_given(proxy: Proxy, client: Client) -> None:
    client.create("listed")
    trusting = environment(proxy.url, TOPICS_API_KEY=KEY, SSL_CERT_FILE=str(proxy.certificate))
    command = [sys.executable, "-m", "topics.cli.main", "ls", "listed", "--json"]
    done = subprocess.run(command, env=trusting, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout.splitlines()[0])["topic"] == "listed", done.stderr


def test_plain_http_leads_to_https(proxy: Proxy) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.plain_port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/console", headers={"host": "localhost"})
        reply = connection.getresponse()
        assert (reply.status, reply.headers["location"]) == (301, "https://localhost/console")
    finally:
        connection.close()


def test_a_key_in_an_address_is_not_logged(proxy: Proxy) -> None:
    url = f"{proxy.url}/v0/watch/wid_unknown?token={KEY}"
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        urllib.request.urlopen(url, timeout=PATIENCE_S, context=proxy.tls)
    refused.value.close()
    log = proxy.access_log.read_text()
    assert '"GET /v0/watch/wid_unknown" 404' in log
    assert KEY not in log
