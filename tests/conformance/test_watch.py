"""POST /v0/watch makes a session, GET /v0/watch/:wid opens its stream: what is taken, and what is refused before."""

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.client import Api, Topic, assert_error, eventually, success
from conformance.conftest import StartServer
from conformance.process import ServerProcess
from conformance.sse import SSE_ACCEPT, create, id_of, open_connections, streaming, torn, try_to_open, watching

WID = re.compile(r"wid_[A-Za-z0-9_-]{22,}")  # 22 characters of base64url are the 128 bits it needs
UNKNOWN_WID = "wid_AAAAAAAAAAAAAAAAAAAAAA"

NewTopic = Callable[..., Topic]


@pytest.fixture
def filled(topic: Topic) -> Topic:
    """Five records, the first two deleted."""
    topic.fill(5)
    topic.delete_records(before_seq=3)
    return topic


# The reply


def test_a_session_has_an_unguessable_id_and_the_url_of_its_stream(filled: Topic) -> None:
    reply = create(filled.api, {filled.name: {}})
    assert WID.fullmatch(reply["wid"])
    assert reply["stream_url"] == f"/v0/watch/{reply['wid']}"
    assert reply["session_ttl_ms"] == 300_000
    assert reply["performance"]["server_total_ms"] >= 0


def test_no_two_sessions_have_the_same_id(filled: Topic) -> None:
    assert len({create(filled.api, {filled.name: {}})["wid"] for _ in range(20)}) == 20


def test_the_reply_tells_where_each_topic_stands(filled: Topic, new_topic: NewTopic) -> None:
    other = new_topic()
    other.configure()
    reply = create(filled.api, {filled.name: {"from_seq": 4}, other.name: {}})
    assert reply["topics"] == {
        filled.name: {"from_seq": 4, "head_seq": 5, "earliest_seq": 3},
        other.name: {"from_seq": 0, "head_seq": 0, "earliest_seq": 1},
    }


def test_a_cursor_takes_the_place_of_where_its_topics_begin(filled: Topic, new_topic: NewTopic) -> None:
    other = new_topic()
    other.configure()
    topics = {filled.name: {"from_seq": 4}, other.name: {"tail": True}}
    reply = create(filled.api, topics, cursor=id_of({filled.name: 3, "elsewhere": 9}))
    assert {name: told["from_seq"] for name, told in reply["topics"].items()} == {filled.name: 3, other.name: 0}


def test_the_id_of_an_event_is_a_cursor_for_another_session(filled: Topic) -> None:
    with watching(filled.api, {filled.name: {}}, limit=1) as stream:
        seen = stream.record()
    with watching(filled.api, {filled.name: {}}, cursor=seen.id) as stream:
        assert stream.record().seqs == [4, 5]
    assert seen.seqs == [3]


@pytest.mark.parametrize("cursor", ["", "garbage", "W10", id_of({"a": -1}), id_of({"a": 2**64})])
def test_a_cursor_that_is_none_is_refused(filled: Topic, cursor: str) -> None:
    reply = filled.api.post("/v0/watch", {"topics": {filled.name: {}}, "cursor": cursor})
    assert_error(reply, 400, "invalid_request", "cursor")


@pytest.mark.parametrize(
    ("options", "from_seq"),
    [
        ({}, 0),
        ({"from_seq": 0}, 0),
        ({"from_seq": 2, "tail": False}, 2),
        ({"tail": True}, 5),
        ({"tail": True, "from_seq": 1}, 5),
        ({"from_seq": 2**64 - 1}, 2**64 - 1),
    ],
)
def test_a_topic_begins_after_from_seq_or_at_its_head(filled: Topic, options: dict[str, Any], from_seq: int) -> None:
    assert create(filled.api, {filled.name: options})["topics"][filled.name]["from_seq"] == from_seq


@pytest.mark.parametrize(
    "body",
    [
        {"node": "n"},
        {"node": ["a", "b"]},
        {"node": None},
        {"limit": 0},
        {"limit": 2**64 - 1},
        {"max_batch_bytes": 0},
        {"max_batch_bytes": 2**64 - 1},
        {"heartbeat_ms": 0},
        {"heartbeat_ms": 2**64 - 1},
        {"include_meta": False, "include_tags": True, "include_data": False},
        {"consistency": "eventual"},
        {"consistency": "strong"},
        {"unknown": [1, {"deep": None}]},
    ],
)
def test_a_session_takes(filled: Topic, body: dict[str, Any]) -> None:
    assert create(filled.api, {filled.name: {}}, **body)["topics"].keys() == {filled.name}


def test_watching_counts_as_reading(topic: Topic) -> None:
    topic.configure()
    create(topic.api, {topic.name: {}})
    assert topic.state()["last_read_ts"] is not None


# Refused: the body


@pytest.mark.parametrize(
    ("body", "mentions"),
    [
        ({}, "topics"),
        ({"topics": {}}, "topics"),
        ({"topics": None}, "topics"),
        ({"topics": ["a"]}, "topics"),
        ({"topics": "a"}, "topics"),
        ({"topics": {"TOPIC": None}}, "topics"),
        ({"topics": {"TOPIC": 5}}, "topics"),
        ({"topics": {"not a name": {}}}, "topics"),
        ({"topics": {"": {}}}, "topics"),
        ({"topics": {"TOPIC": {"from_seq": -1}}}, "from_seq"),
        ({"topics": {"TOPIC": {"from_seq": 1.0}}}, "from_seq"),
        ({"topics": {"TOPIC": {"from_seq": "1"}}}, "from_seq"),
        ({"topics": {"TOPIC": {"from_seq": True}}}, "from_seq"),
        ({"topics": {"TOPIC": {"from_seq": None}}}, "from_seq"),
        ({"topics": {"TOPIC": {"from_seq": 2**64}}}, "from_seq"),
        ({"topics": {"TOPIC": {"tail": 1}}}, "tail"),
        ({"topics": {"TOPIC": {"tail": "yes"}}}, "tail"),
        ({"limit": -1}, "limit"),
        ({"limit": 1.5}, "limit"),
        ({"limit": "10"}, "limit"),
        ({"limit": 2**64}, "limit"),
        ({"max_batch_bytes": -1}, "max_batch_bytes"),
        ({"max_batch_bytes": 2**64}, "max_batch_bytes"),
        ({"heartbeat_ms": -1}, "heartbeat_ms"),
        ({"heartbeat_ms": 1000.0}, "heartbeat_ms"),
        ({"heartbeat_ms": 2**64}, "heartbeat_ms"),
        ({"include_meta": 1}, "include_meta"),
        ({"include_tags": "true"}, "include_tags"),
        ({"include_data": None}, "include_data"),
        ({"consistency": "weak"}, "consistency"),
        ({"consistency": 1}, "consistency"),
        ({"node": 7}, "node"),
        ({"node": [7]}, "node"),
        ({"node": "n" * 129}, "node"),
        ({"node": ["n"] * 1025}, "node"),
    ],
)
def test_a_session_refuses(topic: Topic, body: dict[str, Any], mentions: str) -> None:
    topic.configure()
    topics = body.get("topics", {topic.name: {}} if body else None)
    if isinstance(topics, dict):
        topics = {topic.name if name == "TOPIC" else name: options for name, options in topics.items()}
    sent = {"topics": topics, **{name: value for name, value in body.items() if name != "topics"}}
    assert_error(topic.api.post("/v0/watch", sent if body else {}), 400, "invalid_request", mentions)


@pytest.mark.parametrize("body", [b"[]", b"7", b"null", b"{", b'{"topics":{}}x', b'{"topics":"\xff"}'])
def test_a_body_that_is_no_request_is_refused(api: Api, body: bytes) -> None:
    assert_error(api.post_bytes("/v0/watch", body), 400, "invalid_request")


def test_a_request_without_a_body_is_refused(api: Api) -> None:
    assert_error(api.post("/v0/watch"), 400, "invalid_request")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_declared_as_json_is_refused(api: Api, content_type: str) -> None:
    reply = api.request("POST", "/v0/watch", body=b"{}", headers={"Content-Type": content_type})
    assert_error(reply, 415, "unsupported_media_type")


@pytest.mark.parametrize(("method", "path"), [("GET", "/v0/watch"), ("DELETE", "/v0/watch"), ("PUT", "/v0/watch")])
def test_sessions_are_only_posted(api: Api, method: str, path: str) -> None:
    reply = api.request(method, path)
    assert_error(reply, 405, "method_not_allowed")
    assert reply.headers["Allow"] == "POST"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_streams_are_only_got(api: Api, method: str) -> None:
    reply = api.request(method, f"/v0/watch/{UNKNOWN_WID}")
    assert_error(reply, 405, "method_not_allowed")
    assert reply.headers["Allow"] == "GET, HEAD"


# Refused: the topics


def test_an_unknown_topic_is_not_found_and_not_made(filled: Topic, new_topic: NewTopic) -> None:
    unknown = new_topic()
    reply = filled.api.post("/v0/watch", {"topics": {filled.name: {}, unknown.name: {}}})
    assert assert_error(reply, 404, "topic_not_found") == {"topic": unknown.name}
    assert not unknown.exists()


def test_a_lenient_session_leaves_unknown_topics_out(filled: Topic, new_topic: NewTopic) -> None:
    unknown = new_topic()
    reply = filled.api.post("/v0/watch?lenient=true", {"topics": {unknown.name: {}, filled.name: {}}})
    assert success(reply)["topics"].keys() == {filled.name}
    assert not unknown.exists()
    with streaming(filled.api, reply.json["stream_url"]) as stream:
        assert [frame.event for frame in stream.take(2)] == ["record", "caught-up"]


def test_a_lenient_session_may_have_no_topic_at_all(topic: Topic) -> None:
    reply = success(topic.api.post("/v0/watch?lenient=true", {"topics": {topic.name: {}}}))
    assert reply["topics"] == {}
    with streaming(topic.api, reply["stream_url"]) as stream:
        assert stream.opening.retry == "2000"


def test_lenient_may_be_said_no(topic: Topic) -> None:
    reply = topic.api.post("/v0/watch?lenient=false", {"topics": {topic.name: {}}})
    assert_error(reply, 404, "topic_not_found")


def test_lenient_is_true_or_false(filled: Topic) -> None:
    reply = filled.api.post("/v0/watch?lenient=perhaps", {"topics": {filled.name: {}}})
    assert_error(reply, 400, "invalid_request", "lenient")


@pytest.mark.parametrize("lenient", ["", "?lenient=true"])
def test_lenient_excuses_no_bad_name(api: Api, lenient: str) -> None:
    assert_error(api.post(f"/v0/watch{lenient}", {"topics": {"a b": {}}}), 400, "invalid_request", "topics")


@pytest.mark.parametrize("lenient", ["", "?lenient=true"])
def test_more_than_256_topics_are_too_many(api: Api, lenient: str) -> None:
    topics: dict[str, Any] = {f"absent-{number}": {} for number in range(257)}
    assert_error(api.post(f"/v0/watch{lenient}", {"topics": topics}), 400, "invalid_request", "256")


# Opening the stream


@pytest.mark.parametrize(
    "wid", [UNKNOWN_WID, "x", "wid_", "wid_short", UNKNOWN_WID + "A", "wid_AAAAAAAAAAAAAAAAAAAAA%20"]
)
def test_an_unknown_wid_is_not_found(api: Api, wid: str) -> None:
    assert_error(try_to_open(api, f"/v0/watch/{wid}"), 404, "not_found")


@pytest.mark.parametrize(
    "accept", ["application/json", "text/html, application/xhtml+xml", "text/plain;q=1", "image/*"]
)
def test_a_client_that_takes_no_event_stream_is_refused(filled: Topic, accept: str) -> None:
    path = create(filled.api, {filled.name: {}})["stream_url"]
    assert_error(try_to_open(filled.api, path, {"Accept": accept}), 406, "not_acceptable")


@pytest.mark.parametrize(
    "accept",
    ["text/event-stream", "Text/Event-Stream; q=0.9", "text/html, text/event-stream", "text/*", "*/*", None],
)
def test_a_client_that_takes_an_event_stream_gets_it(filled: Topic, accept: str | None) -> None:
    path = create(filled.api, {filled.name: {}})["stream_url"]
    with filled.api.connection() as connection:
        connection.send(connection.head(f"GET {path}", *([] if accept is None else [f"Accept: {accept}"])))
        assert connection.stream.readline() == b"HTTP/1.1 200 OK\r\n"


def test_the_head_of_a_stream_says_exactly_this(filled: Topic) -> None:
    with watching(filled.api, {filled.name: {}}) as stream:
        headers = {name.lower(): value for name, value in stream.headers.items()}
    assert headers.pop("date")
    assert headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-store",
        "connection": "keep-alive",
        "x-accel-buffering": "no",
        "transfer-encoding": "chunked",
    }


def test_a_stream_is_never_packed(filled: Topic) -> None:
    path = create(filled.api, {filled.name: {}})["stream_url"]
    with filled.api.connection() as connection:
        connection.send(connection.head(f"GET {path}", "Accept-Encoding: gzip"))
        head = b"".join(iter(connection.stream.readline, b"\r\n"))
        assert b"content-encoding" not in head.lower()
        assert connection.stream.readline() == b"d\r\n"  # the length of the first chunk
        assert connection.stream.readline() == b"retry: 2000\n"


def test_a_client_of_http_1_0_gets_the_stream_without_chunks(filled: Topic) -> None:
    path = create(filled.api, {filled.name: {}})["stream_url"]
    with filled.api.connection() as connection:
        connection.send(b"GET %b HTTP/1.0\r\n%b\r\n" % (path.encode(), connection.authorization))
        head = b"".join(iter(connection.stream.readline, b"\r\n"))
        assert b"transfer-encoding" not in head.lower()
        assert [connection.stream.readline() for _ in range(2)] == [b"retry: 2000\n", b"\n"]


def test_head_answers_like_get_without_a_stream(filled: Topic) -> None:
    path = create(filled.api, {filled.name: {}})["stream_url"]
    with filled.api.connection() as connection:
        connection.send(connection.head(f"HEAD {path}"))
        reply = connection.reply(to_head=True)
        assert (reply.status, reply.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
        connection.send(connection.head("GET /v0/health"))
        assert connection.reply().status == 200  # right behind: the connection is not a stream


def test_a_refused_stream_leaves_the_session_as_it_was(filled: Topic) -> None:
    path = create(filled.api, {filled.name: {}})["stream_url"]
    try_to_open(filled.api, path, {"Accept": "text/html"})
    with streaming(filled.api, path) as stream:
        assert stream.record().seqs == [3, 4, 5]


# Keys

KEYS = "root-secret,read-secret:read,reader-secret:read,write-secret:write,tenant-secret:read:t42:,odd%2Bsecret key"


@pytest.fixture(scope="module")
def guarded(server: StartServer) -> ServerProcess:
    return server(TOPICS_API_KEYS=KEYS)


@pytest.fixture
def keyed(guarded: ServerProcess) -> Callable[[str], Api]:
    return lambda name: guarded.api.with_key(f"{name}-secret")


@pytest.fixture
def secret(keyed: Callable[[str], Api]) -> Iterator[Topic]:
    """A topic with one record on the guarded server."""
    topic = Topic(keyed("root"), f"t42:{uuid.uuid4().hex}")
    topic.fill(1)
    yield topic
    topic.remove()


@pytest.fixture
def session(secret: Topic, keyed: Callable[[str], Api]) -> str:
    """The path of a stream that the key `read` made."""
    path = create(keyed("read"), {secret.name: {}})["stream_url"]
    assert isinstance(path, str)
    return path


def test_a_session_needs_a_key(secret: Topic) -> None:
    assert_error(secret.api.with_key(None).post("/v0/watch", {"topics": {secret.name: {}}}), 401, "unauthorized")


def test_a_session_needs_the_read_scope(secret: Topic, keyed: Callable[[str], Api]) -> None:
    assert_error(keyed("write").post("/v0/watch", {"topics": {secret.name: {}}}), 403, "forbidden")


@pytest.mark.parametrize("lenient", ["", "?lenient=true"])
def test_every_topic_of_a_session_is_within_the_keys_prefixes(
    secret: Topic, keyed: Callable[[str], Api], lenient: str
) -> None:
    body: dict[str, Any] = {"topics": {secret.name: {}, "other": {}}}
    assert_error(keyed("tenant").post(f"/v0/watch{lenient}", body), 403, "forbidden", "other")
    create(keyed("tenant"), {secret.name: {}})


def test_the_creating_key_opens_the_stream(session: str, keyed: Callable[[str], Api]) -> None:
    with streaming(keyed("read"), session) as stream:
        assert stream.record().seqs == [1]


@pytest.mark.parametrize("key", ["reader", "root", "tenant", "wrong"])
def test_no_other_key_opens_the_stream(session: str, keyed: Callable[[str], Api], key: str) -> None:
    assert_error(try_to_open(keyed(key), session), 401, "unauthorized")
    assert_error(try_to_open(keyed(key).with_key(None), f"{session}?token={key}-secret"), 401, "unauthorized")


@pytest.mark.parametrize("query", ["", "?token=", "?token", "?key=read-secret", "?token=read-secre"])
def test_the_wid_alone_opens_nothing(session: str, guarded: ServerProcess, query: str) -> None:
    assert_error(try_to_open(guarded.api, session + query), 401, "unauthorized")


@pytest.mark.parametrize(
    "query",
    [
        "token=read-secret",
        "token=%72ead%2Dsecret",
        "x=1&token=read-secret&y=2",
        "token=read-secret&token=root-secret",
        "token=read-secret&token=",
    ],
)
def test_a_browser_may_send_the_key_as_token(session: str, guarded: ServerProcess, query: str) -> None:
    with streaming(guarded.api, f"{session}?{query}") as stream:
        assert stream.record().seqs == [1]


@pytest.mark.parametrize("query", ["token=root-secret&token=read-secret", "token=&token=read-secret"])
def test_of_two_tokens_the_first_counts(session: str, guarded: ServerProcess, query: str) -> None:
    assert_error(try_to_open(guarded.api, f"{session}?{query}"), 401, "unauthorized")


def test_a_token_is_form_decoded(secret: Topic, guarded: ServerProcess) -> None:
    odd = guarded.api.with_key("odd%2Bsecret key")
    path = create(odd, {secret.name: {}})["stream_url"]
    with streaming(guarded.api, f"{path}?token=odd%252Bsecret+key") as stream:
        assert stream.record().seqs == [1]


def test_the_header_goes_before_the_token(session: str, keyed: Callable[[str], Api]) -> None:
    assert_error(try_to_open(keyed("root"), f"{session}?token=read-secret"), 401, "unauthorized")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v0/watch"),
        ("GET", "/v0/topics"),
        ("GET", "/v0/topics/{topic}"),
        ("POST", "/v0/topics/{topic}/diff"),
        ("POST", "/v0/topics/{topic}"),
        ("GET", "/v0/metrics"),
        ("GET", "/v0/ws"),
    ],
)
def test_nothing_but_a_stream_takes_a_token(secret: Topic, method: str, path: str) -> None:
    path = path.replace("{topic}", secret.name)
    reply = secret.api.with_key(None).request(method, f"{path}?token=root-secret")
    assert_error(reply, 401, "unauthorized")


# Caps


def assert_no_room(api: Api, path: str, limit: str, maximum: int) -> None:
    reply = try_to_open(api, path)
    detail = assert_error(reply, 429, "throttled")
    assert (detail["limit"], detail["max"]) == (limit, maximum)
    assert int(reply.headers["Retry-After"]) >= 1


def test_no_more_sessions_than_the_cap(server: StartServer) -> None:
    api = server(TOPICS_MAX_WATCH_SESSIONS="2").api
    Topic(api, "a").fill(1)
    assert_error(api.post("/v0/watch", {"topics": {"absent": {}}}), 404, "topic_not_found")  # takes no slot
    paths = [create(api, {"a": {}})["stream_url"] for _ in range(2)]
    reply = api.post("/v0/watch", {"topics": {"a": {}}})
    detail = assert_error(reply, 429, "throttled")
    assert (detail["limit"], detail["max"]) == ("max_watch_sessions", 2)
    assert int(reply.headers["Retry-After"]) >= 1
    for path in paths:
        with streaming(api, path) as stream:
            assert stream.record().seqs == [1]


def test_no_more_topics_in_a_session_than_the_cap(server: StartServer) -> None:
    api = server(TOPICS_MAX_WATCH_TOPICS="2").api
    for name in ["a", "b", "c"]:
        Topic(api, name).configure()
    create(api, {"a": {}, "b": {}})
    reply = api.post("/v0/watch", {"topics": {"a": {}, "b": {}, "c": {}}})
    assert_error(reply, 400, "invalid_request", "topics")


@pytest.fixture(scope="module")
def one_stream(server: StartServer) -> Api:
    """Takes one live connection at a time, and one request of a key."""
    api = server(
        TOPICS_MAX_SSE_CONNECTIONS="1",
        TOPICS_MAX_INFLIGHT_PER_KEY="1",
        TOPICS_API_KEYS="root-secret",
    ).api.with_key("root-secret")
    Topic(api, "a").fill(1)
    return api


def test_no_more_streams_than_the_cap(one_stream: Api) -> None:
    paths = [create(one_stream, {"a": {}})["stream_url"] for _ in range(2)]
    with streaming(one_stream, paths[0]):
        assert_no_room(one_stream, paths[1], "max_sse_connections", 1)
    eventually(lambda: open_connections(one_stream) == 0)
    with streaming(one_stream, paths[1]) as stream:
        assert stream.record().seqs == [1]
    eventually(lambda: open_connections(one_stream) == 0)


def test_an_open_stream_is_no_request_in_flight(one_stream: Api) -> None:
    with watching(one_stream, {"a": {}}):
        assert Topic(one_stream, "a").state()["head_seq"] == 1
    eventually(lambda: open_connections(one_stream) == 0)


def test_head_keeps_no_slot(one_stream: Api) -> None:
    path = create(one_stream, {"a": {}})["stream_url"]
    for _ in range(3):
        assert one_stream.request("HEAD", path, headers=SSE_ACCEPT).status == 200
    assert open_connections(one_stream) == 0


def test_a_refused_stream_keeps_no_slot(one_stream: Api) -> None:
    path = create(one_stream, {"a": {}})["stream_url"]
    assert_error(try_to_open(one_stream, f"/v0/watch/{UNKNOWN_WID}"), 404, "not_found")
    assert_error(try_to_open(one_stream, path, {"Accept": "text/html"}), 406, "not_acceptable")
    assert_error(try_to_open(one_stream.with_key(None), path), 401, "unauthorized")
    assert open_connections(one_stream) == 0


def test_a_connection_that_is_torn_down_gives_its_slot_back(one_stream: Api) -> None:
    path = create(one_stream, {"a": {}})["stream_url"]
    head = f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer root-secret\r\n\r\n".encode()
    for _ in range(3):
        with torn(one_stream, head):
            assert open_connections(one_stream) == 1
        eventually(lambda: open_connections(one_stream) == 0)


def test_no_more_streams_of_one_key_than_its_cap(server: StartServer) -> None:
    api = server(TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="1", TOPICS_API_KEYS="one-secret,two-secret").api
    one, two = api.with_key("one-secret"), api.with_key("two-secret")
    Topic(one, "a").fill(1)
    paths = [create(one, {"a": {}})["stream_url"] for _ in range(2)]
    with streaming(one, paths[0]):
        assert_no_room(one, paths[1], "max_sse_connections_per_key", 1)
        with watching(two, {"a": {}}) as stream:
            assert stream.record().seqs == [1]
    eventually(lambda: open_connections(one) == 0)
    with streaming(one, paths[1]) as stream:
        assert stream.record().seqs == [1]


def test_without_keys_there_is_no_cap_for_each(server: StartServer) -> None:
    api = server(TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="1").api
    Topic(api, "a").fill(1)
    with watching(api, {"a": {}}), watching(api, {"a": {}}) as stream:
        assert stream.record().seqs == [1]
