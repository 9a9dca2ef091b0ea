"""The rules of HTTP: methods, media types, encodings, lengths, and what happens on a connection."""

import gzip
import zlib

import pytest

from conformance.client import JSON_TYPE, Api, Reply, Topic, assert_error, to_json
from conformance.conftest import StartServer
from conformance.process import ServerProcess

BODY = to_json({"records": [{"data": 1}]})
BODY_BYTES_MAX = 20_000
SIXTY_FOUR_MIB = 64 * 1024 * 1024


@pytest.fixture(scope="module")
def small(server: StartServer) -> ServerProcess:
    """A server that takes only small bodies."""
    return server(TOPICS_MAX_BODY_BYTES=str(BODY_BYTES_MAX))


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def body_of(size: int) -> bytes:
    """A write whose body has exactly this many bytes."""
    frame = to_json({"records": [{"data": ""}]})
    return frame.replace(b'""', b'"' + b"x" * (size - len(frame)) + b'"')


# Media types


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "APPLICATION/JSON",
        "Application/Json ; x=y",
    ],
)
def test_json_is_accepted_with_any_parameters_and_case(topic: Topic, content_type: str) -> None:
    reply = topic.api.request("POST", topic.path, body=BODY, headers={"Content-Type": content_type})
    assert reply.status == 201


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": ""},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/jsonx"},
        {"Content-Type": "application/json-patch+json"},
        {"Content-Type": "text/json"},
        {"Content-Type": "json"},
    ],
)
@pytest.mark.parametrize(("method", "suffix"), [("PUT", ""), ("POST", ""), ("POST", "/diff"), ("POST", "/delete")])
def test_a_body_of_another_media_type_is_refused(
    topic: Topic, method: str, suffix: str, headers: dict[str, str]
) -> None:
    reply = topic.api.request(method, topic.path + suffix, body=BODY, headers=headers)
    assert_error(reply, 415, "unsupported_media_type")
    assert not topic.exists()


def test_a_request_without_a_body_needs_no_media_type(topic: Topic) -> None:
    assert topic.api.request("PUT", topic.path).status == 201
    assert topic.api.request("POST", f"{topic.path}/diff").status == 200


@pytest.mark.parametrize("path", ["/v0/topics", "/v0/health", "/v0/no-such-path"])
def test_replies_are_json(api: Api, path: str) -> None:
    assert api.get(path).media_type == "application/json"


# Paths and methods


@pytest.mark.parametrize(
    "path",
    [
        "/v0",
        "/v0/no-such-path",
        "/v1/topics",
        "/v0/topics/a/no-such-verb",
        "/v0/topics/a/diff/b",
        "/topics",
        "/V0/topics",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_an_unknown_path_is_404(api: Api, method: str, path: str) -> None:
    assert_error(api.request(method, path), 404, "not_found")


ALLOWED = [
    ("/v0/topics", {"GET"}),
    ("/v0/topics/some-topic", {"PUT", "GET", "DELETE", "POST"}),
    ("/v0/topics/some-topic/diff", {"POST"}),
    ("/v0/topics/some-topic/delete", {"POST"}),
    ("/v0/health", {"GET"}),
    ("/healthz", {"GET"}),
    ("/v0/ready", {"GET"}),
    ("/readyz", {"GET"}),
    ("/v0/metrics", {"GET"}),
    ("/v0/openapi.json", {"GET"}),
]


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        (path, method, allowed)
        for path, allowed in ALLOWED
        for method in ["GET", "PUT", "POST", "DELETE", "PATCH"]
        if method not in allowed
    ],
)
def test_a_wrong_method_is_405_and_says_which_are_right(api: Api, path: str, method: str, allowed: set[str]) -> None:
    reply = api.request(method, path)
    assert_error(reply, 405, "method_not_allowed")
    named = {name.strip() for name in reply.headers["Allow"].split(",")}
    assert named - {"HEAD", "OPTIONS"} == allowed


@pytest.mark.parametrize("path", ["/v0/topics", "/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/metrics"])
def test_head_answers_like_get_without_a_body(api: Api, path: str) -> None:
    get, head = api.get(path), api.request("HEAD", path)
    assert (head.status, head.media_type, head.body) == (get.status, get.media_type, b"")


def test_head_of_a_topic_tells_whether_it_exists(topic: Topic) -> None:
    assert topic.api.request("HEAD", topic.path).status == 404
    topic.configure()
    assert topic.api.request("HEAD", topic.path).status == 200


def test_a_head_reply_sends_no_bytes_of_a_body(api: Api) -> None:
    with api.connection() as connection:
        connection.send(connection.head("HEAD /v0/health") + connection.head("GET /v0/health"))
        assert connection.reply(to_head=True).status == 200
        assert connection.reply().json["status"] == "ok"


def test_unknown_query_parameters_are_ignored(topic: Topic) -> None:
    topic.configure()
    assert topic.api.get(f"{topic.path}?no=such&parameter").status == 200


def test_an_absolute_request_target_is_understood(api: Api) -> None:
    with api.connection() as connection:
        connection.send(connection.head("GET http://conformance/v0/health"))
        assert connection.reply().json["status"] == "ok"


# Content encodings


def gzip_request(topic: Topic, body: bytes, encoding: str = "gzip") -> Reply:
    headers = {**JSON_TYPE, "Content-Encoding": encoding}
    return topic.api.request("POST", topic.path, body=body, headers=headers)


def test_a_gzip_body_is_unpacked(topic: Topic) -> None:
    assert gzip_request(topic, gzip.compress(BODY)).status == 201
    assert topic.diff()["records"][0]["data"] == 1


def test_the_name_of_an_encoding_has_no_case(topic: Topic) -> None:
    assert gzip_request(topic, gzip.compress(BODY), "GZIP").status == 201


def test_the_identity_encoding_is_no_encoding(topic: Topic) -> None:
    assert gzip_request(topic, BODY, "identity").status == 201


@pytest.mark.parametrize(
    "body",
    [BODY, gzip.compress(BODY)[:-9], gzip.compress(BODY)[:-4] + b"\0\0\0\0", b"\x1f\x8b", zlib.compress(BODY)],
    ids=["plain", "truncated", "wrong length", "only a magic number", "zlib"],
)
def test_a_body_that_is_no_gzip_is_refused(topic: Topic, body: bytes) -> None:
    assert_error(gzip_request(topic, body), 400, "invalid_request")
    assert not topic.exists()


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd", "compress", "gzip, br", "nonsense"])
def test_another_encoding_is_refused(topic: Topic, encoding: str) -> None:
    assert_error(gzip_request(topic, BODY, encoding), 415, "unsupported_media_type")
    assert not topic.exists()


def test_a_large_reply_is_compressed_when_asked_for(topic: Topic) -> None:
    topic.write({"data": "x" * 100_000})
    plain = topic.api.request("POST", f"{topic.path}/diff")
    packed = topic.api.request("POST", f"{topic.path}/diff", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.body) < len(plain.body)
    assert b"x" * 100_000 in gzip.decompress(packed.body)


@pytest.mark.parametrize("accepted", ["identity", "br", "gzip;q=0", "*;q=0"])
def test_a_reply_is_not_compressed_unless_asked_for(topic: Topic, accepted: str) -> None:
    topic.write({"data": "x" * 100_000})
    reply = topic.api.request("POST", f"{topic.path}/diff", headers={"Accept-Encoding": accepted})
    assert "Content-Encoding" not in reply.headers
    assert b"x" * 100_000 in reply.body


# Lengths


def test_a_body_of_the_largest_size_is_accepted(small: ServerProcess) -> None:
    assert small.api.post_bytes("/v0/topics/largest", body_of(BODY_BYTES_MAX)).status == 201


def test_a_body_one_byte_larger_is_refused(small: ServerProcess) -> None:
    reply = small.api.post_bytes("/v0/topics/too-large", body_of(BODY_BYTES_MAX + 1))
    assert_error(reply, 413, "payload_too_large")
    assert small.api.get("/v0/topics/too-large").status == 404


def test_a_chunked_body_that_grows_too_large_is_refused(small: ServerProcess) -> None:
    with small.api.connection() as connection:
        head = connection.head("POST /v0/topics/chunks", "Content-Type: application/json", "Transfer-Encoding: chunked")
        connection.send(head + chunked(body_of(BODY_BYTES_MAX + 1), 1000))
        assert_error(connection.reply(), 413, "payload_too_large")
    assert small.api.get("/v0/topics/chunks").status == 404


def test_the_limit_counts_what_gzip_unpacks(small: ServerProcess) -> None:
    packed = gzip.compress(body_of(BODY_BYTES_MAX + 1))
    assert len(packed) < BODY_BYTES_MAX
    headers = {**JSON_TYPE, "Content-Encoding": "gzip"}
    reply = small.api.request("POST", "/v0/topics/bomb", body=packed, headers=headers)
    assert_error(reply, 413, "payload_too_large")
    assert small.api.get("/v0/topics/bomb").status == 404


def test_an_announced_length_beyond_64_mib_is_refused_before_it_is_sent(topic: Topic) -> None:
    with topic.api.connection() as connection:
        length = f"Content-Length: {SIXTY_FOUR_MIB + 1}"
        connection.send(connection.head(f"POST {topic.path}", "Content-Type: application/json", length))
        assert_error(connection.reply(), 413, "payload_too_large")
    assert not topic.exists()


def test_a_too_long_target_is_refused(api: Api) -> None:
    assert_error(api.get("/v0/topics?prefix=" + "a" * 20_000), 414, "uri_too_long")


def test_too_large_headers_are_refused(api: Api) -> None:
    with api.connection() as connection:
        connection.send(connection.head("GET /v0/health", f"X-Large: {'x' * 60_000}"))
        assert_error(connection.reply(), 431, "headers_too_large")


# Bodies in pieces


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_chunked_body_is_put_together(topic: Topic, size: int) -> None:
    with topic.api.connection() as connection:
        head = connection.head(f"POST {topic.path}", "Content-Type: application/json", "Transfer-Encoding: chunked")
        connection.send(head + chunked(BODY, size))
        assert connection.reply().status == 201
    assert topic.seqs() == [1]


def test_an_empty_chunked_body_is_no_body(topic: Topic) -> None:
    with topic.api.connection() as connection:
        connection.send(connection.head(f"PUT {topic.path}", "Transfer-Encoding: chunked") + chunked(b"", 1))
        assert connection.reply().status == 201


def test_a_request_may_arrive_byte_by_byte(topic: Topic) -> None:
    with topic.api.connection() as connection:
        for byte in connection.json_request(f"POST {topic.path}", BODY):
            connection.send(bytes([byte]))
        assert connection.reply().status == 201


def test_a_client_that_hangs_up_in_the_middle_of_a_body_writes_nothing(topic: Topic) -> None:
    topic.configure()
    with topic.api.connection() as connection:
        connection.send(connection.json_request(f"POST {topic.path}", BODY)[:-1])
    assert topic.state()["head_seq"] == 0
    assert topic.fill(1)["seqs"] == [1]


def test_expect_100_continue_is_answered(topic: Topic) -> None:
    with topic.api.connection() as connection:
        length = f"Content-Length: {len(BODY)}"
        connection.send(
            connection.head(f"POST {topic.path}", "Content-Type: application/json", length, "Expect: 100-continue")
        )
        assert connection.reply().status == 100
        connection.send(BODY)
        assert connection.reply().status == 201


def test_expect_100_continue_is_not_answered_with_100_when_the_body_is_too_large(topic: Topic) -> None:
    with topic.api.connection() as connection:
        length = f"Content-Length: {SIXTY_FOUR_MIB + 1}"
        connection.send(
            connection.head(f"POST {topic.path}", "Content-Type: application/json", length, "Expect: 100-continue")
        )
        assert_error(connection.reply(), 413, "payload_too_large")


# Connections


def test_a_connection_serves_many_requests(topic: Topic) -> None:
    with topic.api.connection() as connection:
        for expected in [1, 2, 3]:
            connection.send(connection.json_request(f"POST {topic.path}", BODY))
            assert connection.reply().json["seqs"] == [expected]


def test_a_connection_survives_a_refused_request(topic: Topic) -> None:
    with topic.api.connection() as connection:
        connection.send(connection.json_request(f"POST {topic.path}", b"{"))
        assert_error(connection.reply(), 400, "invalid_request")
        connection.send(connection.json_request(f"POST {topic.path}", BODY))
        assert connection.reply().status == 201


def test_pipelined_requests_are_answered_in_order(topic: Topic) -> None:
    topic.configure()
    with topic.api.connection() as connection:
        connection.send(connection.json_request(f"POST {topic.path}", BODY) * 20)
        assert [connection.reply().json["seqs"] for _ in range(20)] == [[seq] for seq in range(1, 21)]


def test_a_slow_reply_is_not_overtaken_by_a_pipelined_one(topic: Topic) -> None:
    topic.configure()
    with topic.api.connection() as connection:
        waiting = connection.json_request(f"POST {topic.path}/diff", b'{"wait_ms":100}')
        connection.send(waiting + connection.head("GET /v0/health"))
        assert connection.reply().json["records"] == []
        assert connection.reply().json["status"] == "ok"


def test_a_connection_is_closed_when_the_client_asks_for_it(api: Api) -> None:
    with api.connection() as connection:
        connection.send(connection.head("GET /v0/health", "Connection: close"))
        reply = connection.reply()
        assert (reply.status, reply.headers.get("Connection", "").lower()) == (200, "close")
        assert connection.is_closed_by_server()


def test_http_1_0_is_answered_and_closed(api: Api) -> None:
    with api.connection() as connection:
        connection.send(b"GET /v0/health HTTP/1.0\r\n" + connection.authorization + b"\r\n")
        assert connection.reply().status == 200
        assert connection.is_closed_by_server()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /v0/health\r\n\r\n",
        b"GET /v0/health HTTP/9.9\r\nHost: a\r\n\r\n",
        b"GET /v0/health HTTP/1.1\r\n\r\n",
        b"GET /v0/health HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        b"GET /v0/health HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v0/topics/a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
    ids=[
        "no request line",
        "a TLS hello",
        "no version",
        "an unknown version",
        "no Host",
        "no colon",
        "a space in a name",
        "a negative length",
        "a length that is no number",
        "two lengths",
        "length and chunks",
        "a chunk size that is no number",
        "an unknown transfer encoding",
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_closed(api: Api, request_bytes: bytes) -> None:
    with api.connection() as connection:
        connection.send(request_bytes.replace(b"Host: a\r\n", b"Host: a\r\n" + connection.authorization))
        assert connection.reply().status in {400, 501, 505}
        assert connection.is_closed_by_server()


def test_a_refusal_on_one_connection_leaves_the_others_alone(api: Api) -> None:
    with api.connection() as good, api.connection() as bad:
        bad.send(b"nonsense\r\n\r\n")
        assert bad.reply().status == 400
        good.send(good.head("GET /v0/health"))
        assert good.reply().json["status"] == "ok"
