"""A small HTTP client that shows replies as they are: status, headers, raw bytes, and JSON only when asked.

Every request has its own connection, so no test depends on what another left in a socket.
"""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlsplit

TIMEOUT_S = 60.0  # a disk that others use may keep a write waiting for long
TOO_LATE = "the condition did not come true in time"
DEADLINE_S = 60.0  # a checkpoint, which moves segments, may be half a minute away
POLL_S = 0.005

JSON_TYPE = {"Content-Type": "application/json"}
UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        assert self.media_type == "application/json", (self.media_type, self.body[:200])
        value = json.loads(self.body)
        assert isinstance(value, dict), value
        return value

    @property
    def media_type(self) -> str:
        return (self.headers.get("Content-Type") or "").partition(";")[0].strip().lower()


class Api:
    """One server, seen with one key (or none)."""

    def __init__(self, host: str, port: int, key: str | None = None) -> None:
        self.host = host
        self.port = port
        self.key = key

    @classmethod
    def at(cls, url: str, key: str | None = None) -> "Api":
        parts = urlsplit(url)
        assert parts.hostname is not None, url
        return cls(parts.hostname, parts.port or 80, key)

    def with_key(self, key: str | None) -> "Api":
        return Api(self.host, self.port, key)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self.request("GET", path, headers=headers)

    def delete(self, path: str) -> Reply:
        return self.request("DELETE", path)

    def put(self, path: str, json: Any = UNSET) -> Reply:
        return self.request("PUT", path, json)

    def post(self, path: str, json: Any = UNSET) -> Reply:
        return self.request("POST", path, json)

    def post_bytes(self, path: str, body: bytes) -> Reply:
        """Sends exactly these bytes as a JSON body."""
        return self.request("POST", path, body=body, headers=JSON_TYPE)

    def put_bytes(self, path: str, body: bytes) -> Reply:
        return self.request("PUT", path, body=body, headers=JSON_TYPE)

    def request(
        self,
        method: str,
        path: str,
        json: Any = UNSET,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = dict(headers or {})
        if json is not UNSET:
            body = to_json(json)
            sent.setdefault("Content-Type", "application/json")
        if self.key is not None:
            sent.setdefault("Authorization", f"Bearer {self.key}")
        with contextlib.closing(http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)) as connection:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())

    @contextlib.contextmanager
    def connection(self) -> Iterator["Connection"]:
        """A bare connection, for what an HTTP library would not let a test send."""
        with socket.create_connection((self.host, self.port), timeout=TIMEOUT_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with sock.makefile("rb") as stream:
                yield Connection(sock, stream, self.key)


class Connection:
    """Bytes out, replies in."""

    def __init__(self, sock: socket.socket, stream: BinaryIO, key: str | None) -> None:
        self.sock = sock
        self.stream = stream
        self.authorization = b"" if key is None else b"Authorization: Bearer " + key.encode() + b"\r\n"

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def head(self, request_line: str, *headers: str) -> bytes:
        """A request head as bytes, with Host and this connection's key."""
        lines = [f"{request_line} HTTP/1.1", "Host: conformance", *headers]
        return "".join(f"{line}\r\n" for line in lines).encode() + self.authorization + b"\r\n"

    def json_request(self, request_line: str, body: bytes) -> bytes:
        return self.head(request_line, "Content-Type: application/json", f"Content-Length: {len(body)}") + body

    def reply(self, *, to_head: bool = False) -> Reply:
        """Reads one response; `to_head` says that it answers a HEAD request and so has no body."""
        status_line = self.stream.readline()
        assert status_line.startswith(b"HTTP/1.1 "), status_line
        status = int(status_line.split()[1])
        headers = http.client.parse_headers(self.stream)
        if to_head or status < 200 or status in {204, 304}:
            return Reply(status, headers, b"")
        assert headers.get("Content-Length") is not None, headers.items()
        return Reply(status, headers, self.stream.read(int(headers["Content-Length"])))

    def is_closed_by_server(self) -> bool:
        """Waits for the server's end of stream. Unread bytes count as still open."""
        try:
            return self.stream.read(1) == b""
        except ConnectionResetError:
            return True


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic name with the calls most tests need; each of them asserts success."""

    api: Api
    name: str

    @property
    def path(self) -> str:
        return f"/v0/topics/{self.name}"

    def configure(self, **config: Any) -> dict[str, Any]:
        return success(self.api.put(self.path, config))

    def write(self, *records: Mapping[str, Any], **body: Any) -> dict[str, Any]:
        return success(self.api.post(self.path, {"records": list(records), **body}))

    def fill(self, count: int) -> dict[str, Any]:
        """Appends `count` records whose data is their position."""
        return self.write(*({"data": position} for position in range(count)))

    def diff(self, **body: Any) -> dict[str, Any]:
        return success(self.api.post(f"{self.path}/diff", body))

    def seqs(self, **body: Any) -> list[int]:
        return [record["$seq"] for record in self.diff(**body)["records"]]

    def delete_records(self, **body: Any) -> dict[str, Any]:
        return success(self.api.post(f"{self.path}/delete", body))

    def state(self) -> dict[str, Any]:
        """The state without touching the recency clock."""
        return success(self.api.get(f"{self.path}?touch=false"))

    def exists(self) -> bool:
        return self.api.get(f"{self.path}?touch=false").status == 200

    def remove(self) -> dict[str, Any]:
        return success(self.api.delete(self.path))


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def success(reply: Reply) -> dict[str, Any]:
    assert reply.status in {200, 201}, (reply.status, reply.body[:500])
    assert "error" not in reply.json
    return reply.json


def assert_error(reply: Reply, status: int, code: str, mentions: str = "") -> dict[str, Any]:
    """Checks the error envelope and returns its detail."""
    assert reply.status == status, reply.body[:500]
    error = reply.json["error"]
    assert error["code"] == code, error
    assert isinstance(error["message"], str), error
    assert error["message"], error
    assert mentions in error["message"], error
    detail = error.get("detail", {})
    assert isinstance(detail, dict), error
    return detail


def eventually(condition: Callable[[], bool]) -> None:
    """Polls until `condition` holds; fails the test after a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, TOO_LATE
        time.sleep(POLL_S)
