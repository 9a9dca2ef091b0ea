"""Keys, scopes and prefixes."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from conformance.client import Api, Reply, Topic, assert_error, success
from conformance.conftest import RefusedStart, StartServer
from conformance.process import ServerProcess

KEYS = ",".join(
    [
        "root-secret",
        "ops-secret::",
        "read-secret:read",
        "write-secret:write",
        "delete-secret:delete",
        "admin-secret:admin",
        "rw-secret:rw",
        "letters-secret:r+w+d+a",
        "producer-secret:write+admin",
        "tenant-secret::t42:|shared.",
        "dashboard-secret:read:t42:",
    ]
)


@pytest.fixture(scope="module")
def guarded(server: StartServer) -> ServerProcess:
    """A server with keys of every kind."""
    return server(TOPICS_API_KEYS=KEYS)


@pytest.fixture
def keyed(guarded: ServerProcess) -> Callable[[str], Api]:
    return lambda name: guarded.api.with_key(f"{name}-secret")


@pytest.fixture
def existing(keyed: Callable[[str], Api]) -> Topic:
    """A topic with one record, seen with full access."""
    topic = Topic(keyed("root"), f"open-{uuid.uuid4().hex}")
    topic.fill(1)
    return topic


ROUTES: list[tuple[str, str, str, Any]] = [
    ("read", "GET", "/v0/topics", None),
    ("read", "GET", "/v0/topics/{topic}", None),
    ("read", "POST", "/v0/topics/{topic}/diff", {}),
    ("write", "POST", "/v0/topics/{topic}", {"records": [{"data": 1}]}),
    ("delete", "POST", "/v0/topics/{topic}/delete", {"before_seq": 0}),
    ("delete", "DELETE", "/v0/topics/{topic}", None),
    ("admin", "PUT", "/v0/topics/{topic}", {}),
    ("read", "GET", "/v0/metrics", None),
]


def call(api: Api, method: str, path: str, body: Any, topic: str) -> Reply:
    path = path.replace("{topic}", topic)
    return api.request(method, path) if body is None else api.request(method, path, body)


# Authentication


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer root-secre",
        "Bearer root-secret-and-more",
        "Bearer ROOT-SECRET",
        "Bearer read-secret:read",
        "Basic root-secret",
        "root-secret",
        "Bearer root-secret read-secret",
    ],
)
@pytest.mark.parametrize(("_scope", "method", "path", "body"), ROUTES)
def test_a_request_without_a_known_key_is_401(
    guarded: ServerProcess,
    existing: Topic,
    _scope: str,
    method: str,
    path: str,
    body: Any,
    authorization: str | None,
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    arguments = () if body is None else (body,)
    reply = guarded.api.request(method, path.replace("{topic}", existing.name), *arguments, headers=headers)
    assert_error(reply, 401, "unauthorized")
    assert reply.headers["WWW-Authenticate"].startswith("Bearer")
    assert existing.state()["head_seq"] == 1


@pytest.mark.parametrize("authorization", ["Bearer ", "Bearer wrong"])
@pytest.mark.parametrize("body_bytes", [2, 70_000, 4_000_000])
def test_a_client_that_is_refused_before_it_has_sent_everything_can_send_the_rest_and_read_why(
    guarded: ServerProcess, body_bytes: int, authorization: str
) -> None:
    """A server that closes while its client still sends resets the connection, and the answer may be lost."""
    with guarded.api.connection() as connection:
        head = ("Content-Type: application/json", f"Content-Length: {body_bytes}", f"Authorization: {authorization}")
        connection.send(connection.head("PUT /v0/topics/t", *head))
        for piece in (1, body_bytes // 2, body_bytes - 1 - body_bytes // 2):
            connection.send(b" " * piece)
        assert_error(connection.reply(), 401, "unauthorized")
    with guarded.api.connection() as connection:
        connection.send(connection.head("PUT /v0/topics/t", *head) + b"{")
        if body_bytes > 2:  # what is small is read first
            assert_error(connection.reply(), 401, "unauthorized")
        connection.send(b" " * (body_bytes - 1))
        if body_bytes == 2:
            assert_error(connection.reply(), 401, "unauthorized")
        else:
            assert connection.stream.read() == b""  # an end, and no reset


def test_the_name_of_the_scheme_has_no_case(guarded: ServerProcess) -> None:
    assert guarded.api.get("/v0/topics", {"Authorization": "bearer root-secret"}).status == 200


def test_a_key_in_the_query_is_not_accepted(guarded: ServerProcess) -> None:
    assert_error(guarded.api.get("/v0/topics?token=root-secret"), 401, "unauthorized")


def test_an_unknown_key_learns_nothing_about_a_topic(guarded: ServerProcess, existing: Topic) -> None:
    absent = guarded.api.get("/v0/topics/absent")
    present = guarded.api.get(existing.path)
    assert (absent.status, absent.json["error"]) == (present.status, present.json["error"])


def test_a_missing_key_is_reported_before_a_bad_body(guarded: ServerProcess) -> None:
    assert_error(guarded.api.post_bytes("/v0/topics/a", b"{"), 401, "unauthorized")


def test_without_keys_the_header_is_ignored(server: StartServer) -> None:
    open_server = server()
    assert open_server.api.with_key("anything").get("/v0/topics").status == 200
    assert open_server.api.get("/v0/metrics").status == 200


def test_keys_never_appear_in_the_log(guarded: ServerProcess) -> None:
    for key in ["root-secret", "unknown-secret"]:
        guarded.api.with_key(key).get("/v0/topics")
    guarded.api.get("/v0/topics?token=root-secret")
    assert "-secret" not in guarded.log()


# Scopes


@pytest.mark.parametrize("key", ["read", "write", "delete", "admin"])
@pytest.mark.parametrize(("scope", "method", "path", "body"), ROUTES)
def test_a_route_needs_its_scope_and_no_other(
    keyed: Callable[[str], Api], existing: Topic, key: str, scope: str, method: str, path: str, body: Any
) -> None:
    reply = call(keyed(key), method, path, body, existing.name)
    if key == scope:
        assert reply.status == 200
    else:
        assert_error(reply, 403, "forbidden")
        assert existing.state()["head_seq"] == 1


@pytest.mark.parametrize("key", ["root", "ops", "letters"])
@pytest.mark.parametrize(("_scope", "method", "path", "body"), ROUTES)
def test_a_key_with_all_scopes_may_do_everything(
    keyed: Callable[[str], Api], existing: Topic, key: str, _scope: str, method: str, path: str, body: Any
) -> None:
    assert call(keyed(key), method, path, body, existing.name).status == 200


@pytest.mark.parametrize(("scope", "method", "path", "body"), ROUTES)
def test_rw_is_read_and_write(
    keyed: Callable[[str], Api], existing: Topic, scope: str, method: str, path: str, body: Any
) -> None:
    expected = 200 if scope in {"read", "write"} else 403
    assert call(keyed("rw"), method, path, body, existing.name).status == expected


def test_a_missing_scope_is_reported_before_an_absent_topic(keyed: Callable[[str], Api]) -> None:
    assert_error(keyed("read").delete("/v0/topics/absent"), 403, "forbidden")
    assert_error(keyed("write").get("/v0/topics/absent"), 403, "forbidden")


def test_a_missing_scope_is_reported_before_a_bad_body(keyed: Callable[[str], Api]) -> None:
    assert_error(keyed("read").post_bytes("/v0/topics/a", b"{"), 403, "forbidden")


def test_a_writer_may_create_a_topic_by_writing(keyed: Callable[[str], Api]) -> None:
    assert Topic(keyed("write"), f"lazy-{uuid.uuid4().hex}").write({"data": 1})["created"] is True


def test_creating_a_topic_with_an_inline_config_needs_admin(keyed: Callable[[str], Api]) -> None:
    topic = Topic(keyed("write"), f"lazy-{uuid.uuid4().hex}")
    body = {"records": [{"data": 1}], "config": {"ttl_ms": 60000}}
    assert_error(topic.api.post(topic.path, body), 403, "forbidden")
    assert not Topic(keyed("root"), topic.name).exists()


def test_write_and_admin_may_create_a_topic_with_an_inline_config(keyed: Callable[[str], Api]) -> None:
    topic = Topic(keyed("producer"), f"lazy-{uuid.uuid4().hex}")
    assert topic.write({"data": 1}, config={"ttl_ms": 60000})["created"] is True


def test_an_inline_config_that_is_ignored_needs_no_admin(keyed: Callable[[str], Api], existing: Topic) -> None:
    written = Topic(keyed("write"), existing.name).write({"data": 1}, config={"ttl_ms": 60000})
    assert written["seqs"] == [2]


# Prefixes


@pytest.mark.parametrize("name", ["t42:jobs", "t42:", "t42:a:b", "shared.events"])
def test_a_name_with_an_allowed_prefix_is_accessible(keyed: Callable[[str], Api], name: str) -> None:
    topic = Topic(keyed("tenant"), name)
    topic.configure()
    topic.fill(1)
    assert topic.seqs() == [1]
    topic.delete_records(before_seq=2)
    assert topic.remove()["deleted"] is True


@pytest.mark.parametrize("name", ["t42", "t421:jobs", "T42:jobs", "shared", "sharedx", "other:t42:", "t4"])
@pytest.mark.parametrize(("_scope", "method", "path", "body"), [route for route in ROUTES if "{topic}" in route[2]])
def test_a_name_with_another_prefix_is_403(
    keyed: Callable[[str], Api], _scope: str, method: str, path: str, body: Any, name: str
) -> None:
    assert_error(call(keyed("tenant"), method, path, body, name), 403, "forbidden")
    assert not Topic(keyed("root"), name).exists()


def test_a_percent_encoded_name_does_not_escape_the_prefixes(keyed: Callable[[str], Api]) -> None:
    assert keyed("tenant").put("/v0/topics/t42%3Ajobs", {}).status in {200, 201}
    assert_error(keyed("tenant").put("/v0/topics/t43%3Ajobs", {}), 403, "forbidden")


@pytest.mark.parametrize("name", ["t43:dead", "dead", "t42"])
def test_a_dead_letter_topic_with_another_prefix_is_403(keyed: Callable[[str], Api], name: str) -> None:
    topic = Topic(keyed("tenant"), f"t42:{uuid.uuid4().hex}")
    config = {"type": "queue", "dead_letter": name}
    assert_error(topic.api.put(topic.path, config), 403, "forbidden")
    assert_error(topic.api.post(topic.path, {"records": [{"data": 1}], "config": config}), 403, "forbidden")
    assert not topic.exists()
    topic.configure(type="queue")
    assert_error(topic.api.put(topic.path, {"dead_letter": name}), 403, "forbidden")
    assert topic.state()["config"]["dead_letter"] is None


@pytest.mark.parametrize("name", ["t42:dead", "shared.dead"])
def test_a_dead_letter_topic_with_an_allowed_prefix_may_be_set_and_unset(
    keyed: Callable[[str], Api], name: str
) -> None:
    topic = Topic(keyed("tenant"), f"t42:{uuid.uuid4().hex}")
    assert topic.write({"data": 1}, config={"type": "queue", "dead_letter": name})["created"] is True
    assert topic.configure(dead_letter=None)["config"]["dead_letter"] is None
    assert topic.configure(dead_letter=name)["config"]["dead_letter"] == name


def test_an_inline_dead_letter_that_is_ignored_needs_no_prefix(keyed: Callable[[str], Api]) -> None:
    topic = Topic(keyed("tenant"), f"t42:{uuid.uuid4().hex}")
    topic.fill(1)
    assert topic.write({"data": 1}, config={"dead_letter": "dead"})["seqs"] == [2]


def test_a_key_may_have_scopes_and_prefixes(keyed: Callable[[str], Api]) -> None:
    Topic(keyed("root"), "t42:seen").configure()
    dashboard = keyed("dashboard")
    assert dashboard.get("/v0/topics/t42:seen").status == 200
    assert_error(dashboard.put("/v0/topics/t42:seen", {}), 403, "forbidden")
    assert_error(dashboard.get("/v0/topics/shared.events"), 403, "forbidden")


def test_the_list_shows_only_allowed_names(keyed: Callable[[str], Api]) -> None:
    root = keyed("root")
    for name in ["t42:listed", "shared.listed", "t43:hidden", "shared-hidden"]:
        Topic(root, name).configure()
    listed: list[str] = []
    page = success(keyed("tenant").get("/v0/topics?page_size=1"))
    listed += [entry["topic"] for entry in page["topics"]]
    while "next_cursor" in page:
        page = success(keyed("tenant").get(f"/v0/topics?page_size=1&cursor={page['next_cursor'].replace('=', '%3D')}"))
        listed += [entry["topic"] for entry in page["topics"]]
    assert {"t42:listed", "shared.listed"} <= set(listed)
    assert all(name.startswith(("t42:", "shared.")) for name in listed)


def test_the_list_shows_nothing_under_a_forbidden_prefix(keyed: Callable[[str], Api]) -> None:
    Topic(keyed("root"), "t43:hidden").configure()
    page = success(keyed("tenant").get("/v0/topics?prefix=t43:"))
    assert page["topics"] == []
    assert "next_cursor" not in page


def test_a_refused_cycle_names_no_topic_the_key_may_not_know(keyed: Callable[[str], Api]) -> None:
    root, tenant = keyed("root"), keyed("tenant")
    for number, (source, dest) in enumerate([("t42:ring", "t43:secret"), ("t43:secret", "t42:back")]):
        success(root.put(f"/v0/routers/t43:ring{number}", {"source": source, "dest": dest}))
    closing = {"source": "t42:back", "dest": "t42:ring"}
    reply = tenant.put("/v0/routers/t42:closing", closing)
    detail = assert_error(reply, 409, "router_cycle")
    assert detail["cycle"] == ["t42:back", "t42:ring", "(hidden)", "t42:back"]
    assert b"t43" not in reply.body
    assert assert_error(root.put("/v0/routers/t42:closing", closing), 409, "router_cycle")["cycle"] == [
        "t42:back",
        "t42:ring",
        "t43:secret",
        "t42:back",
    ]


def test_a_deleted_topic_names_only_those_of_its_routers_the_key_may_know(keyed: Callable[[str], Api]) -> None:
    root, tenant = keyed("root"), keyed("tenant")
    for router, dest in [("t42:r", "t42:hub.copy"), ("t43:r", "t43:hub.copy")]:
        success(root.put(f"/v0/routers/{router}", {"source": "t42:hub", "dest": dest}))
    assert success(tenant.delete("/v0/topics/t42:hub"))["routers_removed"] == ["t42:r"]
    assert root.get("/v0/routers/t43:r").status == 404


def test_a_router_whose_ends_the_key_may_not_know_is_not_shown_to_it(keyed: Callable[[str], Api]) -> None:
    root, tenant = keyed("root"), keyed("tenant")
    for router, source, dest in [
        ("t42:a-in", "t43:outside", "t42:a-1"),
        ("t42:b-out", "t42:a-2", "t43:elsewhere"),
        ("t42:c-own", "t42:a-3", "shared.a-4"),
    ]:
        success(root.put(f"/v0/routers/{router}", {"source": source, "dest": dest}))
    page = success(tenant.get("/v0/routers?prefix=t42:&page_size=1"))
    listed = [entry["router"] for entry in page["routers"]]
    while "next_cursor" in page:
        cursor = page["next_cursor"].replace("=", "%3D")
        page = success(tenant.get(f"/v0/routers?prefix=t42:&page_size=1&cursor={cursor}"))
        listed += [entry["router"] for entry in page["routers"]]
    assert "t42:c-own" in listed
    assert not {"t42:a-in", "t42:b-out"} & set(listed)
    for router in ("t42:a-in", "t42:b-out"):
        reply = tenant.get(f"/v0/routers/{router}")
        assert_error(reply, 403, "forbidden")
        assert b"t43" not in reply.body
        assert root.get(f"/v0/routers/{router}").status == 200
    assert tenant.get("/v0/routers/t42:c-own").status == 200


# Probes


@pytest.mark.parametrize("path", ["/v0/health", "/healthz", "/v0/ready", "/readyz"])
def test_probes_need_no_key(guarded: ServerProcess, path: str) -> None:
    assert guarded.api.get(path).status == 200
    assert guarded.api.with_key("wrong").get(path).status == 200


@pytest.fixture(scope="module")
def closed(server: StartServer) -> ServerProcess:
    """A server whose probes need a key too."""
    return server(TOPICS_API_KEYS="root-secret", TOPICS_PROBE_AUTH="true")


@pytest.mark.parametrize("path", ["/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/metrics"])
def test_probes_need_a_key_when_told_so(closed: ServerProcess, path: str) -> None:
    assert_error(closed.api.get(path), 401, "unauthorized")
    assert closed.api.with_key("root-secret").get(path).status == 200


# Starting


@pytest.mark.parametrize(
    "keys",
    [
        "some-secret:reed",
        "fine,some-secret:read+",
        "some-secret:x:a",
        "some-secret:read+wrote",
        "some-secret:read:|",
    ],
)
def test_a_malformed_entry_keeps_the_server_from_starting(refused_start: RefusedStart, keys: str) -> None:
    output = refused_start(TOPICS_API_KEYS=keys)
    assert "TOPICS_API_KEYS" in output
    assert "some-secret" not in output


def test_an_open_server_does_not_bind_beyond_loopback(refused_start: RefusedStart) -> None:
    assert "TOPICS_ALLOW_INSECURE_NO_AUTH" in refused_start(TOPICS_HOST="0.0.0.0")


def test_an_open_server_binds_beyond_loopback_when_told_so(server: StartServer) -> None:
    process = server(TOPICS_HOST="0.0.0.0", TOPICS_ALLOW_INSECURE_NO_AUTH="1")
    assert process.api.get("/v0/topics").status == 200


def test_a_server_with_keys_binds_beyond_loopback(server: StartServer) -> None:
    process = server(TOPICS_HOST="0.0.0.0", TOPICS_API_KEYS="root-secret")
    assert process.api.with_key("root-secret").get("/v0/topics").status == 200
    assert process.api.get("/v0/topics").status == 401
