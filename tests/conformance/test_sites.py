"""Whose web pages may use the server: HTTP, event streams and WebSockets alike, with keys and without."""

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from conformance.client import Api, Reply, assert_error, success
from conformance.conftest import StartServer
from conformance.process import ServerProcess

EVIL = "https://evil.example"
APP = "https://app.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}


@pytest.fixture(scope="module")
def bare(server: StartServer) -> Api:
    return server().api


@pytest.fixture(scope="module")
def sharing(server: StartServer) -> Api:
    return server(TOPICS_CORS_ORIGINS=APP, TOPICS_ALLOWED_HOSTS="topics.example").api


@pytest.fixture(scope="module")
def keyed(server: StartServer) -> ServerProcess:
    return server(TOPICS_CORS_ORIGINS=APP, TOPICS_API_KEYS="root-secret")


def web_socket_status(api: Api, origin: str) -> int:
    headers = {} if api.key is None else {"Authorization": f"Bearer {api.key}"}
    url = f"ws://{api.host}:{api.port}/v0/ws"
    try:
        with connect(url, origin=Origin(origin), additional_headers=headers, proxy=None):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def stream_head(api: Api, **headers: str) -> tuple[int, str]:
    """Status and head of the event stream of a new watch session."""
    path = success(api.post("/v0/watch", {"topics": {"seen": {}}}))["stream_url"]
    with api.connection() as connection:
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        connection.send(connection.head(f"GET {path}", *lines).replace(b"Host: conformance", b"Host: localhost"))
        lines = []
        while (line := connection.stream.readline().decode().strip()) != "":
            lines.append(line)
        return int(lines[0].split()[1]), "\n".join(lines[1:])


def test_ordinary_clients_are_served_whatever_they_call_the_server(bare: Api) -> None:
    port = bare.port
    for host in (
        "127.0.0.1",
        f"127.0.0.1:{port}",
        "localhost",
        f"localhost:{port}",
        f"[::1]:{port}",
        "localhost:1",
        "h",
    ):
        assert bare.get("/v0/topics", {"Host": host}).status == 200, host
    with bare.connection() as connection:
        connection.send(b"GET /v0/topics HTTP/1.0\r\n\r\n")
        assert connection.reply().status == 200
    assert bare.get("/v0/topics", {"Origin": f"http://127.0.0.1:{port}"}).status == 200


@pytest.mark.parametrize("origin", [EVIL, "http://127.0.0.1:1", "null"])
def test_a_page_of_another_site_reads_writes_and_opens_nothing(bare: Api, origin: str) -> None:
    success(bare.put("/v0/topics/seen"))
    headers = {"Origin": origin}
    assert_error(bare.get("/v0/topics", headers), 403, "forbidden", "TOPICS_CORS_ORIGINS")
    # As a form posts it, without asking first.
    body = b'{"records":[{"data":1}]}'
    posted = bare.request("POST", "/v0/topics/seen", body=body, headers={**headers, "Content-Type": "text/plain"})
    assert_error(posted, 403, "forbidden")
    reply = bare.request("OPTIONS", "/v0/topics/seen", headers={**headers, **PREFLIGHT})
    assert_error(reply, 403, "forbidden")
    assert "access-control-allow-origin" not in reply.headers
    assert web_socket_status(bare, origin) == 403
    assert stream_head(bare, Origin=origin)[0] == 403
    assert success(bare.get("/v0/topics/seen"))["head_seq"] == 0


def test_a_page_whose_name_leads_here_is_refused(bare: Api) -> None:
    for headers in ({"Host": "evil.example"}, {"Host": "evil.example", "Origin": "http://evil.example"}):
        assert_error(bare.get("/v0/topics", headers), 403, "forbidden", "TOPICS_ALLOWED_HOSTS")


def test_a_link_or_image_of_another_site_takes_no_jobs(bare: Api) -> None:
    success(bare.put("/v0/topics/jobs", {"type": "queue"}))
    success(bare.post("/v0/topics/jobs", {"records": [{"data": 1}]}))
    reply = bare.get("/v0/topics/jobs/work?node=w", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})
    assert_error(reply, 403, "forbidden")
    assert success(bare.get("/v0/topics/jobs"))["queue"]["ready"] == 1


@pytest.mark.parametrize("path", ["/v0/health", "/healthz", "/v0/ready", "/readyz"])
def test_probes_answer_whoever_asks(bare: Api, path: str) -> None:
    assert bare.get(path, {"Origin": EVIL, "Host": "evil.example"}).status == 200


def shared_with(reply: Reply) -> str | None:
    origins = reply.headers.get_all("access-control-allow-origin", [])
    assert len(origins) < 2, "a browser takes two for none"
    return origins[0] if origins else None


def test_pages_of_a_listed_origin_use_everything(sharing: Api) -> None:
    headers = {"Origin": APP}
    preflight = sharing.request("OPTIONS", "/v0/topics/seen", headers={**headers, **PREFLIGHT})
    assert (preflight.status, preflight.body, shared_with(preflight)) == (204, b"", APP)
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == "content-type"
    written = sharing.request("POST", "/v0/topics/seen", {"records": [{"data": 1}]}, headers=headers)
    assert (written.status, shared_with(written)) == (201, APP)
    missing = sharing.get("/v0/topics/none", headers)
    assert (missing.status, shared_with(missing)) == (404, APP)
    durable = sharing.request("PUT", "/v0/topics/durable", {"durability": "fsync"}, headers=headers)
    assert (durable.status, shared_with(durable)) == (201, APP)
    assert web_socket_status(sharing, APP) == 101
    status, head = stream_head(sharing, Origin=APP)
    assert status == 200
    assert f"access-control-allow-origin: {APP}" in head
    assert_error(sharing.get("/v0/topics", {"Origin": EVIL}), 403, "forbidden")
    assert sharing.get("/v0/topics", {"Host": "topics.example:80"}).status == 200


def test_with_keys_other_origins_are_not_refused_but_read_nothing(keyed: ServerProcess) -> None:
    root = keyed.api.with_key("root-secret")
    listed, other = root.get("/v0/topics", {"Origin": APP}), root.get("/v0/topics", {"Origin": EVIL})
    assert (listed.status, shared_with(listed)) == (200, APP)
    assert (other.status, shared_with(other)) == (200, None)
    assert root.get("/v0/topics", {"Host": "whatever.example"}).status == 200
    assert web_socket_status(root, EVIL) == 101


def test_with_keys_a_preflight_needs_none_and_a_refusal_can_be_read(keyed: ServerProcess) -> None:
    preflight = keyed.api.request("OPTIONS", "/v0/topics/seen", headers={"Origin": APP, **PREFLIGHT})
    assert (preflight.status, shared_with(preflight)) == (204, APP)
    refused = keyed.api.get("/v0/topics", {"Origin": APP})
    assert (refused.status, shared_with(refused)) == (401, APP)
    assert_error(
        keyed.api.request("OPTIONS", "/v0/topics/seen", headers={"Origin": EVIL, **PREFLIGHT}), 403, "forbidden"
    )


def test_every_origin_may_be_allowed_but_never_with_credentials(server: StartServer) -> None:
    api = server(TOPICS_CORS_ORIGINS="*").api
    reply = api.get("/v0/topics", {"Origin": EVIL})
    assert (reply.status, shared_with(reply)) == (200, "*")
    assert "access-control-allow-credentials" not in reply.headers


def test_an_options_request_that_is_no_preflight_is_405_as_ever(bare: Api) -> None:
    assert_error(bare.request("OPTIONS", "/v0/topics"), 405, "method_not_allowed")
